"""A replica that was given up, and does not know it yet."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from parley import Text, Turn, agent
from parley.errors import StoreUnavailable
from parley.execution.cluster import Slots
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, PostgresCluster
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.postgres_pool import Pool
from parley.testing.processes import until
from tests.execution.test_executor import ask

LEASE_S = 30.0


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database)
    yield pool
    await pool.close()


async def buried(pool: Pool, cluster: PostgresCluster) -> None:
    await pool.fetch(
        "UPDATE replicas SET alive_until = clock_timestamp() - interval '1 s' WHERE id = $1", cluster.replica
    )


async def lost(*_: object) -> bool:
    raise StoreUnavailable("The answer is lost.")


async def test_it_gets_no_slot(pool: Pool) -> None:
    one, other = PostgresCluster(pool, LEASE_S), PostgresCluster(pool, LEASE_S)
    await one.join()
    await other.join()
    assert await one.take_slot("a", one.replica, 2)
    await buried(pool, one)
    assert one.replica in await other.expire_replicas()
    assert not await one.take_slot("a", one.replica, 2)
    await other.forget(one.replica)
    assert not await one.take_slot("a", one.replica, 2)
    assert [await other.take_slot("a", other.replica, 2) for _ in range(3)] == [True, True, False]


@agent("waits", max_concurrent=1)
async def waits(turn: Turn):
    await asyncio.Event().wait()
    yield Text("never")


@agent("free")
async def free(turn: Turn):
    await asyncio.Event().wait()
    yield Text("never")


class Replica:
    def __init__(self, pool: Pool) -> None:
        self.cluster = PostgresCluster(pool, LEASE_S)
        self.store = PostgresStore(pool)
        self.exchange = Exchange(
            self.store, open_blobs("memory:"), self.cluster, NoSignals(), grace_s=1, lease_s=LEASE_S, shared=True
        )
        self.exchange.add(waits)
        self.exchange.add(free)


async def test_what_it_begins_after_its_work_was_taken_up_is_taken_up_too(pool: Pool) -> None:
    dead, other = Replica(pool), Replica(pool)
    await dead.exchange.membership.start()
    await buried(pool, dead.cluster)
    await other.exchange.membership.start()
    assert await pool.fetch("SELECT FROM replicas WHERE id = $1", dead.cluster.replica) == []
    run = (await ask(dead.exchange, "free")).run
    assert (run.state, run.owner) == (State.WORKING, dead.cluster.replica)
    await other.exchange.membership.sweep()
    taken = await other.exchange.commands.state(run.id)
    assert (taken.rescues, taken.owner) in [(1, ""), (1, other.cluster.replica)]
    for one in (dead, other):
        await one.exchange.execution.close()
        await one.exchange.membership.close()


async def test_two_who_find_it_out_at_once_join_once(pool: Pool) -> None:
    one = Replica(pool)
    await one.exchange.membership.start()
    await pool.fetch("UPDATE replicas SET buried = true")
    await asyncio.gather(*(one.exchange.membership.renew() for _ in range(3)))
    living = await pool.fetch("SELECT id FROM replicas WHERE NOT buried")
    assert [row[0] for row in living] == [one.cluster.replica]
    await one.exchange.membership.close()


async def test_one_that_cannot_prove_that_it_lives_leaves_its_slots_before_others_get_them(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Replica(pool)
    membership = one.exchange.membership
    await membership.start()
    limited, other = (await ask(one.exchange, "waits")).run, (await ask(one.exchange, "free")).run
    await until(lambda: set(one.exchange.execution.under_way) == {limited.id, other.id})
    await membership.watch()
    assert set(one.exchange.execution.under_way) == {limited.id, other.id}

    async def away() -> list[str] | None:
        raise StoreUnavailable("The database does not answer.")

    monkeypatch.setattr(one.cluster, "renew", away)
    membership.lease.renew(time.monotonic() - LEASE_S * 0.9)
    with pytest.raises(StoreUnavailable):
        await membership.renew()
    await membership.watch()
    assert one.exchange.execution.under_way == [other.id]
    await one.exchange.execution.close()
    await membership.close()


async def test_a_slot_whose_answer_came_too_late_is_not_used(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a stop in between: others may have the slot by now. When it is sure again, it takes one anew."""
    one = Replica(pool)
    membership, take = one.exchange.membership, one.cluster.take_slot
    await membership.start()
    answered = asyncio.Event()

    async def slow(agent: str, replica: str, limit: int) -> bool:
        taken = await take(agent, replica, limit)
        membership.lease.renew(time.monotonic() - LEASE_S)
        answered.set()
        return taken

    monkeypatch.setattr(one.cluster, "take_slot", slow)
    run = (await ask(one.exchange, "waits")).run.id
    await answered.wait()
    await until(lambda: not one.exchange.execution._dispatching)
    assert (one.exchange.execution.under_way, (await one.exchange.commands.state(run)).epoch) == ([], 0)
    monkeypatch.setattr(one.cluster, "take_slot", take)
    await membership.renew()
    await membership.sweep()
    await until(lambda: one.exchange.execution.under_way == [run])
    await one.exchange.execution.close()
    await membership.close()


async def test_a_replica_that_joins_again_while_it_takes_a_slot_takes_none_under_its_new_id(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = PostgresCluster(pool, LEASE_S)
    await cluster.join()
    slots, keep = Slots(cluster, lambda: True), cluster.keep_slots

    async def kept(agent: str, replica: str, count: int) -> None:
        await keep(agent, replica, count)
        await buried(pool, cluster)
        assert await cluster.expire_replicas() == [replica]
        await cluster.join()

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "take_slot", lost)
        with pytest.raises(StoreUnavailable):
            await slots.take("a", 1)
        patch.undo()
        patch.setattr(cluster, "keep_slots", kept)
        assert await slots.take("a", 1) is None
    assert await slots.take("a", 1) == cluster.replica
