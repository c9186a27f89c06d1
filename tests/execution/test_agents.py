"""Agents that change while they work: nothing that was accepted is lost, or done by the wrong one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from parley import Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.errors import AgentNotFound, Invalid
from parley.execution.agents import Changed
from parley.execution.cluster import Cluster
from parley.paired.driver import EdgeDriver
from parley.runs.log import Outcome
from parley.runs.rules.access import LOCAL
from parley.runs.rules.agents import Limits
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.runs.store import Store
from parley.stores.cluster import PostgresCluster, Solo
from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.testing.databases import fresh_database
from parley.testing.processes import until
from tests.execution.test_executor import Gate, House, ask, words


@pytest.fixture
async def house(store: Store) -> AsyncIterator[House]:
    house = House(store)
    yield house
    await house.close()


def says(word: str, slug: str = "bot", **limits: int) -> FunctionDriver:
    @agent(slug, **limits)  # type: ignore[arg-type]
    async def bot(turn: Turn):
        yield Text(f"{word} {turn.text}")

    return bot


async def made(exchange: Exchange, outcome: Outcome) -> str:
    """Result of the run, also if it ended earlier."""
    return words(await exchange.settled(Outcome(outcome.run, [], replayed=True)))


async def answer(exchange: Exchange, slug: str = "bot") -> str:
    return await made(exchange, await ask(exchange, slug))


async def test_agents_come_change_and_go_together(house: House) -> None:
    stays, goes = says("stays", "a"), says("goes", "b")
    exchange = await house.open(stays, goes, says("before", "c"))
    changed = exchange.replace([says("new", "d"), says("after", "c"), stays])
    assert changed == Changed(added=["d"], replaced=["c"], removed=["b"])
    assert list(exchange.agents) == ["d", "c", "a"]
    assert await answer(exchange, "c") == "after hi"
    assert await answer(exchange, "d") == "new hi"
    with pytest.raises(AgentNotFound):
        await ask(exchange, "b")


async def test_a_set_that_cannot_be_served_changes_nothing(house: House) -> None:
    exchange = await house.open(says("old"))
    with pytest.raises(Invalid):
        exchange.replace([says("new"), says("x", "twice"), says("y", "twice")])
    with pytest.raises(Invalid):
        exchange.replace([says("new"), says("x", "Not A Slug")])
    assert list(exchange.agents) == ["bot"]
    assert await answer(exchange) == "old hi"


async def test_a_turn_under_way_ends_as_it_began_and_the_next_is_the_new_ones(house: House) -> None:
    gate = Gate()
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate", "first")
    await gate.entered.wait()
    exchange.replace([says("new", "gate")])
    await ask(exchange, "gate", "second", run=outcome.run.id)
    gate.open.set()
    assert await made(exchange, outcome) == "throughnew second"
    assert gate.order == ["first"]


async def test_a_turn_under_way_ends_though_its_agent_is_gone(house: House) -> None:
    gate = Gate(max_concurrent=1)
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate")
    await gate.entered.wait()
    exchange.replace([])
    with pytest.raises(AgentNotFound):
        await ask(exchange, "gate", run=outcome.run.id)
    gate.open.set()
    assert await made(exchange, outcome) == "through"


@pytest.mark.parametrize("limits", [{"max_concurrent": 1}, {}])
async def test_what_waits_for_a_removed_agent_is_done_when_it_is_back(limits: dict[str, int], house: House) -> None:
    gate = Gate(**limits)
    exchange = await house.open(gate.driver)
    running = await ask(exchange, "gate", "first")
    await gate.entered.wait()
    if limits:
        waiting = await ask(exchange, "gate", "waits")
    else:
        waiting = await ask(exchange, "gate", "waits", run=running.run.id)
    exchange.replace([])
    gate.open.set()
    await until(lambda: not exchange.execution.under_way)
    assert (await exchange.view(waiting.run.id)).run.state is State.SUBMITTED
    await exchange.membership.sweep()
    assert (await exchange.view(waiting.run.id)).run.state is State.SUBMITTED
    exchange.replace([says("back", "gate", **limits)])
    assert (await made(exchange, waiting)).endswith("back waits")


async def test_a_run_that_began_as_its_agent_went_is_given_back(house: House) -> None:
    exchange = await house.open(says("old"))
    sending = asyncio.ensure_future(ask(exchange, "bot", "caught"))
    await asyncio.sleep(0)
    exchange.replace([])
    outcome = await sending
    await until(lambda: not exchange.execution.under_way)
    exchange.replace([says("new")])
    assert await made(exchange, outcome) in ("old caught", "new caught")


async def test_what_waits_for_a_removed_agent_can_be_canceled(house: House) -> None:
    gate = Gate(max_concurrent=1)
    exchange = await house.open(gate.driver)
    await ask(exchange, "gate")
    await gate.entered.wait()
    waiting = await ask(exchange, "gate")
    exchange.replace([])
    outcome = await exchange.cancel(waiting.run.id, LOCAL)
    assert outcome.run.state is State.CANCELED
    gate.open.set()


def limited(gate: Gate, **limits: int) -> FunctionDriver:
    spec = gate.driver.agent
    return FunctionDriver(
        type(spec)(spec.slug, spec.name, spec.description, limits=Limits(**limits)), gate.driver.function
    )


async def test_a_raised_limit_lets_in_at_once_those_who_wait(house: House) -> None:
    gate = Gate(max_concurrent=1)
    exchange = await house.open(gate.driver)
    outcomes = [await ask(exchange, "gate", str(number)) for number in range(4)]
    await until(lambda: gate.inside == 1)
    exchange.replace([limited(gate, max_concurrent=3)])
    await until(lambda: gate.inside == 3)
    exchange.replace([limited(gate)])
    await until(lambda: gate.inside == 4)
    gate.open.set()
    assert [await made(exchange, outcome) for outcome in outcomes] == ["through"] * 4


async def test_a_lowered_limit_holds_as_turns_end(store: Store) -> None:
    house = House(store)
    gates = [asyncio.Event() for _ in range(6)]
    inside: set[int] = set()

    @agent("gate", max_concurrent=3)
    async def gate(turn: Turn):
        number = int(turn.text)
        inside.add(number)
        await gates[number].wait()
        inside.discard(number)
        yield Text("through")

    exchange = await house.open(gate)
    outcomes = [await ask(exchange, "gate", str(number)) for number in range(6)]
    await until(lambda: inside == {0, 1, 2})
    lower = FunctionDriver(type(gate.agent)("gate", "Gate", "", limits=Limits(max_concurrent=1)), gate.function)
    exchange.replace([lower])
    gates[0].set()
    gates[1].set()
    await made(exchange, outcomes[0])
    await made(exchange, outcomes[1])
    await until(lambda: len(exchange.execution.under_way) == 1)
    await exchange.membership.sweep()
    assert inside == {2}
    gates[2].set()
    await until(lambda: inside == {3})
    for one in gates:
        one.set()
    for outcome in outcomes:
        assert await made(exchange, outcome) == "through"
    await house.close()


@pytest.fixture(params=["solo", "postgres"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    if request.param == "solo":
        yield Solo(MemoryStore())
        return
    pool = await open_pool(await fresh_database(request.getfixturevalue("postgres")))
    store, one = PostgresStore(pool), PostgresCluster(pool, 10)
    await one.join()
    yield one
    await store.close()


async def test_slots_follow_the_limit(cluster: Cluster) -> None:
    async def take(limit: int) -> bool:
        return await cluster.take_slot("a", cluster.replica, limit)

    assert [await take(1), await take(1)] == [True, False]
    assert [await take(3), await take(3), await take(3)] == [True, True, False]
    assert not await take(2)
    await cluster.keep_slots("a", cluster.replica, 2)
    assert not await take(2)
    await cluster.keep_slots("a", cluster.replica, 1)
    assert [await take(2), await take(2)] == [True, False]


async def test_slots_that_others_hold_beyond_a_lowered_limit_count(database: str) -> None:
    pool = await open_pool(database)
    one, other = PostgresCluster(pool, 10), PostgresCluster(pool, 10)
    await one.join()
    await other.join()
    assert await one.take_slot("a", one.replica, 3)
    assert await other.take_slot("a", other.replica, 3)
    assert await other.take_slot("a", other.replica, 3)
    await one.keep_slots("a", one.replica, 0)
    assert not await one.take_slot("a", one.replica, 1)
    assert not await one.take_slot("a", one.replica, 2)
    await other.keep_slots("a", other.replica, 1)
    assert not await one.take_slot("a", one.replica, 1)
    assert await one.take_slot("a", one.replica, 2)
    await PostgresStore(pool).close()


async def test_an_agent_may_begin_to_work_elsewhere_and_come_back(house: House) -> None:
    near = says("near")
    exchange = await house.open(near)
    exchange.replace([EdgeDriver(near.agent)])
    waiting = await ask(exchange, "bot")
    assert waiting.run.state is State.SUBMITTED
    await exchange.membership.sweep()
    assert (await exchange.commands.state(waiting.run.id)).state is State.SUBMITTED
    exchange.replace([near])
    assert await made(exchange, waiting) == "near hi"
