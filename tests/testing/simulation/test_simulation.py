"""The simulated world: its event loop repeats itself, its database is a store like the others."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import pytest

from parley import NeedInput, Text, Turn, agent
from parley.errors import StoreUnavailable
from parley.runs.rules.events import Failed
from parley.testing.agents import AgentRun
from parley.testing.libraries import LibraryContract, drafts
from parley.testing.logs import LogWriter, put
from parley.testing.records import RecordsContract
from parley.testing.simulation import SimulationFailed, simulate
from parley.testing.simulation.database import Link, SimulatedDatabase, SimulatedRecords, SimulatedStore
from parley.testing.simulation.loop import Endless, SeededLoop
from parley.testing.stores import StoreContract

__all__ = ["drafts"]

# A dead process runs nothing more: its coroutines wait in their `finally` blocks when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Simulated:
    """Tests with a simulated database."""

    @pytest.fixture
    async def link(self) -> Link:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        return Link(SimulatedDatabase(loop, 7), loop.world)


class TestSimulatedStore(Simulated, StoreContract):
    @pytest.fixture
    async def store(self, link: Link) -> AsyncIterator[SimulatedStore]:
        store = SimulatedStore(link)
        yield store
        await store.close()


class TestSimulatedRecords(Simulated, RecordsContract):
    @pytest.fixture
    async def records(self, link: Link) -> SimulatedRecords:
        return SimulatedRecords(link)


class TestSimulatedLibrary(Simulated, LibraryContract):
    @pytest.fixture
    async def store(self, link: Link) -> AsyncIterator[SimulatedStore]:
        store = SimulatedStore(link)
        yield store
        await store.close()


class TestDatabase(Simulated):
    async def test_a_lost_answer_leaves_the_caller_in_doubt(self, link: Link) -> None:
        store, log = SimulatedStore(link), LogWriter()
        link.unanswered = 1.0
        with pytest.raises(StoreUnavailable):
            await put(store, log.start())
        link.unanswered = 0.0
        assert await store.head(log.run_id) is not None

    async def test_a_silent_connection_answers_when_it_is_back(self, link: Link) -> None:
        store, log = SimulatedStore(link), LogWriter()
        link.cut("silent")
        appended = put(store, log.start())
        await asyncio.sleep(60)
        assert not appended.done()
        link.heal()
        await appended

    async def test_a_refused_connection_fails_at_once(self, link: Link) -> None:
        link.cut("refused")
        with pytest.raises(StoreUnavailable):
            await SimulatedStore(link).run_ids("", 1)

    async def test_a_restart_breaks_statements_and_refuses_others_until_it_is_over(self, link: Link) -> None:
        store = SimulatedStore(link)
        reading = asyncio.ensure_future(store.run_ids("", 1))
        await asyncio.sleep(0)
        link.database.restart()
        with pytest.raises(StoreUnavailable):
            await reading
        with pytest.raises(StoreUnavailable):
            await store.run_ids("", 1)
        link.database.start()
        assert await store.run_ids("", 1) == []


@pytest.fixture
def loop() -> Iterator[SeededLoop]:
    loop = SeededLoop(1, max_steps=10_000)
    yield loop
    loop.dispose()


def test_time_is_virtual_and_threads_are_not_used(loop: SeededLoop) -> None:
    async def main() -> tuple[float, int]:
        await asyncio.sleep(3600)
        return loop.time(), await asyncio.to_thread(lambda: 5)

    at, five = loop.run_until_complete(main())
    assert 3600 <= at < 3601
    assert five == 5


def test_callbacks_of_a_process_keep_their_order_and_processes_do_not(loop: SeededLoop) -> None:
    seen: list[str] = []
    processes = [loop.process(name) for name in "abc"]
    for number in range(20):
        for process in processes:
            loop.call_soon(seen.append, f"{process.name}{number}", context=process.context)
    loop.run_until_complete(asyncio.sleep(1))
    for name in "abc":
        assert [one for one in seen if one[0] == name] == [f"{name}{number}" for number in range(20)]
    assert seen != sorted(seen, key=lambda one: (int(one[1:]), one[0]))


def test_a_dead_process_runs_nothing_more_not_even_its_finally_blocks(loop: SeededLoop) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            seen.append("worked")
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        process = loop.process("mortal")
        loop.create_task(work(), context=process.context)
        await asyncio.sleep(0.5)
        loop.kill(process)
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    assert seen == []


def test_a_paused_process_goes_on_where_it_was(loop: SeededLoop) -> None:
    seen: list[float] = []

    async def work() -> None:
        for _ in range(1000):
            await asyncio.sleep(0.1)
            seen.append(loop.time())

    async def main() -> None:
        process = loop.process("sleepy")
        loop.create_task(work(), context=process.context)
        await asyncio.sleep(1)
        loop.pause(process)
        await asyncio.sleep(10)
        loop.resume(process)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert not [at for at in seen if 1.1 < at < 11]
    assert [at for at in seen if at > 11.2]


def test_a_world_that_never_comes_to_rest_is_noticed(loop: SeededLoop) -> None:
    async def spin() -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0.001)

    with pytest.raises(Endless):
        loop.run_until_complete(loop.create_future())
    with pytest.raises(Endless):
        loop.run_until_complete(spin())


@agent("polite", rescue="resume")
async def polite(turn: Turn) -> AsyncGenerator[Any, None]:
    if turn.answer is None:
        yield NeedInput("May I?")
    else:
        await turn.step("work", asyncio.sleep, 0.2)
        yield Text(f"Thank you for {turn.answer}.")


def test_users_simulate_their_own_agents() -> None:
    def thankful(run: AgentRun) -> None:
        assert run.state == "failed" or run.text == "Thank you for yes."

    first = simulate([polite], {"polite": ["hello", "again"]}, seeds=6, check=thankful)
    assert (first.worlds, first.runs) == (6, 48)
    assert simulate([polite], {"polite": ["hello", "again"]}, seeds=[2, 3]).traces == first.traces[2:4]


def test_a_failing_simulation_tells_the_shortest_story() -> None:
    @agent("forgetful")
    async def forgetful(turn: Turn) -> AsyncGenerator[Any, None]:
        """Promises not to be interrupted, and cannot keep that."""
        await asyncio.sleep(0.5)
        yield Failed("late", "Interrupted.") if turn.attempt else Text("done")

    def never_failed(run: AgentRun) -> None:
        assert run.text == "done", "it was interrupted"

    with pytest.raises(SimulationFailed) as failed:
        simulate([forgetful], {"forgetful": ["hello"]}, seeds=20, check=never_failed)
    told = str(failed.value)
    assert "1 commands and 1 faults" in told
    assert "rescued" in told
    assert "it was interrupted" in told
