"""Current capacity of a node, from its last heartbeat and the turns sent to it since."""

from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.nodes.rules import REACHABLE, Heartbeat, RegisteredNode, slug_of
from parley.nodes.service import Nodes
from parley.runs.rules.state import Run, State
from parley.runs.store import Store

LOOKED_AT = 100
"""Number of runs waiting for a node that are checked for those the node already knows."""


class _Left(Struct, frozen=True):
    began_at: int
    ended_at: int


class Load(Struct, frozen=True):
    """Load of a node. `room`: number of our turns that may run at the node at the same time, including the running
    ones."""

    room: int
    working: int
    waiting: int

    @property
    def begins(self) -> bool:
        """True if the first of the waiting runs would begin at once."""
        return self.room > self.working

    @property
    def free(self) -> bool:
        """True if one more run would begin at once."""
        return self.room > self.working + self.waiting


# Why: docs/decisions/nodes.md#use-the-log-as-the-queue-of-a-busy-node
class NodeCapacity:
    def __init__(self, nodes: Nodes, store: Store, clock: Clock = now_ms) -> None:
        self._nodes = nodes
        self._store = store
        self._clock = clock
        self._left: dict[str, list[_Left]] = {}
        self.crowded: set[str] = set()
        """Slugs of nodes for which a run was waiting at the last check."""

    @contextmanager
    def turn(self, node: str) -> Generator[None, None, None]:
        """Record one of our turns at the node while the block runs. The node may have counted it in its last
        heartbeat."""
        began_at = self._clock()
        try:
            yield
        finally:
            self._left.setdefault(node, []).append(_Left(began_at, self._clock()))

    async def load(self, id_: str) -> Load:
        slug = slug_of(id_)
        working = await self._store.runs_in(State.WORKING, agent=slug, limit=LOOKED_AT)
        waiting = await self._store.runs_in(State.SUBMITTED, agent=slug, limit=LOOKED_AT)
        (self.crowded.add if waiting else self.crowded.discard)(slug)
        found = await self._nodes.store.get([id_])
        room = self._room(found[0], working, waiting) if found and found[0].status in REACHABLE else 0
        return Load(room, len(working), len(waiting))

    def _room(self, node: RegisteredNode, working: list[Run], waiting: list[Run]) -> int:
        if waiting and waiting[0].notes.get("task"):
            # The node has started it already: it must not wait for itself.
            return len(working) + 1
        beat = self._nodes.liveness.noted(node)
        known = [run for run in (*working, *waiting) if run.notes.get("task") and run.started_at <= beat.at]
        others = beat.active_tasks - len(known) - self._gone(node.id, beat)
        return max(0, node.max_concurrent_tasks - max(0, others))

    def _gone(self, node: str, beat: Heartbeat) -> int:
        """Return the number of our turns that the node counted and that have ended since."""
        left = [one for one in self._left.pop(node, ()) if one.began_at <= beat.at <= one.ended_at]
        if left:
            self._left[node] = left
        return len(left)
