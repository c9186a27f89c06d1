"""Migrations: ordered SQL files. `pre` files run before the code that needs them starts, `post` files after the last
process of the older code has stopped."""

import re
import sqlite3
from importlib.resources import files
from typing import Any, Literal

from msgspec import Struct

from parley.errors import ConfigurationError

Phase = Literal["pre", "post"]

_TABLE = "CREATE TABLE IF NOT EXISTS migrations (id TEXT PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.(pre|post)\.sql")


class Migration(Struct, frozen=True, order=True):
    number: int
    phase: str
    name: str
    sql: str

    @property
    def id(self) -> str:
        return f"{self.number:04d}_{self.name}.{self.phase}"


def migrations(dialect: str) -> list[Migration]:
    found: list[Migration] = []
    for file in (files("parley.stores") / "migrations" / dialect).iterdir():
        if match := _NAME.fullmatch(file.name):
            number, name, phase = match.groups()
            found.append(Migration(int(number), phase, name, file.read_text("utf-8")))
    return sorted(found, key=lambda one: (one.number, one.phase != "pre"))


def missing(dialect: str, done: set[str], phases: tuple[Phase, ...]) -> list[Migration]:
    """Return the migrations to apply. `pre` migrations of a newer Parley are accepted: they work with this version
    too."""
    known = migrations(dialect)
    if newer := sorted(one for one in done - {one.id for one in known} if one.endswith(".post")):
        raise ConfigurationError(
            f"The database was written by a newer version of Parley (it has migration {newer[-1]})."
        )
    return [one for one in known if one.id not in done and one.phase in phases]


def migrate_sqlite(connection: sqlite3.Connection, phases: tuple[Phase, ...] = ("pre", "post")) -> list[str]:
    """Apply missing migrations, all in one transaction; return the ids of the applied ones."""
    while todo := missing("sqlite", done := _done(connection), phases):
        try:
            connection.executescript(_script(todo))
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # Another process that started at the same time may have applied some.
            if _done(connection) == done:
                raise
            continue
        break
    return [one.id for one in todo]


def _script(todo: list[Migration]) -> str:
    """One transaction, because each waits for the disk: a new database has many migrations to apply."""
    applied = "".join(f"{one.sql}\nINSERT INTO migrations (id) VALUES ('{one.id}');\n" for one in todo)
    return f"BEGIN IMMEDIATE;\n{_TABLE};\n{applied}COMMIT;"


def _done(connection: sqlite3.Connection) -> set[str]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
        return set()
    return {str(row[0]) for row in connection.execute("SELECT id FROM migrations")}


# Why: docs/decisions/stores.md#delay-schema-removals-while-other-replicas-serve
async def migrate_postgres(connection: Any, phases: tuple[Phase, ...] | None = None) -> list[str]:
    """Apply missing migrations to PostgreSQL; replicas that start together take turns. Unless `phases` says so, nothing
    is removed while other replicas use the database: they may run the older code."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('parley.migrations'))")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
        )
        done = {str(row[0]) for row in await connection.fetch("SELECT id FROM migrations")}
        if phases is None:
            phases = ("pre",) if await _served(connection) else ("pre", "post")
        todo = missing("postgres", done, phases)
        for one in todo:
            await connection.execute(one.sql)
            await connection.execute("INSERT INTO migrations (id) VALUES ($1)", one.id)
    return [one.id for one in todo]


async def _served(connection: Any) -> bool:
    if not await connection.fetchval("SELECT to_regclass('replicas') IS NOT NULL"):
        return False
    return await connection.fetchval(
        "SELECT EXISTS (SELECT FROM replicas WHERE NOT buried AND alive_until >= clock_timestamp())"
    )
