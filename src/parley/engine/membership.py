"""This replica among the others: it proves that it lives, and the eldest takes up the work of the dead."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from parley.core.runs import State
from parley.engine.execution import Execution
from parley.engine.ports import Cluster, Store
from parley.engine.retention import Retention
from parley.errors import ParleyError
from parley.telemetry import tell

LEASE_S = 10.0
SWEEP_S = 1.0
TIDY_S = 30.0


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
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._execution = execution
        self._agents = agents
        self._alive: list[str] = []
        self._retention = retention
        self._loops = [
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
        alive = await self._cluster.renew()
        if alive is None:
            tell("replica.buried", replica=self._cluster.replica)
            await self._execution.abandon()
            await self._cluster.join()
            alive = await self._cluster.renew()
        self._alive = alive or []

    async def sweep(self) -> None:
        """One round: the leader buries the dead and takes up their runs; everyone looks for waiting work."""
        if self.leads:
            for replica in await self._cluster.bury():
                await self._take_up(replica)
        for slug in self._agents:
            self._execution.dispatch(slug)

    async def tidy(self) -> None:
        """One round: the leader forgets what is old."""
        if self.leads:
            await self._retention.tick()

    async def _take_up(self, replica: str) -> None:
        tell("replica.died", replica=replica)
        while runs := await self._store.runs_in(State.WORKING, owner=replica):
            for run in runs:
                await self._execution.rescue(run)
        await self._cluster.forget(replica)
