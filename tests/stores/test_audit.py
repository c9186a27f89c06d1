"""Audit stores pass the same contract, and a second process may write to the one in SQLite."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.audit.rules import check
from parley.errors import BrokenChain
from parley.stores.audit import MemoryAudit, PostgresAudit, SqliteAudit
from parley.stores.postgres import open_pool
from parley.stores.sqlite import FILE
from parley.testing.records import OLDEST, AuditContract, act


class TestMemoryAudit(AuditContract):
    @pytest.fixture
    async def audit(self) -> MemoryAudit:
        return MemoryAudit()


class TestSqliteAudit(AuditContract):
    @pytest.fixture
    async def audit(self, tmp_path: Path) -> AsyncIterator[SqliteAudit]:
        audit = SqliteAudit(tmp_path / "data" / FILE)
        yield audit
        await audit.close()


class TestPostgresAudit(AuditContract):
    @pytest.fixture
    async def audit(self, database: str) -> AsyncIterator[PostgresAudit]:
        pool = await open_pool(database)
        yield PostgresAudit(pool)
        await pool.close()


async def test_two_connections_write_one_chain(tmp_path: Path) -> None:
    first, second = SqliteAudit(tmp_path / FILE), SqliteAudit(tmp_path / FILE)
    await asyncio.gather(*(one.append([act(number)]) for number in range(10) for one in (first, second)))
    assert check(await first.floor(), await first.read(OLDEST)).seq == 20
    await first.close()
    await second.close()


async def test_an_erased_person_is_not_in_the_file_any_more(tmp_path: Path) -> None:
    audit = SqliteAudit(tmp_path / FILE)
    await audit.append([act(0, actor="user:somebody-special"), act(1)])
    await audit.erase("user:somebody-special")
    await audit.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        assert "somebody-special" not in "\n".join(connection.iterdump())
    connection.close()


async def test_a_row_that_was_changed_in_the_database_is_found(tmp_path: Path) -> None:
    audit = SqliteAudit(tmp_path / FILE)
    await audit.append([act(number) for number in range(3)])
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE audit SET target = 'other' WHERE seq = 2")
    connection.close()
    with pytest.raises(BrokenChain, match="entry 2"):
        check(await audit.floor(), await audit.read(OLDEST))
    await audit.close()
