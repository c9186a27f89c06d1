"""Carries out orchestrations. One is a run whose turn can be taken up again at any point: all that is known of it is in
its log, every decision is appended at the version it was made at, and the run of each attempt has an id that follows
from it. So it is rescued as any run is, and whoever takes it up finds what was begun."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from mimetypes import MimeTypes

from msgspec import UNSET, Raw
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.access import Principal, may_use
from parley.core.agents import Agent
from parley.core.approvals import needs_approval
from parley.core.artifacts import Part, Parts, text_part
from parley.core.canonical import Json
from parley.core.commands import Cancel, Emit
from parley.core.conversations import hops_of
from parley.core.events import Completed, Event, Failed, InputRequired, Planned, Stepped
from parley.core.orchestrations import Orchestration, StepState, evolve, foreseen, words_of
from parley.core.planning import Candidate
from parley.core.plans import Shown, Step, check_plan, member_of, rendered, text_of
from parley.core.steps import Advance, Result, Settle, conclusion, decide, overdue, wake_at
from parley.core.turns import ArtifactChunk, Conclusion, Done, NeedInput, Output, parts_of
from parley.engine.exchange import Exchange
from parley.engine.planning import ModelPlan, Orchestrating, Order, Planner, StepRunner
from parley.engine.ports import Approving, Driver
from parley.engine.steps import AgentSteps
from parley.engine.streams import read_all
from parley.engine.tablesteps import MODES
from parley.engine.turns import Turn
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
from parley.ids import RunId
from parley.telemetry import tell

MAX_DEPTH = 5
"""How deep orchestrations may lie in one another."""
_MEDIA_TYPES = MimeTypes()
"""Those that Python knows; what a machine has installed makes no difference."""
PATIENCE_S = 1.0
"""Before a store that could not be reached is tried again."""
LOOK_S = 5.0
_SAMPLE = Raw(b'{"toolName": "tool", "message": "words"}')


class Conductor:
    """Makes of an agent's driver one that carries out its orchestrations."""

    def __init__(self, exchange: Exchange, clock: Clock = now_ms) -> None:
        self.exchange = exchange
        self.clock = clock
        self._agents = AgentSteps(exchange)

    @property
    def steps(self) -> StepRunner:
        return self.exchange.steps or self._agents

    def conducted(self, driver: Driver) -> "Conducted":
        return Conducted(self, driver)


class Conducted:
    """The driver of an agent's orchestrations."""

    def __init__(self, conductor: Conductor, driver: Driver) -> None:
        self._conductor = conductor
        self._driver = driver
        limits = replace(driver.agent.limits, timeout_s=None)
        self._agent = replace(driver.agent, rescue="resume", limits=limits)

    @property
    def agent(self) -> Agent:
        """An agent's time limit is one for its own work; steps have theirs."""
        return self._agent

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        state = turn.orchestration
        if state is None:
            raise AgentError("This task is no orchestration.")
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
        # Input may have come while the plan was made: what stands before the plan is what the log says.
        return _fed(state, await read_all(exchange.store, turn.run_id, state.version))

    async def _plan(self, turn: Turn) -> ModelPlan:
        if not isinstance(self._driver, Planner):
            raise CannotPlan(f"Agent {self._agent.slug} has neither a workflow nor a model that could make a plan.")
        principal = turn.principal
        usable = [one for one in self._conductor.exchange.agents.values() if may_use(principal, one)]
        if isinstance(self._driver, Orchestrating):
            # A workflow has its plan, so no server of tools needs to be asked.
            candidates = [Candidate(one) for one in usable]
        else:
            candidates = await asyncio.gather(*(self._candidate(principal, one) for one in usable))
        plan = await self._driver.plan(turn, candidates)
        return plan if isinstance(plan, ModelPlan) else ModelPlan(plan)

    async def _candidate(self, principal: Principal, agent: Agent) -> Candidate:
        """The agent with the tools and actions that steps of a plan may use on behalf of the principal."""
        exchange, refusal = self._conductor.exchange, self._conductor.steps.refusal
        tooling, driver = exchange.execution.toolcalls, exchange.driver(agent.slug)
        approve = driver.approve if isinstance(driver, Approving) else ()
        offers = await tooling.offers(agent) if tooling is not None else []
        # Nobody could approve a call that a step makes.
        tools = tuple(one for one in offers if not needs_approval(approve, one.full))
        asked = [Step("step", agent.slug, mode=mode, action=action, input=_SAMPLE) for mode, action in MODES]
        able = [(one.mode, one.action) for one in asked if refusal(one, principal) is None]
        return Candidate(agent, tuple(one for one in able if tools or one[0] != "tool"), tools)

    def _refusal(self, principal: Principal, step: Step) -> str | None:
        if step.agent == self._agent.slug and isinstance(self._driver, Orchestrating):
            return "a workflow cannot be a step of itself."
        return self._conductor.steps.refusal(step, principal)

    async def _check_depth(self, run_id: RunId) -> None:
        """Two workflows may name each other."""
        commands = self._conductor.exchange.commands
        run, depth = await commands.state(run_id), 1
        while run.parent is not None:
            try:
                run = await commands.state(run.parent)
            except RunNotFound:
                break
            depth += run.orchestration is not None
        if depth > MAX_DEPTH:
            raise PlanInvalid(f"Orchestrations lie more than {MAX_DEPTH} deep in one another.")


class Performance:
    """One turn of an orchestration. Its state is only ever what its log has brought."""

    def __init__(self, conductor: Conductor, turn: Turn, state: Orchestration) -> None:
        self.state = state
        self._conductor = conductor
        self._exchange = conductor.exchange
        self._turn = turn
        self._hops = max(map(hops_of, turn.inputs), default=0)
        self._settled: list[Settle] = []
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._bell = asyncio.Event()

    async def ending(self) -> Completed | Failed | InputRequired:
        """Begin what can begin, hear what comes of it, until nothing is left or nothing more may be begun."""
        with self._exchange.growth.hung([self._turn.run_id]) as self._bell:
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
                    await self._rung()
            finally:
                for task in self._waiting.values():
                    task.cancel()

    async def made(self) -> list[ArtifactChunk]:
        """What the orchestration brings: of the last steps all, of others what their plan says."""
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
        """Read what others have written, and maybe what was written here."""
        try:
            events = await read_all(self._exchange.store, self._turn.run_id, self.state.version)
        except StoreUnavailable:
            await asyncio.sleep(PATIENCE_S)
        else:
            self.state = _fed(self.state, events)

    async def _rung(self) -> None:
        """Wait until a step or the log has something to tell, or it is time."""
        wake, timer = wake_at(self.state), None
        if wake is not None:
            # Looked at again all the same: the clock may be set meanwhile.
            later = min(max(0.0, (wake - self._conductor.clock()) / 1000), LOOK_S)
            timer = asyncio.get_running_loop().call_later(later, self._bell.set)
        await self._bell.wait()
        self._bell.clear()
        if timer is not None:
            timer.cancel()

    async def _advanced(self) -> bool:
        """Write what follows from what is known; whether there was anything."""
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
        """All of it at the version it was decided at; if somebody was first, it is decided again."""
        commands = (Emit(self._turn.epoch, event) for event in told)
        try:
            outcome = await self._exchange.commands.execute(self._turn.run_id, *commands, expected=self.state.version)
        except VersionConflict:
            await self._catch_up()
            return False
        except StoreUnavailable:
            await asyncio.sleep(PATIENCE_S)
            return False
        self.state = _fed(self.state, outcome.events)
        if not self._settled:
            self._bell.clear()
        return True

    def _carry_out(self, state: Orchestration, step: Step, run: RunId | None, attempt: int) -> None:
        if run is None:
            return
        work = self._waited(state, step, run, attempt)
        self._waiting[step.id] = task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._bell.set())

    async def _waited(self, state: Orchestration, step: Step, run: RunId, attempt: int) -> None:
        result: Result | None = None
        while result is None:
            result = await self._result(state, step, run)
        self._settled.append(Settle(step.id, attempt, result, self._conductor.clock()))

    async def _result(self, state: Orchestration, step: Step, run: RunId) -> Result | None:
        """What came of an attempt; None when that cannot be known now."""
        try:
            return await self._conductor.steps.carry_out(await self._order(state, step, run))
        except StoreUnavailable:
            await asyncio.sleep(PATIENCE_S)
            return None
        except ParleyError as error:
            return Result("failed", (), error.code, error.message)
        except Exception as error:  # noqa: BLE001 - whatever breaks a step, its orchestration must hear of it
            tell("step.broken", run=self._turn.run_id, step=step.id, error=error)
            return Result("failed", (), "internal", "The step stopped with an unexpected error.")

    async def _order(self, state: Orchestration, step: Step, run: RunId) -> Order:
        said = dict(state.sayings)
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
        """With long texts in place; other files stay where they are."""
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
            late = Result("failed", (), "timeout", f"It took longer than {limit:g} s.")
            self._settled.append(Settle(one.step.id, one.attempt, late, now))

    async def _end(self, one: StepState) -> None:
        if task := self._waiting.pop(one.step.id, None):
            task.cancel()
        if one.run is not None:
            with suppress(RunEnded, RunNotFound):
                await self._exchange.stop(one.run, Cancel(self.state.principal, "The step took too long."))


def _fed(state: Orchestration, events: list[Event]) -> Orchestration:
    for event in events:
        state = evolve(state, event) or state
    return state


def _parts(given: Json) -> Parts:
    if isinstance(given, str):
        return (text_part(given),)
    return parts_of(given) if isinstance(given, dict) else (text_part(str(given)),)


def _file(shown: Shown, words: str) -> ArtifactChunk:
    """One member of an output, as a file."""
    media_type, _ = _MEDIA_TYPES.guess_type(shown.name)
    content = text_of(member_of(words, shown.member)).encode()
    return ArtifactChunk(content, name=shown.name, filename=shown.name, media_type=media_type or "text/plain")
