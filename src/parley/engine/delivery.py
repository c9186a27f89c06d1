"""One hook's turn: tell its receiver what it has not been told yet, in order, and write down how far that went."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock
from parley.core.events import ENDINGS, Event
from parley.core.runs import Run
from parley.engine.hooks import Ended, Entry, Hook, Hooks, Kept
from parley.engine.ports import Head
from parley.errors import ParleyError
from parley.ids import RunId
from parley.telemetry import tell

BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
MAX_ATTEMPTS = 12
"""Four hours and more, with these pauses."""
MAX_PAUSE_S = 3600.0
TURN_S = 2.0
"""How long a hook may go on before others with the same receiver get their turn."""
SAVE_S = 0.25
"""How often progress is written down, and so how much of it may be told again after a crash."""
LOOK_S = (5.0, 3600.0)
"""A quiet hook is looked at again after as long as it has been quiet, within these bounds."""
PAGE = 100


class Verdict(Struct, frozen=True):
    """What came of one post. `silent`: the event is none that a receiver is told. `refused`: to be tried again, before
    anything later. `rejected`: the receiver will not take this update; the next one may be sent. `gone`: no more."""

    how: Literal["delivered", "silent", "refused", "rejected", "gone"]
    reason: str = ""
    after_s: float = 0.0
    """How long the receiver asks to be left alone."""


class Log(Protocol):
    async def head(self, run: RunId) -> Head | None: ...

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]: ...


Deliver = Callable[[Hook, Run, Event], Awaitable[Verdict]]


class Delivery:
    def __init__(
        self,
        hooks: Hooks,
        log: Log,
        deliver: Deliver,
        leads: Callable[[], bool],
        clock: Clock,
        backoff_s: tuple[float, ...] = BACKOFF_S,
    ) -> None:
        self._hooks = hooks
        self._log = log
        self._deliver = deliver
        self._leads = leads
        self._clock = clock
        self._backoff_s = backoff_s

    async def turn(self, entry: Entry) -> Entry | None:
        """The hook as it is left, due now when there is more to tell; None when somebody else changed it meanwhile."""
        progress = _Progress(self._hooks, entry)
        try:
            return await self._tell(progress)
        except asyncio.CancelledError:
            await progress.save(entry.record.due)
            raise

    async def _tell(self, progress: "_Progress") -> Entry | None:
        run_id = RunId(progress.kept.hook.task)
        until = time.monotonic() + TURN_S
        while self._leads() and time.monotonic() < until:
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
                if time.monotonic() >= until or not self._leads():
                    break
        # Who no longer leads, and has told nothing, leaves it as it is: the new leader is at it.
        return await progress.save(self._clock()) if progress.kept != progress.entry.kept else progress.entry

    async def _post(self, hook: Hook, run: Run, event: Event) -> Verdict:
        """Also what cannot be posted at all is a post in vain: it must not be tried for ever."""
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
            )  # fmt: skip
        return verdict

    async def _attempt_completion(self, progress: "_Progress", head: Head | None) -> Entry | None:
        """Post the end of a run once, to a receiver that was given up before; until then look at the run now and then.
        What the receiver has been told stays as it is, so that a redrive tells everything else."""
        if head is not None and not head.run.ended:
            return await progress.save(self._clock() + int(LOOK_S[1] * 1000))
        if head is not None and (left := head.run.version - head.floor):
            events = await self._log.read(head.run.id, head.run.version - min(left, PAGE), PAGE)
            if end := next((event for event in reversed(events) if event.type in ENDINGS), None):
                await self._post(progress.kept.hook, head.run, end)
        return await progress.save(None)

    async def _rest(self, progress: "_Progress") -> Entry | None:
        now = self._clock()
        since = now if progress.grown else progress.entry.record.at
        quiet_s = min(max((now - since) / 1000, LOOK_S[0]), LOOK_S[1])
        return await progress.save(now + int(quiet_s * random.uniform(1000, 1500)))

    async def _end(
        self, progress: "_Progress", how: Ended, reason: str = "", due: int | None = None
    ) -> Entry | None:  # fmt: skip
        progress.kept = replace(progress.kept, ended=how, reason=reason or progress.kept.reason)
        left = await progress.save(due)
        if how != "finished" and left is not None:
            hook = left.hook
            tell(f"push.{how}", run=hook.task, hook=hook.id, receiver=hook.receiver, reason=left.kept.reason)
        return left

    async def _put_off(self, progress: "_Progress", verdict: Verdict, *, last: bool) -> Entry | None:
        """Try again later, or give up. `last`: the refused update is the end of the run."""
        hook, attempts = progress.kept.hook, progress.kept.attempts + 1
        tell(
            "push.refused", run=hook.task, hook=hook.id, receiver=hook.receiver, attempts=attempts,
            reason=verdict.reason,
        )  # fmt: skip
        asked_s = min(verdict.after_s, MAX_PAUSE_S)
        progress.kept = replace(progress.kept, attempts=attempts, reason=verdict.reason, asked_s=asked_s)
        if attempts >= MAX_ATTEMPTS:
            return await self._end(progress, "dead", due=None if last else self._clock())
        # Longer each time, and never for all at the same moment.
        pause_s = max(self._backoff(attempts) * random.uniform(0.5, 1.0), asked_s)
        return await progress.save(self._clock() + int(1000 * pause_s))

    def waits(self, entry: Entry) -> bool:
        """Whether it is to be left alone for now. One that is put off for longer than anybody would was put off by a
        clock that was wrong, or by one that was right before ours was."""
        left_ms = (entry.record.due or 0) - self._clock()
        return entry.state == "retrying" and 0 < left_ms <= 1000 * self._longest_s(entry.kept)

    def _longest_s(self, kept: Kept) -> float:
        return max(self._backoff(kept.attempts), kept.asked_s)

    def _backoff(self, attempts: int) -> float:
        return self._backoff_s[min(attempts, len(self._backoff_s)) - 1]


def _passed(kept: Kept, event: Event, verdict: Verdict) -> Kept:
    """Progress past an event that was delivered, not to be told, or rejected."""
    kept = replace(kept, cursor=event.seq, attempts=0, asked_s=0.0, reason="" if kept.attempts else kept.reason)
    if verdict.how != "rejected":
        return kept
    return replace(kept, rejected=kept.rejected + 1, reason=verdict.reason)


class _Progress:
    """How far a turn has come, and what of it is written down."""

    def __init__(self, hooks: Hooks, entry: Entry) -> None:
        self._hooks = hooks
        self.entry = entry
        self.kept: Kept = entry.kept
        self._began_at = entry.kept.cursor
        self._saved_at = time.monotonic()

    @property
    def grown(self) -> bool:
        return self.kept.cursor != self._began_at

    @property
    def unsaved_s(self) -> float:
        return time.monotonic() - self._saved_at

    async def save(self, due: int | None) -> Entry | None:
        saved = await self._hooks.save(self.entry, self.kept, due)
        if saved is not None:
            self.entry = saved
            self._saved_at = time.monotonic()
        return saved
