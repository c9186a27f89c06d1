"""Nodes pass the same contract on every store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.stores.nodes import MemoryNodes, PostgresNodes, SqliteNodes
from parley.stores.postgres import open_pool
from parley.stores.sqlite import FILE
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
