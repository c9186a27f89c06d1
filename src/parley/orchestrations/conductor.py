"""Drives orchestrations. An orchestration is a run whose turn can be resumed at any point: its whole state is in its
log, every decision is appended at the version on which it was based, and the id of each attempt's run is derived from
the attempt. So it is rescued like any other run, and the process that resumes it finds the steps already started."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from mimetypes import MimeTypes

from msgspec import UNSET, Raw
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import (
    AgentError,
    CannotPlan,
    ParleyError,
    PlanInvalid,
    RunEnded,
    RunNotFound,
    StoreUnavailable,
    VersionConflict,
)
from parley.execution.driver import Approving, Driver, ModelPlan, Orchestrating, Planner
from parley.execution.rules import ArtifactChunk, Conclusion, Done, NeedInput, Output, parts_of
from parley.execution.turn import Turn
from parley.ids import RunId
from parley.json_values import Json
from parley.orchestrations.rules.commands import Advance, Settle, StepResult, conclusion, decide, overdue, wake_at
from parley.orchestrations.rules.plan import Shown, Step, check_plan, member_of, rendered, text_of
from parley.orchestrations.rules.prompts import Candidate
from parley.orchestrations.rules.state import Orchestration, StepState, evolve, foreseen, words_of
from parley.orchestrations.runners import CAPABILITIES, AgentSteps, Order, StepRunner
from parley.runs.rules.access import Principal, may_use
from parley.runs.rules.agents import Agent
from parley.runs.rules.commands import Cancel, Emit
from parley.runs.rules.content import Part, Parts, hops_of, text_part
from parley.runs.rules.events import Completed, Event, Failed, InputRequired, Planned, Stepped
from parley.runs.service import Exchange
from parley.runs.streams import read_all
from parley.telemetry import tell
from parley.tools.rules.policy import needs_approval

MAX_DEPTH = 5
"""Maximum nesting depth of orchestrations."""
_MEDIA_TYPES = MimeTypes()
"""Media types that Python knows; a machine's own configuration makes no difference."""
PATIENCE_S = 1.0
"""Seconds before a store that could not be reached is tried again."""
LOOK_S = 5.0
_SAMPLE = Raw(b'{"toolName": "tool", "message": "words"}')


# Why: docs/decisions/orchestrations.md#drive-orchestrations-from-the-log-without-dbos
class Conductor:
    """Wraps an agent's driver in one that also carries out its orchestrations."""

    def __init__(self, exchange: Exchange, steps: StepRunner | None = None, clock: Clock = now_ms) -> None:
        self.exchange = exchange
        self.steps = steps or AgentSteps(exchange)
        self.clock = clock

    def conducted(self, driver: Driver) -> "Conducted":
        return Conducted(self, driver)


class Conducted:
    """Driver of an agent's orchestrations."""

    def __init__(self, conductor: Conductor, driver: Driver) -> None:
        self._conductor = conductor
        self._driver = driver
        limits = replace(driver.agent.limits, timeout_s=None)
        self._agent = replace(driver.agent, rescue="resume", limits=limits)

    @property
    def agent(self) -> Agent:
        """The agent without its time limit, which applies to its own work; steps have their own limits."""
        return self._agent

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        state = turn.orchestration
        if state is None:
            raise AgentError("This task is not an orchestration.")
        try:
            if state.plan == 0 or (state.done and state.turn != turn.number):
                state = await self._planned(turn, state)
        except (PlanInvalid, CannotPlan) as error:
            yield Failed(error.code, error.message)
            return
        performance = Performance(self._conductor, turn, state)
        ending, state = await performance.ending(), performance.state
        match ending:
            case Completed():
                for artifact in await performance.made():
                    yield artifact
                yield Conclusion(Done(), state.version)
            case Failed():
                yield Conclusion(ending, state.version)
            case InputRequired(parts):
                yield Conclusion(NeedInput(parts), state.version)

    async def _planned(self, turn: Turn, state: Orchestration) -> Orchestration:
        await self._check_depth(turn.run_id)
        plan = await self._plan(turn)
        check_plan(plan.steps, partial(self._refusal, turn.principal))
        exchange = self._conductor.exchange
        planned = Emit(turn.epoch, Planned(plan.steps, turn.number, plan.model, plan.tokens))
        await exchange.commands.execute(turn.run_id, planned)
        # Input may have arrived while the plan was made; the log decides what comes before the plan.
        return _evolved(state, await read_all(exchange.store, turn.run_id, state.version))

    async def _plan(self, turn: Turn) -> ModelPlan:
        if not isinstance(self._driver, Planner):
            raise CannotPlan(f"Agent {self._agent.slug} has neither a workflow nor a model that could make a plan.")
        principal = turn.principal
        usable = [one for one in self._conductor.exchange.agents.values() if may_use(principal, one)]
        if isinstance(self._driver, Orchestrating):
            # A workflow has its plan already, so no MCP server needs to be asked for tools.
            candidates = [Candidate(one) for one in usable]
        else:
            candidates = await asyncio.gather(*(self._candidate(principal, one) for one in usable))
        plan = await self._driver.plan(turn, candidates)
        return plan if isinstance(plan, ModelPlan) else ModelPlan(plan)

    async def _candidate(self, principal: Principal, agent: Agent) -> Candidate:
        """Return the agent with the tools and actions that steps of a plan may use on behalf of the principal."""
        exchange, refusal = self._conductor.exchange, self._conductor.steps.refusal
        tooling, driver = exchange.execution.toolcalls, exchange.driver(agent.slug)
        approve = driver.approve if isinstance(driver, Approving) else ()
        offers = await tooling.offers(agent) if tooling is not None else []
        # No person is there to approve a call that a step makes.
        tools = tuple(one for one in offers if not needs_approval(approve, one.full))
        asked = [Step("step", agent.slug, mode=mode, action=action, input=_SAMPLE) for mode, action in CAPABILITIES]
        able = [(one.mode, one.action) for one in asked if refusal(one, principal) is None]
        return Candidate(agent, tuple(one for one in able if tools or one[0] != "tool"), tools)

    def _refusal(self, principal: Principal, step: Step) -> str | None:
        if step.agent == self._agent.slug and isinstance(self._driver, Orchestrating):
            return "a workflow cannot be a step of itself."
        return self._conductor.steps.refusal(step, principal)

    async def _check_depth(self, run_id: RunId) -> None:
        """Raise PlanInvalid if orchestrations are nested too deeply: two workflows may name each other."""
        lineage = await self._conductor.exchange.commands.lineage(run_id)
        if sum(run.orchestration is not None for run in lineage) > MAX_DEPTH:
            raise PlanInvalid(f"Orchestrations are nested more than {MAX_DEPTH} levels deep.")


class Performance:
    """One turn of an orchestration. Its state changes only by events of its log."""

    def __init__(self, conductor: Conductor, turn: Turn, state: Orchestration) -> None:
        self.state = state
        self._conductor = conductor
        self._exchange = conductor.exchange
        self._turn = turn
        self._hops = max(map(hops_of, turn.inputs), default=0)
        self._settled: list[Settle] = []
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._wakeup = asyncio.Event()

    async def ending(self) -> Completed | Failed | InputRequired:
        """Start steps and process their results, until no step is left or no further step may start. Return the end of
        the turn."""
        with self._exchange.growth.subscribed([self._turn.run_id]) as self._wakeup:
            try:
                for one in self.state.running:
                    self._carry_out(self.state, one.step, one.run, one.attempt)
                while True:
                    if self._exchange.growth.mark(self._turn.run_id) > self.state.version:
                        await self._catch_up()
                    if await self._advanced():
                        continue
                    if (ending := conclusion(self.state)) is not None:
                        return ending
                    await self._wait_for_change()
            finally:
                for task in self._waiting.values():
                    task.cancel()

    async def made(self) -> list[ArtifactChunk]:
        """Return the artifacts of the orchestration: all output of the last steps, and of other steps what the plan
        says."""
        used = {other for one in self.state.steps for other in one.step.depends_on}
        found: list[ArtifactChunk] = []
        for one in self.state.steps:
            shown, id_ = one.step.artifact, f"step-{one.step.id}"
            if shown is not None and shown.member:
                file = _file(shown, words_of(await self._readable(one.output)))
                found += [replace(file, id=id_)] if file.content else []
            elif one.output and (shown is not None or one.step.id not in used):
                found.append(ArtifactChunk(one.output, id=id_, name=shown.name if shown else one.step.title))
        return found

    async def _catch_up(self) -> None:
        """Read events that were written by other processes, and possibly by this one."""
        try:
            events = await read_all(self._exchange.store, self._turn.run_id, self.state.version)
        except StoreUnavailable:
            await asyncio.sleep(PATIENCE_S)
        else:
            self.state = _evolved(self.state, events)

    async def _wait_for_change(self) -> None:
        """Wait until a step or the log changes, or a timer is due."""
        wake, timer = wake_at(self.state), None
        if wake is not None:
            # Check again after LOOK_S at the latest: the clock may be changed meanwhile.
            later = min(max(0.0, (wake - self._conductor.clock()) / 1000), LOOK_S)
            timer = asyncio.get_running_loop().call_later(later, self._wakeup.set)
        await self._wakeup.wait()
        self._wakeup.clear()
        if timer is not None:
            timer.cancel()

    async def _advanced(self) -> bool:
        """Write the events that follow from the current state; return whether there were any."""
        now = self._conductor.clock()
        await self._end_overdue(now)
        state, told = self.state, list[Stepped]()
        for command in (*self._settled, Advance(now)):
            for event in decide(state, command):
                if isinstance(event, Stepped):
                    told.append(event)
                    state = foreseen(state, event, now)
        heard, self._settled = self._settled, []
        if told and not await self._write(told):
            self._settled = heard + self._settled
        else:
            for event in told:
                if event.status == "running":
                    self._carry_out(state, state.step(event.step).step, event.run, event.attempt)
        return bool(told)

    async def _write(self, told: list[Stepped]) -> bool:
        """Write all events at the version on which they were decided. Return False if another writer was first, or the
        store is unavailable; the decision is then made again. Raise BudgetExceeded if no further step may start."""
        if any(event.status == "running" for event in told):
            await self._turn.check_budget()
        commands = (Emit(self._turn.epoch, event) for event in told)
        try:
            outcome = await self._exchange.commands.execute(self._turn.run_id, *commands, expected=self.state.version)
        except VersionConflict:
            await self._catch_up()
            return False
        except StoreUnavailable:
            await asyncio.sleep(PATIENCE_S)
            return False
        self.state = _evolved(self.state, outcome.events)
        if not self._settled:
            self._wakeup.clear()
        return True

    def _carry_out(self, state: Orchestration, step: Step, run: RunId | None, attempt: int) -> None:
        if run is None:
            return
        work = self._waited(state, step, run, attempt)
        self._waiting[step.id] = task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._wakeup.set())

    async def _waited(self, state: Orchestration, step: Step, run: RunId, attempt: int) -> None:
        result: StepResult | None = None
        while result is None:
            result = await self._result(state, step, run)
        self._settled.append(Settle(step.id, attempt, result, self._conductor.clock()))

    async def _result(self, state: Orchestration, step: Step, run: RunId) -> StepResult | None:
        """Return the result of an attempt; None if it cannot be known now."""
        try:
            return await self._conductor.steps.carry_out(await self._order(state, step, run))
        except StoreUnavailable:
            await asyncio.sleep(PATIENCE_S)
            return None
        except ParleyError as error:
            return StepResult("failed", (), error.code, error.message)
        except Exception as error:  # noqa: BLE001 - any error of a step must reach its orchestration
            tell("step.broken", run=self._turn.run_id, step=step.id, error=error)
            return StepResult("failed", (), "internal", "The step stopped with an unexpected error.")

    async def _order(self, state: Orchestration, step: Step, run: RunId) -> Order:
        said = dict(state.step_values)
        for one in state.steps:
            if any(part.blob is not None and part.blob.text for part in one.output):
                said[f"steps.{one.step.id}.output"] = words_of(await self._readable(one.output))
        message = words_of(await self._readable(state.message))
        given = rendered(step, message, said)
        whole = not step.depends_on and step.input is UNSET
        parts = state.message if whole else _parts(given)
        principal, trace = self._turn.principal, self._turn.trace
        return Order(run, self._turn.run_id, step, given, parts, principal, self._hops, trace)

    async def _readable(self, parts: Parts) -> Parts:
        """Return the parts with long texts loaded; other files stay in the blob store."""
        loaded: list[Part] = []
        for part in parts:
            is_text = part.blob is not None and part.blob.text
            loaded += await self._exchange.attachments.loaded((part,)) if is_text else (part,)
        return tuple(loaded)

    async def _end_overdue(self, now: int) -> None:
        for one in overdue(self.state, now):
            if any(settle.step == one.step.id for settle in self._settled):
                continue
            await self._end(one)
            limit = (self.state.rules.step_timeout_ms or 0) / 1000
            late = StepResult("failed", (), "timeout", f"The step took longer than {limit:g} s.")
            self._settled.append(Settle(one.step.id, one.attempt, late, now))

    async def _end(self, one: StepState) -> None:
        if task := self._waiting.pop(one.step.id, None):
            task.cancel()
        if one.run is not None:
            with suppress(RunEnded, RunNotFound):
                await self._exchange.stop(one.run, Cancel(self.state.principal, "The step took too long."))


def _evolved(state: Orchestration, events: list[Event]) -> Orchestration:
    for event in events:
        state = evolve(state, event) or state
    return state


def _parts(given: Json) -> Parts:
    if isinstance(given, str):
        return (text_part(given),)
    return parts_of(given) if isinstance(given, dict) else (text_part(str(given)),)


def _file(shown: Shown, words: str) -> ArtifactChunk:
    """Return an output, or one member of it, as a file."""
    media_type, _ = _MEDIA_TYPES.guess_type(shown.name)
    content = text_of(member_of(words, shown.member)).encode()
    return ArtifactChunk(content, name=shown.name, filename=shown.name, media_type=media_type or "text/plain")
