"""A store that was away for a moment: nothing that was under way is lost, and nothing stays taken."""

import asyncio
from collections.abc import Callable

import pytest

from parley import Status, Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.errors import ParleyError, StoreUnavailable
from parley.execution.cluster import Slots
from parley.ids import RunId
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.runs.store import Append, Done
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from parley.testing.processes import until
from tests.execution.test_executor import ask, words

AWAY = StoreUnavailable("The database does not answer.")


class Shaky(MemoryStore):
    """Refuses what it is told to refuse; or keeps it, and its answer is lost all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[Append], bool] = lambda _: False
        self.keeps = False

    def append(self, append: Append, done: Done) -> None:
        refused = self.refuses(append)

        def answered(error: ParleyError | None) -> None:
            done(AWAY if refused else error)

        if refused and not self.keeps:
            asyncio.get_running_loop().call_soon(answered, None)
        else:
            super().append(append, answered)


class ShakyCluster(Solo):
    """Answers nothing while it is `away`; what it is asked to do is done all the same if it `hears`."""

    away = hears = False

    async def take_slot(self, agent: str, replica: str, limit: int) -> bool:
        taken = await super().take_slot(agent, replica, limit) if self.hears or not self.away else False
        if self.away:
            raise AWAY
        return taken

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        if self.hears or not self.away:
            await super().keep_slots(agent, replica, count)
        if self.away:
            raise AWAY


@agent("walker")
async def walker(turn: Turn):
    yield Status("on the way")
    await asyncio.sleep(0.001)
    yield Text(f"there after {turn.attempt}")


async def opened(store: Shaky, *drivers: FunctionDriver, cluster: Solo | None = None) -> Exchange:
    exchange = Exchange(store, open_blobs("memory:"), cluster or Solo(store), NoSignals(), grace_s=1)
    for driver in drivers:
        exchange.add(driver)
    await exchange.start()
    return exchange


async def swept(exchange: Exchange, run: RunId) -> str:
    """State of a run after two rounds."""
    await exchange.membership.sweep()
    await exchange.membership.sweep()

    async def ended() -> bool:
        return (await exchange.commands.state(run)).ended

    await until(ended)
    view = await exchange.view(run)
    return f"{view.run.state.value}: {words(view)}"


def has(type_: str, times: int = 1) -> Callable[[Append], bool]:
    """For the first so many appends with an event of this type."""
    left = times

    def refuses(append: Append) -> bool:
        nonlocal left
        found = left > 0 and any(event.type == type_ for event in append.events)
        left -= found
        return found

    return refuses


@pytest.mark.parametrize("type_", ["progress", "artifact", "completed"])
async def test_a_turn_that_could_not_be_written_is_taken_up_again(type_: str) -> None:
    store = Shaky()
    exchange = await opened(store, walker)
    store.refuses = has(type_)
    run = (await ask(exchange, "walker")).run.id
    await until(lambda: not exchange.execution.works_on(run))
    assert (await exchange.commands.state(run)).state is State.WORKING
    assert await swept(exchange, run) == "completed: there after 1"
    await exchange.close()


async def test_a_turn_whose_beginning_was_kept_without_a_word_is_taken_up() -> None:
    store = Shaky()
    exchange = await opened(store, walker)
    store.refuses, store.keeps = has("started"), True
    with pytest.raises(StoreUnavailable):
        await ask(exchange, "walker")
    (run,) = await store.runs_in(State.WORKING)
    assert await swept(exchange, run.id) == "completed: there after 1"
    await exchange.close()


async def test_a_turn_that_is_worked_on_is_left_alone() -> None:
    through = asyncio.Event()

    @agent("waits")
    async def waits(turn: Turn):
        await through.wait()
        yield Text(f"there after {turn.attempt}")

    exchange = await opened(Shaky(), waits)
    run = (await ask(exchange, "waits")).run.id
    await exchange.membership.sweep()
    await exchange.membership.sweep()
    through.set()
    assert await swept(exchange, run) == "completed: there after 0"
    await exchange.close()


@pytest.mark.parametrize("hears", [False, True])
async def test_a_slot_is_neither_lost_nor_given_back_twice(hears: bool) -> None:
    """Holds if the write reached the store, and if it did not."""
    inside, most, through = 0, 0, asyncio.Event()

    @agent("room", max_concurrent=2)
    async def room(turn: Turn):
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        if turn.text == "wait":
            await through.wait()
        inside -= 1
        yield Text(turn.text)

    store = Shaky()
    cluster = ShakyCluster(store)
    exchange = await opened(store, room, cluster=cluster)
    waits = (await ask(exchange, "room", "wait")).run.id
    await until(lambda: inside == 1)
    cluster.away, cluster.hears = True, hears
    asked = [(await ask(exchange, "room", str(number))).run.id for number in range(6)]
    await exchange.membership.sweep()
    cluster.away = False
    for run in asked:
        assert await swept(exchange, run) == f"completed: {(await exchange.view(run)).history[0].parts[0].text}"
    through.set()
    assert await swept(exchange, waits) == "completed: wait"
    assert (inside, most) == (0, 2)
    await exchange.close()


async def test_a_turn_that_is_given_up_waits_for_somebody_and_is_not_begun_here_again_and_again() -> None:
    """As when a replica learns that it was buried, before anybody has taken up its runs."""

    @agent("waits")
    async def waits(turn: Turn):
        if turn.epoch == 1:
            await asyncio.Event().wait()
        yield Text(f"there in {turn.epoch}")

    exchange = await opened(Shaky(), waits)
    run = (await ask(exchange, "waits")).run.id
    await exchange.execution.abandon()
    left = await exchange.commands.state(run)
    assert (left.state, left.epoch, exchange.execution.works_on(run)) == (State.SUBMITTED, 2, False)
    assert await swept(exchange, run) == "completed: there in 3"
    await exchange.close()


async def test_a_slot_whose_answer_was_lost_is_free_again_though_its_agent_has_no_more_work() -> None:
    cluster = ShakyCluster(MemoryStore())
    slots = Slots(cluster, lambda: True)
    cluster.away = cluster.hears = True
    with pytest.raises(StoreUnavailable):
        await slots.take("a", 1)
    cluster.away = False
    assert not await cluster.take_slot("a", cluster.replica, 1)
    await slots.settle()
    assert await cluster.take_slot("a", cluster.replica, 1)
