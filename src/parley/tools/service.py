"""Carries out tool calls: each once, within its policy and its budget, and in the log of its run.

Order within a call: claim its name, write `tool_call` to the run, decide and reserve in one step, call the provider,
store the outcome, write `tool_result`, settle the reservation. After an interruption the next request for the call
resumes it: a read is done again, a write is not.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import ContextMismatch, RunEnded, RunNotFound, ToolRequestInvalid
from parley.ids import RunId
from parley.json_values import Fields
from parley.records import Place, Records
from parley.runs.rules.access import Principal, may_see
from parley.runs.rules.state import Run
from parley.runs.service import Exchange
from parley.runs.streams import Follower
from parley.telemetry import tell
from parley.tools.calls import (
    Ending,
    ToolAsk,
    ToolLimits,
    ToolLog,
    ToolRequest,
    asked,
    blocked,
    calling,
    held_up,
    unknown,
)
from parley.tools.executions import Budgets, ExecutionEntry, ToolExecution, ToolExecutions
from parley.tools.providers import ToolPack
from parley.tools.rules.packs import outcome_data, refused, replay_data
from parley.tools.rules.policy import Evaluation, Figures, concluded

LIMIT_S = 10.0
"""Time limit of a provider."""
SLACK_S = 10.0
"""Additional time for which a process counts as alive: for its writes before and after, and for clocks that differ."""
LOOK_S = 0.25
"""Interval for checking a call that another process carries out."""
MEND_MS = 3_600_000
"""Milliseconds after its end in which a repeated call is checked for work that a crash left undone."""

__all__ = ["ToolAsk", "ToolOutcome", "ToolService"]


class ToolOutcome(Struct, frozen=True):
    """Result of a call. `data` is defined by the contract. `replayed`: the call was carried out before, and this is its
    first result."""

    data: Fields
    replayed: bool = False


class _UnderWay(Struct, frozen=True):
    request_hash: str
    task: "asyncio.Task[ToolOutcome]"


class _Claim(Struct, frozen=True):
    """A call that this process carries out; `broken_off`: an earlier attempt was interrupted."""

    entry: ExecutionEntry
    broken_off: bool = False


class ToolService:
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
        self._executions = ToolExecutions(records, self._lease_ms, keep_ms, clock)
        self._budgets = Budgets(records, clock)
        self._log = ToolLog(exchange)
        self._gates = ToolLimits(clock)
        self._clock = clock
        self._limit_s = limit_s
        self._look_s = look_s
        self._under_way: dict[Place, _UnderWay] = {}

    async def execute(self, ask: ToolAsk) -> ToolOutcome:
        """Carry out a call. Once started it is carried out to its end, even if the caller no longer waits."""
        if ask.mode == "replay":
            return await self.replay(ask)
        return await self.carry_out(asked(ask, self._packs))

    # Why: docs/decisions/tools.md#finish-a-call-after-its-caller-disconnects
    async def carry_out(self, call: ToolRequest) -> ToolOutcome:
        """Carry out a call that passed all checks."""
        run = await self._run_of(call)
        before = self._under_way.get(call.place)
        if before is None:
            return await asyncio.shield(self._begin(call, run))
        if before.request_hash != call.request_hash:
            raise _reused()
        return replace(await asyncio.shield(before.task), replayed=True)

    async def replay(self, ask: ToolAsk) -> ToolOutcome:
        """Decide again without calling the provider: on the figures at the time of the call, or on the current ones."""
        call = asked(replace(ask, mode="replay"), self._packs)
        await self._run_of(call)
        stored = await self._executions.get(call.place) if call.call else None
        if stored is not None and stored.execution.request == call.request_hash:
            figures, at = stored.execution.figures, stored.execution.started_at
        else:
            figures, at = await self._figures(call), self._clock()
        return ToolOutcome(replay_data(call.manifest, call.request, call.evaluated(figures, at)))

    async def tick(self) -> None:
        """Run one round: delete old executions, if a retention time is configured."""
        await self._executions.forget()

    async def close(self) -> None:
        """Wait for running calls; none takes much longer than its limit."""
        await asyncio.gather(*(one.task for one in self._under_way.values()), return_exceptions=True)

    def _begin(self, call: ToolRequest, run: Run | None) -> "asyncio.Task[ToolOutcome]":
        task = asyncio.get_running_loop().create_task(self._once(call, run))
        self._under_way[call.place] = _UnderWay(call.request_hash, task)
        task.add_done_callback(lambda task: self._ended(call, task))
        return task

    def _ended(self, call: ToolRequest, task: "asyncio.Task[ToolOutcome]") -> None:
        del self._under_way[call.place]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ToolRequestInvalid):
            tell("tool.failed", tool=call.tool, error=error)

    async def _run_of(self, call: ToolRequest) -> Run | None:
        """Return the run that the call is for, if it exists here; it must belong to the caller and to the thread that
        the call names."""
        if not call.run:
            return None
        try:
            run = await self._exchange.commands.state(RunId(call.run))
        except RunNotFound:
            return None
        if not _belongs(run, call.principal, call.thread):
            raise ContextMismatch("run/thread does not belong to principal")
        # A call with an agent is made by a turn of the run itself, which continues as it was started.
        return run if call.agent or self._exchange.permits(run, call.principal) else None

    async def _once(self, call: ToolRequest, run: Run | None) -> ToolOutcome:
        while True:
            found = await self._claimed(call)
            if isinstance(found, _Claim):
                if outcome := await self._attempt(call, run, found):
                    return outcome
            elif found is not None and found.execution.ended:
                return await self._again(call, found.execution)
            else:
                await asyncio.sleep(self._look_s)

    async def _claimed(self, call: ToolRequest) -> _Claim | ExecutionEntry | None:
        """Return a claim for this process, or the stored execution of another attempt; None to try again."""
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
        dead = not there.execution.ended and not self._executions.is_live(there)
        taken = await self._executions.take_over(there, execution) if idle or dead else None
        return there if taken is None else _Claim(taken, broken_off=dead)

    async def _attempt(self, call: ToolRequest, run: Run | None, claim: _Claim) -> ToolOutcome | None:
        """Carry out one attempt; None if another process took it over."""
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

    async def _reserved(self, call: ToolRequest) -> Evaluation:
        """Return the policy's decision; if the call is allowed, its cost is reserved."""
        if not call.authorization:
            return call.evaluated(Figures(), self._clock())
        for_ms = None if call.operation.writes else self._lease_ms
        return await self._budgets.reserve(
            call.account, call.place[1], lambda figures: call.evaluated(figures, self._clock()), for_ms
        )

    async def _made(self, call: ToolRequest, evaluation: Evaluation, follower: Follower | None) -> Ending:
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
        self, call: ToolRequest, run: Run | None, claim: _Claim, figures: Figures, ending: Ending
    ) -> ToolOutcome | None:
        evaluation = concluded(call.policy, figures, ending.code)
        data = outcome_data(call.rules, call.manifest, call.request, ending.state, evaluation, ending.result)
        execution = replace(
            claim.entry.execution,
            figures=figures,
            logged=run is not None,
            ended_at=self._clock(),
            status=ending.status,
            code=ending.code,
            reason=ending.message,
            settlement=ending.settlement,
            data=Raw(msgspec.json.encode(data)),
        )
        if not await self._executions.end(claim.entry, execution):
            return None
        _tell_ended(execution)
        await self._concluded(call, execution)
        return ToolOutcome(data)

    async def _again(self, call: ToolRequest, execution: ToolExecution) -> ToolOutcome:
        if execution.ended_at is not None and self._clock() - execution.ended_at < MEND_MS:
            await self._concluded(call, execution)
        data: Fields = {} if execution.data is UNSET else msgspec.json.decode(execution.data)
        return ToolOutcome(data, replayed=True)

    async def _concluded(self, call: ToolRequest, execution: ToolExecution) -> None:
        """Do what follows from a stored result, once however often this is tried."""
        if execution.logged and execution.status != "running":
            await self._log.returned(RunId(call.run), execution, execution.status)
        if execution.authorization:
            account = str(call.principal), execution.authorization
            await self._budgets.settle(account, call.place[1], execution.settlement)

    async def _figures(self, call: ToolRequest) -> Figures:
        return await self._budgets.figures(call.account) if call.authorization else Figures()


def _belongs(run: Run, principal: Principal, thread: str) -> bool:
    return may_see(principal, run.principal) and thread in ("", run.conversation)


def _reused() -> ToolRequestInvalid:
    message = "tool_call_id was used with another request"
    return refused(message, message=message)


def _tell_ended(execution: ToolExecution) -> None:
    """Log the end of a call, without ids and content: the fields become metric labels."""
    tell(
        "tool.ended",
        tool=execution.tool,
        state=execution.status,
        code=execution.code,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
    )
