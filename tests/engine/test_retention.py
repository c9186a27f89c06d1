"""What is old is forgotten; what could be seen of it, and the chain, stay."""

from collections.abc import AsyncIterator

import pytest

from parley import ArtifactChunk, Done, Status, Text, Turn, agent
from parley.core.access import LOCAL
from parley.core.artifacts import text_part
from parley.core.conversations import Message
from parley.core.runs import State
from parley.core.views import View
from parley.engine.audit import verify_run
from parley.engine.commands import KEY_LIFE_MS, Outcome
from parley.engine.exchange import Exchange
from parley.engine.ports import LogStore
from parley.engine.requests import Send
from parley.engine.retention import NONCE_GRACE_MS
from parley.errors import RunEnded, StaleCursor
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.showing import Showing
from parley.faces.a2a.v1 import V1
from parley.stores.blobs import open_blobs
from parley.stores.signals import NoSignals
from parley.stores.solo import Solo

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
