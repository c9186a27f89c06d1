"""Storage protocols of nodes."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from parley.nodes.rules import Heartbeat, NodeChange, NodeEvent, RegisteredNode


class NodeQuery(Struct, frozen=True):
    """Filter for listing nodes in the order of their ids; None does not filter."""

    around: RegisteredNode | None = None
    """Only the siblings, children and parent of this node."""
    parent: str | None = None
    words: str = ""
    """Text in the name or the role, ignoring case."""
    removed: bool = False
    cards: bool = False
    after: str = ""
    limit: int = 1000


class EventQuery(Struct, frozen=True):
    """Filter for reading events of nodes: the oldest after a number, or the newest before one."""

    after: int = 0
    node: str | None = None
    name: str | None = None
    kind: str | None = None
    newest: bool = False
    before: int | None = None
    limit: int = 256


class NodeStore(Protocol):
    """Nodes and their events. `parley.testing.nodes` has its contract suite."""

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[RegisteredNode]:
        """Return the nodes that exist, including removed ones, in any order."""
        ...

    async def find(self, query: NodeQuery) -> list[RegisteredNode]: ...

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        """Commit all changes that match (`nodes.rules.judged`) in one step, durably; return which ones did. Event
        numbers become visible in order."""
        ...

    async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
        """Store heartbeats that are newer than the known ones. They are durable soon after: a crash may lose the last
        moment."""
        ...

    async def silent(self, before: int, limit: int) -> list[RegisteredNode]:
        """Return reachable nodes whose last heartbeat was before a time (ms)."""
        ...

    async def events(self, query: EventQuery) -> list[NodeEvent]: ...

    async def forget(self, before: int) -> int:
        """Delete events older than a time (ms) and return their number."""
        ...

    async def close(self) -> None: ...


class UrlCache(Protocol):
    """Cache of the URLs of nodes. May lose entries at any time, and never raises."""

    async def get(self, node: RegisteredNode, *, internal: bool) -> str | None: ...

    async def put(self, node: RegisteredNode, *, changed: bool) -> None:
        """Store the URLs of a node. `changed` replaces existing entries; otherwise only missing ones are added."""
        ...

    async def forget(self, node: str) -> None: ...

    async def close(self) -> None: ...
