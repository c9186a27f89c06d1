"""A server is ready when its store reads and its writer commits."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import httpx2
import pytest

from parley import Done, Turn, agent
from parley.clock import now_ms
from parley.errors import StoreUnavailable
from parley.runs.store import LogStore, Readiness
from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import FILE
from parley.testing.logs import LogWriter, put
from parley.testing.processes import until
from parley.testing.servers import serving


@agent("echo")
async def echo(turn: Turn):
    yield Done(turn.text)


async def test_many_who_ask_cost_one_write(store: LogStore) -> None:
    readiness = Readiness(store)
    assert not any(await asyncio.gather(*(readiness.error() for _ in range(20))))
    assert await readiness.error() is None
    assert await store.forget_nonces(now_ms()) == (0 if isinstance(store, MemoryStore) else 1)


async def test_a_closed_store_is_not_ready(store: LogStore) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.check_writing(1)


async def test_a_writer_that_is_stuck_is_noticed_on_sqlite_and_so_is_its_return(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, [echo]) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            reply = await http.get("/readyz")
            assert (reply.status_code, reply.json()["code"]) == (503, "store_unavailable")
            assert (await http.get("/healthz")).status_code == 200
            other.execute("ROLLBACK")

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready)


@pytest.mark.parametrize("table", ["nonces", "events"])
async def test_a_database_that_lets_nobody_write_is_noticed_on_postgresql(database: str, table: str) -> None:
    store = PostgresStore(await open_pool(database))
    other = await asyncpg.connect(database)

    async def not_ready() -> bool:
        return await Readiness(store, patience_s=0.1).error() is not None

    try:
        async with other.transaction():
            await other.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            appended = put(store, LogWriter().start())
            await until(not_ready)
    finally:
        await other.close()
    await appended
    assert await Readiness(store).error() is None
    await store.close()
