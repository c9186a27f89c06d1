"""Forking on every store: the copy, what it shares, what happens then, and what is refused."""

from collections.abc import AsyncIterator

import pytest

from parley import ArtifactChunk, Done, NeedInput, Text, Turn, agent
from parley.errors import (
    AgentNotFound,
    ContentNotSupported,
    ConversationMismatch,
    CursorBeyondEnd,
    Invalid,
    KeyReused,
    RunNotFound,
    StaleCursor,
)
from parley.runs.log import verify_run
from parley.runs.requests import Branch, Send
from parley.runs.rules.access import ALL_SCOPES, Principal
from parley.runs.rules.content import Message, Part, text_of, text_part
from parley.runs.rules.state import Run, State
from parley.runs.service import Exchange
from parley.runs.store import LogStore
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo

ANN, BOB = Principal("user", "ann"), Principal("user", "bob")
ROOT = Principal("user", "root", ALL_SCOPES)
DAY = 24 * 3600 * 1000


@agent("asks")
async def asks(turn: Turn):
    if turn.number == 1:
        yield ArtifactChunk(b"\x01" * 50_000, id="file", filename="a.bin")
        yield NeedInput("Which?")
    else:
        yield Text(f"turn {turn.number}: {turn.text}")
        yield Done("Ready.")


@agent("parent")
async def parent(turn: Turn):
    yield Text((await turn.ask("asks", turn.text)).state)


@agent("full", max_concurrent=1, max_queued=0)
async def full(turn: Turn):
    yield NeedInput("Well?")


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
    for driver in (asks, parent, full):
        exchange.add(driver)
    await exchange.start()
    yield exchange
    await exchange.close()


def said(text: str) -> Message:
    return Message(f"m-{text}", (text_part(text),))


async def finished(exchange: Exchange, slug: str = "asks") -> Run:
    """submitted, input, started, artifact, question, input, started, artifact, completed."""
    outcome = await exchange.send(Send(slug, ANN, Message("m", (text_part("go"), Part(raw=b"\x02" * 40_000)))))
    await exchange.settled(outcome)
    outcome = await exchange.send(Send(slug, ANN, said("this"), run=outcome.run.id))
    return (await exchange.settled(outcome)).run


async def test_a_question_is_answered_otherwise(exchange: Exchange, store: LogStore) -> None:
    run = await finished(exchange)
    outcome = await exchange.fork(Branch(run.id, ANN, at=5, message=said("that")))
    view = await exchange.settled(outcome)
    assert view.status.state is State.COMPLETED
    assert text_of(view.artifacts[-1].parts) == "turn 2: that"
    assert (view.run.principal, view.run.conversation, view.run.agent) == ("user:ann", run.conversation, "asks")
    assert view.run.origin is not None
    theirs, ours = await store.read(run.id, 0, 100), await store.read(view.run.id, 0, 100)
    assert (view.run.origin.run, view.run.origin.seq) == (run.id, 5)
    assert view.run.origin.hash == theirs[4].hash.hex()
    assert [one.body for one in ours[1:5]] == [one.body for one in theirs[1:5]]
    assert await verify_run(store, view.run.id) == view.run.version
    # The other one is as it was.
    assert (await exchange.view(run.id)).run == run


async def test_attachments_are_shared_by_reference(exchange: Exchange) -> None:
    run = await finished(exchange)
    view = await exchange.settled(await exchange.fork(Branch(run.id, ANN, at=5)))
    assert view.status.state is State.INPUT_REQUIRED
    file = view.artifacts[0].parts[0]
    assert file.blob is not None
    assert (await exchange.attachments.loaded((file,)))[0].raw == b"\x01" * 50_000
    given = view.history[0].parts[1]
    assert given.blob is not None
    assert (await exchange.attachments.loaded((given,)))[0].raw == b"\x02" * 40_000


async def test_at_its_end_the_last_turn_is_done_again_or_a_new_one_begins(exchange: Exchange) -> None:
    run = await finished(exchange)
    again = await exchange.settled(await exchange.fork(Branch(run.id, ANN)))
    assert [text_of(one.parts) for one in again.artifacts[1:]] == ["turn 2: this"]
    on = await exchange.settled(await exchange.fork(Branch(run.id, ANN, message=said("more"))))
    assert [text_of(one.parts) for one in on.artifacts[1:]] == ["turn 2: this", "turn 3: more"]
    assert [text_of(one.parts) for one in on.history] == ["go", "Which?", "this", "Ready.", "more"]


async def test_a_child_stays_with_its_parent(exchange: Exchange) -> None:
    outcome = await exchange.send(Send("parent", ANN, said("go")))
    run = (await exchange.settled(outcome)).run
    assert len(run.children) == 1
    fork = (await exchange.settled(await exchange.fork(Branch(run.id, ANN)))).run
    assert len(fork.children) == 1
    assert fork.children != run.children


async def test_only_what_one_may_see_can_be_forked(exchange: Exchange) -> None:
    run = await finished(exchange)
    with pytest.raises(RunNotFound):
        await exchange.fork(Branch(run.id, BOB))
    with pytest.raises(RunNotFound):
        await exchange.fork(Branch(run.id, ANN, "full"))
    with pytest.raises(RunNotFound):
        await exchange.fork(Branch("nothing", ANN))
    by_root = await exchange.fork(Branch(run.id, ROOT, message=said("x")))
    assert by_root.run.principal == "user:ann"
    forked = next(event for event in by_root.events if event.type == "forked")
    assert forked.body is not None
    assert b"user:root" in forked.body
    await exchange.settled(by_root)


async def test_what_is_refused_is_said(exchange: Exchange) -> None:
    run = await finished(exchange)
    with pytest.raises(CursorBeyondEnd, match="has 9 events"):
        await exchange.fork(Branch(run.id, ANN, at=10))
    with pytest.raises(Invalid, match="1 or more"):
        await exchange.fork(Branch(run.id, ANN, at=0))
    with pytest.raises(Invalid, match="no input yet"):
        await exchange.fork(Branch(run.id, ANN, at=1))
    with pytest.raises(ConversationMismatch):
        await exchange.fork(Branch(run.id, ANN, conversation="another"))
    with pytest.raises(ContentNotSupported):
        await exchange.fork(Branch(run.id, ANN, message=Message("m", (Part(raw=b"x", media_type="image/png"),))))
    exchange.replace([parent, full])
    with pytest.raises(AgentNotFound):
        await exchange.fork(Branch(run.id, ANN))


async def test_a_trimmed_run_cannot_be_forked_and_its_forks_stay(exchange: Exchange, clock: Clock) -> None:
    run = await finished(exchange)
    fork = await exchange.settled(await exchange.fork(Branch(run.id, ANN, at=5)))
    clock.now += 2 * DAY
    await exchange.retention.tick()
    with pytest.raises(StaleCursor, match="no longer kept from its beginning") as refused:
        await exchange.fork(Branch(run.id, ANN, at=5))
    assert refused.value.details["floor"] == 9
    assert len((await exchange.view(fork.run.id)).history) > 0
    again = await exchange.settled(await exchange.fork(Branch(fork.run.id, ANN, at=5, message=said("late"))))
    assert text_of(again.artifacts[-1].parts) == "turn 2: late"


async def test_a_fork_can_be_repeated_under_its_key(exchange: Exchange, clock: Clock) -> None:
    run = await finished(exchange)
    first = await exchange.fork(Branch(run.id, ANN, at=5, message=said("x"), key="k"))
    await exchange.settled(first)
    again = await exchange.fork(Branch(run.id, ANN, at=5, message=said("x"), key="k"))
    assert (again.run.id, again.replayed) == (first.run.id, True)
    with pytest.raises(KeyReused):
        await exchange.fork(Branch(run.id, ANN, at=6, message=said("x"), key="k"))


async def test_limits_hold_for_forks(exchange: Exchange) -> None:
    outcome = await exchange.send(Send("full", ANN, said("go")))
    run = (await exchange.settled(outcome)).run
    view = await exchange.settled(await exchange.fork(Branch(run.id, ANN)))
    assert view.status.state is State.INPUT_REQUIRED
    assert view.run.epoch == 2
