"""Words of runs are queued by the append and indexed afterwards, by whichever process comes to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from parley.ids import ConversationId
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Completed, InputReceived, Submitted
from parley.runs.store import Append, Listing
from parley.stores import search
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.postgres_pool import connect as connect_there
from parley.stores.sqlite import FILE, SqliteStore
from parley.stores.sqlite_file import connect
from parley.testing.databases import fresh_database, give_back
from parley.testing.logs import LogWriter, put
from parley.testing.waiting import until

AnyStore = SqliteStore | PostgresStore


class Place:
    """A database that is opened again and again."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self.stores: list[AnyStore] = []

    async def open(self) -> AnyStore:
        self.stores.append(PostgresStore(await open_pool(self._url)) if self._url else SqliteStore(self._folder))
        return self.stores[-1]

    async def count(self, table: str) -> int:
        sql = f"SELECT count(*) FROM {table}"
        if not self._url:
            with closing(connect(self._folder / FILE)) as file:
                return file.execute(sql).fetchone()[0]
        there = await connect_there(self._url)
        try:
            return await there.fetchval(sql)
        finally:
            await there.close()

    async def until_indexed(self) -> None:
        async def empty() -> bool:
            return not await self.count("run_search_queue")

        await until(empty, search.INDEX_AFTER_S + 5)


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else ""
    url = await fresh_database(server) if server else ""
    place = Place(tmp_path, url)
    yield place
    for store in place.stores:
        await store.close()
    if url:
        await give_back(server, url)


def asked(log: LogWriter, text: str) -> Append:
    return log.append(Submitted("agent", ConversationId("c"), "local"), InputReceived(Message("m", (text_part(text),))))


async def test_words_are_indexed_soon_although_there_is_no_search(place: Place) -> None:
    store = await place.open()
    await put(store, asked(LogWriter(), "a train"))
    assert await place.count("run_search") == 0
    await place.until_indexed()
    assert await place.count("run_search") == 1


async def test_what_a_process_left_in_the_queue_is_indexed_by_the_next(place: Place) -> None:
    store, log = await place.open(), LogWriter()
    await put(store, asked(log, "a train"))
    await store.close()
    assert await place.count("run_search_queue") == 1
    store = await place.open()
    await place.until_indexed()
    assert [run.id for run in await store.search(Listing(text="train"))] == [log.run_id]


async def test_an_erased_run_leaves_no_words_when_it_is_indexed_late(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "INDEX_AFTER_S", 600)
    store, log = await place.open(), LogWriter()
    await put(store, asked(log, "a secret"))
    await put(store, log.append(Completed()))
    await store.erase(log.run_id)
    assert await store.search(Listing(text="secret")) == []
    assert await place.count("run_search_queue") == await place.count("run_search") == 0


async def test_a_search_finds_what_was_just_written_beyond_one_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "INDEX_AFTER_S", 600)
    store = await place.open()
    await asyncio.gather(*(put(store, asked(LogWriter(), "a train")) for _ in range(search.BATCH + 10)))
    assert len(await store.search(Listing(text="train", limit=1000))) == search.BATCH + 10
    later = LogWriter()
    await put(store, asked(later, "another train"))
    assert [run.id for run in await store.search(Listing(text="another"))] == [later.run_id]


async def test_replicas_index_beside_each_other_and_beside_one_that_writes_words_itself(database: str) -> None:
    """A replica of the version before the queue writes the words with the run."""
    stores = [PostgresStore(await open_pool(database)) for _ in range(2)]
    logs = [LogWriter() for _ in range(60)]
    await asyncio.gather(*(put(stores[n % 2], asked(log, "a train")) for n, log in enumerate(logs)))
    older = await connect_there(database)
    await older.execute("DELETE FROM run_search_queue WHERE run_id = $1", logs[0].run_id)
    await older.execute(
        "INSERT INTO run_search (run_id, created_at, words) SELECT run_id, created_at, $2 FROM runs WHERE run_id = $1",
        logs[0].run_id,
        search.words_in("a train"),
    )
    await older.close()
    found = await asyncio.gather(*(store.search(Listing(text="train", limit=100)) for store in stores * 3))
    assert {len(runs) for runs in found} == {60}
    for store in stores:
        await store.close()
