"""Who works on what in this process: slots per agent, turns, cancel, timeout, rescue."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from parley.clock import Clock, now_ms
from parley.core.agents import Agent
from parley.core.events import Canceled, Completed, Event, Failed, Rejected
from parley.core.runs import Begin, Emit, Recover, Report, Run, State
from parley.core.turns import Final, Scribe
from parley.core.views import View
from parley.engine.attachments import Attachments
from parley.engine.commands import Commands
from parley.engine.outbox import Outbox
from parley.engine.ports import Driver, Store
from parley.engine.streams import read_all
from parley.engine.turns import Turn
from parley.errors import AgentError, LateResult, LeaseLost, NotReady, PayloadTooLarge
from parley.ids import RunId
from parley.telemetry import tell

GRACE_S = 5.0

AskFor = Callable[[Run, int, str, str], Awaitable[View]]


class _Job:
    """One turn under way."""

    __slots__ = ("driving", "ending", "grace", "run", "task", "timer")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.task: asyncio.Task[None] | None = None
        self.driving = False
        """Only while the agent's own code runs may the task be interrupted; the log is always written to the end."""
        self.ending: Report | None = None
        """Why it was told to stop, if it was."""
        self.timer: asyncio.TimerHandle | None = None
        self.grace: asyncio.TimerHandle | None = None

    def clear(self) -> None:
        for timer in (self.timer, self.grace):
            if timer is not None:
                timer.cancel()


class _Lane:
    """The slots of one agent, and who waits for one, in order."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.taken = 0
        self.queue: deque[Run] = deque()

    def take(self) -> bool:
        limit = self.agent.limits.max_concurrent
        if self.queue or (limit is not None and self.taken >= limit):
            return False
        self.taken += 1
        return True

    def full(self) -> Rejected | None:
        limit = self.agent.limits.max_queued
        if limit is None or len(self.queue) < limit:
            return None
        return Rejected("queue_full", f"Agent {self.agent.slug} has {limit} tasks waiting; try again later.")


class Execution:
    def __init__(
        self,
        commands: Commands,
        store: Store,
        attachments: Attachments,
        ask: AskFor,
        replica: str,
        clock: Clock = now_ms,
        grace_s: float = GRACE_S,
    ) -> None:
        self._commands = commands
        self._store = store
        self._attachments = attachments
        self._ask = ask
        self._replica = replica
        self._clock = clock
        self._grace_s = grace_s
        self._drivers: dict[str, Driver] = {}
        self._lanes: dict[str, _Lane] = {}
        self._jobs: dict[RunId, _Job] = {}
        self._closing = False

    def register(self, driver: Driver) -> None:
        slug = driver.agent.slug
        self._drivers[slug] = driver
        self._lanes[slug] = _Lane(driver.agent)

    def reserve(self, slug: str) -> Begin | Rejected | None:
        """A slot for a new turn right now; or None, it must wait; or the reason why it may not even wait."""
        if self._closing:
            return None
        lane = self._lanes[slug]
        return Begin(self._replica) if lane.take() else lane.full()

    def release(self, slug: str) -> None:
        """Give back a slot that was reserved and not used."""
        lane = self._lanes[slug]
        lane.taken -= 1
        self._fill(lane)

    def launch(self, run: Run, events: list[Event] | None = None) -> None:
        """Work on a run in the slot that was taken for it. `events`: its whole log, if at hand."""
        job = self._jobs[run.id] = _Job(run)
        job.task = asyncio.get_running_loop().create_task(self._work(job, events))

    def enqueue(self, run: Run) -> None:
        lane = self._lanes[run.agent]
        lane.queue.append(run)
        self._fill(lane)

    def cancel(self, run: Run) -> None:
        """Stop the turn of a run whose cancel is on record."""
        job = self._jobs.get(run.id)
        if job is not None:
            self._stop(job, Canceled())
        elif lane := self._lanes.get(run.agent):
            lane.queue = deque(waiting for waiting in lane.queue if waiting.id != run.id)

    async def recover(self) -> None:
        """Take up what an earlier process left: broken turns are rescued, waiting ones queued."""
        for run in await self._store.unfinished():
            driver = self._drivers.get(run.agent)
            if run.state is State.WORKING:
                run = await self._rescue(run, driver)
            if run.ready and driver is not None:
                self.enqueue(run)

    async def close(self) -> None:
        """Stop working. Turns under way are handed over, which is not counted as a failure."""
        self._closing = True
        tasks: list[asyncio.Task[None]] = []
        for job in self._jobs.values():
            if job.task is not None:
                tasks.append(job.task)
                if job.driving:
                    job.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace_s)

    async def _rescue(self, run: Run, driver: Driver | None) -> Run:
        how = driver.agent.rescue if driver else "fail"
        reason = "The process that worked on this task stopped." if driver else f"There is no agent {run.agent} here."
        outcome = await self._commands.execute(run.id, Recover(how, reason=reason))
        tell("run.rescued", run=run.id, agent=run.agent, how=how, state=outcome.run.state.value)
        return outcome.run

    def _fill(self, lane: _Lane) -> None:
        """Give free slots to those who wait, in order."""
        limit = lane.agent.limits.max_concurrent
        while lane.queue and not self._closing and (limit is None or lane.taken < limit):
            lane.taken += 1
            self.launch(lane.queue.popleft())

    async def _work(self, job: _Job, events: list[Event] | None) -> None:
        """Turn after turn, until the run has ended or waits for somebody."""
        try:
            while True:
                if job.run.state is not State.WORKING:
                    job.run = (await self._commands.execute(job.run.id, Begin(self._replica))).run
                job.run = await self._turn(job, events)
                self._tell_ended(job.run)
                events = None
                if not job.run.ready or self._closing:
                    break
        except NotReady:
            tell("turn.not_needed", run=job.run.id, agent=job.run.agent)
        except (LateResult, LeaseLost) as error:
            tell("turn.late_result", run=job.run.id, agent=job.run.agent, code=error.code)
        except Exception as error:  # noqa: BLE001 - the log could not be written: the run is rescued at the next start
            tell("turn.broken", run=job.run.id, agent=job.run.agent, error=error)
        finally:
            job.clear()
            self._jobs.pop(job.run.id, None)
            self.release(job.run.agent)

    async def _turn(self, job: _Job, events: list[Event] | None) -> Run:
        run = job.run
        outbox = Outbox(self._commands, run.id, run.epoch)
        ending = await self._ending(job, outbox, events)
        job.clear()
        if ending is None:
            how = self._drivers[run.agent].agent.rescue
            return (await self._commands.execute(run.id, Recover(how, orderly=True))).run
        try:
            return await outbox.finish(ending)
        except PayloadTooLarge as error:
            return await outbox.abort(Failed(error.code, error.message))

    async def _ending(self, job: _Job, outbox: Outbox, events: list[Event] | None) -> Report | None:
        """How the turn ends: as its driver says, as it was told, or None when this process is closing."""
        if self._closing or job.ending is not None:
            return job.ending
        self._arm(job)
        job.driving = True
        try:
            return await self._drive(job.run, outbox, events)
        except asyncio.CancelledError:
            return job.ending
        except (LateResult, LeaseLost):
            raise
        except (AgentError, PayloadTooLarge) as error:
            return Failed(error.code, error.message)
        except Exception as error:  # noqa: BLE001 - an agent may raise anything; its text may hold secrets
            tell("agent.raised", run=job.run.id, agent=job.run.agent, error=error)
            return Failed("agent_error", f"The agent stopped with an unexpected {type(error).__name__}.")
        finally:
            job.driving = False

    async def _drive(self, run: Run, outbox: Outbox, events: list[Event] | None) -> Report:
        """Run the driver to the end of its turn; what ended it."""
        if events is None:
            events = await read_all(self._store, run.id)
        turn = self._make_turn(run, events)
        scribe = Scribe(run.turns)
        async with aclosing(self._drivers[run.agent].run(turn)) as outputs:
            async for output in outputs:
                report = await self._attachments.stored(scribe.report(output))
                if isinstance(report, Final):
                    return report
                await outbox.put(report)
        return Completed()

    def _make_turn(self, run: Run, events: list[Event]) -> Turn:
        asked = 0

        async def ask(agent: str, text: str) -> View:
            nonlocal asked
            asked += 1
            return await self._ask(run, asked, agent, text)

        return Turn(run, events, ask)

    def _tell_ended(self, run: Run) -> None:
        tell(
            "turn.ended", run=run.id, agent=run.agent, state=run.state.value, epoch=run.epoch,
            started_at=run.started_at, ended_at=run.updated_at,
        )  # fmt: skip

    def _arm(self, job: _Job) -> None:
        """Start the clock of the agent's timeout; time spent in earlier turns counts, time spent waiting does not."""
        limit = self._lanes[job.run.agent].agent.limits.timeout_s
        if limit is not None:
            left = max(0.0, limit - job.run.spent_ms / 1000)
            late = Failed("timeout", f"The agent took longer than {limit:g} s.")
            job.timer = asyncio.get_running_loop().call_later(left, self._stop, job, late)

    def _stop(self, job: _Job, ending: Report) -> None:
        if job.ending is not None or job.task is None:
            return
        job.ending = ending
        if job.driving:
            job.task.cancel()
            job.grace = asyncio.get_running_loop().call_later(self._grace_s, self._abandon, job)

    def _abandon(self, job: _Job) -> None:
        """The agent does not let itself be stopped: its run ends all the same, its slot stays taken till it returns."""
        tell("turn.stuck", run=job.run.id, agent=job.run.agent)
        if job.ending is not None:
            abandoned = self._commands.submit(job.run.id, Emit(job.run.epoch, job.ending))
            abandoned.add_done_callback(lambda done: done.exception())
