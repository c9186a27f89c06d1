"""Small data that is not a log."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Record(Struct, frozen=True):
    """Something small that an operator or a caller keeps here; what `body` means is its kind's own affair."""

    kind: str
    scope: str
    id: str
    body: bytes
    at: int
    due: int | None = None
    """When somebody has to look after it (ms); None for never."""


Place = tuple[str, str]
"""Scope and id: where a page of records goes on."""
Moment = tuple[int, str, str]
"""Time, scope and id: where a page of what is due goes on."""


class Records(Protocol):
    """Small data that is not a log: keys, push configurations. `parley.testing.records` holds its suite."""

    async def put(self, record: Record) -> None:
        """Keep it, in place of what had its kind, scope and id."""
        ...

    async def add(self, record: Record) -> bool:
        """Keep it unless its kind, scope and id are taken; whether it was kept."""
        ...

    async def swap(self, old: Record, new: Record) -> bool:
        """Keep `new` in place of `old` if that is still there as it was; whether it was. They share a place."""
        ...

    async def get(self, kind: str, scope: str, id_: str) -> Record | None: ...

    async def list(
        self, kind: str, scope: str | None = None, after: Place = ("", ""), limit: int = 100
    ) -> "list[Record]":
        """Those of one scope, or of all, in the order of scope and id, by pages."""
        ...

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        """Whether there was one."""
        ...

    async def delete_all(self, kind: str, places: "Sequence[Place]") -> None:
        """Delete those of a kind at these places, together."""
        ...

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = (-1, "", "")) -> "list[Record]":
        """Those whose time has come, the longest waiting first, by pages."""
        ...

    async def close(self) -> None: ...
