"""Orchestrations over a real engine, on every store: steps are runs, and whoever asks can steer."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec import Raw

from parley import ArtifactChunk, Failed, NeedInput, Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.drivers.llm.driver import LlmDriver
from parley.drivers.workflow import WorkflowDriver
from parley.errors import CannotPlan, InvalidState, OrchestrationNotFound, PlanInvalid, RunNotFound, StepNotFound
from parley.execution.driver import Driver
from parley.ids import RunId, new_id
from parley.models.llm import Sampling
from parley.models.offline import OfflineModel
from parley.orchestrations.conductor import Conductor
from parley.orchestrations.rules.plan import Rules, Step
from parley.orchestrations.rules.state import Orchestration, words_of
from parley.orchestrations.service import Creation, OrchestrationService
from parley.runs.log import verify_run
from parley.runs.requests import Branch, Extensions, Send
from parley.runs.rules.access import LOCAL, Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.runs.store import LogStore
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from tests.orchestrations.plans import step

ANN = Principal("user", "ann")
QUICK = Rules(retry_delay_ms=1)


def message(text: str = "go") -> Message:
    return Message(new_id(), (text_part(text),))


def workflow(*steps: Step, slug: str = "flow", rules: Rules = QUICK) -> WorkflowDriver:
    return WorkflowDriver(Agent(slug, slug, "A workflow."), steps, rules)


class Workers:
    """An agent `worker` whose every run waits until it is told how to end."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.doors: dict[str, asyncio.Future[str]] = {}
        self.came = asyncio.Event()

        @agent("worker")
        async def worker(turn: Turn):
            self.texts.append(turn.text)
            word = await self._door(turn.text)
            yield Failed("broken", f"{turn.text} broke") if word == "fail" else Text(word)

        self.driver: FunctionDriver = worker

    def _door(self, text: str) -> "asyncio.Future[str]":
        self.came.set()
        if text not in self.doors or self.doors[text].cancelled():
            self.doors[text] = asyncio.get_running_loop().create_future()
        return self.doors[text]

    async def began(self, *texts: str) -> None:
        while not set(texts) <= set(self.texts):
            self.came.clear()
            await self.came.wait()

    async def end(self, text: str, word: str = "done") -> None:
        await self.began(text)
        self.doors.pop(text).set_result(word)
        self.texts.remove(text)


def at(id_: str, *depends_on: str) -> Step:
    """A step whose agent is told its id."""
    return step(id_, *depends_on, text=id_)


class House:
    def __init__(self, store: LogStore, shared: bool) -> None:
        self.store = store
        self.shared = shared
        self.exchange = self._made()
        self.workers = Workers()
        self.orchestrations = OrchestrationService(self.exchange)

    def _made(self) -> Exchange:
        return Exchange(
            self.store,
            open_blobs("memory:"),
            Solo(self.store),
            NoSignals(),
            grace_s=1,
            shared=self.shared,
            extend=lambda made: Extensions(conduct=Conductor(made).conducted),
        )

    async def open(self, *drivers: Driver) -> "House":
        for driver in (self.workers.driver, *drivers):
            self.exchange.add(driver)
        await self.exchange.start()
        return self

    async def begin(self, principal: Principal = LOCAL, text: str = "go", conversation: str = "c") -> Orchestration:
        rules = self.exchange.agents.rules("flow") or QUICK
        creation = Creation("flow", principal, message(text), conversation, rules)
        return await self.orchestrations.create(creation)

    async def until(self, id_: str, holds: Callable[[Orchestration], bool]) -> Orchestration:
        state = await self.orchestrations.read(id_, LOCAL)
        with await self.exchange.follow(state.run, state.version) as follower:
            while not holds(state):
                await follower.next()
                state = await self.orchestrations.read(id_, LOCAL)
        return state

    async def ended(self, id_: str) -> Orchestration:
        return await self.until(id_, lambda state: state.ended)

    async def close(self) -> None:
        await self.exchange.execution.close()
        await self.exchange.membership.close()


@pytest.fixture
async def house(store: LogStore) -> AsyncIterator[House]:
    made = House(store, "Postgres" in type(store).__name__)
    yield made
    await made.close()


async def test_steps_run_in_their_order_and_are_given_what_came_before(house: House) -> None:
    await house.open(
        workflow(at("a"), at("b"), step("c", "a", "b", text="{{steps.a.output}}+{{steps.b.output}} for {{message}}"))
    )
    state = await house.begin(text="Ann")
    assert state.status == "running"
    await house.workers.began("a", "b")
    await house.workers.end("b", "2")
    await house.workers.end("a", "1")
    await house.workers.end("1+2 for Ann", "3")
    state = await house.ended(state.id)
    assert state.status == "completed"
    assert [words_of(one.output) for one in state.steps] == ["1", "2", "3"]
    view = await house.exchange.view(state.run)
    assert [(one.name, text_of(one.parts)) for one in view.artifacts] == [("c", "3")]
    assert await verify_run(house.store, state.run)
    runs = [await house.exchange.commands.state(one.run) for one in state.steps if one.run]
    assert {run.parent for run in runs} == {state.run}
    assert len({run.conversation for run in runs}) == 3
    assert "Step 3/3 c: completed" in [text_of(said.parts) for said in view.history]


async def test_a_step_that_fails_is_tried_again_and_then_fails_them_all(house: House) -> None:
    rules = Rules(auto_retry=True, max_retries=1, retry_delay_ms=1)
    await house.open(workflow(at("a"), at("b"), at("c", "b"), rules=rules))
    state = await house.begin()
    await house.workers.end("a", "fail")
    await house.workers.end("a", "fail")
    state = await house.until(state.id, lambda one: one.step("a").status == "failed")
    assert state.status == "running"
    await house.workers.end("b")
    state = await house.ended(state.id)
    assert (state.status, state.code, state.reason) == ("failed", "step_failed", "Step 1/3 a failed: a broke")
    assert [(one.status, one.attempt) for one in state.steps] == [("failed", 2), ("completed", 1), ("pending", 0)]
    assert state.step("a").code == "broken"


async def test_a_failed_step_is_tried_again_after_the_end_and_nothing_else_is(house: House) -> None:
    await house.open(workflow(at("a"), at("b"), at("c", "a", "b")))
    first = await house.begin()
    await house.workers.end("a", "one")
    await house.workers.end("b", "fail")
    await house.ended(first.id)
    with pytest.raises(InvalidState):
        await house.orchestrations.retry_step(first.id, LOCAL, "a")
    with pytest.raises(StepNotFound):
        await house.orchestrations.retry_step(first.id, LOCAL, "z")
    again = await house.orchestrations.retry_step(first.id, LOCAL, "b")
    assert (again.id, again.status) == (first.id, "running")
    assert again.run != first.run
    await house.workers.end("b")
    await house.workers.end("c")
    state = await house.ended(first.id)
    assert (state.status, state.step("b").attempt, state.step("a").attempt) == ("completed", 2, 1)
    assert (await house.exchange.view(first.run)).run.state is State.FAILED
    assert (await house.orchestrations.list("c", LOCAL)).total == 1


async def test_of_two_who_retry_at_once_one_begins_a_run(house: House) -> None:
    await house.open(workflow(at("a"), at("b")))
    first = await house.begin()
    await house.workers.end("a", "fail")
    await house.workers.end("b", "fail")
    await house.ended(first.id)
    both = await asyncio.gather(*(house.orchestrations.retry_step(first.id, LOCAL, one) for one in "ab"))
    assert both[0].run == both[1].run
    await house.workers.end("a")
    await house.workers.end("b")
    assert (await house.ended(first.id)).status == "completed"


async def test_a_paused_one_begins_nothing_until_it_is_resumed(house: House) -> None:
    await house.open(workflow(at("a"), at("b", "a")))
    id_ = (await house.begin()).id
    await house.workers.began("a")
    assert (await house.orchestrations.pause(id_, LOCAL)).status == "paused"
    assert (await house.orchestrations.pause(id_, LOCAL)).status == "paused"
    await house.workers.end("a")
    state = await house.until(id_, lambda one: one.resting)
    assert (await house.exchange.commands.state(state.run)).state is State.INPUT_REQUIRED
    assert house.workers.texts == []
    assert (await house.orchestrations.resume(id_, LOCAL)).status == "running"
    with pytest.raises(InvalidState):
        await house.orchestrations.resume(id_, LOCAL)
    await house.workers.end("b")
    assert (await house.ended(id_)).status == "completed"


async def test_a_cancel_reaches_the_steps(house: House) -> None:
    await house.open(workflow(at("a"), at("b", "a"), at("c")))
    id_ = (await house.begin()).id
    await house.workers.end("c")
    await house.workers.began("a")
    await house.until(id_, lambda one: one.step("c").status == "completed")
    state = await house.orchestrations.cancel(id_, LOCAL)
    assert [one.status for one in state.steps] == ["cancelled", "cancelled", "completed"]
    assert state.status == "cancelled"
    child = state.step("a").run
    assert child
    with await house.exchange.follow(child, 0) as follower:
        while (await follower.next())[-1].type != "canceled":
            pass
    with pytest.raises(InvalidState):
        await house.orchestrations.cancel(id_, LOCAL)


async def test_a_step_over_its_time_is_canceled_and_has_failed(house: House) -> None:
    # Long enough for its run to begin, however busy the machine is.
    await house.open(workflow(at("a"), rules=Rules(step_timeout_ms=1000)))
    state = await house.ended((await house.begin()).id)
    one = state.step("a")
    assert (one.status, one.code) == ("failed", "timeout")
    assert one.run
    assert (await house.exchange.commands.state(one.run)).cancel_requested


async def test_what_was_begun_is_found_again_after_a_restart(house: House) -> None:
    await house.open(workflow(at("a"), at("b", "a"), at("c")))
    id_ = (await house.begin()).id
    await house.workers.end("c", "once")
    before = await house.until(id_, lambda one: one.step("c").status == "completed")
    await house.workers.began("a")
    await house.close()
    house.exchange = house._made()
    house.workers.texts.clear()
    house.orchestrations = OrchestrationService(house.exchange)
    await house.open(workflow(at("a"), at("b", "a"), at("c")))
    await house.workers.end("a")
    await house.workers.end("b")
    state = await house.ended(id_)
    assert state.status == "completed"
    assert [one.attempt for one in state.steps] == [1, 1, 1]
    assert state.step("a").run == before.step("a").run
    assert house.workers.texts == []


async def test_a_workflow_can_be_a_step_of_another(house: House) -> None:
    inner = workflow(at("x"), at("y", "x"), slug="inner")
    await house.open(inner, workflow(Step("deep", "inner"), step("after", "deep", text="{{steps.deep.output}}!")))
    id_ = (await house.begin()).id
    await house.workers.end("x")
    await house.workers.end("y", "depth")
    await house.workers.end("depth!")
    state = await house.ended(id_)
    assert state.status == "completed"
    assert words_of(state.step("deep").output) == "depth"


async def test_workflows_that_name_each_other_come_to_an_end(house: House) -> None:
    await house.open(workflow(Step("a", "other")), workflow(Step("b", "flow"), slug="other"))
    state = await house.ended((await house.begin()).id)
    assert state.status == "failed"
    assert "more than 5 levels deep" in state.reason


async def test_at_a_checkpoint_it_waits_for_an_answer(house: House) -> None:
    await house.open(
        workflow(step("a", text="a", checkpoint="Publish?"), step("b", "a", text="said {{steps.a.answer}}"))
    )
    id_ = (await house.begin()).id
    await house.workers.end("a")
    state = await house.until(id_, lambda one: one.resting)
    assert state.status == "paused"
    said = (await house.exchange.view(state.run)).status.said
    assert said
    assert text_of(said.parts) == "Publish?"
    await house.exchange.send(Send("flow", LOCAL, message("yes"), run=state.run))
    await house.workers.end("said yes")
    assert (await house.ended(id_)).status == "completed"


async def test_a_message_to_one_at_work_is_planned_for_when_it_is_done(house: House) -> None:
    await house.open(workflow(step("a", text="{{message}}")))
    state = await house.begin(text="first")
    await house.workers.began("first")
    await house.exchange.send(Send("flow", LOCAL, message("second"), run=state.run))
    await house.workers.end("first")
    await house.workers.end("second", "2")
    state = await house.ended(state.id)
    assert words_of(state.step("a").output) == "2"


async def test_a_step_that_asks_waits_for_its_own_answer(house: House) -> None:
    begun = asyncio.Event()

    @agent("asker")
    async def asker(turn: Turn):
        begun.set()
        yield NeedInput("Which?") if turn.number == 1 else Text(f"took {turn.text}")

    await house.open(asker, workflow(Step("a", "asker")))
    id_ = (await house.begin()).id
    await begun.wait()
    child = (await house.orchestrations.read(id_, LOCAL)).step("a").run
    assert child
    with await house.exchange.follow(child, 0) as follower:
        while (await follower.next())[-1].type != "input_required":
            pass
    await house.exchange.send(Send("asker", LOCAL, message("red"), run=child))
    assert words_of((await house.ended(id_)).step("a").output) == "took red"


async def test_a_limit_of_one_does_not_keep_an_orchestration_from_its_steps(house: House) -> None:
    @agent("single", max_concurrent=1)
    async def single(turn: Turn):
        yield Text("ok")

    class Planning(FunctionDriver):
        async def plan(self, turn: Turn, agents: object) -> tuple[Step, ...]:
            return (Step("a", "single"), Step("b", "single"))

    await house.open(Planning(single.agent, single.function))
    creation = Creation("single", LOCAL, message(), "c")
    state = await house.ended((await house.orchestrations.create(creation)).id)
    assert state.status == "completed"


async def test_long_words_and_files_are_handed_on(house: House) -> None:
    long = "x" * 300_000

    @agent("long")
    async def talker(turn: Turn):
        for start in range(0, len(long), 50_000):
            yield Text(long[start : start + 50_000])

    @agent("count", input_modes=("*/*",))
    async def count(turn: Turn):
        yield Text(str(len(turn.text)))
        yield ArtifactChunk(b"\0" * 100_000, id="file", filename="zeros.bin")

    await house.open(talker, count, workflow(Step("a", "long"), step("b", "a", text="{{steps.a.output}}")))
    flow = workflow(Step("a", "long"), Step("b", "count", depends_on=("a",), input=Raw(b'"{{steps.a.output}}"')))
    house.exchange.replace([house.workers.driver, talker, count, flow])
    state = await house.ended((await house.begin()).id)
    assert words_of(state.step("b").output) == "300000zeros.bin"
    assert state.step("a").output[0].blob
    made = (await house.exchange.view(state.run)).artifacts
    assert [part.filename for one in made for part in one.parts] == [None, "zeros.bin"]


async def test_what_is_not_ones_own_does_not_exist(house: House) -> None:
    await house.open(workflow(at("a")))
    id_ = (await house.begin(ANN)).id
    ben = Principal("user", "ben")
    for asked in (
        house.orchestrations.read(id_, ben),
        house.orchestrations.pause(id_, ben),
        house.orchestrations.cancel(id_, ben),
        house.orchestrations.current("c", ben),
        house.orchestrations.read("nothing", ANN),
    ):
        with pytest.raises(OrchestrationNotFound):
            await asked
    assert (await house.orchestrations.list("c", ben)).total == 0
    assert (await house.orchestrations.current("c", ANN)).id == id_
    await house.workers.began("a")
    child = (await house.orchestrations.read(id_, ANN)).step("a").run
    assert child
    with pytest.raises(OrchestrationNotFound):
        await house.orchestrations.read(child, ANN)


async def test_the_current_one_is_the_newest_that_goes_on(house: House) -> None:
    await house.open(workflow(step("a", text="{{message}}")))
    ids = [(await house.begin(text=text)).id for text in ("one", "two", "three")]
    await house.workers.end("three")
    await house.ended(ids[2])
    assert (await house.orchestrations.current("c", LOCAL)).id == ids[1]
    listed = await house.orchestrations.list("c", LOCAL, limit=2)
    assert ([one.id for one in listed.orchestrations], listed.total) == ([ids[2], ids[1]], 3)
    done = await house.orchestrations.list("c", LOCAL, status="completed")
    assert [one.id for one in done.orchestrations] == [ids[2]]


async def test_a_deleted_one_is_erased_with_its_steps(house: House) -> None:
    await house.open(workflow(at("a")))
    id_ = (await house.begin(ANN)).id
    await house.workers.began("a")
    with pytest.raises(InvalidState):
        await house.orchestrations.delete(id_, LOCAL)
    await house.workers.end("a")
    state = await house.ended(id_)
    assert await house.orchestrations.delete(id_, LOCAL) == id_
    with pytest.raises(OrchestrationNotFound):
        await house.orchestrations.read(id_, LOCAL)
    assert (await house.orchestrations.list("c", LOCAL)).total == 0
    for run in (RunId(id_), state.step("a").run):
        assert run
        with pytest.raises(RunNotFound):
            await house.exchange.visible(run, ANN)


async def test_a_paused_one_is_deleted_with_what_it_has_under_way(house: House) -> None:
    await house.open(workflow(at("a")))
    id_ = (await house.begin(ANN)).id
    await house.workers.began("a")
    state = await house.orchestrations.pause(id_, ANN)
    await house.orchestrations.delete(id_, ANN)
    child = state.step("a").run
    head = await house.store.head(child) if child else None
    assert head
    assert (head.run.principal, head.run.state, head.floor) == ("", State.CANCELED, head.run.version)


async def test_a_fork_is_an_orchestration_of_its_own(house: House) -> None:
    await house.open(workflow(at("a"), at("b", "a")))
    first = await house.begin()
    await house.workers.end("a")
    await house.workers.end("b", "fail")
    await house.ended(first.id)
    outcome = await house.exchange.fork(Branch(first.run, LOCAL))
    await house.workers.end("b")
    state = await house.ended(outcome.run.id)
    assert (state.status, state.id) == ("completed", outcome.run.id)
    assert (await house.orchestrations.read(first.id, LOCAL)).status == "failed"


@pytest.fixture
async def alone() -> AsyncIterator[House]:
    """Where it does not matter which store it is."""
    made = House(MemoryStore(), shared=False)
    yield made
    await made.close()


def chat() -> LlmDriver:
    return LlmDriver(Agent("flow", "Flow", "Plans.", model="offline"), OfflineModel(0), Sampling())


async def test_a_model_plans_for_the_agents_that_there_are(alone: House) -> None:
    @agent("echo")
    async def echo(turn: Turn):
        yield Text(turn.text)

    await alone.open(echo, chat())
    state = await alone.begin(text="Let echo speak, then worker work.")
    assert [(one.step.agent, one.step.depends_on) for one in state.steps] == [("echo", ()), ("worker", ("echo",))]
    await alone.workers.end("Let echo speak, then worker work.\n\necho:\nLet echo speak, then worker work.")
    assert (await alone.ended(state.id)).status == "completed"


async def test_who_cannot_plan_says_so(alone: House) -> None:
    await alone.open()
    with pytest.raises(CannotPlan):
        await alone.orchestrations.create(Creation("worker", LOCAL, message(), "c"))
    with pytest.raises(PlanInvalid):
        await alone.orchestrations.create(Creation("worker", LOCAL, message(), "c", Rules(max_parallel=0)))


async def test_a_workflow_that_names_nobody_has_failed(alone: House) -> None:
    await alone.open(workflow(Step("a", "nobody")), workflow(Step("a", "worker", mode="plan"), slug="planning"))
    state = await alone.begin()
    assert (state.status, state.code) == ("failed", "plan_invalid")
    assert state.reason == "Step a: there is no agent nobody here."
    other = await alone.orchestrations.create(Creation("planning", LOCAL, message(), "c"))
    assert other.reason == "Step a: plan is not supported in a step."


async def test_a_key_leads_to_one_orchestration(alone: House) -> None:
    await alone.open(workflow(at("a")))
    creation = Creation("flow", LOCAL, message(), "c", key="k")
    both = [await alone.orchestrations.create(creation) for _ in range(2)]
    assert both[0].id == both[1].id


async def test_an_ordinary_run_is_no_orchestration(alone: House) -> None:
    await alone.open()
    outcome = await alone.exchange.send(Send("worker", LOCAL, message("w")))
    with pytest.raises(OrchestrationNotFound):
        await alone.orchestrations.read(outcome.run.id, LOCAL)
    with pytest.raises(RunNotFound):
        await alone.exchange.view(RunId("nothing"))
