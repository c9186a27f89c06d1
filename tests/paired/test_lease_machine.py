"""Work elsewhere, whatever happens and in whatever order: replicas that forget, runtimes that fall silent, cancels."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from parley import Done, NeedInput, Status, Text
from parley.errors import Conflict, ParleyError
from parley.ids import RunId, new_id
from parley.paired.claims import PairedClaim, PairedClaims
from parley.paired.driver import EdgeDriver
from parley.paired.leases import KIND
from parley.records import Record
from parley.runs.log import verify_run
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import ENDINGS, Failed
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.runs.streams import read_all
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.memory import MemoryStore
from parley.stores.records import MemoryRecords

FAR = EdgeDriver(Agent("far", "Far", "Far."))
ENDS = [Done("done"), NeedInput("Which?"), Failed("no", "No.")]

pytestmark = pytest.mark.slow

replica = st.integers(0, 1)
number = st.integers(0, 9)


class LeaseMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store, self.records = MemoryStore(), MemoryRecords()
        self.now = 1_000_000
        self.runs: list[RunId] = []
        self.claims: list[PairedClaim] = []
        self.taken: dict[tuple[RunId, int], bytes] = {}
        self.replicas = [self.do(self.opened()) for _ in range(2)]

    def teardown(self) -> None:
        self.runner.close()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def opened(self) -> tuple[Exchange, PairedClaims]:
        def clock() -> int:
            return self.now

        exchange = Exchange(self.store, open_blobs("memory:"), Solo(self.store), NoSignals(), clock=clock, shared=True)
        elsewhere = PairedClaims(exchange, self.records, lease_s=60, grace_s=5, clock=clock)
        exchange.listeners.cancel.add(elsewhere.hasten)
        exchange.add(FAR)
        await exchange.membership.renew()
        return exchange, elsewhere

    def some(self, place: int) -> PairedClaim:
        return self.claims[place % len(self.claims)]

    async def message(self, at: int, run: str | None = None) -> None:
        said = Message(new_id(), (text_part("go"),))
        try:
            outcome = await self.replicas[at][0].send(Send("far", LOCAL, said, run=run))
            self.runs += [outcome.run.id] if run is None else []
        except Conflict:
            pass

    @rule(at=replica)
    def ask(self, at: int) -> None:
        self.do(self.message(at))

    @precondition(lambda self: self.runs)
    @rule(at=replica, place=number)
    def say_more(self, at: int, place: int) -> None:
        self.do(self.message(at, self.runs[place % len(self.runs)]))

    @rule(at=replica, owner=st.sampled_from(["runtime:a", "runtime:b"]), most=st.integers(1, 3))
    def pull(self, at: int, owner: str, most: int) -> None:
        self.claims += self.do(self.replicas[at][1].claim(owner, "far", most))

    @rule(most=st.integers(1, 3))
    def pull_at_once(self, most: int) -> None:
        async def both() -> list[list[PairedClaim]]:
            return await asyncio.gather(*(one.claim(f"runtime:{n}", "far", most) for n, (_, one) in self.each()))

        self.claims += [claim for claims in self.do(both()) for claim in claims]

    def each(self) -> list[tuple[int, tuple[Exchange, PairedClaims]]]:
        return list(enumerate(self.replicas))

    @precondition(lambda self: self.claims)
    @rule(at=replica, place=number, how=st.integers(0, 2))
    def finish(self, at: int, place: int, how: int) -> None:
        claim = self.some(place)
        key, digest = (claim.run.id, claim.lease.epoch), bytes([how])
        try:
            outcome = self.do(self.replicas[at][1].finish(claim.lease, [Text("x"), ENDS[how]], digest))
        except ParleyError:
            assert self.taken.get(key) != digest
            return
        assert outcome.replayed == (key in self.taken)
        assert self.taken.setdefault(key, digest) == digest

    @precondition(lambda self: self.claims)
    @rule(at=replica, place=number)
    def progress(self, at: int, place: int) -> None:
        claim = self.some(place)
        try:
            self.do(self.replicas[at][1].say(claim.lease, Status("working")))
        except ParleyError:
            return
        assert (claim.run.id, claim.lease.epoch) not in self.taken

    @precondition(lambda self: self.claims)
    @rule(at=replica, place=number)
    def heartbeat(self, at: int, place: int) -> None:
        claim = self.some(place)
        (held,) = self.do(self.replicas[at][1].renew([claim.lease]))
        over = (claim.run.id, claim.lease.epoch) in self.taken
        assert not (over and held.standing == "held")

    @precondition(lambda self: self.claims)
    @rule(at=replica, place=number)
    def release(self, at: int, place: int) -> None:
        try:
            self.do(self.replicas[at][1].release(self.some(place).lease))
        except Conflict:
            pass

    @precondition(lambda self: self.runs)
    @rule(at=replica, place=number)
    def cancel(self, at: int, place: int) -> None:
        async def canceled() -> None:
            try:
                await self.replicas[at][0].cancel(self.runs[place % len(self.runs)], LOCAL)
            except Conflict:
                pass
            await asyncio.sleep(0)

        self.do(canceled())

    @rule(seconds=st.sampled_from([1, 6, 31, 61]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1000

    @rule(at=replica)
    def sweep(self, at: int) -> None:
        self.do(self.replicas[at][1].tick())

    @rule()
    def sweep_at_once(self) -> None:
        async def both() -> None:
            await asyncio.gather(*(one.tick() for _, one in self.replicas))

        self.do(both())

    @rule(at=replica)
    def crash(self, at: int) -> None:
        self.replicas[at] = self.do(self.opened())

    @invariant()
    def every_turn_that_is_held_has_a_lease_that_will_be_looked_at(self) -> None:
        working = self.do(self.store.runs_in(State.WORKING))
        leases: list[Record] = self.do(self.records.list(KIND, limit=1000))
        known = {(one.scope, one.id) for one in leases if one.due is not None}
        assert {(run.owner, f"{run.id}/{run.epoch}") for run in working} <= known

    @invariant()
    def nothing_is_done_twice(self) -> None:
        for run in self.runs:
            events = self.do(read_all(self.store, run))
            self.do(verify_run(self.store, run))
            assert sum(event.type in ENDINGS for event in events) <= 1
            assert [event.payload.epoch for event in events if event.type == "started"] == sorted(  # type: ignore[union-attr]
                {event.payload.epoch for event in events if event.type == "started"}  # type: ignore[union-attr]
            )

    @rule()
    def in_the_end_everything_comes_to_its_end(self) -> None:
        """All holders go silent; then a new runtime does all the work."""
        for _ in range(3):
            self.now += 200_000
            self.sweep_at_once()
        while claims := self.do(self.replicas[0][1].claim("runtime:last", "far", 10)):
            self.claims += claims
            for claim in claims:
                self.taken[claim.run.id, claim.lease.epoch] = b"\0"
                self.do(self.replicas[1][1].finish(claim.lease, [Text("x"), ENDS[0]], b"\0"))
        left = [self.do(self.store.head(run)).run for run in self.runs]
        assert all(run.settled for run in left)
        assert not any(run.ready for run in left)


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestLeases = LeaseMachine.TestCase
