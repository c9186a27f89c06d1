"""The audit log in memory, in the SQLite file beside the log of runs, or in PostgreSQL."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parley.audit.rules import (
    SALT_BYTES,
    Anchor,
    AuditAct,
    AuditEntry,
    AuditQuery,
    chained,
    part_digest,
)
from parley.errors import StoreUnavailable
from parley.stores.documents import sqlite_text
from parley.stores.postgres_pool import TROUBLE, Pool
from parley.stores.sqlite_file import SqliteThread

Row = tuple[Any, ...]

_NO_PERSON = part_digest(b"", ("", ""))
"""Digest of a part without a name, which is stored without a row and without a salt."""


def new_entries(anchor: Anchor, acts: Sequence[AuditAct]) -> list[AuditEntry]:
    """Return the entries of some acts. A part that names no person has no salt: there is nothing to hide."""
    salts = [os.urandom(SALT_BYTES) if any(part) else b"" for act in acts for part in act.personal().values()]
    return chained(anchor, acts, salts)


class MemoryAudit:
    """Audit log in memory: the reference that the contract suite compares with."""

    def __init__(self) -> None:
        self._entries: list[AuditEntry] = []
        self._floor = Anchor()

    async def append(self, acts: Sequence[AuditAct]) -> None:
        last = self._entries[-1] if self._entries else None
        self._entries += new_entries(Anchor(last.seq, last.hash) if last else self._floor, acts)

    async def read(self, query: AuditQuery) -> list[AuditEntry]:
        found = [entry for entry in self._entries if _matches(entry, query)]
        return (found if query.oldest else found[::-1])[: query.limit]

    async def floor(self) -> Anchor:
        return self._floor

    async def erase(self, principal: str) -> int:
        count = 0
        for place, entry in enumerate(self._entries):
            if principal and entry.actor == principal:
                entry = replace(entry, actor=None, address=None, actor_salt=b"")
            if principal and entry.person == principal:
                entry = replace(entry, person=None, person_salt=b"")
            count += entry is not self._entries[place]
            self._entries[place] = entry
        return count

    async def trim(self, before: int, limit: int = 1000) -> int:
        count = 0
        while count < min(limit, len(self._entries)) and self._entries[count].at < before:
            count += 1
        if count:
            last = self._entries[count - 1]
            self._floor, self._entries = Anchor(last.seq, last.hash), self._entries[count:]
        return count

    async def close(self) -> None:
        return


def _matches(entry: AuditEntry, query: AuditQuery) -> bool:
    after = query.after
    return (
        query.actor in (None, entry.actor)
        and query.action in (None, entry.action)
        and query.target in (None, entry.target)
        and query.result in (None, entry.result)
        and (query.since is None or entry.at >= query.since)
        and (query.until is None or entry.at < query.until)
        and (after is None or (entry.seq > after if query.oldest else entry.seq < after))
    )


# Both databases run the same statements; SQLite writes their parameters with a question mark.

_COLUMNS = "seq, at, action, result, code, kind, target, count, actor_digest, person_digest, hash"
_INSERT = f"INSERT INTO audit ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_PEOPLE = "INSERT INTO audit_people (seq, part, name, address, salt) VALUES ($1, $2, $3, $4, $5)"
_HEAD = "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1"
_FLOOR = "SELECT seq, hash FROM audit_floor"
_SELECT = f"""
SELECT {", ".join(f"audit.{name}" for name in _COLUMNS.split(", "))},
  who.name, who.address, who.salt, whom.name, whom.salt
FROM audit
LEFT JOIN audit_people AS who ON who.seq = audit.seq AND who.part = 'actor'
LEFT JOIN audit_people AS whom ON whom.seq = audit.seq AND whom.part = 'person'"""
_CHANGED = "SELECT count(DISTINCT seq) FROM audit_people WHERE name = $1"
_ERASE = "DELETE FROM audit_people WHERE name = $1"
_OLD = "SELECT seq, at, hash FROM audit ORDER BY seq LIMIT $1"
_TRIM = "DELETE FROM audit WHERE seq <= $1"
_TRIM_PEOPLE = "DELETE FROM audit_people WHERE seq <= $1"
_SET_FLOOR = """
INSERT INTO audit_floor (one, seq, hash) VALUES (1, $1, $2)
ON CONFLICT (one) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"""


def _rows(entries: Sequence[AuditEntry]) -> tuple[list[Row], list[Row]]:
    """Return the rows of the chain, and those of the people in it."""
    chain = [tuple(getattr(one, name) for name in _COLUMNS.split(", ")) for one in entries]
    people: list[Row] = [
        (one.seq, "actor", one.actor, one.address, one.actor_salt) for one in entries if one.actor_salt
    ]
    people += [(one.seq, "person", one.person, "", one.person_salt) for one in entries if one.person_salt]
    return chain, people


def _entry(row: Row) -> AuditEntry:
    seq, at, action, result, code, kind, target, count, actor_digest, person_digest, hash_, *people = row
    actor, address, actor_salt, person, person_salt = people
    if actor is None and actor_digest == _NO_PERSON:
        actor, address = "", ""
    if person is None and person_digest == _NO_PERSON:
        person = ""
    return AuditEntry(
        seq=seq,
        at=at,
        action=action,
        result=result,
        code=code,
        kind=kind,
        target=target,
        count=count,
        actor=actor,
        address=address,
        person=person,
        actor_digest=actor_digest,
        person_digest=person_digest,
        actor_salt=actor_salt or b"",
        person_salt=person_salt or b"",
        hash=hash_,
    )


def _asked(query: AuditQuery) -> tuple[str, list[object]]:
    asked: list[tuple[str, object]] = [
        ("who.name = ${}", query.actor),
        ("audit.action = ${}", query.action),
        ("audit.target = ${}", query.target),
        ("audit.result = ${}", query.result),
        ("audit.at >= ${}", query.since),
        ("audit.at < ${}", query.until),
        ("audit.seq > ${}" if query.oldest else "audit.seq < ${}", query.after),
    ]
    given = [(sql, value) for sql, value in asked if value is not None]
    where = " AND ".join(sql.format(number) for number, (sql, _) in enumerate(given, 1)) or "true"
    order = "ASC" if query.oldest else "DESC"
    sql = f"{_SELECT}\nWHERE {where} ORDER BY audit.seq {order} LIMIT ${len(given) + 1}"
    return sql, [*(value for _, value in given), query.limit]


def _trimmed(rows: Sequence[Row], before: int) -> Anchor | None:
    """Return the last of the oldest entries that were made before a time; None if the oldest one was not."""
    found = None
    for seq, at, hash_ in rows:
        if at >= before:
            break
        found = Anchor(seq, hash_)
    return found


class SqliteAudit:
    """Audit log in SQLite. Needs no lock on the data directory: commands write to it while a server runs."""

    def __init__(self, path: Path) -> None:
        self._thread = SqliteThread(path, "parley-audit")

    async def append(self, acts: Sequence[AuditAct]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            rows = connection.execute(_HEAD).fetchall() or connection.execute(_FLOOR).fetchall()
            chain, people = _rows(new_entries(Anchor(*rows[0]) if rows else Anchor(), acts))
            connection.executemany(sqlite_text(_INSERT), chain)
            connection.executemany(sqlite_text(_PEOPLE), people)

        await self._thread.call(lambda connection: _in_transaction(connection, write))

    async def read(self, query: AuditQuery) -> list[AuditEntry]:
        sql, values = _asked(query)
        return [_entry(row) for row in await self._rows(sql, *values)]

    async def floor(self) -> Anchor:
        rows = await self._rows(_FLOOR)
        return Anchor(*rows[0]) if rows else Anchor()

    async def erase(self, principal: str) -> int:
        def delete(connection: sqlite3.Connection) -> int:
            count = connection.execute(sqlite_text(_CHANGED), (principal,)).fetchone()[0]
            connection.execute(sqlite_text(_ERASE), (principal,))
            return count

        return await self._thread.call(lambda connection: _in_transaction(connection, delete))

    async def trim(self, before: int, limit: int = 1000) -> int:
        def delete(connection: sqlite3.Connection) -> int:
            last = _trimmed(connection.execute(sqlite_text(_OLD), (limit,)).fetchall(), before)
            if last is None:
                return 0
            connection.execute(sqlite_text(_TRIM_PEOPLE), (last.seq,))
            connection.execute(sqlite_text(_SET_FLOOR), (last.seq, last.hash))
            return connection.execute(sqlite_text(_TRIM), (last.seq,)).rowcount

        return await self._thread.call(lambda connection: _in_transaction(connection, delete))

    async def close(self) -> None:
        await self._thread.close()

    async def _rows(self, sql: str, *values: object) -> list[Row]:
        return await self._thread.call(lambda connection: connection.execute(sqlite_text(sql), values).fetchall())


def _in_transaction(connection: sqlite3.Connection, work: Any) -> Any:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


# Writers take turns, so that there is one chain. Each statement sees what the writer before has committed.
_TURN = "SELECT pg_advisory_xact_lock(hashtext('parley.audit'))"


class PostgresAudit:
    """Audit log in PostgreSQL, shared by all replicas. Does not close the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def append(self, acts: Sequence[AuditAct]) -> None:
        async def write(connection: Any) -> None:
            rows = await connection.fetch(_HEAD) or await connection.fetch(_FLOOR)
            chain, people = _rows(new_entries(Anchor(*rows[0]) if rows else Anchor(), acts))
            await connection.executemany(_INSERT, chain)
            await connection.executemany(_PEOPLE, people)

        await self._in_turn(write)

    async def read(self, query: AuditQuery) -> list[AuditEntry]:
        sql, values = _asked(query)
        return [_entry(tuple(row)) for row in await self._pool.fetch(sql, *values)]

    async def floor(self) -> Anchor:
        rows = await self._pool.fetch(_FLOOR)
        return Anchor(*rows[0]) if rows else Anchor()

    async def erase(self, principal: str) -> int:
        async def delete(connection: Any) -> int:
            count = (await connection.fetch(_CHANGED, principal))[0][0]
            await connection.execute(_ERASE, principal)
            return count

        return await self._in_turn(delete)

    async def trim(self, before: int, limit: int = 1000) -> int:
        async def delete(connection: Any) -> int:
            last = _trimmed(await connection.fetch(_OLD, limit), before)
            if last is None:
                return 0
            await connection.execute(_TRIM_PEOPLE, last.seq)
            await connection.execute(_SET_FLOOR, last.seq, last.hash)
            return int((await connection.execute(_TRIM, last.seq)).split()[-1])

        return await self._in_turn(delete)

    async def close(self) -> None:
        return

    async def _in_turn(self, work: Any) -> Any:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute(_TURN)
                return await work(connection)
        except TROUBLE as error:
            raise StoreUnavailable("The database does not answer.") from error
