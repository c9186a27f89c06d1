"""Take the frames of a run: each has its effect once, however often it is sent, and on whichever replica."""

from parley.clock import Clock, now_ms
from parley.core.access import Principal
from parley.core.commands import Fail
from parley.core.frames import Frame, check_timestamp, message_of
from parley.core.runs import Run
from parley.engine.commands import Outcome
from parley.engine.exchange import Exchange
from parley.engine.ports import LASTING, Key, Record, Records
from parley.errors import KeyReused, RunEnded

KIND = "frame"


class Frames:
    def __init__(self, exchange: Exchange, records: Records, clock: Clock = now_ms) -> None:
        self._exchange = exchange
        self._records = records
        self._clock = clock

    async def take(self, run: Run, principal: Principal, frame: Frame) -> bool:
        """Durable when it returns; False when the same frame had been taken before."""
        check_timestamp(frame.occurred_at, "occurred_at")
        key = Key(f"{LASTING}{run.id}", frame.id, frame.digest)
        try:
            outcome = await self._apply(run, principal, frame, key)
        except RunEnded:
            return await self._keep(run, frame)
        if outcome.replayed or outcome.events:
            return not outcome.replayed
        return await self._keep(run, frame)

    async def _apply(self, run: Run, principal: Principal, frame: Frame, key: Key) -> Outcome:
        match frame.effect:
            case "cancel":
                return await self._exchange.cancel(run.id, principal, reason=frame.said("reason"), key=key)
            case "finish":
                return await self._exchange.close_run(run, principal, key)
            case "fail":
                return await self._exchange.fail(run, principal, _failure(frame), key)
            case "input":
                return await self._exchange.give(run, principal, message_of(frame), key)

    async def _keep(self, run: Run, frame: Frame) -> bool:
        """A run that has ended still accepts frames; they change nothing, and are known when they come again."""
        record = Record(KIND, run.id, frame.id, frame.digest, self._clock())
        if await self._records.add(record):
            return True
        stored = await self._records.get(KIND, run.id, frame.id)
        if stored is not None and stored.body != frame.digest:
            raise KeyReused("This frame was sent before with another payload.")
        return False


def _failure(frame: Frame) -> Fail:
    code = frame.said("reason_class") or "execution_failed"
    return Fail(code, frame.said("reason") or frame.said("message") or "The caller says that it failed.")
