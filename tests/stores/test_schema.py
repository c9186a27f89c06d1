"""A server with a database that an older or newer version has migrated."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.errors import ConfigurationError
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Completed, Noted, Progress, Started
from parley.runs.rules.state import FOLD, Run
from parley.runs.rules.view import view_of
from parley.runs.views import read_view
from parley.stores.cluster import PostgresCluster
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.postgres_pool import connect
from parley.stores.schema import migrate_postgres, migrations, missing
from parley.stores.sqlite import FILE, SqliteStore
from parley.testing.databases import bare_database
from parley.testing.logs import WORDS, LogWriter, put

ALL = {one.id for one in migrations("postgres")}
POST = {one.id for one in migrations("postgres") if one.phase == "post"}


def test_what_a_newer_version_adds_beforehand_is_made_for_this_one_too() -> None:
    assert missing("postgres", {*ALL, "9999_more.pre"}, ("pre", "post")) == []


def test_where_a_newer_version_has_taken_something_away_this_one_does_not_serve() -> None:
    with pytest.raises(ConfigurationError, match="newer version of Parley"):
        missing("postgres", {*ALL, "9999_more.pre", "9999_more.post"}, ("pre", "post"))


async def test_nothing_is_taken_away_while_others_serve(postgres: str) -> None:
    url = await bare_database(postgres)
    pool = await open_pool(url, phases=("pre",))
    others = PostgresCluster(pool, lease_s=60)
    await others.join()
    async with pool.acquire() as connection:
        assert await migrate_postgres(connection) == []
        assert await migrate_postgres(connection, ("post",)) == sorted(POST)
    await pool.close()


async def test_a_server_that_is_alone_brings_everything_up_to_date(postgres: str) -> None:
    url = await bare_database(postgres)
    pool = await open_pool(url, phases=("pre",))
    gone = PostgresCluster(pool, lease_s=-1)
    await gone.join()
    async with pool.acquire() as connection:
        assert await migrate_postgres(connection) == sorted(POST)
    await pool.close()


class Older(msgspec.Struct, omit_defaults=True):
    """A row as a version knew it that had no more to say."""

    id: str
    agent: str
    conversation: str
    principal: str
    state: str = ""
    version: int = 0
    inputs: int = 0


def written_by_an_older(run: Run) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.decode(msgspec.msgpack.encode(run), type=Older))


async def test_a_row_of_an_older_process_is_folded_from_its_log_on_sqlite(tmp_path: Path) -> None:
    store, log = SqliteStore(tmp_path), LogWriter()
    await put(store, log.start())
    assert log.run is not None
    with closing(sqlite3.connect(tmp_path / FILE)) as other, other:
        other.execute("UPDATE runs SET body = ?", (written_by_an_older(log.run),))
    head = await store.head(log.run_id)
    await store.close()
    assert head is not None
    assert (head.run, head.run.said, head.run.fold) == (log.run, 1, FOLD)


@pytest.mark.parametrize("snapshot_by", ["this version", "an older one"])
@pytest.mark.parametrize("left", [0, 1])
async def test_the_generation_of_a_pruned_run_that_an_older_process_wrote(
    tmp_path: Path, snapshot_by: str, left: int
) -> None:
    """From the snapshot if that has it. Otherwise it can no longer be counted, and is the number of the last event."""
    store, log = SqliteStore(tmp_path), LogWriter()
    await put(store, log.start())
    await put(store, log.append(Started(1), Noted({"a": "b"}), Progress(WORDS), Completed()))
    assert log.run is not None
    assert (log.run.generation, log.run.version) == (4, 6)
    floor = log.run.version - left
    snapshot = view_of(log.events[:floor]).snapshot()
    if snapshot_by == "an older one":
        kept = msgspec.json.decode(snapshot, type=dict[str, Any])
        del kept["run"]["generation"], kept["run"]["fold"]
        snapshot = msgspec.json.encode(kept)
    await store.trim(log.run_id, floor, snapshot)
    with closing(sqlite3.connect(tmp_path / FILE)) as other, other:
        other.execute("UPDATE runs SET body = ?", (written_by_an_older(log.run),))
    head = await store.head(log.run_id)
    assert head is not None
    view = await read_view(store, head)
    await store.close()
    expected = 4 if snapshot_by == "this version" else 6
    assert (head.run.generation, view.run.generation) == (expected, expected)


async def test_a_row_of_an_older_process_is_folded_from_its_log_on_postgres(database: str) -> None:
    store, log = PostgresStore(await open_pool(database)), LogWriter()
    await put(store, log.start())
    await put(store, log.progress(1200))
    assert log.run is not None
    other = await connect(database)
    await other.execute("UPDATE runs SET body = $1", written_by_an_older(log.run))
    await other.close()
    head = await store.head(log.run_id)
    await store.close()
    assert head is not None
    assert head.run == log.run


async def test_a_row_whose_log_was_forgotten_is_shown_as_it_is(tmp_path: Path) -> None:
    store, log = SqliteStore(tmp_path), LogWriter()
    await put(store, log.start())
    await put(store, log.append(Started(1, "replica"), Completed((text_part("done"),))))
    assert log.run is not None
    await store.trim(log.run_id, log.run.version)
    with closing(sqlite3.connect(tmp_path / FILE)) as other, other:
        other.execute("UPDATE runs SET body = ?", (written_by_an_older(log.run),))
    head = await store.head(log.run_id)
    await store.close()
    assert head is not None
    assert (head.run.version, head.run.said, head.run.fold) == (log.run.version, 0, 0)
