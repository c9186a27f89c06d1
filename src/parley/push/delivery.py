"""Delivery for one hook: posts new updates to its receiver in order, and stores the progress."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, Monotonic
from parley.errors import ParleyError
from parley.ids import RunId
from parley.push.hooks import Ended, Hook, HookEntry, Hooks, StoredHook
from parley.runs.rules.events import ENDINGS, Event
from parley.runs.rules.state import Run
from parley.runs.store import Head
from parley.telemetry import tell

BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
MAX_ATTEMPTS = 12
"""More than four hours, with these pauses."""
MAX_PAUSE_S = 3600.0
TURN_S = 2.0
"""Seconds for which one hook may deliver before other hooks with the same receiver get their turn."""
SAVE_S = 0.25
"""Seconds between two writes of the progress, and so the period whose updates may be posted again after a crash."""
LOOK_S = (5.0, 3600.0)
"""Bounds in seconds: an idle hook is checked again after as long as it has been idle."""
PAGE = 100


class Verdict(Struct, frozen=True):
    """The outcome of one post. `silent`: the event is not posted to receivers. `refused`: retry before posting anything
    later. `rejected`: the receiver does not accept this update; the next one may be posted. `gone`: stop posting."""

    how: Literal["delivered", "silent", "refused", "rejected", "gone"]
    reason: str = ""
    after_s: float = 0.0
    """Seconds that the receiver asks to wait."""


class LogReader(Protocol):
    async def head(self, run: RunId) -> Head | None: ...

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]: ...


Deliver = Callable[[Hook, Run, Event], Awaitable[Verdict]]
Variation = Callable[[float, float], float]
"""Returns a random number between two bounds."""


# Why: docs/decisions/push.md#save-progress-about-four-times-a-second
class HookDelivery:
    def __init__(
        self,
        hooks: Hooks,
        log: LogReader,
        deliver: Deliver,
        leads: Callable[[], bool],
        clock: Clock,
        backoff_s: tuple[float, ...] = BACKOFF_S,
        monotonic: Monotonic = time.monotonic,
        variation: Variation = random.uniform,
    ) -> None:
        self._hooks = hooks
        self._log = log
        self._deliver = deliver
        self._leads = leads
        self._clock = clock
        self._backoff_s = backoff_s
        self._monotonic = monotonic
        self._variation = variation

    async def turn(self, entry: HookEntry) -> HookEntry | None:
        """Deliver for one hook. Return the hook as stored, due now if there is more to deliver; None when another
        writer changed it meanwhile."""
        progress = _Progress(self._hooks, entry, self._monotonic)
        try:
            return await self._tell(progress)
        except asyncio.CancelledError:
            await progress.save(entry.record.due)
            raise

    async def _tell(self, progress: "_Progress") -> HookEntry | None:
        run_id = RunId(progress.kept.hook.task)
        until = self._monotonic() + TURN_S
        while self._leads() and self._monotonic() < until:
            head = await self._log.head(run_id)
            if progress.kept.ended == "dead":
                return await self._attempt_completion(progress, head)
            if head is None or progress.kept.cursor < head.floor:
                return await self._end(progress, "finished")
            if progress.kept.cursor >= head.run.version:
                return await (self._end(progress, "finished") if head.run.ended else self._rest(progress))
            for event in await self._log.read(run_id, progress.kept.cursor, PAGE):
                if event.seq != progress.kept.cursor + 1:
                    break
                verdict = await self._post(progress.kept.hook, head.run, event)
                if verdict.how == "gone":
                    return await self._end(progress, "gone", verdict.reason)
                if verdict.how == "refused":
                    last = head.run.ended and event.seq == head.run.version
                    return await self._put_off(progress, verdict, last=last)
                progress.kept = _passed(progress.kept, event, verdict)
                if progress.unsaved_s > SAVE_S and await progress.save(self._clock()) is None:
                    return None
                if self._monotonic() >= until or not self._leads():
                    break
        # A replica that no longer leads and has delivered nothing leaves the record unchanged: the new leader works on
        # it.
        return await progress.save(self._clock()) if progress.kept != progress.entry.kept else progress.entry

    async def _post(self, hook: Hook, run: Run, event: Event) -> Verdict:
        """Post one event. An exception counts as a refused post, so that retries are limited in every case."""
        try:
            verdict = await self._deliver(hook, run, event)
        except ParleyError as error:
            return Verdict("refused", error.code)
        except Exception as error:  # noqa: BLE001 - a defect must not stop all others
            tell("push.broken", run=run.id, hook=hook.id, error=error)
            return Verdict("refused", type(error).__name__)
        if verdict.how == "delivered":
            tell("push.delivered", run=run.id, hook=hook.id, seq=event.seq, receiver=hook.receiver)
        elif verdict.how == "rejected":
            tell(
                "push.rejected", run=run.id, hook=hook.id, seq=event.seq, receiver=hook.receiver, reason=verdict.reason
            )
        return verdict

    async def _attempt_completion(self, progress: "_Progress", head: Head | None) -> HookEntry | None:
        """Post the end of a run once to a receiver that was given up; until the run ends, check it from time to time.
        The cursor stays unchanged, so that a redrive delivers everything else."""
        if head is not None and not head.run.ended:
            return await progress.save(self._clock() + int(LOOK_S[1] * 1000))
        if head is not None and (left := head.run.version - head.floor):
            events = await self._log.read(head.run.id, head.run.version - min(left, PAGE), PAGE)
            if end := next((event for event in reversed(events) if event.type in ENDINGS), None):
                await self._post(progress.kept.hook, head.run, end)
        return await progress.save(None)

    async def _rest(self, progress: "_Progress") -> HookEntry | None:
        now = self._clock()
        since = now if progress.grown else progress.entry.record.at
        quiet_s = min(max((now - since) / 1000, LOOK_S[0]), LOOK_S[1])
        return await progress.save(now + int(quiet_s * self._variation(1000, 1500)))

    async def _end(
        self, progress: "_Progress", how: Ended, reason: str = "", due: int | None = None
    ) -> HookEntry | None:
        progress.kept = replace(progress.kept, ended=how, reason=reason or progress.kept.reason)
        left = await progress.save(due)
        if how != "finished" and left is not None:
            hook = left.hook
            tell(f"push.{how}", run=hook.task, hook=hook.id, receiver=hook.receiver, reason=left.kept.reason)
        return left

    async def _put_off(self, progress: "_Progress", verdict: Verdict, *, last: bool) -> HookEntry | None:
        """Retry later, or give up. `last`: the refused update is the end of the run."""
        hook, attempts = progress.kept.hook, progress.kept.attempts + 1
        tell(
            "push.refused",
            run=hook.task,
            hook=hook.id,
            receiver=hook.receiver,
            attempts=attempts,
            reason=verdict.reason,
        )
        asked_s = min(verdict.after_s, MAX_PAUSE_S)
        progress.kept = replace(progress.kept, attempts=attempts, reason=verdict.reason, asked_s=asked_s)
        if attempts >= MAX_ATTEMPTS:
            return await self._end(progress, "dead", due=None if last else self._clock())
        # Longer each time, and with random variation, so that not all hooks retry at the same moment.
        pause_s = max(self._backoff(attempts) * self._variation(0.5, 1.0), asked_s)
        return await progress.save(self._clock() + int(1000 * pause_s))

    def waits(self, entry: HookEntry) -> bool:
        """Return whether the hook must wait for its next retry. A wait longer than any pause in use comes from a clock
        that was wrong, there or here, and is ignored."""
        left_ms = (entry.record.due or 0) - self._clock()
        return entry.state == "retrying" and 0 < left_ms <= 1000 * self._longest_s(entry.kept)

    def _longest_s(self, kept: StoredHook) -> float:
        return max(self._backoff(kept.attempts), kept.asked_s)

    def _backoff(self, attempts: int) -> float:
        return self._backoff_s[min(attempts, len(self._backoff_s)) - 1]


def _passed(kept: StoredHook, event: Event, verdict: Verdict) -> StoredHook:
    """Return the progress after an event that was delivered, skipped or rejected."""
    kept = replace(kept, cursor=event.seq, attempts=0, asked_s=0.0, reason="" if kept.attempts else kept.reason)
    if verdict.how != "rejected":
        return kept
    return replace(kept, rejected=kept.rejected + 1, reason=verdict.reason)


class _Progress:
    """The progress of a delivery, and the part of it that is stored."""

    def __init__(self, hooks: Hooks, entry: HookEntry, monotonic: Monotonic) -> None:
        self._hooks = hooks
        self._monotonic = monotonic
        self.entry = entry
        self.kept: StoredHook = entry.kept
        self._began_at = entry.kept.cursor
        self._saved_at = self._monotonic()

    @property
    def grown(self) -> bool:
        return self.kept.cursor != self._began_at

    @property
    def unsaved_s(self) -> float:
        return self._monotonic() - self._saved_at

    async def save(self, due: int | None) -> HookEntry | None:
        saved = await self._hooks.save(self.entry, self.kept, due)
        if saved is not None:
            self.entry = saved
            self._saved_at = self._monotonic()
        return saved
