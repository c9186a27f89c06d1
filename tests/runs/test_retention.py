"""Old events are deleted; the run's view and its hash chain stay."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from parley import ArtifactChunk, Done, Status, Text, Turn, agent
from parley.errors import RunEnded, StaleCursor, StoreUnavailable
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.streams import Showing
from parley.faces.a2a.v1 import V1
from parley.ids import RunId
from parley.runs.log import KEY_LIFE_MS, Outcome, verify_run
from parley.runs.requests import Send
from parley.runs.retention import BATCH, LONG, NONCE_GRACE_MS, Retention
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Completed, Event, Replied, Started
from parley.runs.rules.state import State
from parley.runs.rules.view import View, view_of
from parley.runs.service import Exchange
from parley.runs.store import Key, LogStore, Trim
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.nonces import FORGET_BATCH
from parley.stores.sqlite import TRIM_PIECE, SqliteStore
from parley.telemetry import attach
from parley.testing.logs import LogWriter, put

DAY = 24 * 3600 * 1000


@agent("worker")
async def worker(turn: Turn):
    yield Status("busy")
    yield Text("some words")
    yield ArtifactChunk(b"\x01" * 50_000, id="file", filename="a.bin")
    yield Done("Ready.")


class Clock:
    now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def exchange(store: LogStore, clock: Clock) -> AsyncIterator[Exchange]:
    exchange = Exchange(store, open_blobs("memory:"), Solo(store), NoSignals(), clock=clock, keep_ms=DAY)
    exchange.add(worker)
    await exchange.start()
    yield exchange
    await exchange.close()


async def finished(exchange: Exchange) -> Outcome:
    send = Send("worker", LOCAL, Message("m", (text_part("go"),)), key="k")
    outcome = await exchange.send(send)
    await exchange.settled(outcome)
    return outcome


async def shown(exchange: Exchange, view: View) -> bytes:
    return encode(V1().task(await Showing(exchange, "http://here").task(view, None)))


async def test_a_trimmed_run_looks_as_it_did(exchange: Exchange, clock: Clock) -> None:
    run_id = (await finished(exchange)).run.id
    before = await shown(exchange, await exchange.view(run_id))
    clock.now += DAY // 2
    await exchange.retention.tick()
    assert len(await exchange.store.read(run_id, 0, 100)) > 5
    clock.now += DAY
    await exchange.retention.tick()
    assert await exchange.store.read(run_id, 0, 100) == []
    view = await exchange.view(run_id)
    assert await shown(exchange, view) == before
    assert view.has_blobs
    assert await verify_run(exchange.store, run_id) == view.run.version
    with pytest.raises(StaleCursor) as stale:
        await exchange.follow(run_id, 3)
    assert stale.value.details["floor"] == view.run.version
    with pytest.raises(RunEnded):
        await exchange.send(Send("worker", LOCAL, Message("m2", (text_part("more"),)), run=run_id))
    await exchange.retention.tick()


async def test_what_has_not_ended_is_kept(exchange: Exchange, clock: Clock, store: LogStore) -> None:
    @agent("asks")
    async def asks(turn: Turn):
        from parley import NeedInput

        yield NeedInput("Well?")

    exchange.add(asks)
    outcome = await exchange.send(Send("asks", LOCAL, Message("m", (text_part("go"),))))
    assert (await exchange.settled(outcome)).status.state is State.INPUT_REQUIRED
    clock.now += 100 * DAY
    await exchange.retention.tick()
    assert len(await store.read(outcome.run.id, 0, 100)) == 4


async def test_old_keys_are_forgotten(exchange: Exchange, clock: Clock, store: LogStore) -> None:
    await finished(exchange)
    await exchange.retention.tick()
    assert await store.find_key("local>worker", "k") is not None
    clock.now += KEY_LIFE_MS + 1000
    await exchange.retention.tick()
    assert await store.find_key("local>worker", "k") is None


async def test_nonces_are_forgotten_some_time_after_they_expired(
    exchange: Exchange, clock: Clock, store: LogStore
) -> None:
    """Another replica's clock may be behind, and still believe a token that has expired here."""
    assert await store.claim("nonce", clock.now + 1000)
    clock.now += 1000 + NONCE_GRACE_MS
    await exchange.retention.tick()
    assert not await store.claim("nonce", clock.now + 1000)
    clock.now += 1
    await exchange.retention.tick()
    assert await store.claim("nonce", clock.now + 1000)


async def test_one_round_forgets_everything_that_is_old(store: LogStore, clock: Clock) -> None:
    for number in range(3 * BATCH + 10):
        await put(store, (log := LogWriter(at=number)).start())
        await put(store, log.append(Started(1, "r"), Completed()))
    await Retention(store, DAY, clock).tick()
    assert await store.expired(clock.now, 1000) == []


async def test_a_damaged_log_does_not_keep_others_from_being_forgotten(
    store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [LogWriter(at=number) for number in range(2 * BATCH)]
    for log in logs:
        await put(store, log.start())
        await put(store, log.append(Started(1, "r"), Completed()))
    damaged, read = {log.run_id for log in logs[: BATCH + 5]}, store.read

    async def reading(run: RunId, after: int, limit: int) -> list[Event]:
        return [] if run in damaged else await read(run, after, limit)

    monkeypatch.setattr(store, "read", reading)
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(fields["run"]) if name == "retention.failed" else None)
    try:
        await Retention(store, DAY, clock).tick()
    finally:
        detach()
    assert {run.id for run in await store.expired(clock.now, 1000)} == damaged == set(told)
    assert len(told) == len(damaged)


async def test_a_long_run_looks_as_it_did_also_when_forgetting_it_was_interrupted(
    store: LogStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.stores.sqlite.TRIM_PIECE", 100)
    log = LogWriter()
    await put(store, log.start())
    await put(store, log.append(Started(1, "r")))
    await put(store, log.progress(LONG))
    await put(store, log.append(Replied((text_part("end"),)), Completed()))
    version, trim_all = len(log.events), store.trim_all

    async def interrupted(trims: Sequence[Trim]) -> None:
        await trim_all(trims[:1])
        raise StoreUnavailable("The process ends here.")

    monkeypatch.setattr(store, "trim_all", interrupted)
    retention = Retention(store, DAY, clock)
    with pytest.raises(StoreUnavailable):
        await retention.tick()
    monkeypatch.setattr(store, "trim_all", trim_all)
    head = await store.head(log.run_id)
    assert head is not None
    assert head.floor == version - 1
    await retention.tick()
    head = await store.head(log.run_id)
    assert head is not None
    assert head.floor == version
    assert head.snapshot is not None
    assert await store.read(log.run_id, 0, 10) == []
    assert await verify_run(store, log.run_id) == version
    view = View.restored(head.snapshot)
    whole = view_of(log.events)
    assert (view.run, view.status, view.history) == (whole.run, whole.status, whole.history)


class TestOnSqlite:
    """One writer: what forgets must not keep it from what was sent."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[LogStore]:
        store = SqliteStore(tmp_path)
        yield store
        await store.close()

    async def test_appends_are_written_between_two_batches_of_old_keys(self, store: LogStore) -> None:
        log = LogWriter()
        await put(store, log.start(*(Key("scope", str(number), b"d") for number in range(3 * FORGET_BATCH))))
        forgetting = asyncio.ensure_future(store.forget_keys(10**9))
        await asyncio.sleep(0)
        await put(store, LogWriter().start())
        assert not forgetting.done()
        assert await forgetting == 3 * FORGET_BATCH

    @pytest.mark.parametrize("how", ["trim", "erase"])
    async def test_appends_are_written_between_two_pieces_of_a_long_log(self, store: LogStore, how: str) -> None:
        log = LogWriter()
        await put(store, log.start())
        await put(store, log.progress(3 * TRIM_PIECE))
        await put(store, log.append(Started(1, "r"), Completed()))
        version = len(log.events)
        work = store.trim(log.run_id, version) if how == "trim" else store.erase(log.run_id)
        forgetting, writers = asyncio.ensure_future(work), 0
        while not forgetting.done():
            await put(store, LogWriter().start())
            writers += 1
        assert writers >= 3
        assert await store.read(log.run_id, 0, 1) == []
        assert await verify_run(store, log.run_id) == version
