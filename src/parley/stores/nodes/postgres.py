"""Nodes in PostgreSQL, shared by all replicas."""

from collections.abc import Mapping, Sequence

from parley.core.nodes import AHEAD_MS, Beat, Node, NodeChange, NodeEvent, judged
from parley.engine.ports.nodes import EventQuery, NodeQuery
from parley.errors import StoreUnavailable
from parley.stores.nodes.rows import beat_row, event_row, node_row, restored
from parley.stores.pool import TROUBLE, Connection, Pool

_FROM = "FROM nodes LEFT JOIN node_beats USING (id)"
# Whoever writes events waits for whoever did before: a reader that has seen a number has seen all smaller ones.
_TURN = "SELECT pg_advisory_xact_lock(hashtext('parley.nodes'))"
_PUT = """
INSERT INTO nodes (id, parent_id, status, version, words, body, card) VALUES ($1, $2, $3, $4, $5, $6, '')
ON CONFLICT (id) DO UPDATE SET parent_id = excluded.parent_id, status = excluded.status, version = excluded.version,
  words = excluded.words, body = excluded.body"""
_BEAT = f"""
INSERT INTO node_beats (id, at, body)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS row (id, at, body) ORDER BY id
ON CONFLICT (id) DO UPDATE SET at = excluded.at, body = excluded.body WHERE excluded.at >= node_beats.at
  OR node_beats.at > extract(epoch FROM clock_timestamp()) * 1000 + {AHEAD_MS}"""
_EVENT = "INSERT INTO node_events (at, name, node, kind, payload, private) VALUES ($1, $2, $3, $4, $5, $6)"
_SILENT = f"""
SELECT nodes.body, node_beats.body {_FROM}
WHERE node_beats.at < $1 AND status IN ('online', 'degraded') ORDER BY node_beats.at LIMIT $2"""
_FOUND = f"""
{_FROM} WHERE id > $1 AND ($2 OR status <> 'removed') AND ($3::text IS NULL OR parent_id = $3)
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
_FORGET = "WITH gone AS (DELETE FROM node_events WHERE at < $1 RETURNING 1) SELECT count(*) FROM gone"


class PostgresNodes:
    """The pool is closed with it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, ids: Sequence[str], *, cards: bool = False) -> list[Node]:
        rows = await self._pool.fetch(f"SELECT {_columns(cards)} {_FROM} WHERE id = ANY($1)", list(ids))
        return [restored(*row) for row in rows]

    async def find(self, query: NodeQuery) -> list[Node]:
        values: list[object] = [query.after, query.removed, query.parent, query.words.casefold(), query.limit]
        near = ""
        if query.around is not None:
            near = _NEAR[query.around.parent_id is None]
            values += [one for one in (query.around.id, query.around.parent_id) if one is not None]
        rows = await self._pool.fetch(f"SELECT {_columns(query.cards)} {_FOUND}{near} ORDER BY id LIMIT $5", *values)
        return [restored(*row) for row in rows]

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                return await _apply(connection, list(changes))
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    async def beat(self, beats: Mapping[str, Beat]) -> None:
        rows = [beat_row(id_, beat) for id_, beat in beats.items()]
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SET LOCAL synchronous_commit = off")
                await connection.execute(_BEAT, *zip(*rows, strict=True))
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error

    async def silent(self, before: int, limit: int) -> list[Node]:
        return [restored(*row) for row in await self._pool.fetch(_SILENT, before, limit)]

    async def events(self, query: EventQuery) -> list[NodeEvent]:
        order = "DESC" if query.newest else "ASC"
        rows = await self._pool.fetch(
            f"{_EVENTS} ORDER BY seq {order} LIMIT $6",
            query.after, query.before, query.node, query.name, query.kind, query.limit,
        )  # fmt: skip
        return [NodeEvent(*row) for row in rows]

    async def forget(self, before: int) -> int:
        return (await self._pool.fetch(_FORGET, before))[0][0]

    async def close(self) -> None:
        await self._pool.close()


def _columns(cards: bool) -> str:
    return "nodes.body, node_beats.body, card" if cards else "nodes.body, node_beats.body"


async def _apply(connection: Connection, changes: list[NodeChange]) -> list[bool]:
    await connection.execute(_TURN)
    wanted = {change.node.id for change in changes} | {id_ for change in changes for id_, _ in change.guards}
    rows = await connection.fetch("SELECT id, version FROM nodes WHERE id = ANY($1)", sorted(wanted))
    verdicts = judged(changes, {row[0]: row[1] for row in rows})
    written = [change for change, fits in zip(changes, verdicts, strict=True) if fits]
    if written:
        await _write(connection, written)
    return verdicts


async def _write(connection: Connection, changes: list[NodeChange]) -> None:
    await connection.executemany(_PUT, [node_row(change) for change in changes])
    if cards := [(change.card, change.node.id) for change in changes if change.card is not None]:
        await connection.executemany("UPDATE nodes SET card = $1 WHERE id = $2", cards)
    # One statement cannot touch a row twice: of several heartbeats of a node the last one counts.
    if beats := {one.node.id: beat_row(one.node.id, one.node.beat) for one in changes if one.node.beat.at}:
        await connection.execute(_BEAT, *zip(*beats.values(), strict=True))
    if events := [event_row(event) for change in changes for event in change.events]:
        await connection.executemany(_EVENT, events)
