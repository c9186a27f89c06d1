"""Runs turns in this process: start, cancel, timeout, and the choice of the next run."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from msgspec.structs import replace

from parley.budgets.service import BudgetCheck
from parley.clock import Clock, Monotonic, now_ms
from parley.errors import (
    AgentError,
    BudgetExceeded,
    LateResult,
    LeaseLost,
    NestedTooDeep,
    NotReady,
    ParleyError,
    PayloadTooLarge,
    StoreUnavailable,
    TreeTooLarge,
)
from parley.execution.agents import Unlisted, no_unlisted
from parley.execution.cluster import Cluster, Slots
from parley.execution.driver import Driver, Salvaging, Throttled, kind_of
from parley.execution.history import earlier_notes, earlier_rounds
from parley.execution.job import TurnJob, TurnSpending, used_up
from parley.execution.outbox import Outbox, TurnJournal
from parley.execution.rules import Conclusion, Final, Scribe
from parley.execution.steps import Guard, Steps, Suspension, suspension_in
from parley.execution.turn import CURRENT, ToolCaller, Turn
from parley.execution.turn_order import Served, next_served
from parley.ids import RunId
from parley.offload import LARGE
from parley.runs.attachments import Attachments
from parley.runs.listeners import RaisedListener
from parley.runs.log import Commands
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent, vendor_and_model
from parley.runs.rules.commands import Begin, Emit, Recover, Report, Wake
from parley.runs.rules.content import hops_of
from parley.runs.rules.events import Canceled, Completed, Event, Failed, Noted, Rejected, Suspended
from parley.runs.rules.state import Run, State, lets_go
from parley.runs.rules.usage import Prices, Usage
from parley.runs.rules.view import View
from parley.runs.store import Store
from parley.runs.views import RecentLogs
from parley.telemetry import span, tell
from parley.telemetry.trace import NONE, current, enter

GRACE_S = 5.0
WOKEN = 100
"""Number of sleeping runs that are read at once."""

AskFor = Callable[[Run, Principal, int, str, str, int], Awaitable[View]]
"""Asks another agent. Arguments: the asking run, its caller, the number of the question, the agent, the text, the
hops."""


StopChildren = Callable[[Run], Awaitable[None]]
"""Cancels the runs that a run has started; returns when that is durable."""

Conduct = Callable[[Driver], Driver]
"""Returns the driver that works on an agent's orchestrations."""


class Executor:
    def __init__(
        self,
        commands: Commands,
        store: Store,
        cluster: Cluster,
        attachments: Attachments,
        ask: AskFor,
        stop_children: StopChildren,
        grace_s: float = GRACE_S,
        *,
        clock: Clock = now_ms,
        monotonic: Monotonic = time.monotonic,
        sure: Callable[[], bool] = lambda: True,
        unlisted: Unlisted = no_unlisted,
        toolcalls: ToolCaller | None = None,
        conduct: Conduct | None = None,
        prices: Prices | None = None,
        raised: Iterable[RaisedListener] = (),
        budgets: BudgetCheck,
    ) -> None:
        self._commands = commands
        self._budgets = budgets
        self._store = store
        self.logs = RecentLogs(store)
        self._cluster = cluster
        self.slots = Slots(cluster, sure)
        self._attachments = attachments
        self._ask = ask
        self._stop_children = stop_children
        self.grace_s = grace_s
        self._clock = clock
        self._monotonic = monotonic
        self.toolcalls = toolcalls
        """Calls the tools of agents; None if there are no tools."""
        self._drivers: dict[str, Driver] = {}
        self._unlisted = unlisted
        """Finds drivers of agents that are not registered."""
        self._jobs: dict[RunId, TurnJob] = {}
        self._dispatching: dict[str, asyncio.Task[None]] = {}
        self._asked_again: set[str] = set()
        self._closing = False
        self._conduct = conduct
        self._prices = prices
        self._on_raised = raised

    def register(self, driver: Driver) -> None:
        """Use this driver for the agent's next turns."""
        self._drivers[driver.agent.slug] = driver

    def unregister(self, slug: str) -> None:
        """Begin no more turns of this agent; its waiting runs wait until it is registered again."""
        self._drivers.pop(slug, None)

    @property
    def drivers(self) -> Mapping[str, Driver]:
        return self._drivers

    def has_driver(self, slug: str) -> bool:
        """Return whether this process begins turns of this agent."""
        return self._driver(slug) is not None

    def _driver(self, slug: str) -> Driver | None:
        return self._drivers.get(slug) or self._unlisted(slug)

    async def admit(self, agent: Agent, *, at_once: bool = False) -> Begin | Rejected | None:
        """Decide how a new input is accepted: begin at once; queue it (None), if its agent has a limit or runs
        elsewhere; or reject it. An orchestration counts towards no limit: its steps do, and they may belong to the same
        agent."""
        limits = agent.limits
        if (at_once or limits.max_concurrent is None) and self.has_driver(agent.slug):
            return None if self._closing else Begin(self._cluster.replica)
        if limits.max_queued is not None:
            # The first run in the queue may be about to begin: it does not count as waiting.
            room = limits.max_queued + await self.free_slots(agent)
            if await self._store.waiting(agent.slug, room) >= room:
                return Rejected(
                    "queue_full", f"Agent {agent.slug} has {limits.max_queued} tasks waiting; try again later."
                )
        return None

    def launch(
        self,
        run: Run,
        events: list[Event] | None = None,
        *,
        slot_of: str | None = None,
        served: Served | None = None,
    ) -> None:
        """Work on a run that has begun or is about to begin. `events`: its complete log, if available."""
        job = self._jobs[run.id] = TurnJob(run, slot_of, served)
        job.task = asyncio.get_running_loop().create_task(self._work(job, events))

    def dispatch(self, slug: str) -> None:
        """Begin waiting runs as far as slots allow. A call during a dispatch makes that dispatch look once more."""
        if self._closing or not self.has_driver(slug):
            return
        if slug in self._dispatching:
            self._asked_again.add(slug)
            return
        task = asyncio.get_running_loop().create_task(self._dispatch(slug))
        self._dispatching[slug] = task

    def cancel(self, run: Run) -> None:
        """Stop the turn of a run whose log contains a cancel request or an end."""
        if (job := self._jobs.get(run.id)) is not None:
            self._stop(job, Canceled())

    def given(self, run: Run) -> None:
        """Notify the turn of a run that there is input which it has not read."""
        job = self._jobs.get(run.id)
        if job is not None and run.epoch == job.run.epoch:
            job.overtaken.set()

    async def heard(self, run_id: RunId) -> None:
        """Handle growth at another replica of a run that works here: the log may contain a cancel request, an end or
        more input."""
        if run_id in self._jobs:
            head = await self._store.head(run_id)
            if head is not None and (head.run.cancel_requested or head.run.ended):
                self.cancel(head.run)
            elif head is not None and head.run.inputs > head.run.read:
                self.given(head.run)

    @property
    def under_way(self) -> list[RunId]:
        return list(self._jobs)

    @property
    def busy(self) -> Counter[str]:
        """Return the number of turns that run here, by agent."""
        return Counter(job.run.agent for job in self._jobs.values())

    def works_on(self, run_id: RunId) -> bool:
        return run_id in self._jobs

    async def rescue(self, run: Run) -> Run:
        """Take over a run whose executor is gone, as its agent declares."""
        driver = self._driver_of(run)
        how = driver.agent.rescue if driver else "fail"
        reason = "The process that worked on this task stopped." if driver else f"There is no agent {run.agent} here."
        rescued = await self._recovered(run.id, Recover(run.epoch, how, reason=reason))
        tell("run.rescued", run=run.id, agent=run.agent, how=how, state=rescued.state.value)
        return rescued

    async def _recovered(self, run_id: RunId, recover: Recover) -> Run:
        """Recover a run. If that ends it, its children are canceled first."""
        stopped = 0
        while True:
            outcome = await self._commands.execute(run_id, replace(recover, stopped=stopped))
            run = outcome.run
            if outcome.events or run.state is not State.WORKING or run.epoch != recover.epoch:
                return run
            await self._stop_children(run)
            stopped = len(run.children)

    async def wake_sleepers(self) -> None:
        """Make the runs ready whose sleep is over."""
        while runs := await self._store.sleepers(self._clock(), WOKEN):
            for run in runs:
                await self._commands.execute(run.id, Wake(self._clock()))
            if len(runs) < WOKEN:
                break

    def _driver_of(self, run: Run) -> Driver | None:
        driver = self._driver(run.agent)
        return self._conduct(driver) if driver and self._conduct and run.orchestration is not None else driver

    async def abandon(self, belongs: Callable[[Run], bool] = lambda _: True) -> None:
        """Stop working on the runs for which `belongs` is true, so that other replicas can take them over. Used when
        this replica was declared dead, or when something that these runs need is gone."""
        jobs = [job for job in self._jobs.values() if belongs(job.run)]
        for job in jobs:
            job.leaving = True
            if job.task is not None and job.driving:
                job.task.cancel()
        await self._wait_for([job.task for job in jobs if job.task is not None])

    async def abandon_slots(self) -> None:
        """Stop the turns that hold a slot, because this replica may have been declared dead and its slots freed."""
        held = {id_ for id_, job in self._jobs.items() if job.slot_of is not None and not job.leaving}
        if held:
            tell("slots.vacated", turns=len(held))
            await self.abandon(lambda run: run.id in held)

    async def close(self) -> None:
        """Stop working. Running turns are handed over, which does not count as a failure."""
        self._closing = True
        await asyncio.gather(*self._dispatching.values(), return_exceptions=True)
        await self.abandon()

    async def _wait_for(self, tasks: list[asyncio.Task[None]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=self.grace_s)

    async def free_slots(self, agent: Agent) -> int:
        """Return the number of further turns that could begin; 0 if the agent has no limit."""
        if agent.limits.max_concurrent is None:
            return 0
        busy = await self._store.runs_in(State.WORKING, agent=agent.slug)
        return max(0, agent.limits.max_concurrent - sum(run.orchestration is None for run in busy))

    async def _dispatch(self, slug: str) -> None:
        try:
            while await self._begin_next(slug) or slug in self._asked_again:
                self._asked_again.discard(slug)
        except ParleyError as error:
            tell("dispatch.failed", agent=slug, code=error.code)
        finally:
            del self._dispatching[slug]
            self._asked_again.discard(slug)

    async def _begin_next(self, slug: str) -> bool:
        """Begin the run that has waited longest. Return False if no run waits, no slot is free, or the agent is
        gone."""
        driver = self._driver(slug)
        if self._closing or driver is None:
            return False
        limit = driver.agent.limits.max_concurrent
        if isinstance(driver, Throttled):
            limit = await driver.room()
        if limit is None:
            return await self._begin_first(slug, None) is not None
        slot_of = await self.slots.take(slug, limit)
        if slot_of is None:
            return False
        run: Run | None = None
        try:
            run = await self._begin_in_turn(slug, slot_of)
        finally:
            if run is None or run.orchestration is not None:
                await self.slots.give(slug, slot_of)
        # Another dispatch may have found no slot while this one was held for nothing: look again now that it is free.
        return run is not None or await self._first_waiting(slug) is not None

    async def _begin_first(self, slug: str, slot_of: str | None) -> Run | None:
        run = await self._first_waiting(slug)
        if run is not None:
            self.launch(run, slot_of=slot_of if run.orchestration is None else None)
        return run

    async def _begin_in_turn(self, slug: str, slot_of: str) -> Run | None:
        """Begin the first run of the principal whose turn it is."""
        beginning = [job for job in self._jobs.values() if job.run.state is State.SUBMITTED and job.run.agent == slug]
        queue = await self._store.queue(slug, [job.run.id for job in beginning])
        found = next_served(queue, slug, [job.served for job in beginning if job.served is not None])
        head = await self._store.head(found[0].run) if found is not None else None
        if found is None or head is None or not head.run.ready or head.run.id in self._jobs:
            # If another replica has begun this run meanwhile, its slot is used, and others look again when it is free.
            return None
        run = head.run
        in_turn = run.orchestration is None
        self.launch(run, slot_of=slot_of if in_turn else None, served=found[1] if in_turn else None)
        return run

    async def _first_waiting(self, slug: str) -> Run | None:
        """Return the longest waiting run that is not already about to begin here."""
        beginning = {id_ for id_, job in self._jobs.items() if job.run.state is State.SUBMITTED}
        waiting = await self._store.runs_in(State.SUBMITTED, agent=slug, limit=len(beginning) + 1)
        return next((run for run in waiting if run.id not in beginning), None)

    async def _work(self, job: TurnJob, events: list[Event] | None) -> None:
        """Run turn after turn, until the run has ended or waits: for input, or for its agent to be registered again."""
        try:
            while True:
                if job.run.state is not State.WORKING:
                    if not self.has_driver(job.run.agent):
                        break
                    begin, served = Begin(self._cluster.replica), job.served
                    job.run = (await self._commands.submit(job.run.id, begin, served=served)).run
                job.driver = self._driver_of(job.run)
                run = job.run
                # The turn belongs to the trace of its newest input, wherever and whenever it runs.
                enter(run.trace or NONE)
                with span(
                    "runtime.infer", run=run.id, conversation=run.conversation, agent=run.agent, epoch=run.epoch
                ) as turn:
                    job.run = await self._turn(job, events)
                    turn.outcome = job.run.state.value
                self._tell_ended(job.run)
                if not job.run.ready or job.leaving or self._closing or job.served is not None:
                    # A turn of a queue is over: it is the turn of the next principal that waits.
                    break
                events, job.overtaken = None, asyncio.Event()
        except NotReady:
            tell("turn.not_needed", run=job.run.id, agent=job.run.agent)
        except (LateResult, LeaseLost) as error:
            tell("turn.late_result", run=job.run.id, agent=job.run.agent, code=error.code)
        except Exception as error:  # noqa: BLE001 - the log could not be written: the sweep finds the run
            tell("turn.broken", run=job.run.id, agent=job.run.agent, error=error)
        finally:
            job.close()
            if self._jobs.get(job.run.id) is job:
                del self._jobs[job.run.id]
            if job.slot_of is not None:
                await self.slots.give(job.run.agent, job.slot_of)
                self.dispatch(job.run.agent)

    async def _turn(self, job: TurnJob, events: list[Event] | None) -> Run:
        run = job.run
        outbox = Outbox(self._commands, run.id, run.epoch)
        ending = await self._ending(job, outbox, events)
        job.clear()
        if ending is None:
            how = job.driver.agent.rescue if job.driver else "restart"
            return await self._recovered(run.id, Recover(run.epoch, how, orderly=True))
        if isinstance(ending, Canceled | Failed):
            # Children end first: after a crash between the two, the rescue of this run stops them again.
            await self._stop_children(await self._commands.state(run.id))
        try:
            if job.turn is not None:
                await self._record(job.turn, Scribe(run.turns, self._prices), outbox)
            return await outbox.finish(ending)
        except (PayloadTooLarge, NestedTooDeep) as error:
            return await outbox.abort(Failed(error.code, error.message))

    async def _ending(self, job: TurnJob, outbox: Outbox, events: list[Event] | None) -> Report | None:
        """Return the end of the turn: from its driver, or as requested by a stop; None when this process gives it
        up."""
        driver = job.driver
        if job.slot_of is not None and not self.slots.holds(job.slot_of):
            job.leaving = True
        if job.ending is None and await self._is_orphan(job.run):
            job.ending = Canceled(f"The parent task {job.run.parent} ended.")
        if driver is None or job.leaving or self._closing or job.ending is not None:
            return job.ending
        job.turn, job.steps, job.spending = None, None, None
        if self._budgets and (refused := await used_up(self._budgets, job.run)) is not None:
            return refused
        self._arm(job, driver.agent)
        job.driving = True
        try:
            report = await self._drive(driver, job, outbox, events)
            return (job.spending and job.spending.refused) or report
        except Suspension as pause:
            return job.ending or Suspended(pause.due)
        except asyncio.CancelledError as error:
            if job.ending is None and job.leaving:
                return None
            # Without an ending, this process did not cancel the task: something that the agent awaited was canceled.
            ending = job.ending or await self._raised(job, error)
        except (LateResult, LeaseLost, StoreUnavailable):
            # StoreUnavailable is no fault of the agent: the turn is resumed when the store is back.
            raise
        except (AgentError, BudgetExceeded, TreeTooLarge, PayloadTooLarge, NestedTooDeep) as error:
            ending = Failed(error.code, error.message)
        except BaseExceptionGroup as errors:
            # A task group of the agent wraps the exceptions of its tasks.
            if (pause := suspension_in(errors)) is not None:
                return job.ending or Suspended(pause.due)
            ending = await self._raised(job, errors)
        except Exception as error:  # noqa: BLE001 - an agent may raise anything
            ending = await self._raised(job, error)
        finally:
            job.driving = False
            if job.steps is not None:
                job.steps.close()
        return await self._salvaged(driver, job, outbox, (job.spending and job.spending.refused) or ending)

    async def _is_orphan(self, run: Run) -> bool:
        """Return whether a run was started for one that was canceled or has failed meanwhile. A process that was paused
        may start a child after the parent's end, when nothing cancels it any more."""
        parent = await self._commands.stored(run.parent) if run.parent else None
        return parent is not None and lets_go(parent)

    async def _record(self, turn: Turn, scribe: Scribe, outbox: Outbox) -> bool:
        """Write the usage that was recorded while the driver ran. Return whether there was any."""
        reports = self._used(turn, scribe)
        for report in reports:
            await outbox.put(report)
        return bool(reports)

    def _used(self, turn: Turn | None, scribe: Scribe) -> Sequence[Report]:
        recorded = turn.take_recorded() if turn is not None else ()
        return [scribe.report(usage) for usage in recorded] if recorded else ()

    async def _salvaged(self, driver: Driver, job: TurnJob, outbox: Outbox, ending: Report) -> Report:
        """Write the results of an interrupted turn to the log. Return its end, with the driver's reason if it gives
        one."""
        if not isinstance(driver, Salvaging) or job.turn is None or not isinstance(ending, Failed | Canceled):
            return ending
        job.clear()
        scribe = Scribe(job.run.turns, self._prices)
        try:
            async with asyncio.timeout(self.grace_s), aclosing(driver.salvage(job.turn, ending)) as outputs:
                async for output in outputs:
                    report = await self._attachments.stored(scribe.report(output))
                    if isinstance(report, Failed):
                        return report if isinstance(ending, Failed) else ending
                    await outbox.put(report)
        except (LateResult, LeaseLost, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - the turn ends all the same
            tell("turn.not_salvaged", run=job.run.id, agent=job.run.agent, error=error)
        return ending

    async def _raised(self, job: TurnJob, error: BaseException) -> Failed:
        """Return a failure for an agent's exception. Its text may contain secrets, so only operators see it; the client
        sees only its type."""
        tell("agent.raised", run=job.run.id, agent=job.run.agent, error=error)
        for listener in self._on_raised:
            await listener(job.run, error)
        return Failed("agent_error", f"The agent stopped with an unexpected {type(error).__name__}.")

    async def _drive(self, driver: Driver, job: TurnJob, outbox: Outbox, events: list[Event] | None) -> Report:
        """Run the driver until its turn ends. Return the report that ended it."""
        run = job.run
        if events is None:
            events = await self.logs.read(run.id, run.version)
        if run.beside:
            events = await self._attachments.told(events)
        scribe = Scribe(run.turns, self._prices)
        provider, model = vendor_and_model(driver.agent)
        with span(
            "driver.turn",
            agent=run.agent,
            driver=kind_of(driver),
            provider=provider,
            model=model,
            run=run.id,
            conversation=run.conversation,
        ) as driven:
            view = await self.logs.view(run.id, events) if len(events) > LARGE else None
            spending = job.spending = TurnSpending(self._budgets, run, outbox, lambda: self._used(job.turn, scribe))
            job.steps = self._make_steps(driver.agent, job, outbox, scribe, events, spending.guard)
            turn = job.turn = self._make_turn(driver.agent, job, events, view, spending.guard)
            CURRENT.set(turn)
            async with aclosing(driver.run(turn)) as outputs:
                async for output in outputs:
                    if isinstance(output, Conclusion):
                        outbox.upto = output.upto
                    spends = await self._record(turn, scribe, outbox) or isinstance(output, Usage)
                    report = await self._attachments.stored(scribe.report(output))
                    if isinstance(report, Final):
                        driven.outcome = "failed" if isinstance(report, Failed) else ""
                        driven.note(**scribe.tokens)
                        return report
                    if isinstance(report, Noted):
                        turn.remember(report.notes)
                    await outbox.put(report)
                    if spends:
                        await spending.recorded()
            await self._record(turn, scribe, outbox)
            driven.note(**scribe.tokens)
        return Completed()

    def _make_steps(
        self, spec: Agent, job: TurnJob, outbox: Outbox, scribe: Scribe, events: list[Event], guard: Guard
    ) -> Steps:
        """Create the durable steps of a turn. Nothing may be shown before the answer of an agent that replies with a
        message."""
        shown = spec.replies != "message"
        journal = TurnJournal(outbox, self._attachments, lambda: self._used(job.turn, scribe))
        clock, monotonic = self._clock, self._monotonic
        return Steps(job.run.turns, events, journal, shown=shown, clock=clock, monotonic=monotonic, guard=guard)

    def _make_turn(self, spec: Agent, job: TurnJob, events: list[Event], view: View | None, guard: Guard) -> Turn:
        run = job.run
        newer = events[max(0, len(events) + run.version - events[-1].seq) :]
        if run.inputs > run.read or any(event.type == "input" for event in newer):
            job.overtaken.set()
        # None of these refers to the turn: what a turn leaves behind is freed at once, not by the garbage collector.
        ask, recall = partial(self._asked, run), partial(earlier_rounds, self._store, run, told=self._attachments.told)
        notes, load = partial(earlier_notes, self._store, run), self._attachments.loaded
        return Turn(
            spec,
            run,
            events,
            ask,
            load,
            recall,
            notes,
            current(),
            job.overtaken,
            self.toolcalls,
            view,
            job.steps,
            guard,
        )

    def _asked(self, run: Run, turn: Turn, number: int, agent: str, text: str) -> Awaitable[View]:
        return self._ask(run, turn.principal, number, agent, text, max(map(hops_of, turn.inputs)))

    def _tell_ended(self, run: Run) -> None:
        tell(
            "turn.ended",
            run=run.id,
            agent=run.agent,
            state=run.state.value,
            epoch=run.epoch,
            started_at=run.started_at,
            ended_at=run.updated_at,
        )

    def _arm(self, job: TurnJob, agent: Agent) -> None:
        """Start the timer of the agent's timeout. Time spent in earlier turns counts, time spent waiting does not."""
        limit = agent.limits.timeout_s
        if limit is not None:
            left = max(0.0, limit - job.run.spent_ms / 1000)
            late = Failed("timeout", f"The agent took longer than {limit:g} s.")
            job.timer = asyncio.get_running_loop().call_later(left, self._stop, job, late)

    def _stop(self, job: TurnJob, ending: Report) -> None:
        if job.ending is not None or job.task is None:
            return
        job.ending = ending
        if job.driving:
            job.task.cancel()
            job.grace = asyncio.get_running_loop().call_later(self.grace_s, self._abandon, job)

    def _abandon(self, job: TurnJob) -> None:
        """End the run of an agent that cannot be stopped. Its slot stays taken until the agent returns."""
        tell("turn.stuck", run=job.run.id, agent=job.run.agent)
        if job.ending is not None:
            abandoned = self._commands.submit(job.run.id, Emit(job.run.epoch, job.ending))
            abandoned.add_done_callback(lambda done: done.exception())
