"""Documents beside the log: statements that both databases understand, and the stores that run them.

Parameters are written `$1`; SQLite calls the same thing `?1`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from msgspec import Raw
from msgspec.structs import replace

from parley.documents.rules import (
    PREVIEW,
    AddVersion,
    Change,
    Conversation,
    Document,
    DocumentChange,
    DropConversation,
    DropDocument,
    DropVersion,
    Kind,
    PointTo,
    Version,
)
from parley.documents.store import FoundDocument
from parley.errors import Outdated
from parley.ids import ConversationId

Row = tuple[Any, ...]
Statement = tuple[str, Row, bool]
"""SQL, its values, and whether the change is outdated if no row is affected."""

FORGET_BATCH = 1000

_KEPT = """
UPDATE documents SET revision = revision + 1, last = last + 1, versions = versions + 1, updated_at = $5,
  current = CASE WHEN CAST($6 AS integer) = 1 THEN $4 ELSE current END,
  title = CASE WHEN CAST($6 AS integer) = 1 THEN coalesce(nullif(CAST($7 AS text), ''), title) ELSE title END
WHERE principal = $1 AND conversation = $2 AND kind = $3 AND CAST($8 AS text) IN ('', current)"""
_MADE = """
INSERT INTO documents (id, principal, conversation, kind, agent, title, type, current, revision, last, versions,
  created_at, updated_at)
SELECT CAST($1 AS text), principal, id, CAST($4 AS text), CAST($5 AS text), CAST($6 AS text), CAST($7 AS text),
  CAST($8 AS text), 1, 1, 1, CAST($9 AS bigint), CAST($9 AS bigint)
FROM conversations WHERE principal = $2 AND id = $3 AND deleted_at IS NULL
ON CONFLICT (principal, conversation, kind) DO UPDATE
  SET revision = documents.revision + 1, last = documents.last + 1, versions = documents.versions + 1,
    current = excluded.current, updated_at = excluded.updated_at,
    title = coalesce(nullif(CAST($10 AS text), ''), documents.title)"""
_VERSION = """
INSERT INTO versions (id, document, number, format, provenance, metadata, at, content)
SELECT CAST($1 AS text), id, last, CAST($5 AS text), CAST($6 AS text), $7, CAST($8 AS bigint), CAST($9 AS text)
FROM documents WHERE principal = $2 AND conversation = $3 AND kind = $4"""
_POINTED = """
UPDATE documents SET current = $3, revision = revision + 1, updated_at = $4,
  title = coalesce(nullif(CAST($5 AS text), ''), title)
WHERE id = $1 AND revision = $2 AND EXISTS (SELECT 1 FROM versions WHERE id = $3 AND document = $1)"""
_LEFT_OUT = """
UPDATE documents SET versions = versions - 1, revision = revision + 1, updated_at = $4
WHERE id = $1 AND revision = $2 AND current <> $3
  AND EXISTS (SELECT 1 FROM versions WHERE id = $3 AND document = $1)"""
_CLOSED = "UPDATE conversations SET deleted_at = $3 WHERE principal = $1 AND id = $2 AND deleted_at IS NULL"
_THEIRS = "SELECT id FROM documents WHERE principal = $1 AND conversation = $2"
_DETACHED = """
UPDATE documents SET conversation = NULL, revision = revision + 1 WHERE principal = $1 AND conversation = $2"""

_BEGUN = """
INSERT INTO conversations (principal, id, agent, started_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (principal, id) DO UPDATE
  SET agent = excluded.agent, started_at = excluded.started_at, deleted_at = NULL
  WHERE conversations.deleted_at IS NOT NULL
RETURNING 1"""
_CONVERSATION = """
SELECT principal, id, agent, started_at FROM conversations
WHERE principal = $1 AND id = $2 AND deleted_at IS NULL"""
_DOCUMENT_COLUMNS = (
    "d.id, d.principal, coalesce(d.conversation, ''), d.kind, d.agent, d.title, d.type, d.current, d.revision, "
    "d.versions, d.created_at, d.updated_at"
)
_VERSION_COLUMNS = "v.id, v.document, v.number, v.format, v.provenance, v.metadata, v.at"
_FIND = f"""
SELECT {_DOCUMENT_COLUMNS}, {_VERSION_COLUMNS}, v.content
FROM conversations c
LEFT JOIN documents d ON d.principal = c.principal AND d.conversation = c.id AND d.kind = $3
LEFT JOIN versions v ON v.document = d.id AND v.id = coalesce(CAST($4 AS text), d.current)
WHERE c.principal = $1 AND c.id = $2 AND c.deleted_at IS NULL"""
_ONE_VERSION = f"""
SELECT {_DOCUMENT_COLUMNS}, {_VERSION_COLUMNS}, v.content
FROM versions v JOIN documents d ON d.id = v.document WHERE v.id = $1"""
_VERSIONS = f"""
SELECT {_VERSION_COLUMNS}, substr(v.content, 1, {PREVIEW}) FROM versions v WHERE v.document = $1
ORDER BY v.number DESC LIMIT $2 OFFSET $3"""
_DOCUMENTS = f"""
SELECT {_DOCUMENT_COLUMNS} FROM documents d WHERE d.principal = $1 AND d.conversation IS NOT NULL
ORDER BY d.updated_at DESC, d.id DESC LIMIT $2"""
_OPERATION_COLUMNS = "id, principal, conversation, agent, mode, action, code, message, started_at, completed_at"
NOTE = f"""
INSERT INTO operations ({_OPERATION_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING"""
_OPERATION = f"SELECT {_OPERATION_COLUMNS} FROM operations WHERE id = $1"
_FORGET = f"""
DELETE FROM operations WHERE id IN (
  SELECT id FROM operations WHERE completed_at < $1 ORDER BY completed_at LIMIT {FORGET_BATCH}) RETURNING 1"""

_DOCUMENT_WIDTH = 12
_VERSION_WIDTH = 7


def sqlite_text(sql: str) -> str:
    return sql.replace("$", "?")


# Why: docs/decisions/documents.md#let-the-database-number-versions
def statements(change: Change) -> Iterator[Statement]:
    """Yield the statements of a change, in order."""
    match change:
        case AddVersion():
            yield from _added(change)
        case PointTo(document, revision, version, at, title):
            yield _POINTED, (document, revision, version, at, title), True
        case DropVersion(document, revision, version, at):
            yield _LEFT_OUT, (document, revision, version, at), True
            yield "DELETE FROM versions WHERE id = $1", (version,), True
        case DropDocument(document, revision):
            yield "DELETE FROM documents WHERE id = $1 AND revision = $2", (document, revision), True
            yield "DELETE FROM versions WHERE document = $1", (document,), False
        case DropConversation(principal, conversation, documents, at):
            yield _CLOSED, (principal, conversation, at), True
            where = (principal, conversation)
            if documents:
                yield f"DELETE FROM versions WHERE document IN ({_THEIRS})", where, False
                yield "DELETE FROM documents WHERE principal = $1 AND conversation = $2", where, False
            else:
                yield _DETACHED, where, False


def _added(change: AddVersion) -> Iterator[Statement]:
    place = (change.principal, change.conversation, change.kind)
    if change.made and not change.expected:
        about = (change.agent, change.title, change.type, change.version, change.at, change.retitle)
        yield _MADE, (change.made, *place, *about), True
    else:
        about = (change.version, change.at, int(change.current), change.retitle, change.expected)
        yield _KEPT, (*place, *about), True
    version = (change.format, change.provenance, change.metadata, change.at, change.content)
    yield _VERSION, (change.version, *place, *version), True


class _Database(Protocol):
    """Runs a statement and returns its rows."""

    def __call__(self, sql: str, *values: object) -> Awaitable[Sequence[Row]]: ...


class DatabaseLibrary:
    """Documents in either database; `note` inserts many rows at once, in the way that suits the database."""

    def __init__(self, fetch: _Database, note: Callable[[Sequence[Row]], Awaitable[None]]) -> None:
        self._fetch = fetch
        self._note = note

    async def conversation(self, principal: str, id_: str) -> Conversation | None:
        rows = await self._fetch(_CONVERSATION, principal, id_)
        return Conversation(rows[0][0], ConversationId(rows[0][1]), *rows[0][2:]) if rows else None

    async def begin(self, conversation: Conversation) -> tuple[Conversation, bool]:
        about = (conversation.principal, conversation.id, conversation.agent, conversation.started_at)
        if await self._fetch(_BEGUN, *about):
            return conversation, True
        return await self.conversation(conversation.principal, conversation.id) or conversation, False

    async def find(
        self, principal: str, conversation: str, kind: Kind, version: str | None = None
    ) -> FoundDocument | None:
        rows = await self._fetch(_FIND, principal, conversation, kind, version)
        return _found(rows[0]) if rows else None

    async def version(self, id_: str) -> FoundDocument | None:
        rows = await self._fetch(_ONE_VERSION, id_)
        return _found(rows[0]) if rows else None

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        rows = await self._fetch(_VERSIONS, document, limit, offset)
        return [_version(row[:_VERSION_WIDTH], row[-1]) for row in rows]

    async def documents(self, principal: str, limit: int) -> list[Document]:
        return [Document(*row) for row in await self._fetch(_DOCUMENTS, principal, limit)]

    async def note(self, operations: Sequence[DocumentChange]) -> None:
        await self._note([_operation_row(one) for one in operations])

    async def operation(self, id_: str) -> DocumentChange | None:
        rows = await self._fetch(_OPERATION, id_)
        return DocumentChange(*rows[0]) if rows else None

    async def forget_operations(self, before: int) -> int:
        return len(await self._fetch(_FORGET, before))


def _found(row: Row) -> FoundDocument:
    if row[0] is None:
        return FoundDocument()
    document, version = Document(*row[:_DOCUMENT_WIDTH]), row[_DOCUMENT_WIDTH:-1]
    return FoundDocument(document, _version(version), row[-1]) if version[0] is not None else FoundDocument(document)


def _version(row: Row, preview: str = "") -> Version:
    id_, document, number, format_, provenance, metadata, at = row
    return Version(id_, document, number, format_, provenance, Raw(metadata), at, preview)


def _operation_row(one: DocumentChange) -> Row:
    return (
        one.id,
        one.principal,
        one.conversation,
        one.agent,
        one.mode,
        one.action,
        one.code,
        one.message,
        one.started_at,
        one.completed_at,
    )


# Documents in memory: the reference that the contract suite compares with.


class MemoryLibrary:
    def __init__(self) -> None:
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._documents: dict[str, Document] = {}
        self._last: dict[str, int] = {}
        self._versions: dict[str, tuple[Version, str]] = {}
        self._operations: dict[str, DocumentChange] = {}

    def check(self, change: Change) -> None:
        """Raise if the change does not fit; nothing is changed yet."""
        match change:
            case AddVersion(principal, conversation, kind, made=made, expected=expected):
                known = self._document(principal, conversation, kind)
                fits = known is not None or (bool(made) and (principal, conversation) in self._conversations)
                if expected:
                    fits = known is not None and known.current == expected
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
                change.made,
                change.principal,
                change.conversation,
                change.kind,
                change.agent,
                change.title,
                change.type,
                change.version,
                0,
                0,
                change.at,
                change.at,
            )
        number = self._last[document.id] = self._last.get(document.id, 0) + 1
        self._documents[document.id] = document
        current = change.version if change.current else document.current
        self._revise(document.id, change.at, current=current, versions=document.versions + 1, title=retitle)
        version = Version(
            change.version, document.id, number, change.format, change.provenance, Raw(change.metadata), change.at
        )
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

    async def begin(self, conversation: Conversation) -> tuple[Conversation, bool]:
        found = self._conversations.setdefault((conversation.principal, conversation.id), conversation)
        return found, found is conversation

    async def find(
        self, principal: str, conversation: str, kind: Kind, version: str | None = None
    ) -> FoundDocument | None:
        if (principal, conversation) not in self._conversations:
            return None
        document = self._document(principal, conversation, kind)
        if document is None:
            return FoundDocument()
        asked = document.current if version is None else version
        return (
            FoundDocument(document, *self._versions[asked])
            if self._has(document.id, asked)
            else FoundDocument(document)
        )

    async def version(self, id_: str) -> FoundDocument | None:
        if id_ not in self._versions:
            return None
        version, content = self._versions[id_]
        return FoundDocument(self._documents[version.document], version, content)

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        found = [(one, content) for one, content in self._versions.values() if one.document == document]
        found.sort(key=lambda one: one[0].number, reverse=True)
        return [replace(one, preview=content[:PREVIEW]) for one, content in found[offset : offset + limit]]

    async def documents(self, principal: str, limit: int) -> list[Document]:
        found = [one for one in self._documents.values() if one.principal == principal and one.conversation]
        found.sort(key=lambda one: (one.updated_at, one.id), reverse=True)
        return found[:limit]

    async def note(self, operations: Sequence[DocumentChange]) -> None:
        self._operations |= {one.id: one for one in operations}

    async def operation(self, id_: str) -> DocumentChange | None:
        return self._operations.get(id_)

    async def forget_operations(self, before: int) -> int:
        old = [one.id for one in self._operations.values() if one.completed_at < before]
        gone = list(islice(old, 1000))
        for id_ in gone:
            del self._operations[id_]
        return len(gone)
