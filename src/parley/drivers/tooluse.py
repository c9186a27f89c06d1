"""The calls of a round, carried out; once, also when the turn is taken up again."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence

from parley.core.approvals import Approval
from parley.core.canonical import Fields
from parley.core.functions import Returned, Wanted
from parley.core.turns import Status
from parley.drivers.toolrounds import Call, Round, told
from parley.engine.turns import Turn
from parley.errors import ApprovalRequired, Invalid, KeyReused, NotFound

MAX_HELD = 1_000
PROGRESS_S = 1.0
"""How often a tool's progress is passed on."""
_LOST = "This call was broken off by a restart before it was carried out; make it again if it is still needed."


class Held:
    """Inputs with secrets in them: kept in memory, and only until they were used or others came."""

    def __init__(self) -> None:
        self.salt = secrets.token_hex(16)
        self._inputs: dict[tuple[str, str], Fields] = {}

    def keep(self, turn: Turn, one: Round, wanted: Sequence[Wanted]) -> None:
        for place, (call, given) in enumerate(zip(one.calls, wanted, strict=True)):
            if not call.exact and given.input is not None:
                self._inputs[turn.run_id, one.key(place)] = given.input
        while len(self._inputs) > MAX_HELD:
            del self._inputs[next(iter(self._inputs))]

    def input(self, turn: Turn, one: Round, place: int) -> Fields | None:
        call = one.calls[place]
        return call.input if call.exact else self._inputs.get((turn.run_id, one.key(place)))

    def approval(self, call: Call) -> Approval:
        return Approval(call.digest, "" if call.exact else self.salt)


class ToolUse:
    def __init__(self, turn: Turn, held: Held) -> None:
        self._turn = turn
        self._held = held

    async def results(
        self, one: Round, *, again: bool = False
    ) -> AsyncGenerator[Status | tuple[Returned, ...], None]:  # fmt: skip
        """How far its tools have come, and at last what all of them said. `again`: it may have been done before."""
        said: asyncio.Queue[str] = asyncio.Queue()
        calls = [self._result(one, place, said, again=again) for place in range(len(one.calls))]
        work = asyncio.gather(*calls)
        hearing = asyncio.ensure_future(said.get())
        try:
            while not work.done():
                await asyncio.wait((work, hearing), return_when=asyncio.FIRST_COMPLETED)
                if hearing.done():
                    yield Status(hearing.result())
                    hearing = asyncio.ensure_future(said.get())
            yield tuple(work.result())
        finally:
            hearing.cancel()
            work.cancel()

    async def _result(self, one: Round, place: int, said: "asyncio.Queue[str]", *, again: bool) -> Returned:
        call, key = one.calls[place], one.key(place)
        if not call.tool:
            return Returned(call.id, f"There is no tool {call.function}.", failed=True)
        if again and (before := await self._turn.used(key)) is not None:
            return told(call, before)
        given = self._held.input(self._turn, one, place)
        if given is None:
            return Returned(call.id, _LOST if not call.exact else "The input is not an object of JSON.", failed=True)
        # A round that asks comes this far only when a person has agreed to it.
        approved = self._held.approval(call) if one.asks else None
        try:
            progress = _Progress(call, said)
            return told(call, await self._turn.use(call.tool, given, key=key, progressed=progress, approved=approved))
        except (ApprovalRequired, NotFound, Invalid, KeyReused) as error:
            return Returned(call.id, error.message, failed=True)


class _Progress:
    """Passes on what a tool says of its progress, not more often than a reader wants."""

    def __init__(self, call: Call, said: "asyncio.Queue[str]") -> None:
        self._tool = call.tool
        self._said = said
        self._last = 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        if time.monotonic() - self._last >= PROGRESS_S:
            self._last = time.monotonic()
            how = f"{progress:g} of {total:g}" if total is not None else f"{progress:g}"
            self._said.put_nowait(f"{self._tool}: {(message or how)[:200]}")
