"""Every store keeps documents beside its log in the same way."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import SqliteStore
from parley.testing.libraries import LibraryContract, drafts

__all__ = ["drafts"]


class TestMemoryLibrary(LibraryContract):
    @pytest.fixture
    async def store(self) -> MemoryStore:
        return MemoryStore()


class TestSqliteLibrary(LibraryContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(tmp_path)
        yield store
        await store.close()


class TestPostgresLibrary(LibraryContract):
    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(await open_pool(database))
        yield store
        await store.close()
