"""Records: small data that is not a log."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Record(Struct, frozen=True):
    """A small stored value of an operator or a caller. Each kind defines the format of its `body`."""

    kind: str
    scope: str
    id: str
    body: bytes
    at: int
    due: int | None = None
    """Time at which the record must be processed (ms); None for never."""


Place = tuple[str, str]
"""Scope and id: the position at which the next page of records starts."""
Moment = tuple[int, str, str]
"""Time, scope and id: the position at which the next page of due records starts."""


class Records(Protocol):
    """Store of records such as keys and push configurations. `parley.testing.records` has the tests for it."""

    async def put(self, record: Record) -> None:
        """Store a record. It replaces the record with the same kind, scope and id."""
        ...

    async def add(self, record: Record) -> bool:
        """Store a record unless its kind, scope and id are taken. Return whether it was stored."""
        ...

    async def swap(self, old: Record, new: Record) -> bool:
        """Replace `old` with `new` if `old` is stored unchanged. Return whether it was replaced. Both have the same
        kind, scope and id."""
        ...

    async def get(self, kind: str, scope: str, id_: str) -> Record | None: ...

    async def list(
        self, kind: str, scope: str | None = None, after: Place = ("", ""), limit: int = 100
    ) -> "list[Record]":
        """Return a page of records of one scope, or of all scopes, ordered by scope and id."""
        ...

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        """Delete a record. Return whether it existed."""
        ...

    async def delete_all(self, kind: str, places: "Sequence[Place]") -> None:
        """Delete the records of a kind at these places, in one operation."""
        ...

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = (-1, "", "")) -> "list[Record]":
        """Return a page of records whose time has come, the longest overdue first."""
        ...

    async def close(self) -> None: ...
