"""Nodes in a simulated world: their registry on the simulated database, and the invariants of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from msgspec import Struct

from parley.app.nodes import employing, publishing, registering
from parley.clock import Clock
from parley.drivers.remote.nodes import node_agent
from parley.execution.driver import Driver
from parley.execution.rules import Output
from parley.execution.turn import Turn
from parley.nodes.capacity import NodeCapacity
from parley.nodes.delegations import Delegations
from parley.nodes.rules import REACHABLE, Heartbeat, NodeChange, NodeEvent, RegisteredNode, node_of, slug_of
from parley.nodes.service import Nodes
from parley.nodes.store import EventQuery, NodeQuery
from parley.runs.service import Exchange
from parley.stores.node_urls import MemoryUrls
from parley.stores.nodes import MemoryNodes
from parley.testing.simulation.database import Link, at_once
from parley.testing.simulation.invariants import Violation

T = TypeVar("T")

TTL_S = 2.0
"""A node that is silent for longer, and for the time that a heartbeat may take, is offline."""
CEILING_S = 25.0
"""A delegation that takes longer has failed."""
KEEP_MS = 24 * 3600 * 1000

NodeWork = Callable[[str, Turn], AsyncGenerator[Output, None]]
"""Does the work of a node: called with its id and a turn."""


class NodeTables(MemoryNodes):
    """Nodes and their events in the database. Checks every change at the moment of its commit."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.violations: list[Violation] = []

    @property
    def all(self) -> dict[str, RegisteredNode]:
        return self._nodes

    @property
    def feed(self) -> list[NodeEvent]:
        return self._events

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        versions = {id_: node.version for id_, node in self._nodes.items()}
        gone = {id_ for id_, node in self._nodes.items() if node.removed}
        applied = await super().apply(changes)
        for change in (change for change, fits in zip(changes, applied, strict=True) if fits):
            node = change.node
            if versions.get(node.id, 0) != change.expected:
                self._fail(node, f"version {node.version} overwrites {versions.get(node.id, 0)}")
            if node.id in gone and not node.removed:
                self._fail(node, "it is back after its removal")
            if self._is_below_itself(node):
                self._fail(node, "it is below itself")
            versions[node.id] = node.version
        return applied

    def _fail(self, node: RegisteredNode, what: str) -> None:
        self.violations.append(Violation("nodes", node.id, what))

    def _is_below_itself(self, node: RegisteredNode) -> bool:
        above, seen = node.parent_id, {node.id}
        while above is not None and above in self._nodes:
            if above in seen:
                return True
            seen.add(above)
            above = self._nodes[above].parent_id
        return False


class SimulatedNodes:
    """Nodes in the simulated database, seen from one process."""

    def __init__(self, link: Link, nodes: NodeTables) -> None:
        self._link = link
        self._nodes = nodes

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return self._link.call(lambda: at_once(work()))

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[RegisteredNode]:
        return await self._call(lambda: self._nodes.get(ids, cards=cards))

    async def find(self, query: NodeQuery) -> list[RegisteredNode]:
        return await self._call(lambda: self._nodes.find(query))

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        return await self._call(lambda: self._nodes.apply(changes))

    async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
        await self._call(lambda: self._nodes.beat(beats))

    async def silent(self, before: int, limit: int) -> list[RegisteredNode]:
        return await self._call(lambda: self._nodes.silent(before, limit))

    async def events(self, query: EventQuery) -> list[NodeEvent]:
        return await self._call(lambda: self._nodes.events(query))

    async def forget(self, before: int) -> int:
        return await self._call(lambda: self._nodes.forget(before))

    async def close(self) -> None:
        return


class ReplicaNodes:
    """The registry of nodes in one replica, their delegations, and the nodes as agents, wired as the server does it."""

    def __init__(self, exchange: Exchange, link: Link, tables: NodeTables, work: NodeWork, clock: Clock) -> None:
        self._exchange = exchange
        self._store = SimulatedNodes(link, tables)
        self._work = work
        self._clock = clock
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        exchange, clock, enter = self._exchange, self._clock, self._stack.enter_async_context
        self.nodes: Nodes = await enter(
            registering(exchange, self._store, MemoryUrls(), ttl_s=TTL_S, keep_ms=KEEP_MS, clock=clock)
        )
        self.capacity = NodeCapacity(self.nodes, exchange.store, clock)
        self.delegations = Delegations(exchange, self.nodes, self.capacity, ceiling_s=CEILING_S, clock=clock)
        await enter(employing(exchange, self.nodes, self))
        await enter(publishing(exchange, self.delegations))

    def driver(self, slug: str) -> Driver | None:
        return None if (node := node_of(slug)) is None else _NodeDriver(node, self.capacity, self._work)

    async def close(self) -> None:
        """End together with the replica: its process ends at once."""

    async def stop(self) -> None:
        await self._stack.aclose()


class _NodeDriver:
    def __init__(self, node: str, capacity: NodeCapacity, work: NodeWork) -> None:
        self.agent = node_agent(slug_of(node))
        self._node = node
        self._capacity = capacity
        self._work = work

    async def room(self) -> int:
        return (await self._capacity.load(self._node)).room

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        with self._capacity.turn(self._node):
            async for output in self._work(self._node, turn):
                yield output


class FollowedNodes(Struct):
    """Everything that one reader saw of the events of all nodes, over all its connections."""

    name: str
    cursor: int = 0


class NodeWatch:
    """Checks what readers of the nodes' events see, and at the end the state of every node."""

    def __init__(self, tables: NodeTables) -> None:
        self.tables = tables
        self.readers: list[FollowedNodes] = []
        self.alive: dict[str, bool] = {}
        """True for each registered node whose process runs."""

    def seen(self, reader: FollowedNodes, event: NodeEvent) -> Iterator[Violation]:
        """Check an event that a reader got: the next one, as committed."""
        if not event.seq:
            return
        if event.seq != reader.cursor + 1:
            yield Violation("nodes", reader.name, f"event {reader.cursor + 1} was due, {event.seq} came")
        stored = self.tables.feed
        if event.seq > len(stored) or stored[event.seq - 1] != event:
            yield Violation("nodes", reader.name, f"event {event.seq} was shown, and is not in the feed")
        reader.cursor = event.seq

    def acknowledged(self, node: RegisteredNode) -> Iterator[Violation]:
        """Check that a change which a caller was told is durable at that moment."""
        known = self.tables.all.get(node.id)
        if known is None or known.version < node.version:
            yield Violation("durable", node.id, f"version {node.version} was acknowledged: {known and known.version}")

    def final(self) -> Iterator[Violation]:
        """Check the end: nodes that beat are online, the others offline, and readers have seen every event."""
        yield from self.tables.violations
        for id_, alive in self.alive.items():
            node = self.tables.all.get(id_)
            if (node is not None and node.status in REACHABLE) != alive:
                yield Violation("nodes", id_, f"it is {'alive' if alive else 'dead'}: {node and node.status.value}")
        for reader in self.readers:
            if reader.cursor != len(self.tables.feed):
                yield Violation("liveness", reader.name, f"it saw {reader.cursor} of {len(self.tables.feed)} events")
