"""Who works on what in this process: turns, their cancel and timeout, and who begins next."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial

from parley.core.access import Principal
from parley.core.agents import Agent
from parley.core.commands import Begin, Emit, Recover, Report
from parley.core.conversations import hops_of
from parley.core.dialogue import Round
from parley.core.events import Canceled, Completed, Event, Failed, Noted, Rejected
from parley.core.runs import Run, State
from parley.core.turns import Conclusion, Final, Scribe
from parley.core.views import View
from parley.engine.attachments import Attachments
from parley.engine.commands import Commands
from parley.engine.jobs import Job
from parley.engine.offload import LARGE
from parley.engine.outbox import Outbox
from parley.engine.ports import Cluster, Driver, Gated, Salvaging, Store, kind_of
from parley.engine.recall import earlier_notes, earlier_rounds
from parley.engine.recent import RecentLogs
from parley.engine.slots import Slots
from parley.engine.toolwords import Tooling
from parley.engine.turns import CURRENT, Turn
from parley.engine.views import folded
from parley.errors import (
    AgentError,
    LateResult,
    LeaseLost,
    NestedTooDeep,
    NotReady,
    ParleyError,
    PayloadTooLarge,
    StoreUnavailable,
)
from parley.ids import RunId
from parley.telemetry import span, tell
from parley.telemetry.trace import NONE, current, enter

GRACE_S = 5.0

AskFor = Callable[[Run, Principal, int, str, str, int], Awaitable[View]]
"""Asks another agent: the run that asks, its caller, the number of the question, the agent, the text, the hops."""


class Execution:
    def __init__(
        self,
        commands: Commands,
        store: Store,
        cluster: Cluster,
        attachments: Attachments,
        ask: AskFor,
        grace_s: float = GRACE_S,
    ) -> None:
        self._commands = commands
        self._store = store
        self.logs = RecentLogs(store)
        self._cluster = cluster
        self.slots = Slots(cluster)
        self._attachments = attachments
        self._ask = ask
        self.grace_s = grace_s
        self.toolcalls: Tooling | None = None
        """The tools of agents, where there are any."""
        self._drivers: dict[str, Driver] = {}
        self.unlisted: Callable[[str], Driver | None] = lambda _: None
        """Finds drivers that nobody has registered."""
        self._jobs: dict[RunId, Job] = {}
        self._dispatching: dict[str, asyncio.Task[None]] = {}
        self._asked_again: set[str] = set()
        self._closing = False
        self.conduct: Callable[[Driver], Driver] | None = None
        """Makes of an agent's driver the one that works on its orchestrations."""

    def register(self, driver: Driver) -> None:
        """Begin the agent's next turns with this driver."""
        self._drivers[driver.agent.slug] = driver

    def unregister(self, slug: str) -> None:
        """Begin no turn of this agent; what waits for it waits until it is registered again."""
        self._drivers.pop(slug, None)

    @property
    def drivers(self) -> Mapping[str, Driver]:
        return self._drivers

    def employs(self, slug: str) -> bool:
        """Whether turns of this agent begin here."""
        return self._driver(slug) is not None

    def _driver(self, slug: str) -> Driver | None:
        return self._drivers.get(slug) or self.unlisted(slug)

    async def admit(self, agent: Agent, *, at_once: bool = False) -> Begin | Rejected | None:
        """How a new input is taken: worked on at once; or queued (None), when its agent has a limit or works elsewhere;
        or not at all. An orchestration counts towards no limit: its steps do, maybe those of the very same agent."""
        limits = agent.limits
        if (at_once or limits.max_concurrent is None) and self.employs(agent.slug):
            return None if self._closing else Begin(self._cluster.replica)
        if limits.max_queued is not None:
            # The one at the head of the queue may be about to begin: it does not count as waiting.
            room = limits.max_queued + await self.free_slots(agent)
            if await self._store.waiting(agent.slug, room) >= room:
                return Rejected(
                    "queue_full", f"Agent {agent.slug} has {limits.max_queued} tasks waiting; try again later."
                )
        return None

    def launch(self, run: Run, events: list[Event] | None = None, *, slot_of: str | None = None) -> None:
        """Work on a run that has begun, or is to begin. `events`: its whole log, if at hand."""
        job = self._jobs[run.id] = Job(run, slot_of)
        job.task = asyncio.get_running_loop().create_task(self._work(job, events))

    def dispatch(self, slug: str) -> None:
        """Begin what waits, as far as slots allow. Asked while it is under way, it looks once more."""
        if self._closing or not self.employs(slug):
            return
        if slug in self._dispatching:
            self._asked_again.add(slug)
            return
        task = asyncio.get_running_loop().create_task(self._dispatch(slug))
        self._dispatching[slug] = task

    def cancel(self, run: Run) -> None:
        """Stop the turn of a run whose cancel, or whose end, is on record."""
        if (job := self._jobs.get(run.id)) is not None:
            self._stop(job, Canceled())

    def given(self, run: Run) -> None:
        """Tell the turn of a run that there is input which it has not read."""
        job = self._jobs.get(run.id)
        if job is not None and run.epoch == job.run.epoch:
            job.overtaken.set()

    async def heard(self, run_id: RunId) -> None:
        """A run that is worked on here has grown elsewhere: its cancel, its end or more input may be on record."""
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
        """How many turns are under way here, by agent."""
        return Counter(job.run.agent for job in self._jobs.values())

    def works_on(self, run_id: RunId) -> bool:
        return run_id in self._jobs

    async def rescue(self, run: Run) -> Run:
        """Take up a run whose executor is gone, as its agent declares."""
        driver = self._driver_of(run)
        how = driver.agent.rescue if driver else "fail"
        reason = "The process that worked on this task stopped." if driver else f"There is no agent {run.agent} here."
        outcome = await self._commands.execute(run.id, Recover(run.epoch, how, reason=reason))
        tell("run.rescued", run=run.id, agent=run.agent, how=how, state=outcome.run.state.value)
        return outcome.run

    def _driver_of(self, run: Run) -> Driver | None:
        driver = self._driver(run.agent)
        return self.conduct(driver) if driver and self.conduct and run.orchestration is not None else driver

    async def abandon(self, belongs: Callable[[Run], bool] = lambda _: True) -> None:
        """This replica was given up, or what some of its runs need: stop working on them, others may take them."""
        jobs = [job for job in self._jobs.values() if belongs(job.run)]
        for job in jobs:
            job.leaving = True
            if job.task is not None and job.driving:
                job.task.cancel()
        await self._wait_for([job.task for job in jobs if job.task is not None])

    async def vacate(self) -> None:
        """This replica may have been given up, and its slots with it: whoever holds one stops."""
        held = {id_ for id_, job in self._jobs.items() if job.slot_of is not None and not job.leaving}
        if held:
            tell("slots.vacated", turns=len(held))
            await self.abandon(lambda run: run.id in held)

    async def close(self) -> None:
        """Stop working. Turns under way are handed over, which is not counted as a failure."""
        self._closing = True
        await asyncio.gather(*self._dispatching.values(), return_exceptions=True)
        await self.abandon()

    async def _wait_for(self, tasks: list[asyncio.Task[None]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=self.grace_s)

    async def free_slots(self, agent: Agent) -> int:
        """How many more of its turns could begin; none for an agent that works elsewhere, without a limit of ours."""
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
        """Begin the run that has waited longest. False: nothing waits, there is no slot, or the agent is gone."""
        driver = self._driver(slug)
        if self._closing or driver is None:
            return False
        limit = driver.agent.limits.max_concurrent
        if isinstance(driver, Gated):
            limit = await driver.room()
        if limit is None:
            return await self._begin_first(slug, None) is not None
        slot_of = await self.slots.take(slug, limit)
        if slot_of is None:
            return False
        run: Run | None = None
        try:
            run = await self._begin_first(slug, slot_of)
        finally:
            if run is None or run.orchestration is not None:
                await self.slots.give(slug, slot_of)
        # Whoever came while the slot was held for nothing found none: look again now that it is free.
        return run is not None or await self._first_waiting(slug) is not None

    async def _begin_first(self, slug: str, slot_of: str | None) -> Run | None:
        run = await self._first_waiting(slug)
        if run is not None:
            self.launch(run, slot_of=slot_of if run.orchestration is None else None)
        return run

    async def _first_waiting(self, slug: str) -> Run | None:
        """The longest waiting run that is not already about to begin here."""
        beginning = {id_ for id_, job in self._jobs.items() if job.run.state is State.SUBMITTED}
        waiting = await self._store.runs_in(State.SUBMITTED, agent=slug, limit=len(beginning) + 1)
        return next((run for run in waiting if run.id not in beginning), None)

    async def _work(self, job: Job, events: list[Event] | None) -> None:
        """Turn after turn, until the run has ended or waits for somebody, be it for its agent to come back."""
        try:
            while True:
                if job.run.state is not State.WORKING:
                    if not self.employs(job.run.agent):
                        break
                    job.run = (await self._commands.execute(job.run.id, Begin(self._cluster.replica))).run
                job.driver = self._driver_of(job.run)
                run = job.run
                # Part of the trace that its newest input came with, wherever and whenever it is worked on.
                enter(run.trace or NONE)
                with span("runtime.infer", run=run.id, agent=run.agent, epoch=run.epoch) as turn:
                    job.run = await self._turn(job, events)
                    turn.outcome = job.run.state.value
                self._tell_ended(job.run)
                events, job.overtaken = None, asyncio.Event()
                if not job.run.ready or job.leaving or self._closing:
                    break
        except NotReady:
            tell("turn.not_needed", run=job.run.id, agent=job.run.agent)
        except (LateResult, LeaseLost) as error:
            tell("turn.late_result", run=job.run.id, agent=job.run.agent, code=error.code)
        except Exception as error:  # noqa: BLE001 - the log could not be written: whoever sweeps finds the run
            tell("turn.broken", run=job.run.id, agent=job.run.agent, error=error)
        finally:
            job.clear()
            if self._jobs.get(job.run.id) is job:
                del self._jobs[job.run.id]
            if job.slot_of is not None:
                await self.slots.give(job.run.agent, job.slot_of)
                self.dispatch(job.run.agent)

    async def _turn(self, job: Job, events: list[Event] | None) -> Run:
        run = job.run
        outbox = Outbox(self._commands, run.id, run.epoch)
        ending = await self._ending(job, outbox, events)
        job.clear()
        if ending is None:
            how = job.driver.agent.rescue if job.driver else "restart"
            return (await self._commands.execute(run.id, Recover(run.epoch, how, orderly=True))).run
        try:
            return await outbox.finish(ending)
        except (PayloadTooLarge, NestedTooDeep) as error:
            return await outbox.abort(Failed(error.code, error.message))

    async def _ending(self, job: Job, outbox: Outbox, events: list[Event] | None) -> Report | None:
        """How the turn ends: as its driver says, as it was told, or None when this process gives it up."""
        driver = job.driver
        if job.slot_of is not None and not self.slots.holds(job.slot_of):
            job.leaving = True
        if driver is None or job.leaving or self._closing or job.ending is not None:
            return job.ending
        self._arm(job, driver.agent)
        job.turn, job.driving = None, True
        try:
            return await self._drive(driver, job, outbox, events)
        except asyncio.CancelledError as error:
            if job.ending is None and job.leaving:
                return None
            # Without an ending nobody here canceled it: something that the agent waited for was.
            ending = job.ending or self._raised(job, error)
        except (LateResult, LeaseLost, StoreUnavailable):
            # The last is no fault of the agent's: the turn is taken up again when the store is back.
            raise
        except (AgentError, PayloadTooLarge, NestedTooDeep) as error:
            ending = Failed(error.code, error.message)
        except Exception as error:  # noqa: BLE001 - an agent may raise anything
            ending = self._raised(job, error)
        finally:
            job.driving = False
        return await self._salvaged(driver, job, outbox, ending)

    async def _salvaged(self, driver: Driver, job: Job, outbox: Outbox, ending: Report) -> Report:
        """Put what the interrupted turn has made into the log; its ending, with the driver's reason if it gives one."""
        if not isinstance(driver, Salvaging) or job.turn is None or not isinstance(ending, Failed | Canceled):
            return ending
        job.clear()
        scribe = Scribe(job.run.turns)
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

    def _raised(self, job: Job, error: BaseException) -> Failed:
        """The text of what an agent raised may hold secrets: it goes to the operator, its type to the client."""
        tell("agent.raised", run=job.run.id, agent=job.run.agent, error=error)
        return Failed("agent_error", f"The agent stopped with an unexpected {type(error).__name__}.")

    async def _drive(self, driver: Driver, job: Job, outbox: Outbox, events: list[Event] | None) -> Report:
        """Run the driver to the end of its turn; what ended it."""
        run = job.run
        if events is None:
            events = await self.logs.read(run.id, run.version)
        if run.beside:
            events = await self._attachments.told(events)
        scribe = Scribe(run.turns)
        with span("driver.turn", agent=run.agent, driver=kind_of(driver)) as driven:
            view = await folded(events) if len(events) > LARGE else None
            turn = job.turn = self._make_turn(driver.agent, job, events, view)
            CURRENT.set(turn)
            async with aclosing(driver.run(turn)) as outputs:
                async for output in outputs:
                    if isinstance(output, Conclusion):
                        outbox.upto = output.upto
                    report = await self._attachments.stored(scribe.report(output))
                    if isinstance(report, Final):
                        driven.outcome = "failed" if isinstance(report, Failed) else ""
                        return report
                    if isinstance(report, Noted):
                        turn.remember(report.notes)
                    await outbox.put(report)
        return Completed()

    def _make_turn(self, spec: Agent, job: Job, events: list[Event], view: View | None) -> Turn:
        run, asked = job.run, 0
        newer = events[max(0, len(events) + run.version - events[-1].seq) :]
        if run.inputs > run.read or any(event.type == "input" for event in newer):
            job.overtaken.set()

        async def ask(agent: str, text: str) -> View:
            nonlocal asked
            asked += 1
            return await self._ask(run, turn.principal, asked, agent, text, max(map(hops_of, turn.inputs)))

        async def recall(most: int) -> list[Round]:
            return await earlier_rounds(self._store, run, most, self._attachments.told)

        notes, load = partial(earlier_notes, self._store, run), self._attachments.loaded
        turn = Turn(spec, run, events, ask, load, recall, notes, current(), job.overtaken, self.toolcalls, view)
        return turn

    def _tell_ended(self, run: Run) -> None:
        tell(
            "turn.ended", run=run.id, agent=run.agent, state=run.state.value, epoch=run.epoch,
            started_at=run.started_at, ended_at=run.updated_at,
        )  # fmt: skip

    def _arm(self, job: Job, agent: Agent) -> None:
        """Start the clock of the agent's timeout; time spent in earlier turns counts, time spent waiting does not."""
        limit = agent.limits.timeout_s
        if limit is not None:
            left = max(0.0, limit - job.run.spent_ms / 1000)
            late = Failed("timeout", f"The agent took longer than {limit:g} s.")
            job.timer = asyncio.get_running_loop().call_later(left, self._stop, job, late)

    def _stop(self, job: Job, ending: Report) -> None:
        if job.ending is not None or job.task is None:
            return
        job.ending = ending
        if job.driving:
            job.task.cancel()
            job.grace = asyncio.get_running_loop().call_later(self.grace_s, self._abandon, job)

    def _abandon(self, job: Job) -> None:
        """The agent does not let itself be stopped: its run ends all the same, its slot stays taken till it returns."""
        tell("turn.stuck", run=job.run.id, agent=job.run.agent)
        if job.ending is not None:
            abandoned = self._commands.submit(job.run.id, Emit(job.run.epoch, job.ending))
            abandoned.add_done_callback(lambda done: done.exception())
