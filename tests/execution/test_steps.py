"""Durable steps: recorded results, retries, order, sleep, and the state of a sleeping run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from msgspec import Struct
from pydantic import BaseModel

from parley import AgentError, NeedInput, Text, Turn, Usage, agent
from parley.clock import now_ms
from parley.drivers.function import FunctionDriver
from parley.execution.steps import INLINE_BYTES
from parley.ids import RunId
from parley.runs.log import Outcome, verify_run
from parley.runs.requests import Branch
from parley.runs.rules.access import LOCAL
from parley.runs.rules.commands import MAX_RESCUES
from parley.runs.rules.events import Progress, StepRecord
from parley.runs.rules.state import State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Listing, Store
from parley.runs.streams import read_all
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from parley.testing.waiting import until
from tests.execution.test_executor import ask, words


class Clock:
    """Wall clock that a test can move forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


class Server:
    """One exchange after the other on one store: `lose` breaks the running turns as a crash would."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = Clock()
        self.blobs = open_blobs("memory:")
        self._exchange: Exchange | None = None

    async def open(self, *drivers: FunctionDriver) -> Exchange:
        exchange = Exchange(
            self.store, self.blobs, Solo(self.store), NoSignals(), clock=self.clock, grace_s=1.0, max_payload=100_000
        )
        for driver in drivers:
            exchange.add(driver)
        await exchange.start()
        self._exchange = exchange
        return exchange

    async def lose(self, run: RunId) -> None:
        """Rescue a run as if its process had died."""
        assert self._exchange is not None
        execution = self._exchange.execution
        execution._jobs.pop(run).task.cancel()  # type: ignore[union-attr]
        await execution.rescue(await self._exchange.commands.state(run))
        execution.dispatch("stepper")

    async def ended(self, run: RunId) -> View:
        """Wait for the end of a run that began a while ago."""
        assert self._exchange is not None
        return await self._exchange.settled(Outcome(await self._exchange.commands.state(run), [], replayed=True))

    async def steps(self, run: RunId) -> list[StepRecord]:
        found = [event.payload for event in await read_all(self.store, run)]
        return [one.step for one in found if isinstance(one, Progress) and one.step is not None]

    async def close(self) -> None:
        if self._exchange is not None:
            await self._exchange.close()


@pytest.fixture
async def server(store: Store) -> AsyncIterator[Server]:
    server = Server(store)
    yield server
    await server.close()


@pytest.fixture
async def quick() -> AsyncIterator[Server]:
    """For behaviour that does not depend on the store."""
    server = Server(MemoryStore())
    yield server
    await server.close()


@dataclass
class Report:
    title: str
    pages: int


class Model(BaseModel):
    pages: int


class Chapter(Struct):
    title: str


class Crashing:
    """Counts the work of each step, and waits after some of them for the test to break the turn."""

    def __init__(self, *stops: int) -> None:
        self.worked: list[int] = []
        self.reached = asyncio.Event()
        self._stops = set(stops)

        @agent("stepper", rescue="restart")
        async def stepper(turn: Turn):
            total = 0
            for number in range(6):
                total += await turn.step("add", self._work, number)
                if number in self._stops:
                    self._stops.discard(number)
                    self.reached.set()
                    await asyncio.Event().wait()
            yield Text(str(total))

        self.driver = stepper

    async def _work(self, number: int) -> int:
        self.worked.append(number)
        return number

    async def broken(self) -> None:
        await self.reached.wait()
        self.reached.clear()


async def test_a_finished_step_is_not_repeated_after_a_crash(server: Server) -> None:
    crashing = Crashing(0, 1, 2, 3, 4, 5)
    exchange = await server.open(crashing.driver)
    outcome = await ask(exchange, "stepper")
    for _ in range(6):
        await crashing.broken()
        await server.lose(outcome.run.id)
    view = await server.ended(outcome.run.id)
    assert words(view) == "15"
    assert crashing.worked == [0, 1, 2, 3, 4, 5]
    assert [step.name for step in await server.steps(outcome.run.id)] == ["add", *(f"add#{n}" for n in range(2, 7))]
    await verify_run(server.store, outcome.run.id)


async def test_only_rescues_without_progress_are_counted(quick: Server) -> None:
    crashing = Crashing(0, 1, 2, 3, 4)
    exchange = await quick.open(crashing.driver)
    outcome = await ask(exchange, "stepper")
    for _ in range(5):
        await crashing.broken()
        await quick.lose(outcome.run.id)
    assert (await quick.ended(outcome.run.id)).status.state is State.COMPLETED

    tries = 0
    begun = asyncio.Event()

    @agent("stepper")
    async def stuck(turn: Turn):
        nonlocal tries
        await turn.step("once", int)
        tries += 1
        begun.set()
        await asyncio.Event().wait()
        yield Text("never")

    exchange.replace([stuck])
    outcome = await ask(exchange, "stepper")
    for _ in range(MAX_RESCUES + 1):
        await begun.wait()
        begun.clear()
        await quick.lose(outcome.run.id)
    view = await exchange.view(outcome.run.id)
    assert view.code == "rescue_exhausted"
    assert tries == MAX_RESCUES + 1


async def finished(quick: Server, work: Callable[[Turn], object]) -> View:
    """The end of a run whose agent does this."""

    @agent("stepper")
    async def stepper(turn: Turn):
        result = await work(turn)  # type: ignore[misc]
        yield Text(repr(result))

    exchange = await quick.open(stepper)
    return await exchange.settled(await ask(exchange, "stepper"))


async def test_a_result_has_the_declared_type_before_and_after_a_crash(quick: Server) -> None:
    reached = asyncio.Event()
    seen: list[object] = []

    async def write(title: str) -> Report:
        return Report(title, 3)

    def plain() -> tuple[int, int]:
        return 1, 2

    def model() -> Model:
        return Model(pages=3)

    async def struct() -> list[Chapter]:
        return [Chapter("Sails")]

    def undeclared():
        return {"a": (1, 2)}

    @agent("stepper")
    async def stepper(turn: Turn):
        seen.append((await turn.step("write", write, "Ships"), await turn.step("plain", plain)))
        seen.append((await turn.step("model", model), await turn.step("struct", struct)))
        seen.append(await turn.step("undeclared", undeclared))
        if len(seen) == 3:
            reached.set()
            await asyncio.Event().wait()
        yield Text("ok")

    exchange = await quick.open(stepper)
    outcome = await ask(exchange, "stepper")
    await reached.wait()
    await quick.lose(outcome.run.id)
    await quick.ended(outcome.run.id)
    assert seen == [(Report("Ships", 3), (1, 2)), (Model(pages=3), [Chapter("Sails")]), {"a": [1, 2]}] * 2


async def test_a_large_result_is_stored_beside_the_log(server: Server) -> None:
    def large() -> str:
        return "x" * (4 * INLINE_BYTES)

    async def work(turn: Turn) -> int:
        return len(await turn.step("large", large))

    view = await finished(server, work)
    assert words(view) == str(4 * INLINE_BYTES)
    (step,) = await server.steps(view.run.id)
    assert step.output is not None
    assert step.output.blob is not None


async def test_a_failed_attempt_is_recorded_and_retried(quick: Server) -> None:
    tries = 0

    def flaky() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionError("https://user:secret@host is down")
        return "up"

    async def work(turn: Turn) -> str:
        return await turn.step("flaky", flaky, retries=3, backoff_s=0.001)

    view = await finished(quick, work)
    assert words(view) == "'up'"
    steps = await quick.steps(view.run.id)
    assert [(step.attempt, step.code, step.final) for step in steps] == [
        (1, "step_failed", False), (2, "step_failed", False), (3, "", True),
    ]  # fmt: skip
    assert "secret" not in repr(steps)
    assert steps[0].reason == "It raised ConnectionError."


async def test_a_step_that_always_fails_fails_the_run_with_its_name(quick: Server) -> None:
    def broken() -> None:
        raise ValueError("nothing to see")

    async def work(turn: Turn) -> None:
        await turn.step("broken", broken, retries=1, backoff_s=0.001)

    view = await finished(quick, work)
    assert view.code == "step_failed"
    assert view.status.said is not None
    assert "'broken' failed after 2 attempts. It raised ValueError." in str(view.status.said.parts)


async def test_an_error_of_the_agents_author_is_final_and_keeps_its_message(quick: Server) -> None:
    def refused() -> None:
        raise AgentError("The flight is fully booked.")

    async def work(turn: Turn) -> str:
        try:
            await turn.step("book", refused, retries=5)
        except AgentError as error:
            return error.message
        return "booked"

    assert words(await finished(quick, work)) == "'The flight is fully booked.'"


async def test_a_step_that_takes_too_long_is_stopped(quick: Server) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def work(turn: Turn) -> None:
        await turn.step("forever", forever, timeout_s=0.01)

    view = await finished(quick, work)
    assert view.code == "step_failed"
    assert (await quick.steps(view.run.id))[0].reason == "It took longer than 0.01 s."


async def test_a_result_that_is_not_json_is_refused_with_advice(quick: Server) -> None:
    async def work(turn: Turn) -> None:
        await turn.step("open", lambda: object())

    view = await finished(quick, work)
    assert view.code == "step_not_storable"
    assert await quick.steps(view.run.id) == []


async def test_a_resumed_turn_must_keep_the_order_of_its_steps(quick: Server) -> None:
    reached = asyncio.Event()
    names = ["first", "other"]

    @agent("stepper")
    async def stepper(turn: Turn):
        await turn.step(names[0], int)
        if names[0] == "first":
            reached.set()
            await asyncio.Event().wait()
        yield Text("done")

    exchange = await quick.open(stepper)
    outcome = await ask(exchange, "stepper")
    await reached.wait()
    names.pop(0)
    await quick.lose(outcome.run.id)
    view = await quick.ended(outcome.run.id)
    assert view.code == "step_order_changed"
    assert view.status.said is not None
    assert "recorded as 'first', but the agent now runs 'other'" in str(view.status.said.parts)


async def test_a_step_after_the_turn_is_refused(quick: Server) -> None:
    turns: list[Turn] = []

    @agent("stepper")
    async def stepper(turn: Turn):
        turns.append(turn)
        yield Text("done")

    exchange = await quick.open(stepper)
    await exchange.settled(await ask(exchange, "stepper"))
    with pytest.raises(AgentError, match="The turn has ended") as refused:
        await turns[0].step("late", int)
    assert refused.value.code == "step_outside_turn"


async def test_steps_may_run_side_by_side(quick: Server) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0.001 * (5 - number))
        return 2 * number

    async def work(turn: Turn) -> list[int]:
        return await asyncio.gather(*(turn.step("double", double, number) for number in range(5)))

    view = await finished(quick, work)
    assert words(view) == "[0, 2, 4, 6, 8]"
    assert {step.number: step.name for step in await quick.steps(view.run.id)}[5] == "double#5"


async def test_steps_with_keys_may_come_in_another_order_and_turn(quick: Server) -> None:
    worked: list[str] = []

    async def work(name: str) -> str:
        worked.append(name)
        return name.upper()

    async def outer(turn: Turn, name: str) -> str:
        return await turn.step("inner", work, f"{name}'s inner")

    @agent("stepper")
    async def stepper(turn: Turn):
        names = ["a", "b"] if turn.number == 1 else ["b", "a", "c"]
        found = [await turn.step("outer", outer, turn, name, key=name, shown=False) for name in names]
        if turn.number == 1:
            yield NeedInput("More?")
        yield Text(" ".join([*found, await turn.step("last", work, "last")]))

    exchange = await quick.open(stepper)
    outcome = await ask(exchange, "stepper")
    await exchange.settled(outcome)
    view = await exchange.settled(await ask(exchange, "stepper", run=outcome.run.id))
    assert words(view) == "B'S INNER A'S INNER C'S INNER LAST"
    assert worked == ["a's inner", "b's inner", "c's inner", "last"]
    names = [step.name for step in await quick.steps(outcome.run.id)]
    assert names == ["outer:a/inner", "outer:a", "outer:b/inner", "outer:b", "outer:c/inner", "outer:c", "last"]


async def test_usage_is_recorded_together_with_the_step_that_it_belongs_to(quick: Server) -> None:
    async def work(turn: Turn) -> int:
        async def paid() -> int:
            turn.record(Usage("m", 1, 2))
            return 1

        return await turn.step("paid", paid)

    view = await finished(quick, work)
    events = [event.payload for event in await read_all(quick.store, view.run.id)]
    told = [one for one in events if isinstance(one, Progress)]
    assert [(one.usage is not None, one.step is not None) for one in told] == [(True, False), (False, True)]


def sleeping_agent(slept: list[str], **limits: int) -> FunctionDriver:
    @agent("stepper", **limits)  # type: ignore[arg-type]
    async def stepper(turn: Turn):
        before = await turn.now()
        slept.append("before")
        await turn.step("work", int)
        await turn.sleep(3600)
        slept.append("after")
        yield Text(f"slept {(await turn.now() - before).total_seconds() >= 3600}")

    return stepper


async def test_a_sleeping_run_holds_no_slot_and_continues_when_it_is_time(server: Server) -> None:
    slept: list[str] = []
    exchange = await server.open(sleeping_agent(slept, max_concurrent=1, max_queued=1))
    outcomes = [await ask(exchange, "stepper")]
    await until(lambda: _is_asleep(exchange, outcomes[-1].run.id))
    outcomes.append(await ask(exchange, "stepper"))
    await until(lambda: _is_asleep(exchange, outcomes[-1].run.id))
    assert exchange.execution.under_way == []
    assert await server.store.waiting("stepper", 10) == 0
    assert await server.store.runs_in(State.WORKING) == []
    listed, count = await server.store.list_runs(Listing(principal=str(LOCAL), state=State.SUBMITTED))
    assert (len(listed), count) == (2, 2)

    await exchange.membership.sweep()
    assert exchange.execution.under_way == []
    server.clock.ahead_ms = 3_601_000
    await exchange.membership.sweep()
    for outcome in outcomes:
        assert words(await server.ended(outcome.run.id)) == "slept True"
        assert len(await server.steps(outcome.run.id)) == 4
        await verify_run(server.store, outcome.run.id)
    assert slept.count("after") == 2


async def test_a_sleeping_run_can_be_canceled_and_given_more_input(quick: Server) -> None:
    exchange = await quick.open(sleeping_agent([]))
    outcome = await ask(exchange, "stepper")
    await until(lambda: _is_asleep(exchange, outcome.run.id))
    await ask(exchange, "stepper", "more", run=outcome.run.id)
    assert await _is_asleep(exchange, outcome.run.id)
    await exchange.cancel(outcome.run.id, LOCAL)
    assert (await quick.ended(outcome.run.id)).status.state is State.CANCELED
    quick.clock.ahead_ms = 3_601_000
    assert await quick.store.sleepers(quick.clock(), 10) == []


async def test_a_short_sleep_and_one_in_a_task_group_are_durable_too(quick: Server) -> None:
    entered: list[str] = []

    @agent("stepper")
    async def stepper(turn: Turn):
        entered.append(turn.text)
        await turn.sleep(0.01)
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.sleep(3600))
        yield Text("awake")

    exchange = await quick.open(stepper)
    outcome = await ask(exchange, "stepper")
    await until(lambda: _is_asleep(exchange, outcome.run.id))
    quick.clock.ahead_ms = 3_601_000
    await exchange.membership.sweep()
    assert words(await quick.ended(outcome.run.id)) == "awake"
    assert len(entered) == 2


async def test_a_fork_does_the_steps_of_the_original_again(quick: Server) -> None:
    crashing = Crashing()
    exchange = await quick.open(crashing.driver)
    outcome = await ask(exchange, "stepper")
    await quick.ended(outcome.run.id)
    fork = await exchange.fork(Branch(outcome.run.id, LOCAL, at=5))
    assert words(await exchange.settled(fork)) == "15"
    assert crashing.worked == [*range(6), *range(6)]


async def _is_asleep(exchange: Exchange, run: RunId) -> bool:
    return bool((await exchange.commands.state(run)).due) and not exchange.execution.works_on(run)
