"""Small data that is not a log, in memory, in the SQLite file beside the log, or in PostgreSQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.records import Moment, Place, Record
from parley.stores.postgres_pool import Pool
from parley.stores.sqlite_file import SqliteThread

Records = list[Record]

_COLUMNS = "kind, scope, id, body, at, due"
_START: Place = ("", "")
_FIRST: Moment = (-1, "", "")


class MemoryRecords:
    """Records in memory: the reference that the contract suite compares with."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str, str], Record] = {}

    async def put(self, record: Record) -> None:
        self._records[record.kind, record.scope, record.id] = record

    async def add(self, record: Record) -> bool:
        return self._records.setdefault((record.kind, record.scope, record.id), record) is record

    async def swap(self, old: Record, new: Record) -> bool:
        place = (old.kind, old.scope, old.id)
        if self._records.get(place) != old:
            return False
        self._records[place] = new
        return True

    async def get(self, kind: str, scope: str, id_: str) -> Record | None:
        return self._records.get((kind, scope, id_))

    async def list(self, kind: str, scope: str | None = None, after: Place = _START, limit: int = 100) -> Records:
        found = [one for one in self._records.values() if one.kind == kind and scope in (None, one.scope)]
        return sorted((one for one in found if _place(one) > after), key=_place)[:limit]

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        return self._records.pop((kind, scope, id_), None) is not None

    async def delete_all(self, kind: str, places: Sequence[Place]) -> None:
        for scope, id_ in places:
            self._records.pop((kind, scope, id_), None)

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = _FIRST) -> Records:
        found = [
            (one.due, one.scope, one.id)
            for one in self._records.values()
            if one.kind == kind and one.due is not None and one.due <= now
        ]
        chosen = sorted(moment for moment in found if moment > after)[:limit]
        return [self._records[kind, scope, id_] for _, scope, id_ in chosen]

    async def close(self) -> None:
        return


def _place(record: Record) -> Place:
    return record.scope, record.id


class SqliteRecords:
    """Records in SQLite. Needs no lock on the data directory, so that a command can change a database which a server is
    using."""

    def __init__(self, path: Path) -> None:
        self._thread = SqliteThread(path, "parley-records")

    async def put(self, record: Record) -> None:
        await self._write(f"INSERT OR REPLACE INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", *_row(record))

    async def add(self, record: Record) -> bool:
        sql = f"INSERT INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        return await self._write(sql, *_row(record)) == 1

    async def swap(self, old: Record, new: Record) -> bool:
        sql = (
            "UPDATE records SET body = ?, at = ?, due = ? "
            "WHERE kind = ? AND scope = ? AND id = ? AND body = ? AND at = ? AND due IS ?"
        )
        return await self._write(sql, new.body, new.at, new.due, *_row(old)) == 1

    async def get(self, kind: str, scope: str, id_: str) -> Record | None:
        found = await self._read("kind = ? AND scope = ? AND id = ?", kind, scope, id_)
        return found[0] if found else None

    async def list(self, kind: str, scope: str | None = None, after: Place = _START, limit: int = 100) -> Records:
        where, values = "kind = ? AND (scope, id) > (?, ?)", (kind, *after)
        if scope is not None:
            where, values = f"{where} AND scope = ?", (*values, scope)
        return await self._read(f"{where} ORDER BY scope, id LIMIT ?", *values, limit)

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        return await self._write("DELETE FROM records WHERE kind = ? AND scope = ? AND id = ?", kind, scope, id_) == 1

    async def delete_all(self, kind: str, places: Sequence[Place]) -> None:
        if places:
            given = ", ".join(["(?, ?)"] * len(places))
            sql = f"DELETE FROM records WHERE kind = ? AND (scope, id) IN (VALUES {given})"
            await self._write(sql, kind, *(part for place in places for part in place))

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = _FIRST) -> Records:
        where = "kind = ? AND due <= ? AND due >= ? AND (due, scope, id) > (?, ?, ?) ORDER BY due, scope, id LIMIT ?"
        return await self._read(where, kind, now, after[0], *after, limit)

    async def close(self) -> None:
        await self._thread.close()

    async def _read(self, where: str, *values: object) -> Records:
        sql = f"SELECT {_COLUMNS} FROM records WHERE {where}"
        return await self._thread.call(lambda connection: [Record(*row) for row in connection.execute(sql, values)])

    async def _write(self, sql: str, *values: object) -> int:
        """Run one statement. Outside a transaction it is a transaction of its own, and waits for the server's
        writer."""
        return await self._thread.call(lambda connection: connection.execute(sql, values).rowcount)


class PostgresRecords:
    """Records in PostgreSQL, shared by all replicas. Does not close the pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def put(self, record: Record) -> None:
        await self._pool.fetch(
            f"INSERT INTO records ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6) "
            "ON CONFLICT (kind, scope, id) DO UPDATE SET body = excluded.body, at = excluded.at, due = excluded.due",
            *_row(record),
        )

    async def add(self, record: Record) -> bool:
        sql = f"INSERT INTO records ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING 1"
        return bool(await self._pool.fetch(sql, *_row(record)))

    async def swap(self, old: Record, new: Record) -> bool:
        sql = (
            "UPDATE records SET body = $1, at = $2, due = $3 WHERE kind = $4 AND scope = $5 AND id = $6 "
            "AND body = $7 AND at = $8 AND due IS NOT DISTINCT FROM $9 RETURNING 1"
        )
        return bool(await self._pool.fetch(sql, new.body, new.at, new.due, *_row(old)))

    async def get(self, kind: str, scope: str, id_: str) -> Record | None:
        found = await self._read("kind = $1 AND scope = $2 AND id = $3", kind, scope, id_)
        return found[0] if found else None

    async def list(self, kind: str, scope: str | None = None, after: Place = _START, limit: int = 100) -> Records:
        where, values = "kind = $1 AND (scope, id) > ($2, $3)", (kind, *after, limit)
        if scope is not None:
            where, values = f"{where} AND scope = $5", (*values, scope)
        return await self._read(f"{where} ORDER BY scope, id LIMIT $4", *values)

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        sql = "DELETE FROM records WHERE kind = $1 AND scope = $2 AND id = $3 RETURNING 1"
        return bool(await self._pool.fetch(sql, kind, scope, id_))

    async def delete_all(self, kind: str, places: Sequence[Place]) -> None:
        sql = (
            "DELETE FROM records USING unnest($2::text[], $3::text[]) AS given (scope, id) "
            "WHERE records.kind = $1 AND records.scope = given.scope AND records.id = given.id"
        )
        if places:
            await self._pool.fetch(sql, kind, *map(list, zip(*places, strict=True)))

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = _FIRST) -> Records:
        where = "kind = $1 AND due <= $2 AND (due, scope, id) > ($3, $4, $5) ORDER BY due, scope, id LIMIT $6"
        return await self._read(where, kind, now, *after, limit)

    async def close(self) -> None:
        return

    async def _read(self, where: str, *values: object) -> Records:
        return [
            Record(*row) for row in await self._pool.fetch(f"SELECT {_COLUMNS} FROM records WHERE {where}", *values)
        ]


def _row(record: Record) -> tuple[Any, ...]:
    return record.kind, record.scope, record.id, record.body, record.at, record.due
