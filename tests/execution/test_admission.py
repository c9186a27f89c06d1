"""Limits per caller where work is accepted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from parley import NeedInput, Text, Turn, agent, telemetry
from parley.drivers.function import FunctionDriver
from parley.errors import KeyReused, RateLimited, Stopping, TooManyUnfinished
from parley.execution.admission import TOLD_EVERY_MS, UNLIMITED, Allowance, KillSwitch
from parley.ids import RunId
from parley.runs.log import Outcome
from parley.runs.requests import Branch, Opening, Send
from parley.runs.rules.access import LOCAL, Principal
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Listing, LogStore
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from parley.stores.records import MemoryRecords
from parley.telemetry.logs import QUIET
from parley.testing.processes import until

ANN = Principal("user", "ann")


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    yield Text(turn.text)


@agent("capped", max_per_second=1, max_burst=2)
async def capped(turn: Turn):
    """May be asked once a second."""
    yield Text(turn.text)


@agent("asker")
async def asker(turn: Turn):
    """Asks back."""
    if turn.number == 1:
        yield NeedInput("Which?")
        return
    yield Text(turn.text)


@agent("parent")
async def parent(turn: Turn):
    """Asks one that may not be asked so often."""
    for _ in range(4):
        answer = await turn.ask("capped", turn.text)
        yield Text(answer.text)


class Hands:
    """An exchange whose clock is moved by hand."""

    def __init__(self, store: LogStore, allowance: Allowance, drivers: tuple[FunctionDriver, ...]) -> None:
        self.now = 1_000_000
        self.exchange = Exchange(
            store, open_blobs("memory:"), Solo(store), NoSignals(), clock=lambda: self.now, allowance=allowance
        )
        for driver in drivers:
            self.exchange.add(driver)

    async def send(
        self, slug: str = "echo", text: str = "hi", key: str | None = None, run: str | None = None,
        principal: Principal = LOCAL,
    ):  # fmt: skip
        message = Message("m", (text_part(text),))
        return await self.exchange.send(Send(slug, principal, message, run=run, key=key))

    async def settled(self, run: RunId) -> View:
        return await self.exchange.settled(Outcome(await self.exchange.commands.state(run), [], replayed=True))


@pytest.fixture
async def opened() -> AsyncIterator[Any]:
    open_ones: list[Exchange] = []

    async def make(allowance: Allowance = UNLIMITED, *drivers: FunctionDriver, store: LogStore | None = None) -> Hands:
        hands = Hands(store or MemoryStore(), allowance, drivers or (echo, capped, asker, parent))
        await hands.exchange.start()
        open_ones.append(hands.exchange)
        return hands

    yield make
    for exchange in open_ones:
        await exchange.close()


async def test_an_agent_is_asked_no_more_often_than_it_allows(opened: Any) -> None:
    hands = await opened()
    for _ in range(2):
        await hands.send("capped")
    with pytest.raises(RateLimited) as refused:
        await hands.send("capped", principal=ANN)
    assert refused.value.details == {"retry_after": 1, "limit": "agent"}
    await hands.send("echo")
    hands.now += 1000
    await hands.send("capped", principal=ANN)
    assert len(await hands.exchange.store.run_ids("", 10)) == 4


async def test_a_flood_of_refusals_is_counted_one_by_one_and_told_now_and_then(opened: Any) -> None:
    hands = await opened()
    counted: list[str] = []
    told: list[int] = []
    detach = telemetry.attach(lambda name, fields: _note(name, fields, counted, told))
    try:
        for _ in range(2):
            await hands.send("capped")
        for _ in range(30):
            with pytest.raises(RateLimited):
                await hands.send("capped")
            hands.now += 1
        assert told == [1]
        hands.now += TOLD_EVERY_MS
        for _ in range(12):
            with contextlib.suppress(RateLimited):
                await hands.send("capped")
    finally:
        detach()
    assert told == [1, 30]
    assert len(counted) == 40
    assert "send.refused" in QUIET


def _note(name: str, fields: dict[str, Any], counted: list[str], told: list[int]) -> None:
    if name == "send.refused":
        counted.append(fields["agent"])
    elif name == "sends.refused":
        told.append(fields["count"])


async def test_a_principal_sends_no_more_often_than_it_may_whatever_it_sends(opened: Any) -> None:
    hands = await opened(Allowance(per_second=1, burst=2))
    asked = await hands.send("asker")
    await hands.exchange.settled(asked)
    await hands.send("asker", "this one", run=asked.run.id)
    with pytest.raises(RateLimited, match="Your requests exceed the rate limit") as refused:
        await hands.send()
    assert refused.value.details["limit"] == "principal"
    with pytest.raises(RateLimited):
        await hands.exchange.open(Opening("echo", LOCAL, "c"))
    with pytest.raises(RateLimited):
        await hands.exchange.fork(Branch(asked.run.id, LOCAL))
    await hands.send(principal=ANN)


async def test_what_was_taken_is_answered_again_whatever_the_limit(opened: Any) -> None:
    hands = await opened(Allowance(per_second=1, burst=1))
    first = await hands.send(key="k")
    again = await hands.send(key="k")
    assert (again.run.id, again.replayed) == (first.run.id, True)
    with pytest.raises(RateLimited):
        await hands.send(key="another")
    with pytest.raises(KeyReused):
        await hands.send(text="something else", key="k")
    hands.now += 1000
    named = await hands.exchange.open(Opening("echo", LOCAL, "c", "r1"))
    assert (await hands.exchange.open(Opening("echo", LOCAL, "c", "r1"))).run.id == named.run.id


async def test_who_waits_as_told_succeeds_with_the_same_key(opened: Any) -> None:
    hands = await opened(Allowance(per_second=0.5, burst=1))
    await hands.send()
    with pytest.raises(RateLimited) as refused:
        await hands.send(key="k")
    hands.now += 1000 * refused.value.details["retry_after"]
    taken = await hands.send(key="k")
    assert not taken.replayed


async def test_what_a_run_asks_of_others_was_admitted_with_it(opened: Any) -> None:
    hands = await opened()
    view = await hands.exchange.settled(await hands.send("parent"))
    assert view.run.state is State.COMPLETED
    assert len(view.run.children) == 4


async def test_a_principal_has_only_so_many_unfinished_runs(opened: Any, store: LogStore) -> None:
    hands = await opened(Allowance(unfinished=2), store=store)
    asked = [await hands.send("asker", principal=ANN) for _ in range(2)]
    with pytest.raises(TooManyUnfinished) as refused:
        await hands.send("asker", principal=ANN)
    assert refused.value.details["retry_after"] == 5
    await hands.send("asker")
    for one in asked:
        await hands.settled(one.run.id)
    await hands.send("asker", "one more input is not one more run", run=asked[0].run.id, principal=ANN)
    await hands.exchange.cancel(asked[1].run.id, ANN)
    await hands.exchange.settled(await hands.send("echo", principal=ANN), ended=True)


async def test_those_who_come_at_the_same_moment_do_not_slip_through(opened: Any, store: LogStore) -> None:
    hands = await opened(Allowance(unfinished=3), store=store)
    came = await asyncio.gather(*(hands.send("asker") for _ in range(20)), return_exceptions=True)
    refused = [one for one in came if isinstance(one, TooManyUnfinished)]
    assert 17 <= len(refused) < 20
    assert len(await store.run_ids("", 100)) == 20 - len(refused)


async def test_a_process_that_stops_takes_nothing_and_still_knows_what_it_took(opened: Any) -> None:
    hands = await opened()
    first = await hands.send(key="k")
    hands.exchange.admission.stopping = True
    with pytest.raises(Stopping) as refused:
        await hands.send()
    assert refused.value.details == {"retry_after": 1}
    assert (await hands.send(key="k")).run.id == first.run.id


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


async def test_a_key_is_not_used_up_by_a_full_queue(opened: Any, gate: asyncio.Event, store: LogStore) -> None:
    @agent("narrow", max_concurrent=1, max_queued=0)
    async def narrow(turn: Turn):
        """One at a time, and nobody waits."""
        await gate.wait()
        yield Text(turn.text)

    hands = await opened(UNLIMITED, narrow, store=store)
    first = await hands.send("narrow", key="first")
    with hands.exchange.continue_from(first) as follower:
        while not any(event.type == "started" for event in await follower.next()):
            pass
    full = await hands.send("narrow", key="k")
    assert full.run.state is State.REJECTED
    assert (await hands.send("narrow", key="first")).run.id == first.run.id
    gate.set()
    await hands.settled(first.run.id)
    await until(lambda: not hands.exchange.execution.under_way)
    again = await hands.send("narrow", key="k")
    assert (again.replayed, again.run.state) == (False, State.SUBMITTED)
    assert (await hands.exchange.settled(again)).run.state is State.COMPLETED


class Moving(MemoryStore):
    """Shows no run while each state is looked for the first time, as if each run went from one to another."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[State | None] = set()

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        runs, count = await super().list_runs(listing)
        seen = listing.state in self._seen
        self._seen.add(listing.state)
        return (runs, count) if seen else ([], 0)


async def test_a_stop_finds_a_run_that_changes_its_state_meanwhile(opened: Any) -> None:
    store = Moving()
    hands = await opened(store=store)
    run = (await hands.send("asker")).run

    async def members(_: str) -> list[str]:
        return []

    switch = KillSwitch(hands.exchange.stops, MemoryRecords(), store, hands.exchange.stop, members)
    _, count = await switch.stop("agent", "asker", "ops")
    assert count == 1
    assert (await hands.settled(run.id)).run.state is State.CANCELED
