"""Agents at work: limits, cancel, timeout, rescue, children."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley import AgentError, Answer, ArtifactChunk, Done, Failed, NeedInput, Reply, Status, Text, Turn, agent
from parley.drivers.function import FunctionDriver
from parley.errors import (
    AgentNotFound,
    ContentNotSupported,
    ConversationMismatch,
    Invalid,
    NotCancelable,
    RunEnded,
    RunNotFound,
)
from parley.ids import RunId, new_id
from parley.runs.log import Commands, Outcome, verify_run
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL, Principal
from parley.runs.rules.commands import Cancel
from parley.runs.rules.content import Message, Part, text_of, text_part
from parley.runs.rules.state import State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Store
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.sqlite import SqliteStore


def message(text: str = "hi") -> Message:
    return Message(new_id(), (text_part(text),))


async def ask(exchange: Exchange, slug: str, text: str = "hi", run: str | None = None) -> Outcome:
    return await exchange.send(Send(slug, LOCAL, message(text), run=run))


def words(view: View) -> str:
    return "".join(text_of(artifact.parts) for artifact in view.artifacts)


class House:
    """An exchange over a store, closed at the end of the test."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._open: list[Exchange] = []

    async def open(self, *drivers: FunctionDriver, grace_s: float = 1.0, max_payload: int = 100_000) -> Exchange:
        exchange = Exchange(
            self.store, open_blobs("memory:"), Solo(self.store), NoSignals(), grace_s=grace_s, max_payload=max_payload
        )
        for driver in drivers:
            exchange.add(driver)
        await exchange.start()
        self._open.append(exchange)
        return exchange

    async def close(self) -> None:
        for exchange in self._open:
            await exchange.close()


@pytest.fixture
async def house(store: Store) -> AsyncIterator[House]:
    house = House(store)
    yield house
    await house.close()


class Gate:
    """An agent that waits until it is let through, and tells who is inside."""

    def __init__(self, **limits: int) -> None:
        self.inside = 0
        self.most = 0
        self.order: list[str] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

        @agent("gate", **limits)  # type: ignore[arg-type]
        async def gate(turn: Turn):
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(turn.text)
            self.entered.set()
            try:
                await self.open.wait()
                yield Text("through")
            finally:
                self.inside -= 1

        self.driver = gate


async def test_a_function_of_each_kind_is_an_agent(house: House) -> None:
    @agent("streams")
    async def streams(turn: Turn):
        yield "a"
        yield Text("b")

    @agent("returns")
    async def returns(turn: Turn) -> str:
        return turn.text.upper()

    @agent("blocks")
    def blocks(turn: Turn) -> dict[str, int]:
        return {"length": len(turn.text)}

    @agent("silent")
    async def silent(turn: Turn) -> None:
        return None

    exchange = await house.open(streams, returns, blocks, silent)
    views = {slug: await exchange.settled(await ask(exchange, slug)) for slug in exchange.agents}
    assert words(views["streams"]) == "ab"
    assert words(views["returns"]) == "HI"
    assert bytes(views["blocks"].artifacts[0].parts[0].data) == b'{"length":2}'  # type: ignore[arg-type]
    assert views["silent"].artifacts == []
    assert {view.status.state for view in views.values()} == {State.COMPLETED}


async def test_a_question_and_its_answer_are_two_turns_of_one_run(house: House) -> None:
    @agent("asks")
    async def asks(turn: Turn):
        if turn.number == 1:
            yield NeedInput("Which colour?")
        else:
            said = [text_of(one.parts) for one in turn.history]
            yield Done(" / ".join([*said, turn.text]))

    exchange = await house.open(asks)
    outcome = await ask(exchange, "asks", "paint")
    assert (await exchange.settled(outcome)).status.state is State.INPUT_REQUIRED
    view = await exchange.settled(await ask(exchange, "asks", "blue", run=outcome.run.id))
    assert view.status.said is not None
    assert text_of(view.status.said.parts) == "paint / Which colour? / blue / blue"


async def test_an_input_while_working_gets_a_turn_of_its_own(house: House) -> None:
    gate = Gate()
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate", "first")
    await gate.entered.wait()
    await ask(exchange, "gate", "second", run=outcome.run.id)
    gate.open.set()
    view = await exchange.settled(outcome)
    assert gate.order == ["first", "second"]
    assert (view.run.turns, view.run.read) == (2, 2)


async def test_one_at_a_time_in_order_of_arrival(house: House) -> None:
    gate = Gate(max_concurrent=1)
    exchange = await house.open(gate.driver)
    outcomes = [await ask(exchange, "gate", str(number)) for number in range(10)]
    gate.open.set()
    views = await asyncio.gather(*map(exchange.settled, outcomes))
    assert {view.status.state for view in views} == {State.COMPLETED}
    assert gate.most == 1
    assert gate.order == [str(number) for number in range(10)]


async def test_over_the_queue_limit_a_task_is_rejected_and_says_so(house: House) -> None:
    gate = Gate(max_concurrent=1, max_queued=2)
    exchange = await house.open(gate.driver)
    outcomes = [await ask(exchange, "gate", str(number)) for number in range(4)]
    assert [outcome.run.state for outcome in outcomes[:3]] == [State.SUBMITTED] * 3
    view = await exchange.settled(outcomes[3])
    assert view.status.state is State.REJECTED
    assert view.status.said is not None
    assert "try again" in text_of(view.status.said.parts)
    gate.open.set()
    await asyncio.gather(*map(exchange.settled, outcomes))
    assert (await exchange.settled(await ask(exchange, "gate"))).status.state is State.COMPLETED


async def test_a_cancel_stops_the_agent_and_is_durable(house: House) -> None:
    gate = Gate()
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate")
    await gate.entered.wait()
    await exchange.cancel(outcome.run.id, LOCAL)
    view = await exchange.settled(outcome)
    assert view.status.state is State.CANCELED
    assert gate.inside == 0
    with pytest.raises(NotCancelable):
        await exchange.cancel(outcome.run.id, LOCAL)
    with pytest.raises(RunEnded):
        await ask(exchange, "gate", run=outcome.run.id)


async def test_a_cancel_of_a_waiting_run_frees_its_place_in_the_queue(house: House) -> None:
    gate = Gate(max_concurrent=1, max_queued=1)
    exchange = await house.open(gate.driver)
    working, waiting = await ask(exchange, "gate", "a"), await ask(exchange, "gate", "b")
    assert (await exchange.cancel(waiting.run.id, LOCAL)).run.state is State.CANCELED
    third = await ask(exchange, "gate", "c")
    assert third.run.state is State.SUBMITTED
    gate.open.set()
    await asyncio.gather(exchange.settled(working), exchange.settled(third))
    assert gate.order == ["a", "c"]


async def test_an_agent_that_will_not_stop_ends_canceled_all_the_same(house: House) -> None:
    release = asyncio.Event()
    late: list[str] = []

    @agent("stubborn")
    async def stubborn(turn: Turn):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                late.append("ignored")
        yield Text("too late")

    exchange = await house.open(stubborn, grace_s=0.05)
    outcome = await ask(exchange, "stubborn")
    await asyncio.sleep(0)
    await exchange.cancel(outcome.run.id, LOCAL)
    view = await exchange.settled(outcome)
    assert view.status.state is State.CANCELED
    release.set()
    await exchange.execution.close()
    assert (await exchange.view(outcome.run.id)).artifacts == []
    assert late


async def test_a_timeout_counts_only_the_time_spent_working(house: House) -> None:
    @agent("slow", timeout_s=0.05)
    async def slow(turn: Turn):
        if turn.number == 1:
            yield NeedInput("Go on?")
        await asyncio.sleep(60)

    exchange = await house.open(slow)
    outcome = await ask(exchange, "slow")
    await exchange.settled(outcome)
    await asyncio.sleep(0.1)
    view = await exchange.settled(await ask(exchange, "slow", run=outcome.run.id))
    assert view.status.state is State.FAILED
    assert [event.type for event in await house.store.read(outcome.run.id, 4, 10)] == ["input", "started", "failed"]
    assert view.status.said is not None
    assert "0.05 s" in text_of(view.status.said.parts)


async def test_what_an_agent_raises_is_told_without_its_secrets(house: House) -> None:
    @agent("raises")
    async def raises(turn: Turn):
        yield Text("so far")
        raise ValueError("password=hunter2")

    @agent("tells")
    async def tells(turn: Turn) -> str:
        raise AgentError("The calendar is closed on Sundays.")

    @agent("fails")
    async def fails(turn: Turn):
        yield Failed("no_stock", "Nothing left.")

    @agent("odd")
    async def odd(turn: Turn):
        yield 42

    @agent("canceled")
    async def canceled(turn: Turn) -> None:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    exchange = await house.open(raises, tells, fails, odd, canceled)
    said: dict[str, str] = {}
    for slug in exchange.agents:
        view = await exchange.settled(await ask(exchange, slug))
        assert view.status.state is State.FAILED
        assert view.status.said is not None
        said[slug] = text_of(view.status.said.parts)
    assert said["raises"] == "The agent stopped with an unexpected ValueError."
    assert said["tells"] == "The calendar is closed on Sundays."
    assert said["fails"] == "Nothing left."
    assert "int" in said["odd"]
    assert said["canceled"] == "The agent stopped with an unexpected CancelledError."


async def test_an_answer_over_the_limit_fails_the_run_with_the_reason(house: House) -> None:
    @agent("large")
    async def large(turn: Turn):
        yield ArtifactChunk({"x": "x" * 5000})

    exchange = await house.open(large, max_payload=2000)
    view = await exchange.settled(await ask(exchange, "large"))
    assert view.status.state is State.FAILED
    assert view.artifacts == []
    assert await verify_run(house.store, view.run.id) == view.run.version


async def test_large_bytes_are_kept_beside_the_log(house: House) -> None:
    content = bytes(range(256)) * 1000

    @agent("file")
    async def file(turn: Turn):
        yield ArtifactChunk(content, filename="data.bin")

    exchange = await house.open(file)
    view = await exchange.settled(await ask(exchange, "file"))
    (part,) = view.artifacts[0].parts
    assert part.raw is None
    assert part.blob is not None
    assert part.blob.size == len(content)
    assert (await exchange.attachments.loaded((part,)))[0].raw == content
    assert all(len(event.body or b"") < 1000 for event in await house.store.read(view.run.id, 0, 10))


async def test_pieces_of_text_are_joined_and_none_is_lost(house: House) -> None:
    pieces = [f"{number} " for number in range(500)]

    @agent("chatty")
    async def chatty(turn: Turn):
        for number, piece in enumerate(pieces):
            yield Text(piece)
            if number % 50 == 0:
                await asyncio.sleep(0.005)
        yield Status("almost")
        yield Text("end")

    exchange = await house.open(chatty)
    view = await exchange.settled(await ask(exchange, "chatty"))
    assert words(view) == "".join(pieces) + "end"
    assert view.run.version < 40
    types = [event.type for event in await house.store.read(view.run.id, 0, 100)]
    assert types.index("progress") < len(types) - 1


async def test_a_direct_reply_is_a_message(house: House) -> None:
    @agent("hello", replies="message")
    async def hello(turn: Turn) -> str:
        return "Hello."

    @agent("also", replies="message")
    async def also(turn: Turn):
        yield Reply("Hi.")

    exchange = await house.open(hello, also)
    for slug, text in (("hello", "Hello."), ("also", "Hi.")):
        view = await exchange.settled(await ask(exchange, slug))
        assert view.reply is not None
        assert text_of(view.reply.parts) == text


async def test_a_child_is_asked_once_and_its_answer_comes_back(house: House) -> None:
    asked: list[str] = []

    @agent("child")
    async def child(turn: Turn):
        asked.append(turn.text)
        yield Text(f"<{turn.text}>")

    @agent("parent")
    async def parent(turn: Turn):
        answers: list[Answer] = [await turn.ask("child", "a"), await turn.ask("child", "b")]
        yield Text("".join(answer.text for answer in answers))

    exchange = await house.open(child, parent)
    view = await exchange.settled(await ask(exchange, "parent"))
    assert words(view) == "<a><b>"
    assert asked == ["a", "b"]
    children = [await exchange.commands.state(run) for run in view.run.children]
    assert [(run.parent, run.conversation) for run in children] == [(view.run.id, view.run.conversation)] * 2


async def test_a_cancel_reaches_the_runs_a_run_has_started(house: House) -> None:
    gate = Gate()

    @agent("parent")
    async def parent(turn: Turn):
        await turn.ask("gate", "deep")
        yield Text("never")

    exchange = await house.open(gate.driver, parent)
    outcome = await ask(exchange, "parent")
    await gate.entered.wait()
    await exchange.cancel(outcome.run.id, LOCAL)
    view = await exchange.settled(outcome)
    assert view.status.state is State.CANCELED
    (child,) = view.run.children
    child_view = await exchange.settled(Outcome(await exchange.commands.state(child), [], replayed=True))
    assert child_view.status.state is State.CANCELED


async def test_what_a_principal_may_not_see_does_not_exist(house: House) -> None:
    gate = Gate()
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate")
    stranger = Principal("user", "eve")
    for attempt in (
        exchange.visible(outcome.run.id, stranger),
        exchange.cancel(outcome.run.id, stranger),
        exchange.send(Send("gate", stranger, message(), run=outcome.run.id)),
        exchange.visible("nonsense", LOCAL),
        exchange.visible("not an id!", LOCAL),
        exchange.visible(outcome.run.id, LOCAL, agent="other"),
    ):
        with pytest.raises(RunNotFound):
            await attempt
    gate.open.set()
    await exchange.settled(outcome)


async def test_a_message_for_another_conversation_is_refused(house: House) -> None:
    gate = Gate()
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate")
    with pytest.raises(ConversationMismatch):
        await exchange.send(Send("gate", LOCAL, message(), run=outcome.run.id, conversation="other"))
    with pytest.raises(AgentNotFound):
        await ask(exchange, "nobody")
    with pytest.raises(Invalid):
        await exchange.send(Send("gate", LOCAL, Message("m", ())))
    gate.open.set()
    await exchange.settled(outcome)


async def test_what_an_agent_does_not_read_begins_nothing_and_reaches_nothing(house: House) -> None:
    gate = Gate()
    exchange = await house.open(gate.driver)
    outcome = await ask(exchange, "gate")
    picture = Message("m", (text_part("look"), Part(raw=b"x", media_type="image/png")))
    for run in (None, outcome.run.id):
        with pytest.raises(ContentNotSupported):
            await exchange.send(Send("gate", LOCAL, picture, run=run))
    gate.open.set()
    await exchange.settled(outcome)
    assert gate.order == ["hi"]


async def test_a_slug_belongs_to_one_agent_and_is_well_formed(house: House) -> None:
    @agent("Not A Slug")
    async def wrong(turn: Turn) -> None: ...

    exchange = await house.open(Gate().driver)
    for driver in (Gate().driver, wrong):
        with pytest.raises(Invalid):
            exchange.add(driver)


class _Silent:
    """After death nothing is written any more."""

    async def execute(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()


async def crash(exchange: Exchange) -> None:
    """The process dies in the middle: nothing is handed over, only the file stays."""
    exchange.execution._commands = _Silent()  # type: ignore[assignment]
    exchange.execution._closing = True
    for job in exchange.execution._jobs.values():
        assert job.task is not None
        job.leaving = True
        job.task.cancel()
    for loop in exchange.membership._loops:
        await loop.stop()
    await exchange.store.close()


@pytest.mark.parametrize("rescue", ["restart", "resume", "fail"])
async def test_a_turn_broken_by_a_crash_is_rescued_as_its_agent_declares(rescue: str, tmp_path: Path) -> None:
    attempts: list[tuple[int, int, str]] = []
    entered = asyncio.Event()
    hold = asyncio.Event()

    @agent("worker", rescue=rescue)  # type: ignore[arg-type]
    async def worker(turn: Turn):
        so_far = "".join(text_of(artifact.parts) for artifact in turn.artifacts)
        attempts.append((turn.number, turn.attempt, so_far))
        yield Text("half ")
        if turn.attempt == 0:
            await asyncio.sleep(0.03)
            entered.set()
            await hold.wait()
        yield Text("done")

    exchange = await House(SqliteStore(tmp_path)).open(worker)
    outcome = await ask(exchange, "worker")
    await entered.wait()
    await crash(exchange)

    again = await House(SqliteStore(tmp_path)).open(worker)
    view = await again.settled(Outcome(outcome.run, [], replayed=True))
    types = [event.type for event in await again.store.read(outcome.run.id, 0, 50)]
    if rescue == "fail":
        assert types[-1] == "failed"
        assert view.status.said is not None
        assert "stopped" in text_of(view.status.said.parts)
        assert len(attempts) == 1
    else:
        assert types == ["submitted", "input", "started", "artifact", "rescued", "started", "artifact", "completed"]
        assert attempts == [(1, 0, ""), (1, 1, "half ")]
        assert words(view) == "half done"
    assert await verify_run(again.store, outcome.run.id) == len(types)
    await again.close()


async def test_an_orderly_stop_hands_over_and_the_next_start_goes_on(tmp_path: Path) -> None:
    gate = Gate(max_concurrent=1)
    exchange = await House(SqliteStore(tmp_path)).open(gate.driver)
    working, waiting = await ask(exchange, "gate", "a"), await ask(exchange, "gate", "b")
    await gate.entered.wait()
    await exchange.close()

    gate.open.set()
    again = await House(SqliteStore(tmp_path)).open(gate.driver)
    views = [await again.settled(Outcome(outcome.run, [], replayed=True)) for outcome in (working, waiting)]
    assert [view.status.state for view in views] == [State.COMPLETED] * 2
    assert gate.order == ["a", "a", "b"]
    assert views[0].run.rescues == 0
    await again.close()


async def test_a_run_whose_agent_is_gone_fails_with_the_reason(tmp_path: Path) -> None:
    gate, other = Gate(), Gate()
    exchange = await House(SqliteStore(tmp_path)).open(gate.driver)
    outcome = await ask(exchange, "gate")
    await gate.entered.wait()
    await crash(exchange)

    @agent("other")
    async def nobody(turn: Turn) -> None: ...

    again = await House(SqliteStore(tmp_path)).open(nobody)
    view = await again.settled(Outcome(outcome.run, [], replayed=True))
    assert view.status.state is State.FAILED
    assert view.status.said is not None
    assert "no agent gate" in text_of(view.status.said.parts)
    assert RunId(outcome.run.id) == view.run.id
    assert other.inside == 0
    await again.close()


async def test_a_turn_is_told_of_input_that_it_has_not_read(house: House) -> None:
    """A driver that then ends its turn gets the input at once, and its earlier output stays."""
    heard: list[str] = []

    @agent("listener")
    async def listener(turn: Turn):
        heard.append(turn.text)
        if turn.text != "stop":
            yield Status("listening")
            await turn.overtaken.wait()
        yield Done("heard")

    exchange = await house.open(listener)
    first = await ask(exchange, "listener", "go")
    await ask(exchange, "listener", "stop", run=first.run.id)
    view = await exchange.settled(first)
    assert (heard, view.status.state) == (["go", "stop"], State.COMPLETED)


async def test_a_cancel_that_another_replica_recorded_is_noticed_by_what_the_agent_says_next(house: House) -> None:
    """Its own append takes the cancel in, so that a signal of it, which comes later, is no news any more."""
    may_speak = asyncio.Event()

    @agent("sleeper")
    async def sleeper(turn: Turn):
        await may_speak.wait()
        yield Status("asleep")
        await asyncio.Event().wait()

    exchange = await house.open(sleeper)
    outcome = await ask(exchange, "sleeper")
    await Commands(house.store, lambda run, events: None).execute(outcome.run.id, Cancel("local"))
    may_speak.set()
    async with asyncio.timeout(5):
        view = await exchange.settled(outcome)
    assert view.status.state is State.CANCELED
