"""Records pass the same contract on every store, and are open to a second process on SQLite."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.errors import StoreUnavailable
from parley.stores.postgres import open_pool
from parley.stores.records import MemoryRecords, PostgresRecords, SqliteRecords
from parley.stores.sqlite import FILE, SqliteStore
from parley.testing.logs import LogWriter, put
from parley.testing.records import RecordsContract, record


class TestMemoryRecords(RecordsContract):
    @pytest.fixture
    async def records(self) -> MemoryRecords:
        return MemoryRecords()


class TestSqliteRecords(RecordsContract):
    @pytest.fixture
    async def records(self, tmp_path: Path) -> AsyncIterator[SqliteRecords]:
        records = SqliteRecords(tmp_path / "data" / FILE)
        yield records
        await records.close()


class TestPostgresRecords(RecordsContract):
    @pytest.fixture
    async def records(self, database: str) -> AsyncIterator[PostgresRecords]:
        pool = await open_pool(database)
        yield PostgresRecords(pool)
        await pool.close()


_OTHER = """
import asyncio, sys
from pathlib import Path
from parley.stores.records import SqliteRecords
from parley.testing.records import record

async def main():
    records = SqliteRecords(Path(sys.argv[1]))
    for number in range(20):
        await records.put(record(f"{sys.argv[2]}{number:02}"))
    await records.close()

asyncio.run(main())
"""


async def _other_process(path: Path, name: str) -> int:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _OTHER, str(path), name)
    return await process.wait()


async def test_other_processes_write_records_while_a_server_holds_the_data_directory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    records = SqliteRecords(tmp_path / FILE)
    logs = [LogWriter() for _ in range(200)]
    others = asyncio.gather(_other_process(tmp_path / FILE, "a"), _other_process(tmp_path / FILE, "b"))
    for log in logs:
        await put(store, log.start())
    assert await others == [0, 0]
    assert len(await records.list("thing")) == 40
    await records.close()
    await store.close()


async def test_processes_that_make_the_database_together_take_turns(tmp_path: Path) -> None:
    codes = await asyncio.gather(*(_other_process(tmp_path / FILE, name) for name in "abc"))
    assert codes == [0, 0, 0]
    records = SqliteRecords(tmp_path / FILE)
    assert len(await records.list("thing")) == 60
    await records.close()


async def test_closed_records_say_so(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / FILE)
    await records.put(record("x"))
    await records.close()
    with pytest.raises(StoreUnavailable):
        await records.get("thing", "a", "x")


def test_a_lookup_of_what_is_due_uses_its_index(tmp_path: Path) -> None:
    async def prepare() -> None:
        records = SqliteRecords(tmp_path / FILE)
        await records.put(record("x", due=1))
        await records.close()

    asyncio.run(prepare())
    connection = sqlite3.connect(tmp_path / FILE)
    plan = connection.execute("EXPLAIN QUERY PLAN SELECT id FROM records WHERE kind = 'x' AND due <= 5").fetchall()
    connection.close()
    assert "records_due" in plan[0][3]
