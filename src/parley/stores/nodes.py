"""Nodes, heartbeats and events as rows, the same for every database."""

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import StoreUnavailable
from parley.json_values import readable
from parley.nodes.rules import AHEAD_MS, REACHABLE, Heartbeat, NodeChange, NodeEvent, RegisteredNode, judged
from parley.nodes.store import EventQuery, NodeQuery
from parley.stores.postgres_pool import TROUBLE, Connection, Pool
from parley.stores.sqlite_file import SqliteThread, connect

Row = tuple[Any, ...]

NONE = Heartbeat()
_encode = msgspec.msgpack.Encoder().encode
_decode_node = msgspec.msgpack.Decoder(RegisteredNode).decode
_encode_beat = msgspec.json.Encoder().encode
_decode_beat = msgspec.json.Decoder(Heartbeat).decode


def words_of(node: RegisteredNode) -> str:
    return f"{node.name}\n{node.role}".casefold()


def node_row(change: NodeChange) -> Row:
    node = change.node
    body = _encode(replace(node, beat=NONE, card=b""))
    return node.id, node.parent_id, node.status.value, node.version, words_of(node), body


def beat_row(id_: str, beat: Heartbeat) -> Row:
    return id_, beat.at, _encode_beat(beat)


def event_row(event: NodeEvent) -> Row:
    return event.at, event.name, event.node, event.kind, event.payload, event.private


def restored(body: bytes, beat: bytes | None, card: bytes | None = None) -> RegisteredNode:
    node = _decode_node(body)
    return replace(node, beat=_decode_beat(beat) if beat else NONE, card=readable(card or b""))


# Nodes in memory: the reference that the contract suite compares with.


class MemoryNodes:
    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._nodes: dict[str, RegisteredNode] = {}
        self._beats: dict[str, Heartbeat] = {}
        self._events: list[NodeEvent] = []
        self._numbers = count(1)

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[RegisteredNode]:
        return [self._shown(self._nodes[id_], cards) for id_ in dict.fromkeys(ids) if id_ in self._nodes]

    async def find(self, query: NodeQuery) -> list[RegisteredNode]:
        found = sorted((node for node in self._nodes.values() if _matches(node, query)), key=lambda node: node.id)
        return [self._shown(node, query.cards) for node in found[: query.limit]]

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        verdicts = judged(list(changes), {node.id: node.version for node in self._nodes.values()})
        for change, fits in zip(changes, verdicts, strict=True):
            if fits:
                self._keep(change)
        return verdicts

    def _keep(self, change: NodeChange) -> None:
        before = self._nodes.get(change.node.id)
        card = change.card if change.card is not None else before.card if before else b""
        self._nodes[change.node.id] = replace(change.node, card=card)
        self._note(change.node.id, change.node.beat)
        self._events += [replace(event, seq=next(self._numbers)) for event in change.events]

    async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
        for id_, beat in beats.items():
            self._note(id_, beat)

    def _note(self, id_: str, beat: Heartbeat) -> None:
        before = self._beats.get(id_, NONE).at
        if beat.at >= before or before > self._clock() + AHEAD_MS:
            self._beats[id_] = beat

    async def silent(self, before: int, limit: int) -> list[RegisteredNode]:
        found = [self._shown(node, False) for node in self._nodes.values() if node.status in REACHABLE]
        return sorted((node for node in found if 0 < node.beat.at < before), key=lambda node: node.beat.at)[:limit]

    async def events(self, query: EventQuery) -> list[NodeEvent]:
        found = [event for event in self._events if _fits(event, query)]
        return found[::-1][: query.limit] if query.newest else found[: query.limit]

    async def forget(self, before: int) -> int:
        kept = [event for event in self._events if event.at >= before]
        gone, self._events = len(self._events) - len(kept), kept
        return gone

    async def close(self) -> None:
        return

    def _shown(self, node: RegisteredNode, cards: bool) -> RegisteredNode:
        return replace(node, beat=self._beats.get(node.id, NONE), card=node.card if cards else b"")


def _matches(node: RegisteredNode, query: NodeQuery) -> bool:
    if node.id <= query.after or (node.removed and not query.removed):
        return False
    if query.parent is not None and node.parent_id != query.parent:
        return False
    if query.around is not None and not _near(node, query.around):
        return False
    return query.words.casefold() in words_of(node)


def _near(node: RegisteredNode, to: RegisteredNode) -> bool:
    return node.id != to.id and (node.parent_id == to.parent_id or node.parent_id == to.id or node.id == to.parent_id)


def _fits(event: NodeEvent, query: EventQuery) -> bool:
    return (
        event.seq > query.after
        and (query.before is None or event.seq < query.before)
        and query.node in (None, event.node)
        and query.name in (None, event.name)
        and query.kind in (None, event.kind)
    )


# Nodes in the SQLite file beside the log. Reads never wait for a commit: they have connections of their own.
#
# Lookups by id, one or two for every heartbeat and every discovery, are made in the event loop itself. They take about
# twenty microseconds; a switch to a thread and back takes longer, on a busy machine a hundred times.

FORGET_BATCH = 1000
MOST_AT_ONCE = 8

_FROM = "FROM nodes LEFT JOIN node_beats USING (id)"
_PUT = """
INSERT INTO nodes (id, parent_id, status, version, words, body, card) VALUES (?, ?, ?, ?, ?, ?, x'')
ON CONFLICT (id) DO UPDATE SET parent_id = excluded.parent_id, status = excluded.status, version = excluded.version,
  words = excluded.words, body = excluded.body"""
# All heartbeats in one statement, which releases the interpreter: a thread that needed it for every row would block the
# event loop.
_BEATS = f"""
INSERT INTO node_beats (id, at, body)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), CAST(json_extract(value, '$[2]') AS BLOB)
FROM json_each(?) WHERE true
ON CONFLICT (id) DO UPDATE SET at = excluded.at, body = excluded.body WHERE excluded.at >= node_beats.at
  OR node_beats.at > strftime('%s', 'now') * 1000 + {AHEAD_MS}"""
_EVENT = "INSERT INTO node_events (at, name, node, kind, payload, private) VALUES (?, ?, ?, ?, ?, ?)"
_SILENT = f"""
SELECT nodes.body, node_beats.body {_FROM}
WHERE node_beats.at < ? AND status IN ('online', 'degraded') ORDER BY node_beats.at LIMIT ?"""
_FORGET = """
DELETE FROM node_events WHERE seq IN (SELECT seq FROM node_events WHERE at < ? ORDER BY at LIMIT ?)"""


class SqliteNodes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = SqliteThread(path, "parley-nodes-read")
        self._writing = SqliteThread(path, "parley-nodes-write")
        self._lookups: sqlite3.Connection | None = None
        self._closed = False

    # Why: docs/decisions/nodes.md#look-nodes-up-in-the-event-loop-on-sqlite
    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[RegisteredNode]:
        sql = f"SELECT {_columns(cards)} {_FROM} WHERE id IN ({', '.join('?' * len(ids))})"
        if self._lookups is None and not self._closed:
            await self._reading.call(lambda _: None)
            self._lookups = self._lookups or _reader(self._path)
        if self._lookups is not None and len(ids) <= MOST_AT_ONCE and not cards:
            try:
                return [restored(*row) for row in self._lookups.execute(sql, ids)]
            except sqlite3.OperationalError:
                # The database is locked for a moment, and the event loop cannot wait for it.
                pass
        return await self._read(sql, *ids)

    async def find(self, query: NodeQuery) -> list[RegisteredNode]:
        where, values = _conditions(query)
        sql = f"SELECT {_columns(query.cards)} {_FROM} WHERE {where} ORDER BY id LIMIT ?"
        return await self._read(sql, *values, query.limit)

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        return await self._writing.call(lambda connection: _apply(connection, list(changes)))

    async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
        rows = _rows(beats)
        await self._writing.call(lambda connection: connection.execute(_BEATS, (rows,)))

    async def silent(self, before: int, limit: int) -> list[RegisteredNode]:
        return await self._read(_SILENT, before, limit)

    async def events(self, query: EventQuery) -> list[NodeEvent]:
        where, values = _asked(query)
        order = "DESC" if query.newest else "ASC"
        sql = (
            "SELECT name, node, at, payload, kind, private, seq FROM node_events "
            f"WHERE {where} ORDER BY seq {order} LIMIT ?"
        )
        rows = await self._reading.call(lambda one: one.execute(sql, (*values, query.limit)).fetchall())
        return [NodeEvent(*row) for row in rows]

    async def forget(self, before: int) -> int:
        gone = batch = await self._forgotten(before)
        while batch == FORGET_BATCH:
            batch = await self._forgotten(before)
            gone += batch
        return gone

    async def close(self) -> None:
        self._closed = True
        if self._lookups is not None:
            self._lookups.close()
            self._lookups = None
        await self._reading.close()
        await self._writing.close()

    async def _read(self, sql: str, *values: object) -> list[RegisteredNode]:
        return await self._reading.call(lambda one: [restored(*row) for row in one.execute(sql, values)])

    async def _forgotten(self, before: int) -> int:
        return await self._writing.call(lambda one: one.execute(_FORGET, (before, FORGET_BATCH)).rowcount)


def _reader(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA busy_timeout = 0")
    return connection


def _columns(cards: bool) -> str:
    return "nodes.body, node_beats.body, card" if cards else "nodes.body, node_beats.body"


def _apply(connection: sqlite3.Connection, changes: list[NodeChange]) -> list[bool]:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        wanted = {change.node.id for change in changes} | {id_ for change in changes for id_, _ in change.guards}
        places = ", ".join("?" * len(wanted))
        versions = dict(connection.execute(f"SELECT id, version FROM nodes WHERE id IN ({places})", tuple(wanted)))
        verdicts = judged(changes, versions)
        _write(connection, [change for change, fits in zip(changes, verdicts, strict=True) if fits])
    return verdicts


def _write(connection: sqlite3.Connection, changes: list[NodeChange]) -> None:
    connection.executemany(_PUT, [node_row(change) for change in changes])
    cards = [(change.card, change.node.id) for change in changes if change.card is not None]
    connection.executemany("UPDATE nodes SET card = ? WHERE id = ?", cards)
    connection.execute(_BEATS, (_rows({one.node.id: one.node.beat for one in changes if one.node.beat.at}),))
    connection.executemany(_EVENT, [event_row(event) for change in changes for event in change.events])


def _rows(beats: Mapping[str, Heartbeat]) -> str:
    rows = [beat_row(id_, beat) for id_, beat in beats.items()]
    return msgspec.json.encode([(id_, at, body.decode()) for id_, at, body in rows]).decode()


def _conditions(query: NodeQuery) -> tuple[str, list[object]]:
    where, values = ["id > ?"], list[object]([query.after])
    if not query.removed:
        where.append("status <> 'removed'")
    if query.parent is not None:
        where.append("parent_id = ?")
        values.append(query.parent)
    if (near := query.around) is not None:
        where.append("id <> ? AND (parent_id IS ? OR parent_id = ? OR id = ?)")
        values += [near.id, near.parent_id, near.id, near.parent_id]
    if query.words:
        where.append("instr(words, ?) > 0")
        values.append(query.words.casefold())
    return " AND ".join(where), values


def _asked(query: EventQuery) -> tuple[str, list[object]]:
    asked: list[tuple[str, object]] = [
        ("seq > ?", query.after),
        ("seq < ?", query.before),
        ("node = ?", query.node),
        ("name = ?", query.name),
        ("kind = ?", query.kind),
    ]
    given = [(sql, value) for sql, value in asked if value is not None]
    return " AND ".join(sql for sql, _ in given), [value for _, value in given]


# Nodes in PostgreSQL, shared by all replicas.

_PG_FROM = "FROM nodes LEFT JOIN node_beats USING (id)"
# Writers of events wait for each other, so that a reader that has seen a number has seen all smaller ones.
_TURN = "SELECT pg_advisory_xact_lock(hashtext('parley.nodes'))"
_PG_PUT = """
INSERT INTO nodes (id, parent_id, status, version, words, body, card) VALUES ($1, $2, $3, $4, $5, $6, '')
ON CONFLICT (id) DO UPDATE SET parent_id = excluded.parent_id, status = excluded.status, version = excluded.version,
  words = excluded.words, body = excluded.body"""
_BEAT = f"""
INSERT INTO node_beats (id, at, body)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS row (id, at, body) ORDER BY id
ON CONFLICT (id) DO UPDATE SET at = excluded.at, body = excluded.body WHERE excluded.at >= node_beats.at
  OR node_beats.at > extract(epoch FROM clock_timestamp()) * 1000 + {AHEAD_MS}"""
_PG_EVENT = "INSERT INTO node_events (at, name, node, kind, payload, private) VALUES ($1, $2, $3, $4, $5, $6)"
_PG_SILENT = f"""
SELECT nodes.body, node_beats.body {_PG_FROM}
WHERE node_beats.at < $1 AND status IN ('online', 'degraded') ORDER BY node_beats.at LIMIT $2"""
_FOUND = f"""
{_PG_FROM} WHERE id > $1 AND ($2 OR status <> 'removed') AND ($3::text IS NULL OR parent_id = $3)
AND ($4 = '' OR position($4 IN words) > 0)"""
_NEAR = {
    True: " AND id <> $6 AND (parent_id IS NULL OR parent_id = $6)",
    False: " AND id <> $6 AND (parent_id = $7 OR parent_id = $6 OR id = $7)",
}
"""By whether the node is a root."""
_EVENTS = """
SELECT name, node, at, payload, kind, private, seq FROM node_events WHERE seq > $1
AND ($2::bigint IS NULL OR seq < $2) AND ($3::text IS NULL OR node = $3) AND ($4::text IS NULL OR name = $4)
AND ($5::text IS NULL OR kind = $5)"""
_PG_FORGET = "WITH gone AS (DELETE FROM node_events WHERE at < $1 RETURNING 1) SELECT count(*) FROM gone"


class PostgresNodes:
    """Nodes in PostgreSQL. Closing the store closes the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[RegisteredNode]:
        rows = await self._pool.fetch(f"SELECT {_pg_columns(cards)} {_PG_FROM} WHERE id = ANY($1)", list(ids))
        return [restored(*row) for row in rows]

    async def find(self, query: NodeQuery) -> list[RegisteredNode]:
        values: list[object] = [query.after, query.removed, query.parent, query.words.casefold(), query.limit]
        near = ""
        if query.around is not None:
            near = _NEAR[query.around.parent_id is None]
            values += [one for one in (query.around.id, query.around.parent_id) if one is not None]
        rows = await self._pool.fetch(f"SELECT {_pg_columns(query.cards)} {_FOUND}{near} ORDER BY id LIMIT $5", *values)
        return [restored(*row) for row in rows]

    # Why: docs/decisions/nodes.md#apply-changes-of-nodes-one-after-another-on-postgresql
    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                return await _pg_apply(connection, list(changes))
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
        rows = [beat_row(id_, beat) for id_, beat in beats.items()]
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SET LOCAL synchronous_commit = off")
                await connection.execute(_BEAT, *zip(*rows, strict=True))
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    async def silent(self, before: int, limit: int) -> list[RegisteredNode]:
        return [restored(*row) for row in await self._pool.fetch(_PG_SILENT, before, limit)]

    async def events(self, query: EventQuery) -> list[NodeEvent]:
        order = "DESC" if query.newest else "ASC"
        rows = await self._pool.fetch(
            f"{_EVENTS} ORDER BY seq {order} LIMIT $6",
            query.after,
            query.before,
            query.node,
            query.name,
            query.kind,
            query.limit,
        )
        return [NodeEvent(*row) for row in rows]

    async def forget(self, before: int) -> int:
        return (await self._pool.fetch(_PG_FORGET, before))[0][0]

    async def close(self) -> None:
        await self._pool.close()


def _pg_columns(cards: bool) -> str:
    return "nodes.body, node_beats.body, card" if cards else "nodes.body, node_beats.body"


async def _pg_apply(connection: Connection, changes: list[NodeChange]) -> list[bool]:
    await connection.execute(_TURN)
    wanted = {change.node.id for change in changes} | {id_ for change in changes for id_, _ in change.guards}
    rows = await connection.fetch("SELECT id, version FROM nodes WHERE id = ANY($1)", sorted(wanted))
    verdicts = judged(changes, {row[0]: row[1] for row in rows})
    written = [change for change, fits in zip(changes, verdicts, strict=True) if fits]
    if written:
        await _pg_write(connection, written)
    return verdicts


async def _pg_write(connection: Connection, changes: list[NodeChange]) -> None:
    await connection.executemany(_PG_PUT, [node_row(change) for change in changes])
    if cards := [(change.card, change.node.id) for change in changes if change.card is not None]:
        await connection.executemany("UPDATE nodes SET card = $1 WHERE id = $2", cards)
    # One statement cannot change a row twice: of several heartbeats of a node the last one counts.
    if beats := {one.node.id: beat_row(one.node.id, one.node.beat) for one in changes if one.node.beat.at}:
        await connection.execute(_BEAT, *zip(*beats.values(), strict=True))
    if events := [event_row(event) for change in changes for event in change.events]:
        await connection.executemany(_PG_EVENT, events)


# Nodes in memory, in the SQLite file beside the log, or in PostgreSQL.

__all__ = ["MemoryNodes", "PostgresNodes", "SqliteNodes"]
