"""Faults of a simulated world: drawn by the seed, applied at their time, and undone when they are over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol

from msgspec import Struct

from parley.testing.simulation.database import SimulatedDatabase
from parley.testing.simulation.replica import SimulatedReplica

KINDS = (
    "crash", "crash", "crash", "pause", "pause", "clock", "partition", "partition", "restart database",
    "slow database", "lost answers", "late answers", "signals", "connections", "stop", "deploy", "actor", "actor",
)  # fmt: skip
MAX_COUNTDOWN = 80
MAX_SKEW_MS = 30_000


class WorldFault(Struct, frozen=True):
    """Something that breaks at a time (seconds) and for some time. `amount` is its strength, from 0 to 1."""

    at: float
    kind: str
    replica: int
    lasts: float
    amount: float

    def __str__(self) -> str:
        where = f" of replica {self.replica}" if self.kind not in _EVERYWHERE else ""
        return f"{self.at:7.3f} s  {self.kind}{where}, {self.lasts:.2f} s, strength {self.amount:.2f}"


_EVERYWHERE = frozenset(("restart database", "slow database", "signals", "actor"))


class Breakable(Protocol):
    """The world as faults see it."""

    @property
    def database(self) -> SimulatedDatabase: ...

    @property
    def replicas(self) -> Sequence[SimulatedReplica]: ...

    def down(self, number: int, seconds: float, version: int | None = None) -> None:
        """Start a replica again only after so many seconds; with another version of its agents, if one is given."""
        ...

    def break_actor(self, amount: float, seconds: float) -> None:
        """Break an actor of the scenario, such as a paired runtime."""
        ...

    def pausing(self, replica: SimulatedReplica, seconds: float) -> None:
        """Note that a replica is paused for so long."""
        ...


def drawn(
    seed: object, count: int, replicas: int, within_s: float, kinds: Sequence[str] = KINDS
) -> tuple[WorldFault, ...]:
    """Return the faults of a world; a kind that is named twice is drawn twice as often."""
    dice = Random(f"{seed}/faults")
    found = [
        WorldFault(
            round(dice.uniform(0.05, within_s), 3),
            dice.choice(kinds),
            dice.randrange(replicas),
            round(dice.choice((0.1, 0.5, 1.5, 3.0, 5.0)) * dice.uniform(0.5, 1.2), 3),
            round(dice.random(), 3),
        )
        for _ in range(count)
    ]
    return tuple(sorted(found, key=lambda fault: fault.at))


async def applied(world: Breakable, fault: WorldFault) -> None:
    """Apply a fault, and undo it when it is over."""
    await _APPLY[fault.kind](world, fault)


async def _crash(world: Breakable, fault: WorldFault) -> None:
    """Let a replica die after some more steps: in the middle of whatever it does then."""
    replica = world.replicas[fault.replica]
    world.down(fault.replica, min(fault.lasts, 3.0))
    replica.loop.kill_after(replica.process, 1 + int(fault.amount * MAX_COUNTDOWN))


async def _pause(world: Breakable, fault: WorldFault) -> None:
    replica = world.replicas[fault.replica]
    loop = replica.loop
    world.pausing(replica, fault.lasts)
    loop.pause(replica.process)
    await asyncio.sleep(fault.lasts)
    loop.resume(replica.process)


async def _clock(world: Breakable, fault: WorldFault) -> None:
    """Set the wall clock of a replica wrong by up to half a minute, and right again later."""
    process = world.replicas[fault.replica].process
    far = fault.amount * 2 - 1
    process.skew_ms += int(far**3 * MAX_SKEW_MS)
    await asyncio.sleep(fault.lasts)
    process.skew_ms = 0


async def _partition(world: Breakable, fault: WorldFault) -> None:
    link = world.replicas[fault.replica].link
    link.cut("silent" if fault.amount < 0.5 else "refused")
    await asyncio.sleep(fault.lasts)
    link.heal()


async def _restart_database(world: Breakable, fault: WorldFault) -> None:
    world.database.restart()
    await asyncio.sleep(fault.lasts * 0.5)
    world.database.start()


async def _slow_database(world: Breakable, fault: WorldFault) -> None:
    database = world.database
    database.slowness = 5 + fault.amount * 120
    await asyncio.sleep(fault.lasts)
    database.slowness = 1.0


async def _lost_answers(world: Breakable, fault: WorldFault) -> None:
    link = world.replicas[fault.replica].link
    link.unanswered = 0.1 + fault.amount * 0.6
    await asyncio.sleep(fault.lasts)
    link.unanswered = 0.0


async def _late_answers(world: Breakable, fault: WorldFault) -> None:
    link = world.replicas[fault.replica].link
    link.late = 0.1 + fault.amount * 0.6
    await asyncio.sleep(fault.lasts)
    link.late = 0.0


async def _signals(world: Breakable, fault: WorldFault) -> None:
    database = world.database
    database.lost, database.doubled, database.delayed = fault.amount, 0.3, 0.5
    await asyncio.sleep(fault.lasts * 2)
    database.lost = database.doubled = database.delayed = 0.0


async def _connections(world: Breakable, fault: WorldFault) -> None:
    world.replicas[fault.replica].cut_connections(fault.amount)


async def _stop(world: Breakable, fault: WorldFault) -> None:
    await _stopped(world, fault, None)


async def _deploy(world: Breakable, fault: WorldFault) -> None:
    await _stopped(world, fault, world.replicas[fault.replica].version + 1)


async def _stopped(world: Breakable, fault: WorldFault, version: int | None) -> None:
    replica = world.replicas[fault.replica]
    if replica.process.alive and not replica.stopping:
        world.down(fault.replica, fault.lasts * 0.2, version)
        replica.loop.create_task(replica.stop(), context=replica.process.context)


async def _actor(world: Breakable, fault: WorldFault) -> None:
    world.break_actor(fault.amount, fault.lasts)


_APPLY: dict[str, Callable[[Breakable, WorldFault], Awaitable[None]]] = {
    "crash": _crash,
    "pause": _pause,
    "clock": _clock,
    "partition": _partition,
    "restart database": _restart_database,
    "slow database": _slow_database,
    "lost answers": _lost_answers,
    "late answers": _late_answers,
    "signals": _signals,
    "connections": _connections,
    "stop": _stop,
    "deploy": _deploy,
    "actor": _actor,
}
