"""Faults: a schedule derived from the seed, and the code that executes it."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from dev.chaos.history import Pause
from dev.chaos.seats import Seat, Server
from dev.chaos.world import LEASE_S, SERVERS, World

Kind = str
AnySeat = TypeVar("AnySeat", bound=Seat)
KINDS: dict[Kind, int] = {
    "kill server": 5, "stop server": 3, "restart PostgreSQL fast": 1, "restart PostgreSQL immediate": 2,
    "cut connections": 4, "leave connections half open": 3, "step clock": 3, "kill runtime": 2, "kill node": 2,
}  # fmt: skip
"""Kinds of faults with their relative frequency."""

WORKER_KINDS: dict[Kind, int] = {"kill worker": 6, "roll workers": 3}
"""Kinds of faults of servers with several workers."""

EVERY_S = 1.5
CALM_S = 2.0
"""Time without faults at the start, so that clients have started to work."""


class Fault(Struct, frozen=True):
    at: float
    kind: Kind
    place: int
    """Index of the target among the possible ones."""
    size: float
    """Duration or size of the fault, between 0 and 1."""


def schedule(seed: int, seconds: float, *, workers: bool = False) -> list[Fault]:
    """Faults at random times: every kind once in random order, then random kinds."""
    dice = random.Random(seed)
    possible = KINDS | WORKER_KINDS if workers else KINDS
    kinds = list(possible)
    dice.shuffle(kinds)
    faults: list[Fault] = []
    at = CALM_S
    while (at := at + dice.expovariate(1 / EVERY_S)) < seconds:
        kind = kinds.pop() if kinds else dice.choices(list(possible), list(possible.values()))[0]
        faults.append(Fault(at, kind, dice.randrange(60), dice.random()))
    return faults


class Hands:
    def __init__(self, world: World, say: Callable[[str], None]) -> None:
        self._world = world
        self._say = say
        self._database = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    async def carry_out(self, faults: list[Fault]) -> None:
        """Execute each fault at its time, also while others last; then wait until everything is repaired."""
        began = time.monotonic()
        for fault in faults:
            await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
            task = asyncio.ensure_future(self._befall(fault))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        await asyncio.gather(*self._under_way)

    async def _befall(self, fault: Fault) -> None:
        self._say(fault.kind)
        match fault.kind:
            case "kill server":
                done = await self._killed(_free(self._world.servers, fault), fault.size * 2)
            case "kill worker":
                done = self._signaled(_free(self._world.servers, fault), fault, signal.SIGKILL)
            case "roll workers":
                done = self._signaled(_free(self._world.servers, fault), fault, signal.SIGHUP)
            case "stop server":
                done = await self._stopped(_free(self._world.servers, fault), LEASE_S * (1.5 + 2 * fault.size))
            case "restart PostgreSQL fast" | "restart PostgreSQL immediate":
                done = await self._restarted(fault)
            case "cut connections":
                done = self._world.balancer.cut(0.2 + 0.8 * fault.size) > 0
            case "leave connections half open":
                done = self._world.balancer.forget(0.1 + 0.4 * fault.size) > 0
            case "step clock":
                done = await self._stepped(self._world.servers[fault.place % SERVERS], fault.size)
            case "kill runtime":
                done = await self._killed(_free(self._world.runtimes, fault), fault.size * 2)
            case _:
                done = await self._killed(_free(self._world.nodes, fault), fault.size * 2)
        self._world.history.faults[fault.kind] += done

    async def _killed(self, seat: Seat | None, down_s: float) -> bool:
        if seat is None:
            return False
        async with seat.lock:
            await seat.kill()
            await asyncio.sleep(down_s)
            await seat.start()
        return True

    def _signaled(self, seat: Server | None, fault: Fault, how: signal.Signals) -> bool:
        """Kill one of the workers of a server, or let it replace all of them."""
        if seat is None:
            return False
        pids = [seat.pid] if how is signal.SIGHUP else seat.workers
        if not pids:
            return False
        pid = pids[fault.place % len(pids)]
        os.kill(pid, how)
        if how is signal.SIGKILL:
            self._world.history.pauses.append(Pause(pid, time.monotonic()))
        return True

    async def _stopped(self, seat: Seat | None, seconds: float) -> bool:
        if seat is None:
            return False
        async with seat.lock:
            await seat.sleep(seconds)
        return True

    async def _restarted(self, fault: Fault) -> bool:
        if self._database.locked():
            return False
        async with self._database:
            how = "immediate" if "immediate" in fault.kind else "fast"
            await asyncio.to_thread(self._world.database.stop, how)
            await asyncio.sleep(fault.size * 3)
            await asyncio.to_thread(self._world.database.start)
        return True

    async def _stepped(self, server: Server, size: float) -> bool:
        """Step the clock by some minutes for some seconds, then back, which is a step too."""
        server.control.set(clock_s=(size - 0.5) * 1200)
        await asyncio.sleep(2 + 6 * size)
        server.control.set(clock_s=0)
        return True


def _free(seats: Sequence[AnySeat], fault: Fault) -> AnySeat | None:
    """The target: the first free seat from the fault's place on; None if all have a fault."""
    at = fault.place % len(seats)
    return next((seat for seat in (*seats[at:], *seats[:at]) if not seat.lock.locked()), None)
