"""Nodes in the SQLite file beside the log. Reads never wait for a commit: they have connections of their own.

Lookups by id, one or two for every heartbeat and every discovery, are made in the event loop itself. They take some
twenty microseconds, and waking a thread and being woken by it takes longer, on a busy machine a hundred times.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from parley.core.nodes import AHEAD_MS, Beat, Node, NodeChange, NodeEvent, judged
from parley.engine.ports.nodes import EventQuery, NodeQuery
from parley.stores.nodes.rows import beat_row, event_row, node_row, restored
from parley.stores.sqlite import connect
from parley.stores.threads import SqliteThread

FORGET_BATCH = 1000
MOST_AT_ONCE = 8

_FROM = "FROM nodes LEFT JOIN node_beats USING (id)"
_PUT = """
INSERT INTO nodes (id, parent_id, status, version, words, body, card) VALUES (?, ?, ?, ?, ?, ?, x'')
ON CONFLICT (id) DO UPDATE SET parent_id = excluded.parent_id, status = excluded.status, version = excluded.version,
  words = excluded.words, body = excluded.body"""
# All of them in one statement, during which the interpreter is free: a thread that comes back to it for every row would
# keep the loop waiting.
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

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[Node]:
        sql = f"SELECT {_columns(cards)} {_FROM} WHERE id IN ({', '.join('?' * len(ids))})"
        if self._lookups is None and not self._closed:
            await self._reading.call(lambda _: None)
            self._lookups = self._lookups or _reader(self._path)
        if self._lookups is not None and len(ids) <= MOST_AT_ONCE and not cards:
            try:
                return [restored(*row) for row in self._lookups.execute(sql, ids)]
            except sqlite3.OperationalError:
                # Locked for a moment, which the loop cannot wait for.
                pass
        return await self._read(sql, *ids)

    async def find(self, query: NodeQuery) -> list[Node]:
        where, values = _conditions(query)
        sql = f"SELECT {_columns(query.cards)} {_FROM} WHERE {where} ORDER BY id LIMIT ?"
        return await self._read(sql, *values, query.limit)

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        return await self._writing.call(lambda connection: _apply(connection, list(changes)))

    async def beat(self, beats: Mapping[str, Beat]) -> None:
        rows = _rows(beats)
        await self._writing.call(lambda connection: connection.execute(_BEATS, (rows,)))

    async def silent(self, before: int, limit: int) -> list[Node]:
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

    async def _read(self, sql: str, *values: object) -> list[Node]:
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


def _rows(beats: Mapping[str, Beat]) -> str:
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
        ("seq > ?", query.after), ("seq < ?", query.before), ("node = ?", query.node), ("name = ?", query.name),
        ("kind = ?", query.kind),
    ]  # fmt: skip
    given = [(sql, value) for sql, value in asked if value is not None]
    return " AND ".join(sql for sql, _ in given), [value for _, value in given]
