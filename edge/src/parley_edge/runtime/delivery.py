"""Delivers a result to the platform: files first, then the result. Retries until the platform answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from parley_edge.errors import NotAccepted, Refused, Unreachable
from parley_edge.json_values import Json
from parley_edge.runtime.answers import Completed, Failed, Result, with_refs, write_failed
from parley_edge.runtime.backoff import Backoff
from parley_edge.runtime.jobs import Job, Tell
from parley_edge.runtime.platform import Platform

T = TypeVar("T")
Outcome = Literal["completed", "failed", "lost", "ended", "refused"]

RETRY_CAP_S = 5.0
FAULTS = 3
"""Number of tries to write an artifact when the platform answers 500; being unreachable does not count."""
_OVER: dict[str, Outcome] = {"lease_lost": "lost", "task_run_ended": "ended"}


class Delivery:
    def __init__(self, platform: Platform, tell: Tell) -> None:
        self._platform = platform
        self._tell = tell

    async def deliver(self, job: Job, result: Result) -> Outcome:
        """Deliver a result; retries until the platform accepts or refuses it."""
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
        """Write all files, then complete; if one fails, fail the task. Files written before stay on the platform."""
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
        """Complete the task. If the platform refuses the result, fail the task instead, or it would never end."""
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
    """The platform's reason for a refusal; for a fault only its status."""
    return error.message if isinstance(error, Refused) else f"the platform has a fault (status {error.status})."
