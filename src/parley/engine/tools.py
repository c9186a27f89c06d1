"""Carry out tool calls: each once, within its policy and its budget, and on the record of its run.

The order within a call: claim its name, write `tool_call` to the run, decide and reserve in one step, call the
provider, keep the outcome, write `tool_result`, settle the reservation. What breaks off in between is taken up by
whoever asks again: a read is done again, a write is not.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.access import Principal, may_see
from parley.core.canonical import Fields
from parley.core.policy import Evaluation, Figures, concluded
from parley.core.receipts import outcome_data, replay_data
from parley.core.runs import Run
from parley.core.tools import refused
from parley.engine.asks import Asked, ToolAsk, asked
from parley.engine.budgets import Budgets
from parley.engine.calling import Ending, blocked, calling, held_up, unknown
from parley.engine.exchange import Exchange
from parley.engine.executions import Entry, Execution, Executions
from parley.engine.gates import Gates
from parley.engine.ports import Place, Records, ToolPack
from parley.engine.streams import Follower
from parley.engine.toollog import ToolLog
from parley.errors import ContextMismatch, RunEnded, RunNotFound, ToolRequestInvalid
from parley.ids import RunId
from parley.telemetry import tell

LIMIT_S = 10.0
"""How long a provider may take."""
SLACK_S = 10.0
"""How much longer a process is believed to be at it: for what it writes before and after, and clocks that differ."""
LOOK_S = 0.25
"""How often a call that another process carries out is looked after."""
MEND_MS = 3_600_000
"""How long after its end a call that is asked for again is looked through for what a crash left undone."""

__all__ = ["ToolAsk", "ToolOutcome", "Tools"]


class ToolOutcome(Struct, frozen=True):
    """`data` is the contract's. `replayed`: it was carried out before, and this is what came of it then."""

    data: Fields
    replayed: bool = False


class _UnderWay(Struct, frozen=True):
    request_hash: str
    task: "asyncio.Task[ToolOutcome]"


class _Claim(Struct, frozen=True):
    """A call that is ours to carry out; `broken_off` when somebody has begun it before."""

    entry: Entry
    broken_off: bool = False


class Tools:
    def __init__(
        self,
        exchange: Exchange,
        records: Records,
        packs: Sequence[ToolPack],
        *,
        clock: Clock = now_ms,
        limit_s: float = LIMIT_S,
        look_s: float = LOOK_S,
        keep_ms: int | None = None,
    ) -> None:
        self._exchange = exchange
        self._packs = {pack.rules.name: pack for pack in packs}
        self._lease_ms = int((limit_s + SLACK_S) * 1000)
        self._executions = Executions(records, self._lease_ms, keep_ms, clock)
        self._budgets = Budgets(records, clock)
        self._log = ToolLog(exchange)
        self._gates = Gates(clock)
        self._clock = clock
        self._limit_s = limit_s
        self._look_s = look_s
        self._under_way: dict[Place, _UnderWay] = {}

    async def execute(self, ask: ToolAsk) -> ToolOutcome:
        """Carried out to its end once it is begun, also when nobody waits for it any more."""
        if ask.mode == "replay":
            return await self.replay(ask)
        return await self.carry_out(asked(ask, self._packs))

    async def carry_out(self, call: Asked) -> ToolOutcome:
        """The same for a call in which nothing is wrong."""
        run = await self._run_of(call)
        before = self._under_way.get(call.place)
        if before is None:
            return await asyncio.shield(self._begin(call, run))
        if before.request_hash != call.request_hash:
            raise _reused()
        return replace(await asyncio.shield(before.task), replayed=True)

    async def replay(self, ask: ToolAsk) -> ToolOutcome:
        """Decide again and call nobody: on what had been counted when the call was made, or on what is counted now."""
        call = asked(replace(ask, mode="replay"), self._packs)
        await self._run_of(call)
        stored = await self._executions.get(call.place) if call.call else None
        if stored is not None and stored.execution.request == call.request_hash:
            figures, at = stored.execution.figures, stored.execution.started_at
        else:
            figures, at = await self._figures(call), self._clock()
        return ToolOutcome(replay_data(call.manifest, call.request, call.evaluated(figures, at)))

    async def tick(self) -> None:
        """One round: forget what ended long ago, where somebody said how long that is."""
        await self._executions.forget()

    async def close(self) -> None:
        """Wait for what is under way; none of it takes much longer than its limit."""
        await asyncio.gather(*(one.task for one in self._under_way.values()), return_exceptions=True)

    def _begin(self, call: Asked, run: Run | None) -> "asyncio.Task[ToolOutcome]":
        task = asyncio.get_running_loop().create_task(self._once(call, run))
        self._under_way[call.place] = _UnderWay(call.request_hash, task)
        task.add_done_callback(lambda task: self._ended(call, task))
        return task

    def _ended(self, call: Asked, task: "asyncio.Task[ToolOutcome]") -> None:
        del self._under_way[call.place]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ToolRequestInvalid):
            tell("tool.failed", tool=call.tool, error=error)

    async def _run_of(self, call: Asked) -> Run | None:
        """The run that the call is for, if it is one of ours; it must be the caller's, and of the thread it names."""
        if not call.run:
            return None
        try:
            run = await self._exchange.commands.state(RunId(call.run))
        except RunNotFound:
            return None
        if not _belongs(run, call.principal, call.thread):
            raise ContextMismatch("run/thread does not belong to principal")
        # A call with an agent is made by a turn of the run itself, which goes on as it was started.
        return run if call.agent or self._exchange.permits(run, call.principal) else None

    async def _once(self, call: Asked, run: Run | None) -> ToolOutcome:
        while True:
            found = await self._claimed(call)
            if isinstance(found, _Claim):
                if outcome := await self._attempt(call, run, found):
                    return outcome
            elif found is not None and found.execution.ended:
                return await self._again(call, found.execution)
            else:
                await asyncio.sleep(self._look_s)

    async def _claimed(self, call: Asked) -> _Claim | Entry | None:
        """Ours to carry out, or what somebody has made or is making of it."""
        execution = call.execution(self._clock(), SLACK_S)
        entry = await self._executions.begin(call.place, execution)
        if entry is not None:
            return _Claim(entry)
        there = await self._executions.get(call.place)
        if there is None:
            return None
        idle = there.execution.status == "blocked" and there.execution.ask != call.ask_hash
        if not idle and there.execution.request != call.request_hash:
            raise _reused()
        dead = not there.execution.ended and not self._executions.believed(there)
        taken = await self._executions.take_over(there, execution) if idle or dead else None
        return there if taken is None else _Claim(taken, broken_off=dead)

    async def _attempt(self, call: Asked, run: Run | None, claim: _Claim) -> ToolOutcome | None:
        """None when another process took it over."""
        if claim.broken_off and call.operation.writes:
            return await self._end(call, run, claim, await self._figures(call), unknown(call))
        try:
            follower = await self._log.called(run, call) if run is not None else None
        except RunEnded as error:
            return await self._end(call, None, claim, await self._figures(call), blocked(message=error.message))
        try:
            evaluation = await self._reserved(call)
            ending = await self._made(call, evaluation, follower)
        finally:
            if follower is not None:
                follower.close()
        return await self._end(call, run, claim, evaluation.figures, ending)

    async def _reserved(self, call: Asked) -> Evaluation:
        """What the policy says; its cost is reserved when it says yes."""
        if not call.authorization:
            return call.evaluated(Figures(), self._clock())
        for_ms = None if call.operation.writes else self._lease_ms
        return await self._budgets.reserve(
            call.account, call.place[1], lambda figures: call.evaluated(figures, self._clock()), for_ms
        )

    async def _made(self, call: Asked, evaluation: Evaluation, follower: Follower | None) -> Ending:
        if not evaluation.allowed:
            return blocked(evaluation.reason_code)
        if (refusal := held_up(call, self._gates)) is not None:
            return refusal
        if call.unapproved:
            tell("tool.unapproved", tool=call.tool)
        ending = await calling(call, call.limit_s or self._limit_s, follower)
        if ending.well is not None:
            self._gates.ended(call, well=ending.well)
        return ending

    async def _end(
        self, call: Asked, run: Run | None, claim: _Claim, figures: Figures, ending: Ending
    ) -> ToolOutcome | None:  # fmt: skip
        evaluation = concluded(call.policy, figures, ending.code)
        data = outcome_data(call.rules, call.manifest, call.request, ending.state, evaluation, ending.result)
        execution = replace(
            claim.entry.execution, figures=figures, logged=run is not None, ended_at=self._clock(),
            status=ending.status, code=ending.code, reason=ending.message, settlement=ending.settlement,
            data=Raw(msgspec.json.encode(data)),
        )  # fmt: skip
        if not await self._executions.end(claim.entry, execution):
            return None
        _tell_ended(execution)
        await self._concluded(call, execution)
        return ToolOutcome(data)

    async def _again(self, call: Asked, execution: Execution) -> ToolOutcome:
        if execution.ended_at is not None and self._clock() - execution.ended_at < MEND_MS:
            await self._concluded(call, execution)
        data: Fields = {} if execution.data is UNSET else msgspec.json.decode(execution.data)
        return ToolOutcome(data, replayed=True)

    async def _concluded(self, call: Asked, execution: Execution) -> None:
        """What follows from an end that is on record, done once however often it is tried."""
        if execution.logged and execution.status != "running":
            await self._log.returned(RunId(call.run), execution, execution.status)
        if execution.authorization:
            account = str(call.principal), execution.authorization
            await self._budgets.settle(account, call.place[1], execution.settlement)

    async def _figures(self, call: Asked) -> Figures:
        return await self._budgets.figures(call.account) if call.authorization else Figures()


def _belongs(run: Run, principal: Principal, thread: str) -> bool:
    return may_see(principal, run.principal) and thread in ("", run.conversation)


def _reused() -> ToolRequestInvalid:
    message = "tool_call_id was used with another request"
    return refused(message, message=message)


def _tell_ended(execution: Execution) -> None:
    """No ids and no content: these become labels."""
    tell(
        "tool.ended", tool=execution.tool, state=execution.status, code=execution.code,
        started_at=execution.started_at, ended_at=execution.ended_at,
    )  # fmt: skip
