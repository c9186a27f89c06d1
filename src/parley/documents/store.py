"""Storage protocol of documents, which are stored beside the log."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from parley.documents.rules import Conversation, Document, DocumentChange, Kind, Version


class FoundDocument(Struct, frozen=True):
    """The document of one kind in a conversation and a version of it with its content; each is None if it does not
    exist."""

    document: Document | None = None
    version: Version | None = None
    content: str = ""


class Legible(Protocol):
    """Read access to documents."""

    async def find(
        self, principal: str, conversation: str, kind: Kind, version: str | None = None
    ) -> FoundDocument | None:
        """Return the current version, or another one of the same document; None if the conversation does not exist."""
        ...

    async def version(self, id_: str) -> FoundDocument | None:
        """Return a version of any document."""
        ...

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        """Return versions with their previews, newest first."""
        ...

    async def documents(self, principal: str, limit: int) -> list[Document]:
        """Return the documents of a principal's conversations, last changed first."""
        ...


class Library(Legible, Protocol):
    """Documents, which are written by the appends of the log; and the log of actions without a run."""

    async def conversation(self, principal: str, id_: str) -> Conversation | None:
        """Return the conversation; None if it was never started, or was deleted."""
        ...

    async def begin(self, conversation: Conversation) -> tuple[Conversation, bool]:
        """Store the conversation unless it exists. Return the stored one and whether it is new; of concurrent calls
        exactly one creates it."""
        ...

    async def note(self, operations: Sequence[DocumentChange]) -> None: ...

    async def operation(self, id_: str) -> DocumentChange | None: ...

    async def forget_operations(self, before: int) -> int:
        """Delete log entries that are older than a time (Unix ms), at most one batch. Return how many."""
        ...
