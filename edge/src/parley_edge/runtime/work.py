"""The main loop of a runtime: pull tasks, call the local agent, deliver results, stop cleanly."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from parley_edge.errors import EdgeError, NotAccepted, Refused, Unreachable
from parley_edge.json_values import Json
from parley_edge.runtime.answers import Failed, Result
from parley_edge.runtime.backoff import Backoff
from parley_edge.runtime.delivery import Delivery
from parley_edge.runtime.jobs import ALL_TOLD, Hands, Job, Link, Tell
from parley_edge.runtime.leases import Leases, Listening
from parley_edge.runtime.ledger import Entry, Ledger
from parley_edge.runtime.local import LocalAgent
from parley_edge.runtime.platform import Platform, TaskRun

AWAY_CAP_S = 10.0
NOTE_S = 0.5
"""Time between two progress reports after the first ones; of faster reports only the last is sent."""
LAST_NOTES_S = 5.0
"""Maximum time that a result waits for earlier progress reports."""
LAST_CALLS_S = 5.0
CANCELED = Failed("The task was canceled.", "CANCELED")


@dataclass(frozen=True, slots=True)
class Pace:
    concurrency: int = 1
    grace_s: float = 30.0
    heartbeat_s: float = 30.0
    pull_s: float = 1.0
    """Minimum time between two pulls that return nothing."""


@dataclass(frozen=True, slots=True)
class Who:
    """Pairing and instance of this process: a process with a copied profile is another instance."""

    runtime_id: str
    instance: str


class Runtime:
    def __init__(self, who: Who, platform: Platform, local: LocalAgent, ledger: Ledger, pace: Pace, tell: Tell) -> None:
        self._who = who
        self._platform = platform
        self._local = local
        self._ledger = ledger
        self._pace = pace
        self._tell = tell
        self.hands, self.link = Hands(tell), Link(tell)
        self._leases = Leases(platform, self.hands, self.link, pace.heartbeat_s)
        self._listening = Listening(platform, self.hands, self.link, pace.pull_s)
        self._delivery = Delivery(platform, tell)
        self._doing: dict[str, asyncio.Task[None]] = {}
        self._stopping, self._hurried = asyncio.Event(), asyncio.Event()

    def stop(self) -> None:
        """Stop pulling and finish running tasks; a second call hands them back at once."""
        (self._hurried if self._stopping.is_set() else self._stopping).set()

    async def run(self) -> None:
        """Run until stopped, or until the platform no longer accepts this runtime."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                pulling = group.create_task(self._pull())
                beside = [group.create_task(loop) for loop in (self._leases.keep(), self._listening.listen())]
                await self._stopping.wait()
                pulling.cancel()
                await self._drain()
                for loop in (*beside, *self._doing.values()):
                    loop.cancel()
        except BaseExceptionGroup as faults:
            raise self._fatal(faults) from None

    def _fatal(self, faults: BaseExceptionGroup[BaseException]) -> BaseException:
        fault = next((one for one in faults.exceptions if isinstance(one, EdgeError)), faults.exceptions[0])
        if isinstance(fault, NotAccepted):
            for run in self.hands.jobs:
                # The leases are gone, so the platform will not accept these results.
                self._ledger.forget(run)
        return fault

    async def _pull(self) -> None:
        await self.link.ready.wait()
        await self._recover()
        backoff = Backoff(AWAY_CAP_S)
        while True:
            room = await self.hands.room(self._pace.concurrency)
            began = time.monotonic()
            try:
                runs = await self._platform.pull(room)
            except Unreachable as fault:
                self.link.gone(fault)
                await asyncio.sleep(backoff.next(fault.retry_after_s))
                continue
            backoff.reset()
            self.link.back()
            for run in runs:
                self._begin(run)
            if not runs:
                await asyncio.sleep(max(0.0, began + self._pace.pull_s - time.monotonic()))

    def _begin(self, run: TaskRun) -> None:
        held = self.hands.jobs.get(run.id)
        if held is not None:
            # Its lease expired while the platform was unreachable; the work continues under the new lease.
            held.lease, held.lease_until = run.lease_id, run.lease_expires_at
            return
        job = Job.of(run)
        self._keep(self._entry(job))
        self._tell("task.started", run=job.run, type=job.payload["task_type"])
        self._start(job, self._do(job))

    def _start(self, job: Job, doing: Coroutine[Any, Any, None]) -> None:
        self.hands.take(job)
        task = self._doing[job.run] = self._group.create_task(doing)
        task.add_done_callback(lambda _: self._doing.pop(job.run, None))

    async def _do(self, job: Job) -> None:
        result = await self._asked(job)
        if result is not None:
            await self._hand_in(job, result)
        else:
            job.stop_reporting()
            await self._give_up(job)

    async def _asked(self, job: Job) -> Result | None:
        """The local agent's answer; None if the task was stopped, also before the call."""
        if job.ended is not None:
            return None
        job.calling = asyncio.create_task(self._local.run(job.payload, lambda note: self._note(job, note)))
        try:
            return await job.calling
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if job.ended is None or (this is not None and this.cancelling()):
                raise
            return None

    async def _give_up(self, job: Job) -> None:
        if job.ended == "canceled":
            await self._delivery.deliver(job, CANCELED)
        elif job.ended == "released":
            await self._release(job.run, job.lease)
        self._ledger.forget(job.run)
        self.hands.lay_down(job, job.ended or "lost")

    async def _hand_in(self, job: Job, result: Result) -> None:
        """Deliver a result. It is stored on disk before the first try, until the platform has it."""
        job.phase = "delivering"
        job.answered.set()
        await asyncio.to_thread(self._keep, self._entry(job, result))
        await self._reported(job)
        outcome = await self._delivery_of(job).deliver(job, result)
        self._ledger.forget(job.run)
        more = {"reason": result.error} if isinstance(result, Failed) else {}
        self.hands.lay_down(job, outcome, **more)

    def _entry(self, job: Job, result: Result | None = None) -> Entry:
        return Entry(job.run, job.lease, self._who.runtime_id, result, job.instance or self._who.instance)

    def _keep(self, entry: Entry) -> None:
        """Store an entry. With a full disk the work continues; only a crash would then cost more."""
        try:
            self._ledger.keep(entry)
        except OSError as error:
            self._tell("warning", what=f"{entry.run} cannot be stored on disk: {error.strerror}")

    async def _release(self, run: str, lease: str) -> None:
        """Release a lease. Tried only once: an unreleased lease expires."""
        with suppress(Refused, Unreachable):
            await self._platform.release(run, lease)

    def _note(self, job: Job, note: Json) -> None:
        job.note = str(note.get("text", ""))[:200]
        job.add(note)
        if job.at_work and (job.reporting is None or job.reporting.done()):
            job.reporting = self._group.create_task(self._report(job))

    async def _report(self, job: Job) -> None:
        while job.unsaid and job.ended is None:
            job.told += 1
            await self._tell_progress(job, job.unsaid.popleft())
            if job.told >= ALL_TOLD:
                with suppress(TimeoutError):
                    await asyncio.wait_for(job.answered.wait(), NOTE_S)

    async def _tell_progress(self, job: Job, note: Json) -> None:
        try:
            if await self._platform.progress(job.run, job.lease, note):
                job.give_up("canceled")
        except NotAccepted:
            raise
        except Refused as refusal:
            if refusal.code == "lease_lost":
                job.give_up("lost")
        except Unreachable as fault:
            self.link.gone(fault)
            await asyncio.sleep(NOTE_S)

    async def _reported(self, job: Job) -> None:
        """Wait until earlier progress is reported, unless the platform takes too long."""
        if job.reporting is not None:
            await asyncio.wait((job.reporting,), timeout=LAST_NOTES_S)
            job.stop_reporting()

    async def _recover(self) -> None:
        """Handle the entries of an earlier process: deliver results, hand back unfinished tasks. Unfinished tasks that
        came with a copied profile may still run where the copy was made: they are left to their lease."""
        for entry in self._ledger.entries():
            if entry.runtime_id != self._who.runtime_id:
                self._tell("task.dropped", run=entry.run, reason="it was claimed under an earlier pairing")
                self._ledger.forget(entry.run)
            elif entry.result is None and entry.instance not in ("", self._who.instance):
                self._tell("task.left", run=entry.run)
                self._ledger.forget(entry.run)
            elif entry.result is None:
                await self._release(entry.run, entry.lease)
                self._tell("task.given_back", run=entry.run)
                self._ledger.forget(entry.run)
            else:
                self._tell("task.recovered", run=entry.run)
                job = Job.kept(entry)
                self._start(job, self._hand_in(job, entry.result))

    def _delivery_of(self, job: Job) -> Delivery:
        """The delivery of a job. A copied result is delivered in its instance's name; the platform accepts it once."""
        if job.instance in ("", self._who.instance):
            return self._delivery
        return Delivery(self._platform.speaking_for(job.instance), self._tell)

    async def _drain(self) -> None:
        self._tell("stopping", running=len(self.hands), grace_s=self._pace.grace_s)
        self._leases.draining = True
        announced = self._group.create_task(self._announce()) if self.hands.jobs else None
        await self._finished(list(self._doing), self._pace.grace_s, self._hurried)
        unfinished = self.hands.at_work
        for run in unfinished:
            self.hands.jobs[run].give_up("released")
        await self._finished(unfinished, LAST_CALLS_S, asyncio.Event())
        if announced is not None:
            announced.cancel()
        for run in self.hands.jobs:
            self._tell("task.kept", run=run)
        if not self.hands.jobs and self.link.ready.is_set():
            with suppress(Refused, Unreachable):
                await self._platform.detach()

    async def _announce(self) -> None:
        """Tell the platform to send no more work; the leases of running tasks are still renewed."""
        with suppress(Unreachable):
            await self._leases.renew()

    async def _finished(self, runs: list[str], within_s: float, hurried: asyncio.Event) -> None:
        """Wait until these runs end, the time is over, or a second stop arrives."""
        doing = [self._doing[run] for run in runs if run in self._doing]
        if not doing:
            return
        all_done = asyncio.create_task(asyncio.wait(doing))
        hurry = asyncio.create_task(hurried.wait())
        await asyncio.wait((all_done, hurry), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        all_done.cancel()
        hurry.cancel()
