"""The library in memory: the reference, and the oracle of its contract suite."""

from collections.abc import Sequence
from itertools import islice

from msgspec import Raw
from msgspec.structs import replace

from parley.core.documents import (
    PREVIEW,
    AddVersion,
    Change,
    Conversation,
    Document,
    DropConversation,
    DropDocument,
    DropVersion,
    Kind,
    Operation,
    PointTo,
    Version,
)
from parley.engine.ports import Found
from parley.errors import Outdated


class MemoryLibrary:
    def __init__(self) -> None:
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._documents: dict[str, Document] = {}
        self._last: dict[str, int] = {}
        self._versions: dict[str, tuple[Version, str]] = {}
        self._operations: dict[str, Operation] = {}

    def check(self, change: Change) -> None:
        """Refuse what does not fit; nothing is changed yet."""
        match change:
            case AddVersion(principal, conversation, kind, made=made):
                known = self._document(principal, conversation, kind) is not None
                fits = known or (bool(made) and (principal, conversation) in self._conversations)
            case PointTo(document, revision, version):
                fits = self._is(document, revision) and self._has(document, version)
            case DropVersion(document, revision, version):
                fits = self._is(document, revision) and self._has(document, version)
                fits = fits and self._documents[document].current != version
            case DropDocument(document, revision):
                fits = self._is(document, revision)
            case DropConversation(principal, conversation):
                fits = (principal, conversation) in self._conversations
        if not fits:
            raise Outdated("The document has changed since it was read.")

    def apply(self, change: Change) -> None:
        match change:
            case AddVersion():
                self._add(change)
            case PointTo(document, _, version, at, title):
                self._revise(document, at, current=version, title=title)
            case DropVersion(document, _, version, at):
                del self._versions[version]
                self._revise(document, at, versions=self._documents[document].versions - 1)
            case DropDocument(document):
                self._drop(document)
            case DropConversation():
                self._close(change)

    def _add(self, change: AddVersion) -> None:
        document = self._document(change.principal, change.conversation, change.kind)
        retitle = change.retitle if document is not None and change.current else ""
        if document is None:
            document = Document(
                change.made, change.principal, change.conversation, change.kind, change.agent, change.title,
                change.type, change.version, 0, 0, change.at, change.at,
            )  # fmt: skip
        number = self._last[document.id] = self._last.get(document.id, 0) + 1
        self._documents[document.id] = document
        current = change.version if change.current else document.current
        self._revise(document.id, change.at, current=current, versions=document.versions + 1, title=retitle)
        version = Version(
            change.version, document.id, number, change.format, change.provenance, Raw(change.metadata), change.at
        )  # fmt: skip
        self._versions[version.id] = (version, change.content)

    def _revise(
        self, id_: str, at: int, *, current: str | None = None, versions: int | None = None, title: str = ""
    ) -> None:
        document = self._documents[id_]
        self._documents[id_] = replace(
            document,
            revision=document.revision + 1,
            updated_at=at,
            current=document.current if current is None else current,
            versions=document.versions if versions is None else versions,
            title=title or document.title,
        )

    def _drop(self, id_: str) -> None:
        del self._documents[id_]
        for version in [one for one, _ in self._versions.values() if one.document == id_]:
            del self._versions[version.id]

    def _close(self, change: DropConversation) -> None:
        del self._conversations[change.principal, change.conversation]
        for kind in ("plan", "deliverable"):
            document = self._document(change.principal, change.conversation, kind)
            if document is not None and change.documents:
                self._drop(document.id)
            elif document is not None:
                detached = replace(document, conversation="", revision=document.revision + 1)
                self._documents[document.id] = detached

    def _document(self, principal: str, conversation: str, kind: str) -> Document | None:
        place = (principal, conversation, kind)
        found = (one for one in self._documents.values() if (one.principal, one.conversation, one.kind) == place)
        return next(found, None)

    def _is(self, document: str, revision: int) -> bool:
        return document in self._documents and self._documents[document].revision == revision

    def _has(self, document: str, version: str) -> bool:
        return version in self._versions and self._versions[version][0].document == document

    async def conversation(self, principal: str, id_: str) -> Conversation | None:
        return self._conversations.get((principal, id_))

    async def begin(self, conversation: Conversation) -> Conversation:
        return self._conversations.setdefault((conversation.principal, conversation.id), conversation)

    async def find(self, principal: str, conversation: str, kind: Kind, version: str | None = None) -> Found | None:
        if (principal, conversation) not in self._conversations:
            return None
        document = self._document(principal, conversation, kind)
        if document is None:
            return Found()
        asked = document.current if version is None else version
        return Found(document, *self._versions[asked]) if self._has(document.id, asked) else Found(document)

    async def version(self, id_: str) -> Found | None:
        if id_ not in self._versions:
            return None
        version, content = self._versions[id_]
        return Found(self._documents[version.document], version, content)

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        found = [(one, content) for one, content in self._versions.values() if one.document == document]
        found.sort(key=lambda one: one[0].number, reverse=True)
        return [replace(one, preview=content[:PREVIEW]) for one, content in found[offset : offset + limit]]

    async def documents(self, principal: str, limit: int) -> list[Document]:
        found = [one for one in self._documents.values() if one.principal == principal and one.conversation]
        found.sort(key=lambda one: (one.updated_at, one.id), reverse=True)
        return found[:limit]

    async def note(self, operations: Sequence[Operation]) -> None:
        self._operations |= {one.id: one for one in operations}

    async def operation(self, id_: str) -> Operation | None:
        return self._operations.get(id_)

    async def forget_operations(self, before: int) -> int:
        old = [one.id for one in self._operations.values() if one.completed_at < before]
        gone = list(islice(old, 1000))
        for id_ in gone:
            del self._operations[id_]
        return len(gone)
