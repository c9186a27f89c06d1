"""Every store passes the same contract; what only one of them has follows it."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.errors import BrokenChain, ConfigurationError, StoreUnavailable
from parley.runs.log import verify_run
from parley.runs.store import Listing, LogStore
from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.postgres_pool import Pool
from parley.stores.queries import filters, paged
from parley.stores.schema import migrate_sqlite, migrations
from parley.stores.sqlite import FILE, SqliteReader, SqliteStore
from parley.stores.sqlite_file import connect
from parley.testing.logs import LogWriter, put
from parley.testing.stores import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    async def store(self) -> MemoryStore:
        return MemoryStore()


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(tmp_path)
        yield store
        await store.close()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(await open_pool(database))
        yield store
        await store.close()


class TestPostgresStoreByRuns(StoreContract):
    """The rows of one run in each statement."""

    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[PostgresStore]:
        store = PostgresStore(await open_pool(database), batch=1)
        yield store
        await store.close()


async def test_several_writers_keep_each_run_in_order(database: str) -> None:
    """Runs that arrive at the same moment have no order; the appends of one run follow each other."""
    store = PostgresStore(await open_pool(database), writers=4, batch=2)
    logs = [LogWriter() for _ in range(40)]
    written = [put(store, log.start()) for log in logs]
    written += [put(store, log.progress()) for _ in range(10) for log in logs]
    await asyncio.gather(*written)
    for log in logs:
        assert [event.seq for event in await store.read(log.run_id, 0, 100)] == list(range(1, 13))
        await verify_run(store, log.run_id)
    late = [put(store, log.progress()) for log in logs]
    await store.close()
    assert all(one.done() and one.exception() is None for one in late)


async def test_a_connection_that_comes_back_in_the_middle_of_something_is_tidy_for_the_next(database: str) -> None:
    pool = await Pool.open(database, most=1)
    async with pool.acquire() as connection:
        await connection.execute("BEGIN")
        await connection.execute("CREATE TABLE half_done (n int)")
        await connection.execute("SET LOCAL statement_timeout = 12345")
    async with pool.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT to_regclass('half_done')") is None
        assert await connection.fetchval("SHOW statement_timeout") == "0"
    await pool.close()


async def test_of_rivals_for_a_nonce_on_two_replicas_exactly_one_wins(database: str) -> None:
    stores = [PostgresStore(await open_pool(database)) for _ in range(2)]
    dice = random.Random(7)
    nonces = [f"nonce-{number}" for number in range(100)] * 4
    dice.shuffle(nonces)
    results = await asyncio.gather(*(store.claim(nonce, 1000) for nonce in nonces for store in stores))
    assert sum(results) == 100
    assert not any(await asyncio.gather(*(stores[0].claim(nonce, 1000) for nonce in nonces)))
    for store in stores:
        await store.close()


async def test_claims_handed_in_before_close_are_decided(store: LogStore) -> None:
    claims = [asyncio.ensure_future(store.claim(f"nonce-{number}", 1000)) for number in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*claims) == [True] * 50


async def test_a_nonce_is_still_known_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert await store.claim("nonce", 1000)
    await store.close()
    again = SqliteStore(tmp_path)
    assert not await again.claim("nonce", 1000)
    await again.close()


async def test_a_log_outlives_the_store_that_wrote_it(tmp_path: Path) -> None:
    log = LogWriter()
    store = SqliteStore(tmp_path)
    await put(store, log.start())
    await store.close()
    again = SqliteStore(tmp_path)
    assert await verify_run(again, log.run_id) == 2
    await again.close()


async def test_what_was_handed_in_before_close_is_committed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    logs = [LogWriter() for _ in range(50)]
    futures = [put(store, log.start()) for log in logs]
    await store.close()
    assert [await future for future in futures] == [None] * 50
    reader = SqliteReader(tmp_path / FILE)
    assert len(await reader.run_ids("", 100)) == 50
    await reader.close()


async def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(ConfigurationError, match="Another process"):
        SqliteStore(tmp_path)
    await store.close()
    await SqliteStore(tmp_path).close()


async def test_a_full_disk_refuses_the_write_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    small, large = LogWriter(), LogWriter()
    await put(store, small.start())
    pages = store._writing.execute("PRAGMA page_count").fetchone()[0]
    store._writing.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable):
        await put(store, large.start().__class__(**_with_long_text(large)))
    store._writing.execute("PRAGMA max_page_count = 1000000")
    assert await store.head(large.run_id) is None
    await put(store, small.progress())
    assert await verify_run(store, small.run_id) == 3
    await store.close()


def _with_long_text(log: LogWriter) -> dict[str, object]:
    log.progress(1, "x" * 500_000)
    assert log.run is not None
    return {"run": log.run, "expected": 0, "events": log.events, "keys": []}


async def test_a_tampered_database_is_found_out(tmp_path: Path) -> None:
    log = LogWriter()
    store = SqliteStore(tmp_path)
    await put(store, log.start())
    await put(store, log.progress(3))
    connection = connect(tmp_path / FILE)
    connection.execute("UPDATE events SET payload = CAST(replace(payload, 'words', 'swords') AS BLOB) WHERE seq = 4")
    connection.close()
    with pytest.raises(BrokenChain) as found:
        await verify_run(store, log.run_id)
    assert found.value.details["seq"] == 4
    await store.close()


async def test_a_log_that_was_cut_off_is_found_out(tmp_path: Path) -> None:
    log = LogWriter()
    store = SqliteStore(tmp_path)
    await put(store, log.start())
    await put(store, log.progress(3))
    connection = connect(tmp_path / FILE)
    connection.execute("DELETE FROM events WHERE seq = 5")
    connection.close()
    with pytest.raises(BrokenChain, match="ends at 4"):
        await verify_run(store, log.run_id)
    await store.close()


def test_migrations_are_applied_once(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    assert migrate_sqlite(connection) == [one.id for one in migrations("sqlite")]
    assert migrate_sqlite(connection) == []
    connection.close()


def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    migrate_sqlite(connection)
    connection.execute("INSERT INTO migrations (id) VALUES ('9999_future.post')")
    with pytest.raises(ConfigurationError, match="newer"):
        migrate_sqlite(connection)
    connection.close()


async def test_a_conversation_is_found_by_its_own_index(tmp_path: Path) -> None:
    """However many runs its owner has: SQLite knows nothing of how many there are, and has to be led."""
    store = SqliteStore(tmp_path)
    for order in ({"oldest": True}, {"newest": True}, {}):
        listing = Listing("user:ann", conversation="one", **order)
        sql, values = paged(listing, *filters(listing))
        plan = store._writing.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        assert "runs_begun" in str(plan), plan
    await store.close()
