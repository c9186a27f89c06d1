"""Signals between replicas pass the same contract over PostgreSQL and over NATS, and may always be lost."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from functools import partial

import pytest

from parley.errors import ConfigurationError
from parley.ids import new_run_id
from parley.stores import cluster
from parley.stores.cluster import PostgresSignals
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.postgres_pool import Pool
from parley.stores.signals import NatsSignals
from parley.telemetry import attach
from parley.testing.logs import LogWriter, put
from parley.testing.signals import Connect, NatsServer, SignalListener, SignalsContract
from parley.testing.waiting import until


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, phases=())
    yield pool
    await pool.close()


@pytest.fixture
async def nats() -> AsyncIterator[NatsServer]:
    server = NatsServer()
    await server.start()
    yield server
    await server.stop()


class TestPostgresSignals(SignalsContract):
    @pytest.fixture
    def connect(self, database: str, pool: Pool) -> Connect:
        return lambda: PostgresSignals(database, pool)


class TestNatsSignals(SignalsContract):
    @pytest.fixture
    def connect(self, nats: NatsServer, pool: Pool) -> Connect:
        return lambda: NatsSignals(nats.url, pool.fetch)


async def test_a_replica_hears_only_of_what_it_follows(nats: NatsServer, pool: Pool) -> None:
    one, two, three = [await SignalListener(NatsSignals(nats.url, pool.fetch), "served").listen() for _ in range(3)]
    await two.follows(one)
    await three.follows(one)
    before, run = three.calls, new_run_id()
    two.follow(run)
    for version in range(1, 200):
        one.signals.tell(new_run_id(), 1)
        one.signals.wake("elsewhere")
        one.signals.tell(run, version)
        await asyncio.sleep(0)

    async def heard() -> bool:
        # What was told before the subscription reached the server is lost.
        one.signals.tell(run, 199)
        await asyncio.sleep(0.01)
        return two.heard.get(run) == 199

    await until(heard)
    assert three.calls == before
    # What is no longer followed is no longer heard of.
    two.runs.clear()
    subscribed = two.signals._subscribed  # type: ignore[attr-defined]
    await until(lambda: set(subscribed) == {"parley.name.served"})
    for each in (one, two, three):
        await each.signals.close()


async def test_growth_after_a_crowd_waits_for_more_but_waiting_work_does_not(
    database: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PAUSE_S", 60.0)
    one, two = [await SignalListener(PostgresSignals(database, pool), "name").listen() for _ in range(2)]
    runs = [new_run_id() for _ in range(cluster.CROWD)]
    try:
        await two.follows(one)
        for run in runs:
            one.signals.tell(run, 1)
        await until(lambda: {two.heard.get(run) for run in runs} == {1})
        one.signals.tell(runs[0], 2)
        await one.follows(two)  # meanwhile others' signals arrive
        assert two.heard[runs[0]] == 1
        one.signals.wake("name")
        await until(lambda: two.heard[runs[0]] == 2 and "name" in two.heard_names)
    finally:
        for each in (one, two):
            await each.signals.close()


async def test_without_nats_growth_is_found_in_the_store_and_nats_may_come_back(pool: Pool, database: str) -> None:
    """Down at the start, there, gone, back, and asleep: nothing waits for it, and each loss is reported once."""
    told: list[str] = []
    detach = attach(lambda name, _: told.append(name))
    server, store, log = NatsServer(), PostgresStore(await open_pool(database, phases=())), LogWriter()
    one, two = [SignalListener(NatsSignals(server.url, pool.fetch)) for _ in range(2)]
    try:
        await put(store, log.start())
        for each in (one, two):
            await each.listen()
            each.follow(log.run_id)
        for number in (2, 3, 4):
            await _unheard(one, log, store)
            await until(lambda: two.heard.get(log.run_id) == log.run.version, 5)
            if number < 4:
                await server.start()
                await two.follows(one)
                await server.stop()
        # Two replicas: at the start, and each time it stopped.
        await until(lambda: told.count("signals.lost") == 6)
        await server.start()
        await two.follows(one)
        os.kill(server.pid, signal.SIGSTOP)
        await _unheard(one, log, store)
        await until(lambda: two.heard.get(log.run_id) == log.run.version, 5)
        os.kill(server.pid, signal.SIGCONT)
        await two.follows(one)
        os.kill(server.pid, signal.SIGSTOP)
        async with asyncio.timeout(5):
            await one.signals.close()  # does not wait for it either
    finally:
        detach()
        await two.signals.close()
        await store.close()
        await server.stop()


async def _unheard(one: SignalListener, log: LogWriter, store: PostgresStore) -> None:
    await put(store, log.progress(1))
    for _ in range(20_000):
        one.signals.tell(new_run_id(), 1)
    one.signals.tell(log.run_id, log.run.version)


@pytest.mark.parametrize("url", ["http://localhost", "nats://", "localhost:4222"])
def test_an_address_of_nats_is_checked_at_the_start(url: str) -> None:
    with pytest.raises(ConfigurationError, match="nats_url must be"):
        NatsSignals(url, partial(_no_rows))


async def _no_rows(*_: object) -> list[tuple[object, ...]]:
    return []
