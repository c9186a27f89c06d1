"""Nodes pass the same contract on every store."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from parley.stores.nodes import MemoryNodes, PostgresNodes, SqliteNodes
from parley.stores.postgres import open_pool
from parley.stores.postgres_pool import connect
from parley.stores.sqlite import FILE, SqliteStore
from parley.testing.nodes import NodesContract


class TestMemoryNodes(NodesContract):
    @pytest.fixture
    async def nodes(self) -> MemoryNodes:
        return MemoryNodes()


class TestSqliteNodes(NodesContract):
    @pytest.fixture
    async def nodes(self, tmp_path: Path) -> AsyncIterator[SqliteNodes]:
        nodes = SqliteNodes(tmp_path / FILE)
        yield nodes
        await nodes.close()


class TestPostgresNodes(NodesContract):
    @pytest.fixture
    async def nodes(self, database: str) -> AsyncIterator[PostgresNodes]:
        nodes = PostgresNodes(await open_pool(database, most=4))
        yield nodes
        await nodes.close()


OLD = "0010_bodies.pre"
ROWS = [
    ("a2a_receive", b'{"request_body":{"jsonrpc":"2.0","params":{"token":"push-token-4417"}}}'),
    ("a2a_receive", b'{"error_detail":"broken"}'),
    ("task_update", b'{"request_body":{"jsonrpc":"as the node wrote it"}}'),
]
CLEANED = [b"{}", *(private for _, private in ROWS[1:])]
INSERT = "INSERT INTO node_events (at, name, node, kind, payload, private) VALUES "


async def test_bodies_that_an_older_version_kept_of_calls_are_gone_from_sqlite(tmp_path: Path) -> None:
    await SqliteStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as older, older:
        older.execute("DELETE FROM migrations WHERE id = ?", (OLD,))
        older.executemany(INSERT + "(1, 'ACTIVITY_LOGGED', 'n', ?, CAST('{}' AS BLOB), ?)", ROWS)
    assert b"4417" in (tmp_path / FILE).read_bytes()
    await SqliteStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as after:
        assert [row[0] for row in after.execute("SELECT private FROM node_events ORDER BY seq")] == CLEANED
    assert b"4417" not in (tmp_path / FILE).read_bytes()


async def test_bodies_that_an_older_version_kept_of_calls_are_gone_from_postgres(database: str) -> None:
    older = await connect(database)
    await older.execute("DELETE FROM migrations WHERE id = $1", OLD)
    await older.executemany(INSERT + "(1, 'ACTIVITY_LOGGED', 'n', $1, '{}', $2)", ROWS)
    await (await open_pool(database)).close()
    found = await older.fetch("SELECT private FROM node_events ORDER BY seq")
    await older.close()
    assert [row[0] for row in found] == CLEANED
