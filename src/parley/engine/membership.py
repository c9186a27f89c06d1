"""This replica among the others: it proves that it lives, and the eldest takes up the work of the dead."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from parley.core.runs import State
from parley.engine.execution import Execution
from parley.engine.ports import Cluster, Store
from parley.engine.retention import Retention
from parley.errors import ParleyError
from parley.ids import RunId
from parley.telemetry import tell

LEASE_S = 10.0
SWEEP_S = 1.0
TIDY_S = 30.0
PATIENCE = 5 / 6
"""Of a lease: when that much is over without a renewal, there is just time enough to look and leave."""


class Loop:
    """Calls `tick` again and again. A tick that fails is told, and the next one comes all the same."""

    def __init__(self, name: str, every_s: float, tick: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._every_s = every_s
        self._tick = tick
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self._tick()
            except ParleyError as error:
                tell("loop.failed", loop=self._name, code=error.code)
            except Exception as error:  # noqa: BLE001 - a loop that dies silently would be worse
                tell("loop.broken", loop=self._name, error=error)


class Membership:
    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        execution: Execution,
        agents: Iterable[str],
        retention: Retention,
        lease_s: float = LEASE_S,
        shared: bool = False,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._execution = execution
        self._agents = agents
        self._alive: list[str] = []
        self._missed: set[tuple[RunId, int]] = set()
        """Turns that are on record as ours, and that nobody here worked on when this was last looked at."""
        self._retention = retention
        self._renewing = asyncio.Lock()
        self._renewed_at = time.monotonic()
        """When the last proof that it lives was begun: whatever the store's clock says, the lease ends no earlier than
        this long after."""
        self._lease_s = lease_s
        watch = [Loop("watch", lease_s * (1 - PATIENCE), self.watch)] if shared else []
        if shared:
            execution.slots.sure = self._sure
        self._loops = [
            *watch,
            Loop("renew", lease_s / 3, self.renew),
            Loop("sweep", SWEEP_S, self.sweep),
            Loop("tidy", TIDY_S, self.tidy),
        ]

    @property
    def leads(self) -> bool:
        """The eldest of those alive leads. Two may think so for a moment: what a leader does can be done twice."""
        return bool(self._alive) and self._alive[0] == self._cluster.replica

    @property
    def replica(self) -> str:
        return self._cluster.replica

    @property
    def alive(self) -> tuple[str, ...]:
        """Those who were alive when this replica last looked, the eldest first."""
        return tuple(self._alive)

    @property
    def alone(self) -> bool:
        return len(self._alive) <= 1

    async def start(self) -> None:
        await self._cluster.join()
        await self.renew()
        await self.sweep()
        for loop in self._loops:
            loop.start()

    async def close(self) -> None:
        for loop in self._loops:
            await loop.stop()
        await self._cluster.leave()

    async def renew(self) -> None:
        async with self._renewing:
            began = time.monotonic()
            alive = await self._cluster.renew()
            if alive is None:
                tell("replica.buried", replica=self._cluster.replica)
                # What begins from now on begins under the new name, however long the old turns take to stop.
                await asyncio.gather(self._execution.abandon(), self._cluster.join())
                began = time.monotonic()
                alive = await self._cluster.renew()
            self._alive, self._renewed_at = alive or [], began

    async def watch(self) -> None:
        """One that could not prove that it lives will soon be given up, and others get its slots: it leaves them in
        time. Its other turns may go on, since what they write is fenced."""
        if not self._sure():
            await self._execution.vacate()

    def _sure(self) -> bool:
        """Whether nobody can have given this replica up by now."""
        return time.monotonic() - self._renewed_at <= self._lease_s * PATIENCE

    async def sweep(self) -> None:
        """One round: the leader buries the dead and takes up their runs; everyone looks for waiting work."""
        if self.leads:
            for replica in await self._cluster.bury():
                await self._take_up(replica)
        await self._take_back()
        for slug in self._agents:
            self._execution.dispatch(slug)

    async def tidy(self) -> None:
        """One round: the leader forgets what is old."""
        if self.leads:
            await self._retention.tick()

    async def _take_back(self) -> None:
        """Take up our own turns that were lost without a death: the store was away when they were to be written, or
        its answer never came. One that is just about to begin, or has just ended, is not missed twice."""
        ours = await self._store.runs_in(State.WORKING, owner=self._cluster.replica)
        missing = {(run.id, run.epoch): run for run in ours if not self._execution.works_on(run.id)}
        for run in [run for turn, run in missing.items() if turn in self._missed]:
            await self._execution.rescue(run)
            self._execution.dispatch(run.agent)
        self._missed = set(missing)

    async def _take_up(self, replica: str) -> None:
        tell("replica.died", replica=replica)
        while runs := await self._store.runs_in(State.WORKING, owner=replica):
            for run in runs:
                await self._execution.rescue(run)
        await self._cluster.forget(replica)
