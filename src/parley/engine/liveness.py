"""Which nodes are alive. Heartbeats are held in memory and written down together; silence makes a node offline.

Silence counts only while somebody listened: after a start, after a replica died with heartbeats that it had not yet
written down, after the store or this process was away for a while, every node has its whole time again.
"""

from collections.abc import Callable, Sequence

from parley.clock import Clock
from parley.core.nodes import AHEAD_MS, BECAME, Beat, Node, NodeChange, NodeEvent, Status, changed
from parley.engine.changes import Changes
from parley.engine.ports.nodes import NodeStore
from parley.errors import ParleyError
from parley.telemetry import tell

FLUSH_S = 1.0
SWEEP_S = 2.0
TTL_S = 60.0
SLACK_MS = 3000
"""What a heartbeat may take from its arrival at another replica to the store."""
GAP_MS = 10_000
MAX_SWEPT = 500


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
        self._pending: dict[str, Beat] = {}
        self._others: frozenset[str] = frozenset()
        self._since = self._last = clock()

    def note(self, node: str, beat: Beat) -> None:
        """Written down within a second."""
        self._pending[node] = beat

    def noted(self, node: Node) -> Beat:
        """The latest of what is stored and what is not yet."""
        pending = self._pending.get(node.id, node.beat)
        ahead = node.beat.at > self._clock() + AHEAD_MS
        return pending if ahead or pending.at >= node.beat.at else node.beat

    async def flush(self) -> None:
        """What cannot be written down is kept for the next time, unless there is newer by then."""
        beats = dict(self._pending)
        if not beats:
            return
        try:
            await self._store.beat(beats)
        except ParleyError:
            self._since = self._clock()
            raise
        # Until now it was known here alone.
        for node, beat in beats.items():
            if self._pending.get(node) is beat:
                del self._pending[node]

    async def tick(self) -> None:
        """One round: the leader finds those that were silent for too long."""
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
        """Whether somebody listened all the time since the last round."""
        others = frozenset(self._alive())
        if self._others - others or now - self._last > GAP_MS:
            self._since = now
        self._others, self._last = others, now


def _gone_silent(node: Node, now: int) -> NodeChange:
    event = NodeEvent(BECAME[Status.OFFLINE], node.id, now)
    return NodeChange(changed(node, now, status=Status.OFFLINE), node.version, (event,))
