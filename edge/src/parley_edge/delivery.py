"""How a result reaches the platform: its files first, then its end; again and again until the platform has answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from parley_edge.answers import Completed, Failed, Result, with_refs, write_failed
from parley_edge.backoff import Backoff
from parley_edge.errors import NotAccepted, Refused, Unreachable
from parley_edge.jobs import Job, Tell
from parley_edge.platform import Platform
from parley_edge.shapes import Json

T = TypeVar("T")
Outcome = Literal["completed", "failed", "lost", "ended", "refused"]

RETRY_CAP_S = 5.0
FAULTS = 3
"""How often an artifact is tried that the platform has an inner fault with; to be away is no fault."""
_OVER: dict[str, Outcome] = {"lease_lost": "lost", "task_run_ended": "ended"}


class Delivery:
    def __init__(self, platform: Platform, tell: Tell) -> None:
        self._platform = platform
        self._tell = tell

    async def deliver(self, job: Job, result: Result) -> Outcome:
        """Until the platform has taken it, or has said that it wants it no more."""
        try:
            match result:
                case Completed(output, writes) if writes:
                    return await self._with_files(job, result)
                case Completed(output):
                    return await self._complete(job, output)
                case Failed():
                    return await self._fail(job, result)
        except NotAccepted:
            raise
        except Refused as refusal:
            if refusal.code not in _OVER:
                self._tell("delivery.refused", run=job.run, code=refusal.code, reason=refusal.message)
            return _OVER.get(refusal.code, "refused")

    async def _with_files(self, job: Job, result: Completed) -> Outcome:
        """All files, or a failure; those written before the one that failed stay where they are."""
        written: list[Json] = []
        for index, write in enumerate(result.writes):
            try:
                written.append(await self._write(job, index, write.request))
            except (Refused, Unreachable) as error:
                if isinstance(error, NotAccepted) or (isinstance(error, Refused) and error.code in _OVER):
                    raise
                self._tell("artifact.failed", run=job.run, filename=write.request["filename"], reason=error.message)
                return await self._fail(job, write_failed(write.request["filename"], _said(error)))
        return await self._complete(job, with_refs(result.output, written))

    async def _write(self, job: Job, index: int, request: Json) -> Json:
        return await self._answered(
            job, lambda: self._platform.write_artifact(job.run, job.lease, index, request), faults=FAULTS
        )

    async def _complete(self, job: Job, output: Json) -> Outcome:
        """A result that the platform will not have is a failure that says so, or the task would never end."""
        try:
            await self._answered(job, lambda: self._platform.complete(job.run, job.lease, output))
        except Refused as refusal:
            if isinstance(refusal, NotAccepted) or refusal.code in _OVER:
                raise
            self._tell("delivery.refused", run=job.run, code=refusal.code, reason=refusal.message)
            return await self._fail(
                job, Failed(f"The platform refused the result: {refusal.message}", "RESULT_REFUSED")
            )
        return "completed"

    async def _fail(self, job: Job, failed: Failed) -> Outcome:
        await self._answered(job, lambda: self._platform.fail(job.run, job.lease, failed.output))
        return "failed"

    async def _answered(self, job: Job, call: Callable[[], Awaitable[T]], faults: int | None = None) -> T:
        backoff = Backoff(RETRY_CAP_S)
        while True:
            try:
                return await call()
            except Unreachable as fault:
                if fault.status == 500 and faults is not None:
                    faults -= 1
                    if faults <= 0:
                        raise
                if backoff.tries == 0:
                    self._tell("delivery.waits", run=job.run, reason=fault.message)
                await asyncio.sleep(backoff.next(fault.retry_after_s))


def _said(error: Refused | Unreachable) -> str:
    """The platform's own words; of a fault only that there was one."""
    return error.message if isinstance(error, Refused) else f"the platform has a fault (status {error.status})."
