"""How much a node can take at the moment, by what it said last and by what we have sent it since."""

from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.core.nodes import REACHABLE, Beat, Node, slug_of
from parley.core.runs import Run, State
from parley.engine.nodes import Nodes
from parley.engine.ports import Store

LOOKED_AT = 100
"""Of what waits for a node, as much is looked at to tell what it knows of already."""


class _Left(Struct, frozen=True):
    began_at: int
    ended_at: int


class Load(Struct, frozen=True):
    """`room`: how many of our turns may be under way at a node, those that are included."""

    room: int
    working: int
    waiting: int

    @property
    def begins(self) -> bool:
        """Whether the first of those that wait would begin at once."""
        return self.room > self.working

    @property
    def free(self) -> bool:
        """Whether one more would begin at once."""
        return self.room > self.working + self.waiting


class Rooms:
    def __init__(self, nodes: Nodes, store: Store, clock: Clock = now_ms) -> None:
        self._nodes = nodes
        self._store = store
        self._clock = clock
        self._left: dict[str, list[_Left]] = {}
        self.crowded: set[str] = set()
        """The slugs of those for which something waited when somebody last looked."""

    @contextmanager
    def turn(self, node: str) -> Generator[None, None, None]:
        """One of our turns at the node. What it counted in its last heartbeat may have been this one."""
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

    def _room(self, node: Node, working: list[Run], waiting: list[Run]) -> int:
        if waiting and waiting[0].notes.get("task"):
            # The node has begun with it: it must not wait for itself.
            return len(working) + 1
        beat = self._nodes.liveness.noted(node)
        known = [run for run in (*working, *waiting) if run.notes.get("task") and run.started_at <= beat.at]
        others = beat.active_tasks - len(known) - self._gone(node.id, beat)
        return max(0, node.max_concurrent_tasks - max(0, others))

    def _gone(self, node: str, beat: Beat) -> int:
        """How many of our turns the node counted that are over."""
        left = [one for one in self._left.pop(node, ()) if one.began_at <= beat.at <= one.ended_at]
        if left:
            self._left[node] = left
        return len(left)
