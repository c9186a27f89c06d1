"""Membership of this replica: it renews its lease, and the oldest replica takes over the work of dead ones."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from parley.clock import Monotonic
from parley.errors import ParleyError
from parley.execution.cluster import Cluster
from parley.execution.executor import Executor
from parley.ids import RunId
from parley.runs.retention import Retention
from parley.runs.rules.state import State
from parley.runs.store import Store
from parley.telemetry import tell

LEASE_S = 10.0
SWEEP_S = 1.0
TIDY_S = 30.0
PATIENCE = 5 / 6
"""Share of a lease: after this much without a renewal, there is just enough time left to check and stop."""


class Loop:
    """Calls `tick` at intervals. A failing tick is logged, and does not stop the loop."""

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


class ReplicaLease:
    """The time for which this replica certainly counts as alive, independent of the store's clock."""

    def __init__(
        self, lease_s: float = LEASE_S, *, shared: bool = False, monotonic: Monotonic = time.monotonic
    ) -> None:
        self.lease_s = lease_s
        self.shared = shared
        self.now = monotonic
        self._renewed_at = monotonic()

    def renew(self, began: float) -> None:
        """Record a renewal by the time at which it was started: the lease ends no earlier than its duration after
        that."""
        self._renewed_at = began

    def is_sure(self) -> bool:
        """Return whether no other replica can have declared this one dead. Always true for a store that is not
        shared."""
        return not self.shared or self.now() - self._renewed_at <= self.lease_s * PATIENCE


class Membership:
    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        execution: Executor,
        agents: Iterable[str],
        retention: Retention,
        lease: ReplicaLease,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._execution = execution
        self._agents = agents
        self._alive: list[str] = []
        self._missed: set[tuple[RunId, int]] = set()
        """Turns that the store assigns to this replica, but that were not running here at the last check."""
        self._retention = retention
        self._renewing = asyncio.Lock()
        self.lease, lease_s = lease, lease.lease_s
        watch = [Loop("watch", lease_s * (1 - PATIENCE), self.watch)] if lease.shared else []
        self._loops = [
            *watch,
            Loop("renew", lease_s / 3, self.renew),
            Loop("sweep", SWEEP_S, self.sweep),
            Loop("tidy", TIDY_S, self.tidy),
        ]

    # Why: docs/decisions/execution.md#let-the-oldest-replica-lead-without-an-election
    @property
    def leads(self) -> bool:
        """Return whether this replica leads: the oldest live replica does. Two may believe so for a moment; everything
        that a leader does can be done twice."""
        return bool(self._alive) and self._alive[0] == self._cluster.replica

    @property
    def replica(self) -> str:
        return self._cluster.replica

    @property
    def alive(self) -> tuple[str, ...]:
        """The replicas that were alive at the last renewal, the oldest first."""
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
            began = self.lease.now()
            alive = await self._cluster.renew()
            if alive is None:
                tell("replica.buried", replica=self._cluster.replica)
                # New turns begin under the new id at once, even if the old turns take long to stop.
                await asyncio.gather(self._execution.abandon(), self._cluster.join())
                began = self.lease.now()
                alive = await self._cluster.renew()
            self._alive = alive or []
            self.lease.renew(began)

    # Why: docs/decisions/execution.md#give-up-slots-before-the-lease-ends-and-keep-other-turns
    async def watch(self) -> None:
        """Stop turns that hold slots if this replica could not renew its lease: it will soon be declared dead, and
        others will get its slots. Its other turns may continue, since their writes are fenced."""
        if not self.lease.is_sure():
            await self._execution.abandon_slots()

    async def sweep(self) -> None:
        """Do one round: the leader declares replicas dead, takes over their runs and wakes sleeping runs; every replica
        looks for waiting work."""
        if self.leads:
            for replica in await self._cluster.expire_replicas():
                await self._take_up(replica)
            await self._execution.wake_sleepers()
        await self._take_back()
        for slug in self._agents:
            self._execution.dispatch(slug)
        await self._execution.slots.settle()

    async def tidy(self) -> None:
        """Do one round: the leader deletes old data."""
        if self.leads:
            await self._retention.tick()

    # Why: docs/decisions/execution.md#resume-a-lost-turn-on-its-own-replica
    async def _take_back(self) -> None:
        """Resume our own turns that were lost without a crash: the store was unreachable when they should have been
        written, or its answer never came. A turn must be missing in two checks, so that one which is just beginning or
        has just ended is not resumed."""
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
