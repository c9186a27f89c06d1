"""What nodes need from the outside."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.nodes import Beat, Node, NodeChange, NodeEvent


class NodeQuery(Struct, frozen=True):
    """Which nodes to list, in the order of their ids; None does not ask."""

    around: Node | None = None
    """Its siblings, children and parent."""
    parent: str | None = None
    words: str = ""
    """Somewhere in the name or the role, whatever the case."""
    removed: bool = False
    cards: bool = False
    after: str = ""
    limit: int = 1000


class EventQuery(Struct, frozen=True):
    """Which events of nodes to read: the oldest after a number, or the newest before one."""

    after: int = 0
    node: str | None = None
    name: str | None = None
    kind: str | None = None
    newest: bool = False
    before: int | None = None
    limit: int = 256


class NodeStore(Protocol):
    """Nodes, and what happened to them. `parley.testing.nodes` holds its suite."""

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[Node]:
        """Those that exist, removed ones too, in any order."""
        ...

    async def find(self, query: NodeQuery) -> list[Node]: ...

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        """Commit all that fit (`core.nodes.judged`) in one step, durably; which ones did. Numbers of events become
        visible in their order."""
        ...

    async def beat(self, beats: Mapping[str, Beat]) -> None:
        """Note heartbeats that are newer than what is known. Soon durable: a crash may lose the last moment."""
        ...

    async def silent(self, before: int, limit: int) -> list[Node]:
        """Reachable nodes whose last heartbeat was before a time (ms)."""
        ...

    async def events(self, query: EventQuery) -> list[NodeEvent]: ...

    async def forget(self, before: int) -> int:
        """Forget events older than a time (ms); how many."""
        ...

    async def close(self) -> None: ...


class UrlCache(Protocol):
    """Where nodes are, without asking the store. May forget at any time, and never raises."""

    async def get(self, node: Node, *, internal: bool) -> str | None: ...

    async def put(self, node: Node, *, changed: bool) -> None:
        """`changed` replaces what is there; otherwise only what is missing is filled in."""
        ...

    async def forget(self, node: str) -> None: ...

    async def close(self) -> None: ...
