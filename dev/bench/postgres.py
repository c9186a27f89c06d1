"""The same log on PostgreSQL: appends beside a bare loop, sends beside the SDK, and how late a replica hears."""

import asyncio
import atexit
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import uvloop

from dev.bench import peers
from dev.bench.appends import BareRun, Window, rate_of
from dev.bench.data import scratch
from dev.bench.rows import Case
from dev.bench.servers import CLIENTS, HERE, SLOW_WINDOW_S, WINDOW_S, rate
from dev.bench.servers import python as peer_python
from parley.client import Client
from parley.settings import load
from parley.stores.postgres_pool import Connection, connect
from parley.stores.schema import migrate_postgres
from parley.testing.databases import fresh_database, postgres_server
from parley.testing.processes import replicas

ALLOWED_LAG_MS = 20.0

Write = Callable[[Connection, list[BareRun]], Awaitable[int]]


def cases() -> list[Case]:
    return [
        _appends(32, "min", 0.8),
        _appends(256),
        Case("pg.send.sdk", "sends/s", partial(ours, "send"), "a2a-sdk, PostgreSQL", partial(sdk, "send"), "min", 35),
        Case("pg.stream.sdk", "streams/s", partial(ours, "stream"), "a2a-sdk, PostgreSQL", partial(sdk, "stream")),
        Case("pg.lag", "ms", lag, "allowed", lambda: ALLOWED_LAG_MS, "max", 1.0,
             note=lambda _: "p99, from the agent on one replica to a stream of the other"),
    ]  # fmt: skip


def _appends(writers: int, bound: Any = None, floor: float | None = None) -> Case:
    return Case(
        f"pg.appends.{writers}", "appends/s", partial(engine_rate, writers), "bare loop", partial(bare_rate, writers),
        bound, floor,
    )  # fmt: skip


@cache
def server_url() -> str:
    """One server for all rows, on the disk that is measured."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres_server(stack.enter_context(scratch()), durable=True))


def engine_rate(writers: int) -> float:
    return uvloop.run(_engine_rate(writers))


async def _engine_rate(writers: int) -> float:
    with scratch() as directory:
        url = await fresh_database(server_url())
        return await rate_of(load(data_dir=directory, store="postgres", postgres_url=url), writers)


def bare_rate(writers: int) -> float:
    """The faster of the two ways to hand many rows to PostgreSQL."""
    return max(uvloop.run(_bare_rate(writers, write)) for write in (write_one_by_one, write_together))


async def _bare_rate(writers: int, write: Write) -> float:
    connection = await connect(await fresh_database(server_url()))
    await migrate_postgres(connection)
    runs = [await _insert_run(connection) for _ in range(writers)]
    window, done = Window(), 0
    while window.is_open(done):
        async with connection.transaction():
            done = await write(connection, runs)
    await connection.close()
    return window.rate


async def _insert_run(connection: Connection) -> BareRun:
    bare = BareRun()
    run = bare.run
    await connection.execute(
        "INSERT INTO runs (run_id, version, hash, agent, principal, conversation, state, owner, ended, created_at,"
        " updated_at, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        run.id, bare.version, bare.event.hash, run.agent, run.principal, run.conversation, run.state.value, run.owner,
        False, run.created_at, run.updated_at, bare.body,
    )  # fmt: skip
    return bare


def _rows(runs: list[BareRun]) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    updates: list[tuple[object, ...]] = []
    inserts: list[tuple[object, ...]] = []
    for bare in runs:
        run, event, version = bare.run, bare.event, bare.version
        bare.version = new = version + 1
        updates.append((run.id, version, new, event.hash, "working", run.owner, False, event.at, bare.body))
        inserts.append((run.id, new, event.at, event.type, event.body, event.hash))
    return updates, inserts


_SET = "version = {3}, hash = {4}, state = {5}, owner = {6}, ended = {7}, updated_at = {8}, body = {9}"
_UPDATE = f"UPDATE runs SET {_SET.format(*(f'${n}' for n in range(10)))} WHERE run_id = $1 AND version = $2"
_UPDATE_MANY = f"""
UPDATE runs SET {_SET.format(*(f"new.c{n}" for n in range(10)))}
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
            $9::bytea[]) AS new (c1, c2, c3, c4, c5, c6, c7, c8, c9)
WHERE run_id = new.c1 AND version = new.c2"""
_COLUMNS = "run_id, seq, at, type, payload, hash"
_INSERT = f"INSERT INTO events ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)"
_INSERT_MANY = f"""
INSERT INTO events ({_COLUMNS})
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[])"""


async def write_one_by_one(connection: Connection, runs: list[BareRun]) -> int:
    updates, inserts = _rows(runs)
    await connection.executemany(_UPDATE, updates)
    await connection.executemany(_INSERT, inserts)
    return len(runs)


async def write_together(connection: Connection, runs: list[BareRun]) -> int:
    updates, inserts = _rows(runs)
    await connection.execute(_UPDATE_MANY, *zip(*updates, strict=True))
    await connection.execute(_INSERT_MANY, *zip(*inserts, strict=True))
    return len(runs)


def ours(mode: str) -> float:
    os.environ |= {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": asyncio.run(fresh_database(server_url()))}
    parley = Path(sys.executable).with_name("parley")
    try:
        with (
            scratch() as directory,
            peers.start(parley, "serve", str(HERE / "echo_agent.py"), "--data-dir", str(directory)) as url,
        ):
            return rate(peers.measure(f"{url}agents/echo", mode, "1.0", CLIENTS, WINDOW_S))
    finally:
        del os.environ["PARLEY_STORE"], os.environ["PARLEY_POSTGRES_URL"]


def sdk(mode: str) -> float:
    url = asyncio.run(fresh_database(server_url()))
    options = ("--store", "postgres", "--path", url.replace("postgresql://", "postgresql+asyncpg://"))
    with peers.start(peer_python("sdk"), HERE / "peers" / "sdk_server.py", *options) as address:
        return rate(peers.measure(address, mode, "1.0", CLIENTS, SLOW_WINDOW_S))


def lag() -> float:
    with scratch() as directory:
        return asyncio.run(_lag(directory))


async def _lag(directory: Path) -> float:
    """Two servers, one run: its agent works on the first, and a client follows it on the second."""
    url = await fresh_database(server_url())
    late: list[float] = []
    async with (
        replicas(2, [HERE / "ticker_agent.py"], directory, url) as (first, second),
        Client(f"{first.url}/agents/ticker") as here,
        Client(second.url + "/") as there,
    ):
        begun = await here.send("go", configuration={"returnImmediately": True})
        async for _, result in there.tail(begun["task"]["id"]):
            said = result.get("statusUpdate", {}).get("status", {}).get("message")
            if said is not None:
                late.append((time.time_ns() - int(said["parts"][0]["text"])) / 1e6)
    return statistics.quantiles(late, n=100)[98]
