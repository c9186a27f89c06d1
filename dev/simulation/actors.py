"""Actors of the standard scenario beside its clients: processes of a paired runtime, and a person who steers
orchestrations."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from parley import Done, Status, Text
from parley.errors import InvalidState, LateResult, LeaseLost, NotFound, ParleyError, RunEnded, TaskRunEnded
from parley.execution.admission import StopKind
from parley.orchestrations.service import OrchestrationService
from parley.paired.claims import PairedClaim
from parley.paired.leases import Lease
from parley.paired.runtimes import Described, Runtime
from parley.runs.rules.access import LOCAL
from parley.testing.simulation.invariants import MARK
from parley.testing.simulation.loop import SimulatedProcess
from parley.testing.simulation.replica import SimulatedEngine
from parley.testing.simulation.world import World

PROCESSES = 2
AT_ONCE = 4
WAIT_S = 2.0
WORK_S = (0.05, 0.6)
RENEW_S = 0.8

Gone = asyncio.Future[None]


class PairedFleet:
    """The processes of one runtime: they pull tasks from any replica, renew their leases, and report."""

    def __init__(self, world: World, slug: str) -> None:
        self._world = world
        self._slug = slug
        self._dice = Random(f"{world.seed}/runtimes")
        self._runtime: Runtime | None = None
        self._processes: list[SimulatedProcess] = []
        self._started = 0
        self.accepted: dict[tuple[str, int], int] = {}

    async def pair(self) -> None:
        async def paired(engine: SimulatedEngine, gone: Gone) -> Runtime:
            if (known := await engine.runtimes.of(self._slug)) is not None:
                return known
            code = await engine.runtimes.pair(self._slug)
            return (await engine.service.attach(code.text, Described()))[0]

        self._runtime = await self._world.ask(paired, "pair", self._dice)
        for _ in range(PROCESSES):
            self._processes.append(self._start())

    def break_one(self, amount: float, seconds: float) -> None:
        """Kill or pause one of the processes for some time."""
        if not self._processes:
            return
        number, loop = int(amount * 1000) % PROCESSES, self._world.loop
        process = self._processes[number]
        if amount < 0.5:
            loop.kill(process)
            loop.call_later(min(seconds, 2.0), self._replace, number, context=loop.world.context)
        else:
            loop.pause(process)
            loop.call_later(seconds, loop.resume, process, context=loop.world.context)

    def _replace(self, number: int) -> None:
        self._processes[number] = self._start()

    def _start(self) -> SimulatedProcess:
        self._started += 1
        name = f"runtime {self._started}"
        return self._world.background(name, _RuntimeProcess(self._world, self, self.runtime, name).live())

    @property
    def runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime


class _RuntimeProcess:
    def __init__(self, world: World, fleet: PairedFleet, runtime: Runtime, name: str) -> None:
        self._world = world
        self._fleet = fleet
        self._runtime = runtime
        self._instance = name.replace(" ", "-")
        self._dice = Random(f"{world.seed}/{name}")
        self._jobs: dict[Lease, asyncio.Task[None]] = {}

    async def live(self) -> None:
        while True:
            try:
                for claim in await self._pull(AT_ONCE - len(self._jobs)):
                    self._begin(claim)
            except ParleyError:
                await asyncio.sleep(0.2)
            await asyncio.sleep(0.05)

    async def _pull(self, most: int) -> list[PairedClaim]:
        async def pulled(engine: SimulatedEngine, gone: Gone) -> list[PairedClaim]:
            return await engine.service.pull(self._runtime, self._instance, most, WAIT_S, gone)

        return await self._world.ask(pulled, "pull", self._dice) if most > 0 else []

    def _begin(self, claim: PairedClaim) -> None:
        task = asyncio.get_running_loop().create_task(self._work(claim.lease))
        self._jobs[claim.lease] = task
        task.add_done_callback(lambda _: self._jobs.pop(claim.lease, None))

    async def _work(self, lease: Lease) -> None:
        renewing = asyncio.get_running_loop().create_task(self._renew(lease))
        try:
            for number in range(self._dice.randrange(3)):
                await asyncio.sleep(self._dice.uniform(*WORK_S))
                if renewing.done():
                    return
                status = Status(f"part {number}", mark=f"{MARK}{lease.epoch}")
                await self._call("say", lambda engine, status=status: engine.claims.say(lease, status))
            outputs = [Text("from the runtime"), Done()]
            outcome = await self._call("finish", lambda engine: engine.claims.finish(lease, outputs, b"digest"))
            self._world.watch.acknowledged(outcome.run, self._instance)
            if not outcome.replayed:
                self._finished(lease)
        except (LeaseLost, LateResult, TaskRunEnded):
            return
        finally:
            renewing.cancel()

    def _finished(self, lease: Lease) -> None:
        count = self._fleet.accepted[lease.run, lease.epoch] = self._fleet.accepted.get((lease.run, lease.epoch), 0) + 1
        if count > 1:
            self._world.watch.fail("lease", lease.run, f"epoch {lease.epoch} was finished {count} times")

    async def _renew(self, lease: Lease) -> None:
        """Renew the lease until it is lost."""
        while True:
            await asyncio.sleep(RENEW_S)
            (held,) = await self._call("renew", lambda engine: engine.claims.renew([lease]))
            if held.standing != "held":
                return

    async def _call(self, what: str, work: Callable[[SimulatedEngine], Any]) -> Any:
        async def handled(engine: SimulatedEngine, gone: Gone) -> Any:
            return await work(engine)

        return await self._world.ask(handled, what, self._dice)


async def steer(world: World, run: str, dice: Random) -> None:
    """Pause an orchestration, and let it go on a moment later."""

    def asked(how: str) -> Callable[[SimulatedEngine, Gone], Any]:
        async def handled(engine: SimulatedEngine, gone: Gone) -> Any:
            return await getattr(OrchestrationService(engine.exchange), how)(run, LOCAL)

        return handled

    try:
        await asyncio.sleep(dice.uniform(0.0, 0.5))
        await world.ask(asked("pause"), "pause", dice)
        await asyncio.sleep(dice.uniform(0.0, 1.5))
        await world.ask(asked("resume"), "resume", dice)
    except (InvalidState, RunEnded):
        return


async def stop(world: World, kind: StopKind, name: str, within_s: float) -> None:
    """Stop all work of an agent or a principal at some time, and allow it again a moment later. Once a stop is
    acknowledged, everything that it concerns is canceled or has ended."""
    dice = Random(f"{world.seed}/stop/{kind}/{name}")

    async def stopped(engine: SimulatedEngine, gone: Gone) -> int:
        return (await engine.switch.stop(kind, name, "local"))[0].at

    async def allowed(engine: SimulatedEngine, gone: Gone) -> None:
        with suppress(NotFound):
            await engine.switch.allow(kind, name)

    calm = asyncio.get_running_loop().time() + 1.5 * within_s
    await asyncio.sleep(dice.uniform(0.2, 0.8) * within_s)
    before = {id_ for id_, run in world.database.tables.live.items() if name in (run.agent, run.principal)}
    await world.ask(stopped, "stop", dice)
    for run in [world.database.tables.live[id_] for id_ in before if id_ in world.database.tables.live]:
        if not run.cancel_requested:
            world.watch.fail("stop", run.id, f"it is {run.state.value} after all work of {kind} {name} was stopped")
    await asyncio.sleep(dice.uniform(0.1, 3.0))
    await world.ask(allowed, "allow", dice)
    # A replica that was paused meanwhile may carry out a stop once more that was asked for twice.
    await asyncio.sleep(max(0.0, calm - asyncio.get_running_loop().time()))
    await world.ask(allowed, "allow", dice)
