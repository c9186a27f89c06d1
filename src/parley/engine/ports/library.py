"""The documents beside a log."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.documents import Conversation, Document, Kind, Operation, Version


class Found(Struct, frozen=True):
    """What a conversation has of one kind: perhaps nothing; a document; and a version of it with its content."""

    document: Document | None = None
    version: Version | None = None
    content: str = ""


class Legible(Protocol):
    """Documents that can be read."""

    async def find(self, principal: str, conversation: str, kind: Kind, version: str | None = None) -> Found | None:
        """The current version or another of the same document; None when there is no such conversation."""
        ...

    async def version(self, id_: str) -> Found | None:
        """A version of whichever document."""
        ...

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        """Newest first, with their previews."""
        ...

    async def documents(self, principal: str, limit: int) -> list[Document]:
        """Those of the conversations that a principal has, the one that changed last first."""
        ...


class Library(Legible, Protocol):
    """The documents beside a log, which are written by its appends; and what was asked without a run."""

    async def conversation(self, principal: str, id_: str) -> Conversation | None:
        """None when nobody has begun it, or it was deleted."""
        ...

    async def begin(self, conversation: Conversation) -> Conversation:
        """Keep it unless it is there already; as it is then."""
        ...

    async def note(self, operations: Sequence[Operation]) -> None: ...

    async def operation(self, id_: str) -> Operation | None: ...

    async def forget_operations(self, before: int) -> int:
        """Forget those of before a time (ms), at most a batch; how many."""
        ...
