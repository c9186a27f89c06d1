"""Documents beside the log: the statements, which both databases understand, and the two that run them.

Parameters are written `$1`; SQLite calls the same thing `?1`.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Raw

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
from parley.ids import ConversationId

Row = tuple[Any, ...]
Statement = tuple[str, Row, bool]
"""What to run, with which values, and whether the change is outdated when it touches no row."""

FORGET_BATCH = 1000

_KEPT = """
UPDATE documents SET revision = revision + 1, last = last + 1, versions = versions + 1, updated_at = $5,
  current = CASE WHEN CAST($6 AS integer) = 1 THEN $4 ELSE current END,
  title = CASE WHEN CAST($6 AS integer) = 1 THEN coalesce(nullif(CAST($7 AS text), ''), title) ELSE title END
WHERE principal = $1 AND conversation = $2 AND kind = $3"""
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
  WHERE conversations.deleted_at IS NOT NULL"""
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


def statements(change: Change) -> Iterator[Statement]:
    """What a change is to a database, in order."""
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
    if change.made:
        about = (change.agent, change.title, change.type, change.version, change.at, change.retitle)
        yield _MADE, (change.made, *place, *about), True
    else:
        yield _KEPT, (*place, change.version, change.at, int(change.current), change.retitle), True
    version = (change.format, change.provenance, change.metadata, change.at, change.content)
    yield _VERSION, (change.version, *place, *version), True


class _Database(Protocol):
    """Runs a statement and gives its rows."""

    def __call__(self, sql: str, *values: object) -> Awaitable[Sequence[Row]]: ...


class DatabaseLibrary:
    """Either database; `note` hands in many rows at once, in the way that suits it."""

    def __init__(self, fetch: _Database, note: Callable[[Sequence[Row]], Awaitable[None]]) -> None:
        self._fetch = fetch
        self._note = note

    async def conversation(self, principal: str, id_: str) -> Conversation | None:
        rows = await self._fetch(_CONVERSATION, principal, id_)
        return Conversation(rows[0][0], ConversationId(rows[0][1]), *rows[0][2:]) if rows else None

    async def begin(self, conversation: Conversation) -> Conversation:
        about = (conversation.principal, conversation.id, conversation.agent, conversation.started_at)
        await self._fetch(_BEGUN, *about)
        return await self.conversation(conversation.principal, conversation.id) or conversation

    async def find(self, principal: str, conversation: str, kind: Kind, version: str | None = None) -> Found | None:
        rows = await self._fetch(_FIND, principal, conversation, kind, version)
        return _found(rows[0]) if rows else None

    async def version(self, id_: str) -> Found | None:
        rows = await self._fetch(_ONE_VERSION, id_)
        return _found(rows[0]) if rows else None

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        rows = await self._fetch(_VERSIONS, document, limit, offset)
        return [_version(row[:_VERSION_WIDTH], row[-1]) for row in rows]

    async def documents(self, principal: str, limit: int) -> list[Document]:
        return [Document(*row) for row in await self._fetch(_DOCUMENTS, principal, limit)]

    async def note(self, operations: Sequence[Operation]) -> None:
        await self._note([_operation_row(one) for one in operations])

    async def operation(self, id_: str) -> Operation | None:
        rows = await self._fetch(_OPERATION, id_)
        return Operation(*rows[0]) if rows else None

    async def forget_operations(self, before: int) -> int:
        return len(await self._fetch(_FORGET, before))


def _found(row: Row) -> Found:
    if row[0] is None:
        return Found()
    document, version = Document(*row[:_DOCUMENT_WIDTH]), row[_DOCUMENT_WIDTH:-1]
    return Found(document, _version(version), row[-1]) if version[0] is not None else Found(document)


def _version(row: Row, preview: str = "") -> Version:
    id_, document, number, format_, provenance, metadata, at = row
    return Version(id_, document, number, format_, provenance, Raw(metadata), at, preview)


def _operation_row(one: Operation) -> Row:
    return (
        one.id, one.principal, one.conversation, one.agent, one.mode, one.action, one.code, one.message,
        one.started_at, one.completed_at,
    )  # fmt: skip
