"""Every list of runs is found by an index that begins with what it filters by, however many runs there are."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from parley import Text, Turn, agent
from parley.runs.rules.state import Run, State
from parley.runs.store import Listing
from parley.stores.postgres import open_pool
from parley.stores.queries import filters, numbered, paged
from parley.stores.schema import migrate_sqlite
from parley.stores.sqlite import _AHEAD, _WAITING, FILE
from parley.stores.sqlite_file import connect
from parley.testing.servers import serving

FILTERS = {
    "principal": (None, "user:1"), "agent": (None, "echo"), "conversation": (None, "c1"),
    "state": (None, State.FAILED), "since": (None, 500), "after": (None, (900, "x")),
}  # fmt: skip
INDEX = re.compile(r"USING (?:COVERING )?(?:INDEX (\w+)|(PRIMARY KEY))(?: \((\w+))?")


def listings() -> Iterator[Listing]:
    """All that A2A, the administrators' API, MCP, the console and the engine ask for, and more."""
    for values in product(*FILTERS.values()):
        given = dict(zip(FILTERS, values, strict=True))
        yield Listing(**given)
        yield Listing(**given, newest=given["since"] is None, created_from=1, created_before=999)
        if given["since"] is None:
            yield Listing(**given, newest=True, counted=False)
            yield Listing(**given, newest=True, counted=False, prefix="0190aaaa-bbbb")
            yield Listing(**given, newest=True, counted=False, prefix="0")
        if given["conversation"] is not None:
            yield Listing(**given, oldest=True, counted=False)


def found_by(listing: Listing) -> set[str]:
    """The columns with which the index may begin."""
    if len(listing.prefix) > 1:
        return {"run_id"}
    if listing.conversation is not None:
        return {"conversation"}
    if not listing.newest:
        return {"principal"}
    filtered = {name for name in ("principal", "agent", "state") if getattr(listing, name) is not None}
    return filtered or {"created_at", "principal"}


def name_of(listing: Listing) -> str:
    shown = [name for name in listing.__struct_fields__ if getattr(listing, name) not in (None, "", False, 50)]
    return ",".join(shown)


LISTINGS = list(listings())


@agent("busy", max_concurrent=1)
async def busy(turn: Turn):
    """Never ends by itself."""
    await asyncio.Event().wait()
    yield Text("never")


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(tmp_path / FILE)) as connection:
        migrate_sqlite(connection)
        yield connection


def test_every_list_of_runs_begins_with_an_index_on_sqlite(runs: sqlite3.Connection) -> None:
    columns = {
        index: runs.execute("SELECT name FROM pragma_index_info(?) WHERE seqno = 0", (index,)).fetchone()[0]
        for (index,) in runs.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs'")
    } | {"PRIMARY KEY": "run_id"}
    for listing in LISTINGS:
        where, values = filters(listing)
        sql, given = paged(listing, where, values)
        asked = [(sql, given), (f"SELECT count(*) FROM runs WHERE {where}", values)]
        for statement, parameters in asked if listing.counted else asked[:1]:
            plan = [row[3] for row in runs.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            steps = [step for step in plan if re.search(r"\bruns\b", step)]
            used = [INDEX.search(step) for step in steps]
            assert all(used), (name_of(listing), plan)
            first = used[-1]
            assert first is not None
            assert columns[first[1] or first[2]] in found_by(listing), (name_of(listing), plan)
            if not (listing.newest and found_by(listing) >= {"created_at"}):
                assert steps[-1].startswith("SEARCH"), (name_of(listing), plan)


async def test_every_list_of_runs_begins_with_an_index_on_postgresql(database: str) -> None:
    pool = await open_pool(database)
    connection = await asyncpg.connect(database)
    await connection.execute(
        "INSERT INTO runs (run_id, version, hash, agent, principal, conversation, state, owner, ended, created_at, "
        "updated_at, status_at, body) SELECT md5(n::text), 5, '', 'agent' || n % 5, 'user:' || n % 7, 'c' || n / 10, "
        "(ARRAY['completed', 'failed', 'canceled', 'input_required'])[n % 4 + 1], 'r', true, n, n, n, '' "
        "FROM generate_series(1, 20000) AS n"
    )
    await connection.execute("VACUUM ANALYZE runs")
    await connection.execute("SET enable_seqscan = off")
    try:
        for listing in LISTINGS:
            where, values = filters(listing, "~>=~", "~<~")
            sql, given = paged(listing, where, values)
            asked = [(sql, given), (f"SELECT count(*) FROM runs WHERE {where}", values)]
            for statement, parameters in asked if listing.counted else asked[:1]:
                rows = await connection.fetch(f"EXPLAIN {numbered(statement)}", *parameters)
                plan = "\n".join(row[0] for row in rows)
                assert "Seq Scan" not in plan, (name_of(listing), plan)
                begins = "|".join(sorted(found_by(listing)))
                # How many runs are in a state it knows: where that is many, it may walk through them in their order.
                ordered = listing.newest and "runs_newest" in plan
                assert ordered or re.search(rf"Index Cond: \(+(ROW\()?({begins})\b", plan), (name_of(listing), plan)
    finally:
        await connection.close()
        await pool.close()


@pytest.mark.parametrize("given", [{}, {"agent": "echo"}, {"owner": "r"}])
@pytest.mark.parametrize("state", [State.SUBMITTED, State.WORKING])
def test_runs_in_a_state_are_found_by_a_partial_index(
    runs: sqlite3.Connection, given: dict[str, str], state: State
) -> None:
    where = "".join(f" AND {column} = '{value}'" for column, value in given.items())
    sql = f"SELECT body FROM runs WHERE state = '{state.value}'{where} ORDER BY arrival LIMIT 5"
    (step, *_) = [row[3] for row in runs.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert re.search(r"runs_(waiting|working|newest_in|newest_by_in)", step), step


def test_places_in_a_queue_are_counted_by_an_index(runs: sqlite3.Connection) -> None:
    for sql, values in ((_WAITING, ("echo", 10)), (_AHEAD, ("echo", 10, "x"))):
        plan = [row[3] for row in runs.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert any(
            re.search(r"USING (COVERING )?INDEX runs_\w+ \(agent=\? AND (state=|arrival<)\?", step) for step in plan
        ), plan


async def test_a_send_to_an_agent_with_a_limit_reads_no_run_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, [busy]) as server:
        asked = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
        asked["configuration"] = {"returnImmediately": True}  # pyright: ignore
        read: list[int] = []
        runs_in = server.exchange.store.runs_in

        async def reading(state: State, **given: Any) -> list[Run]:
            runs = await runs_in(state, **given)
            read.append(len(runs) if state is State.SUBMITTED and given.get("agent") == "busy" else 0)
            return runs

        monkeypatch.setattr(server.exchange.store, "runs_in", reading)
        async with httpx2.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
            places = []
            for number in range(12):
                body = {"jsonrpc": "2.0", "id": number, "method": "SendMessage", "params": asked}
                task = (await http.post(server.agent("busy"), json=body)).json()["result"]["task"]
                places.append(task["status"].get("message", {}).get("parts", [{}])[0].get("text", ""))
        assert sum(f" {number}" in text for number, text in enumerate(places)) >= 10, places
        assert max(read) <= 2
