"""Liveness of nodes. Heartbeats are kept in memory and written in batches; a silent node becomes offline.

Silence counts only while a replica was listening. After a start, after a replica died with heartbeats that it had not
written, or after the store or this process was unavailable for a while, every node gets its full time again.
"""

import asyncio
from collections.abc import Callable, Sequence

from parley.clock import Clock
from parley.errors import ParleyError, StoreUnavailable
from parley.nodes.rules import AHEAD_MS, BECAME, Heartbeat, NodeChange, NodeEvent, NodeStatus, RegisteredNode, changed
from parley.nodes.store import NodeStore
from parley.telemetry import tell

# Waiting changes of nodes are committed together: a thousand nodes that return at once need only a few commits.

MAX_BATCH = 500

Waiting = tuple[NodeChange, "asyncio.Future[bool]"]


class Changes:
    def __init__(self, store: NodeStore, grown: Callable[[], None]) -> None:
        self._store = store
        self._grown = grown
        self._waiting: list[Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def apply(self, change: NodeChange) -> bool:
        """Commit a change, durable on return; False if another change was first."""
        return (await self.apply_all([change]))[0]

    async def apply_all(self, changes: Sequence[NodeChange]) -> list[bool]:
        loop = asyncio.get_running_loop()
        waiting: list[Waiting] = [(change, loop.create_future()) for change in changes]
        self._waiting += waiting
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write())
        return [await future for _, future in waiting]

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            try:
                verdicts = await self._store.apply([change for change, _ in batch])
            except Exception as error:  # noqa: BLE001 - if the writer died silently, all callers would wait forever
                _fail(batch, error)
                continue
            for (_, future), kept in zip(batch, verdicts, strict=True):
                if not future.done():
                    future.set_result(kept)
            self._grown()


def _fail(batch: list[Waiting], error: Exception) -> None:
    if not isinstance(error, ParleyError):
        tell("nodes.not_kept", error=error)
    for _, future in batch:
        if not future.done():
            future.set_exception(StoreUnavailable("The store refused the change; nothing was saved."))


FLUSH_S = 1.0
SWEEP_S = 2.0
TTL_S = 60.0
SLACK_MS = 3000
"""Time that a heartbeat may take from its arrival at another replica to the store."""
GAP_MS = 10_000
MAX_SWEPT = 500


# Why: docs/decisions/execution.md#detect-wrong-clocks-by-impossible-times
class Liveness:
    def __init__(
        self,
        store: NodeStore,
        changes: Changes,
        clock: Clock,
        *,
        ttl_s: float = TTL_S,
        leads: Callable[[], bool] = lambda: True,
        alive: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._store = store
        self._changes = changes
        self._clock = clock
        self._ttl_ms = int(ttl_s * 1000)
        self._leads = leads
        self._alive = alive
        self._pending: dict[str, Heartbeat] = {}
        self._others: frozenset[str] = frozenset()
        self._since = self._last = clock()

    def note(self, node: str, beat: Heartbeat) -> None:
        """Queue a heartbeat; it is written within a second."""
        self._pending[node] = beat

    def noted(self, node: RegisteredNode) -> Heartbeat:
        """Return the latest heartbeat, stored or queued."""
        pending = self._pending.get(node.id, node.beat)
        ahead = node.beat.at > self._clock() + AHEAD_MS
        return pending if ahead or pending.at >= node.beat.at else node.beat

    async def flush(self) -> None:
        """Write the queued heartbeats. One that cannot be written stays queued, unless a newer one arrives."""
        beats = dict(self._pending)
        if not beats:
            return
        try:
            await self._store.beat(beats)
        except ParleyError:
            self._since = self._clock()
            raise
        # Until now only this process knew them.
        for node, beat in beats.items():
            if self._pending.get(node) is beat:
                del self._pending[node]

    # Why: docs/decisions/nodes.md#count-a-nodes-silence-only-while-the-server-listens
    async def tick(self) -> None:
        """Run one round: the leader finds nodes that were silent for too long."""
        now = self._clock()
        self._look(now)
        if not self._leads() or now - self._since < self._ttl_ms + SLACK_MS:
            return
        try:
            await self.flush()
            silent = await self._store.silent(now - self._ttl_ms - SLACK_MS, MAX_SWEPT)
        except ParleyError:
            self._since = now
            raise
        await self._changes.apply_all([_gone_silent(node, now) for node in silent])
        if silent:
            tell("nodes.silent", count=len(silent))

    def _look(self, now: int) -> None:
        """Count silence from now on, unless a replica has listened all the time since the last round."""
        others = frozenset(self._alive())
        if self._others - others or now - self._last > GAP_MS:
            self._since = now
        self._others, self._last = others, now


def _gone_silent(node: RegisteredNode, now: int) -> NodeChange:
    event = NodeEvent(BECAME[NodeStatus.OFFLINE], node.id, now)
    return NodeChange(changed(node, now, status=NodeStatus.OFFLINE), node.version, (event,))
