"""A simulated world: a database, replicas of the engine, clients and faults, all decided by one seed."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from msgspec import Struct

from parley.budgets.rules import LimitEntry
from parley.errors import ParleyError
from parley.execution.driver import Driver
from parley.ids import drawn_from
from parley.push.delivery import Verdict
from parley.push.hooks import Hook
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run
from parley.telemetry import attach
from parley.testing.simulation.database import SimulatedDatabase
from parley.testing.simulation.faults import WorldFault, applied
from parley.testing.simulation.invariants import History, Violation, WebhookPost, WorldWatch, at_rest, final
from parley.testing.simulation.loop import PROCESS, Endless, SeededLoop, SimulatedProcess
from parley.testing.simulation.nodes import NodeTables, NodeWatch, NodeWork
from parley.testing.simulation.replica import NETWORK_S, CallBroken, SimulatedReplica, Work, call

PATIENCE_S = 120.0
"""Simulated seconds after the last fault in which everything must come to its end."""
LOOK_S = (0.2, 0.5)
RESTART_S = 0.3
STARTING_S = 0.1

Drivers = Callable[["World", int], Sequence[Driver]]
"""Returns the agents of a replica, given the version that it runs."""


class Universe(Struct, frozen=True):
    """The result of one simulated world."""

    seed: int
    violations: list[Violation]
    trace: str
    """Hash of everything that happened: equal for equal worlds."""
    steps: int
    seconds: float
    """Simulated seconds."""
    runs: int
    events: int
    history: History
    story: list[str]


class World:
    """One simulated world. `play` runs it to its end."""

    def __init__(
        self,
        seed: int,
        drivers: Drivers,
        faults: Sequence[WorldFault] = (),
        replicas: int = 3,
        *,
        told: bool = False,
        node_work: NodeWork | None = None,
        limits: Sequence[LimitEntry] = (),
    ) -> None:
        self._limits = limits
        self.seed = seed
        self.loop = SeededLoop(seed)
        self.database = SimulatedDatabase(self.loop, seed)
        self.watch = WorldWatch(self.database, told=told)
        self.random = Random(f"{seed}/world")
        self.history = History()
        self.replicas: list[SimulatedReplica] = []
        self.breaks: list[Callable[[float, float], None]] = []
        """Break an actor of the scenario; called with a strength and a duration."""
        self.nodes = NodeWatch(NodeTables(self.loop.wall_ms))
        self.checks: list[Callable[[], Iterable[Violation]]] = [self.nodes.final]
        """Rules that hold once everything has come to rest, beside those of every world."""
        self._node_work = node_work
        self._drivers = drivers
        self._faults = faults
        self._count = replicas
        self._down: dict[int, float] = {}
        self._versions = dict.fromkeys(range(replicas), 1)
        self._actors: list[asyncio.Task[None]] = []
        self._over = False

    def play(self, actors: "Callable[[World], Sequence[Coroutine[Any, Any, None]]]") -> Universe:
        """Run the world until all actors are done and everything has come to rest."""
        detach = attach(self.watch.told, spans=False)
        try:
            with _alone(self.loop, self.seed):
                self.loop.run_until_complete(self._main(actors))
        except Endless as endless:
            self.watch.fail("liveness", "world", str(endless))
        finally:
            detach()
            for error in self.loop.errors:
                self.watch.fail("internal error", "event loop", error)
            steps, seconds, trace = self.loop.steps, self.loop.time(), self.loop.digest()
            self.loop.dispose()
        heads = self.database.tables.heads
        return Universe(
            self.seed,
            self.watch.violations,
            trace,
            steps,
            seconds,
            len(heads),
            self.watch.events,
            self.history,
            self.watch.story or [],
        )

    async def _main(self, actors: "Callable[[World], Sequence[Coroutine[Any, Any, None]]]") -> None:
        for number in range(self._count):
            self._start(number)
        await asyncio.sleep(STARTING_S)
        for number, work in enumerate(actors(self)):
            self.spawn(f"actor {number}", work)
        breaking = [self.loop.create_task(self._break(fault)) for fault in self._faults]
        await asyncio.gather(*breaking)
        await self._rest()
        if not self.watch.violations:
            self.watch.violations.extend(final(self.database, self.history))
            self.watch.violations.extend(violation for check in self.checks for violation in check())

    async def _break(self, fault: WorldFault) -> None:
        await asyncio.sleep(fault.at)
        self.watch.note(f"FAULT {fault}")
        await applied(self, fault)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run an actor in a process of its own."""
        task = self.loop.create_task(work, name=name, context=self.loop.process(name).context)
        self._actors.append(task)
        return task

    def background(self, name: str, work: Coroutine[Any, Any, None]) -> SimulatedProcess:
        """Run an actor that has no end in a process of its own."""
        process = self.loop.process(name)
        self.loop.create_task(work, context=process.context)
        return process

    async def _rest(self) -> None:
        """Wait until everything has come to its end, or the patience has."""
        until = self.loop.time() + PATIENCE_S
        while self.loop.time() < until and not self.watch.violations:
            await asyncio.sleep(self.random.uniform(*LOOK_S))
            if all(task.done() for task in self._actors) and self._is_at_rest():
                break
        for task in self._actors:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self.watch.fail("actor", task.get_name(), repr(error))
            elif not task.done():
                self.watch.fail("liveness", task.get_name(), "an actor is still waiting")

    def _is_at_rest(self) -> bool:
        return at_rest(self.database, self.history) and not any(True for check in self.checks for _ in check())

    def _start(self, number: int) -> None:
        replica = SimulatedReplica(
            self.database,
            f"replica {number}",
            self._drivers(self, self._versions[number]),
            self._post,
            self.seed,
            lambda: self._restart(number),
            self._versions[number],
            (self.nodes.tables, self._node_work) if self._node_work is not None else None,
            self._limits,
        )
        if number < len(self.replicas):
            self.replicas[number] = replica
        else:
            self.replicas.append(replica)

    def _restart(self, number: int) -> None:
        pause = self._down.pop(number, RESTART_S)
        self.watch.note(f"replica {number} is dead, and starts again in {pause:.2f} s")
        self.loop.call_later(pause, self._start, number, context=self.loop.world.context)

    # Faults: see `Breakable`.

    def down(self, number: int, seconds: float, version: int | None = None) -> None:
        self._down[number] = seconds
        if version is not None:
            self._versions[number] = version

    def break_actor(self, amount: float, seconds: float) -> None:
        for breaks in self.breaks:
            breaks(amount, seconds)

    def pausing(self, replica: SimulatedReplica, seconds: float) -> None:
        self.watch.note(f"{replica.name} is paused for {seconds:.2f} s")
        self.watch.excuse(replica.process, self.loop.time() + seconds)

    # Calls of clients, and posts to webhooks.

    async def ask(self, work: Work[Any], what: str, dice: Random) -> Any:
        """Call any replica until one answers. An error that says what is wrong with the request is raised."""
        process = PROCESS.get() or self.loop.world
        while True:
            replica = dice.choice(self.replicas)
            self.history.operations[what] += 1
            try:
                return await call(replica, process, work)
            except CallBroken:
                await asyncio.sleep(0.02 + dice.random() * 0.2)
            except ParleyError as error:
                self.history.errors[error.code] += 1
                if error.code not in AGAIN:
                    raise
                await asyncio.sleep(0.05 + dice.random() * 0.4)

    async def _post(self, hook: Hook, run: Run, event: Event) -> Verdict:
        """Post an update to its receiver, which is slow, refuses some posts, and whose answers are sometimes lost."""
        least, most = NETWORK_S
        await asyncio.sleep(self.random.uniform(least, most))
        lot = self.random.random()
        post = WebhookPost(hook.task, event.seq, lot >= 0.1)
        self.watch.posted(self.history, post)
        await asyncio.sleep(self.random.uniform(least, most) + (1.0 if 0.1 < lot < 0.12 else 0.0))
        return Verdict("refused", "503") if lot < 0.13 else Verdict("delivered")


AGAIN = frozenset(("store_unavailable", "stopping", "work_stopped"))
"""Codes of errors after which a client tries again."""


@contextmanager
def _alone(loop: SeededLoop, seed: int) -> Generator[None, None, None]:
    """Take ids from the seed, and keep the garbage collector from running finalizers in between."""
    bytes_of = Random(f"{seed}/ids").randbytes
    collecting = gc.isenabled()
    gc.disable()
    try:
        with drawn_from(lambda: loop.wall_ms() * 1_000_000, bytes_of):
            yield
    finally:
        if collecting:
            gc.enable()
