"""Work that is done elsewhere, by the clock: who holds it, for how long, and what becomes of it then."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from parley import Done, NeedInput, Status, Text
from parley.errors import LeaseLost, TaskRunEnded
from parley.ids import RunId, new_id
from parley.paired.claims import MAX_ATTEMPTS, PairedClaim, PairedClaims
from parley.paired.driver import EdgeDriver
from parley.paired.leases import KIND, Lease, standing
from parley.runs.log import verify_run
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL
from parley.runs.rules.agents import Agent, Limits, Rescue
from parley.runs.rules.commands import Recover
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Failed
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Store
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, Solo
from parley.stores.records import MemoryRecords

ME, OTHER = "runtime:me", "runtime:other"
LEASE_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


class House:
    """One exchange and who comes for its work, with a clock that is moved by hand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = Clock()
        self.steady = 0.0
        self.records = MemoryRecords()
        self.exchange, self.elsewhere = self._opened()

    def _opened(self) -> tuple[Exchange, PairedClaims]:
        exchange = Exchange(self.store, open_blobs("memory:"), Solo(self.store), NoSignals(), clock=self.clock)
        return exchange, PairedClaims(
            exchange, self.records, lease_s=LEASE_S, grace_s=5, clock=self.clock, steady=lambda: self.steady
        )

    async def restart(self) -> None:
        """As after a crash: what was in memory is gone."""
        agents = [driver for slug in self.exchange.agents if (driver := self.exchange.driver(slug))]
        await self.close()
        self.exchange, self.elsewhere = self._opened()
        await self.start(*agents)

    async def start(self, *drivers: EdgeDriver) -> None:
        for driver in drivers:
            self.exchange.add(driver)
        await self.exchange.membership.start()
        self.exchange.listeners.cancel.add(self.elsewhere.hasten)

    async def close(self) -> None:
        await self.exchange.membership.close()

    async def ask(self, text: str = "go") -> Run:
        message = Message(new_id(), (text_part(text),))
        return (await self.exchange.send(Send("far", LOCAL, message))).run

    async def claim(self, owner: str = ME, instance: str = "") -> PairedClaim:
        (claim,) = await self.elsewhere.claim(owner, "far", 1, instance)
        return claim

    async def run(self, claim: PairedClaim) -> Run:
        return await self.exchange.commands.state(claim.run.id)

    async def view(self, claim: PairedClaim) -> View:
        return await self.exchange.view(claim.run.id)

    async def leases(self) -> int:
        return len(await self.records.list(KIND))


def far(rescue: Rescue = "restart", **limits: float) -> EdgeDriver:
    return EdgeDriver(Agent("far", "Far", "Far.", rescue=rescue, limits=Limits(**limits)))  # type: ignore[arg-type]


@pytest.fixture
async def house(store: Store) -> AsyncIterator[House]:
    house = House(store)
    yield house
    await house.close()


async def test_a_lease_that_runs_out_gives_the_turn_to_another(house: House) -> None:
    await house.start(far())
    await house.ask()
    first = await house.claim()
    house.clock.pass_s(LEASE_S - 1)
    await house.elsewhere.tick()
    assert (await house.run(first)).owner == ME
    house.clock.pass_s(1)
    await house.elsewhere.tick()
    second = await house.claim(OTHER)
    assert (second.run.id, second.run.rescues, second.lease.epoch) == (first.run.id, 1, first.lease.epoch + 2)
    with pytest.raises(LeaseLost):
        await house.elsewhere.finish(first.lease, [Done("late")], b"1")
    with pytest.raises(LeaseLost):
        await house.elsewhere.say(first.lease, Status("late"))
    with pytest.raises(LeaseLost):
        await house.elsewhere.release(first.lease)
    await house.elsewhere.finish(second.lease, [Text("mine"), Done()], b"2")
    assert (await house.run(second)).state is State.COMPLETED
    with pytest.raises(LeaseLost):
        await house.elsewhere.finish(first.lease, [Done("late")], b"1")
    await verify_run(house.store, second.run.id)
    assert await house.leases() == 0


async def test_a_lease_given_by_a_wrong_clock_ends_when_nobody_renews_it(house: House) -> None:
    await house.start(far())
    await house.ask()
    house.clock.pass_s(600)
    first = await house.claim()
    house.clock.pass_s(-600)
    for steady in (0, LEASE_S - 1):
        house.steady = steady
        await house.elsewhere.tick()
        assert (await house.run(first)).owner == ME
    house.steady = LEASE_S
    await house.elsewhere.tick()
    assert (await house.claim(OTHER)).run.id == first.run.id


async def test_a_lease_that_is_renewed_is_kept_whatever_the_leaders_clock_says(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    for step in range(1, 6):
        house.clock.pass_s(-600)
        house.steady = step * (LEASE_S - 1)
        await house.elsewhere.tick()
        house.clock.pass_s(600 + LEASE_S - 1)
        (held,) = await house.elsewhere.renew([claim.lease])
        assert held.standing == "held"


async def test_after_three_attempts_the_task_fails(house: House) -> None:
    await house.start(far())
    await house.ask()
    for attempt in range(MAX_ATTEMPTS):
        claim = await house.claim()
        assert claim.run.rescues == attempt
        house.clock.pass_s(LEASE_S)
        await house.elsewhere.tick()
    view = await house.view(claim)
    assert view.run.state is State.FAILED
    assert view.status.said is not None
    assert view.status.said.parts[0].text == (
        "Given up after 3 attempts. The runtime that worked on this task stopped responding."
    )
    assert bytes(view.status.said.metadata) == b'{"code":"edge_attempts_exhausted"}'  # type: ignore[arg-type]


async def test_what_is_handed_back_does_not_count(house: House) -> None:
    await house.start(far(rescue="fail"))
    await house.ask()
    for _ in range(MAX_ATTEMPTS + 2):
        claim = await house.claim()
        assert claim.run.rescues == 0
        await house.elsewhere.release(claim.lease)
    claim = await house.claim()
    house.clock.pass_s(LEASE_S)
    await house.elsewhere.tick()
    assert (await house.run(claim)).state is State.FAILED


async def test_only_what_is_renewed_is_kept(house: House) -> None:
    await house.start(far())
    await house.ask("one")
    await house.ask("two")
    kept, forgotten = await house.elsewhere.claim(ME, "far", 2)
    for _ in range(3):
        house.clock.pass_s(LEASE_S / 2)
        (held,) = await house.elsewhere.renew([kept.lease])
        assert (held.standing, held.until) == ("held", house.clock.now + LEASE_S * 1000)
        await house.elsewhere.tick()
    assert (await house.run(kept)).owner == ME
    assert (await house.run(forgotten)).state is State.SUBMITTED
    (lost,) = await house.elsewhere.renew([forgotten.lease])
    assert lost.standing == "lost"


async def test_a_lease_holds_until_it_is_ended_whatever_the_time(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    house.clock.pass_s(LEASE_S * 2)
    (held,) = await house.elsewhere.renew([claim.lease])
    assert held.standing == "held"
    await house.elsewhere.tick()
    assert (await house.run(claim)).owner == ME


async def test_a_lease_that_was_renewed_a_moment_ago_is_not_written_again(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    untils = set[int]()
    for _ in range(5):
        house.clock.pass_s(1)
        untils |= {held.until for held in await house.elsewhere.renew([claim.lease])}
    assert untils == {claim.until}


async def test_who_ended_the_turn_is_not_told_that_it_was_lost(house: House) -> None:
    await house.start(far())
    for ending in (Done("done"), NeedInput("Which?")):
        await house.ask()
        claim = await house.claim()
        await house.elsewhere.finish(claim.lease, [ending], b"")
        (held,) = await house.elsewhere.renew([claim.lease])
        assert held.standing == "over"
        assert await house.elsewhere.stands(ME, claim.run.id, "far") == "over"
        assert await house.elsewhere.stands(ME, claim.run.id, "near") == "lost"


async def test_a_server_that_was_away_blames_nobody_for_it(house: House) -> None:
    await house.start(far())
    await house.ask("one")
    await house.ask("two")
    back, gone = await house.elsewhere.claim(ME, "far", 2)
    house.clock.pass_s(LEASE_S * 10)
    await house.restart()
    await house.elsewhere.tick()
    house.clock.pass_s(LEASE_S / 2)
    (held,) = await house.elsewhere.renew([back.lease])
    assert held.standing == "held"
    await house.elsewhere.tick()
    assert (await house.run(gone)).owner == ME
    house.clock.pass_s(LEASE_S / 2)
    await house.elsewhere.tick()
    assert (await house.run(gone)).state is State.SUBMITTED
    await house.elsewhere.finish(back.lease, [Done("done")], b"")
    assert (await house.run(back)).state is State.COMPLETED


async def test_a_restart_is_no_rescue_for_what_is_done_elsewhere(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    await house.restart()
    assert (await house.run(claim)).owner == ME
    await house.elsewhere.finish(claim.lease, [Text("still mine"), Done()], b"")
    assert (await house.run(claim)).state is State.COMPLETED


async def test_an_agents_time_is_limited_elsewhere_too(house: House) -> None:
    await house.start(far(timeout_s=90))
    await house.ask()
    claim = await house.claim()
    house.clock.pass_s(50)
    (held,) = await house.elsewhere.renew([claim.lease])
    assert held.until == claim.run.started_at + 90_000
    house.clock.pass_s(40)
    await house.elsewhere.renew([claim.lease])
    await house.elsewhere.tick()
    view = await house.view(claim)
    assert view.run.state is State.FAILED
    assert bytes(view.status.said.metadata) == b'{"code":"timeout"}'  # type: ignore[union-attr, arg-type]
    assert await house.elsewhere.stands(ME, claim.run.id, "far") == "lost"


async def test_a_cancel_leaves_the_holder_its_grace(house: House) -> None:
    await house.start(far())
    run = await house.ask()
    claim = await house.claim()
    await house.exchange.cancel(run.id, LOCAL)
    await asyncio.sleep(0)
    house.clock.pass_s(4)
    (held,) = await house.elsewhere.renew([claim.lease])
    assert held.standing == "canceled"
    await house.elsewhere.tick()
    assert (await house.run(claim)).state is State.WORKING
    house.clock.pass_s(1)
    await house.elsewhere.tick()
    assert (await house.run(claim)).state is State.CANCELED


async def test_a_crash_between_lease_and_claim_leaves_the_task_in_the_queue(house: House) -> None:
    await house.start(far())
    run = await house.ask()
    await house.elsewhere._leases.hold(Lease(ME, run.id, 1), house.clock.now + 60_000)
    await house.restart()
    claim = await house.claim(OTHER)
    house.clock.pass_s(LEASE_S)
    await house.elsewhere.renew([claim.lease])
    await house.elsewhere.tick()
    assert (await house.run(claim)).owner == OTHER
    assert await house.leases() == 1


async def test_a_crash_while_a_lease_is_being_ended_loses_nothing(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    house.clock.pass_s(LEASE_S)
    (record,) = await house.records.due(KIND, house.clock.now)
    await house.elsewhere._leases.end(record)
    (held,) = await house.elsewhere.renew([claim.lease])
    assert held.standing == "lost"
    await house.elsewhere.tick()
    assert (await house.run(claim)).state is State.SUBMITTED
    assert await house.leases() == 0


async def test_many_who_come_at_once_get_each_task_once(house: House) -> None:
    await house.start(far())
    for number in range(20):
        await house.ask(str(number))
    claims = await asyncio.gather(*(house.elsewhere.claim(f"runtime:{number}", "far", 2) for number in range(15)))
    taken = [claim.run.id for some in claims for claim in some]
    assert len(taken) == len(set(taken)) == 20


async def test_another_owner_cannot_end_a_turn_by_its_number(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    with pytest.raises(LeaseLost):
        await house.elsewhere.finish(Lease(OTHER, claim.run.id, claim.lease.epoch), [Done("mine")], b"")
    await house.elsewhere.finish(claim.lease, [Failed("x", "No.")], b"")
    with pytest.raises(TaskRunEnded):
        await house.elsewhere.finish(claim.lease, [Done("after all")], b"other")


def test_a_claim_that_nobody_knows_is_lost() -> None:
    assert standing(None, ME) == "lost"


async def test_a_rescue_of_elsewhere_gives_up_in_its_own_words(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim()
    given_up = Failed("enough", "Enough.")
    outcome = await house.exchange.commands.execute(
        RunId(claim.run.id), Recover(claim.lease.epoch, "restart", most=0, given_up=given_up)
    )
    assert outcome.events[0].payload == given_up


async def test_only_the_process_that_claimed_a_turn_is_heard(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim(instance="one")
    copy = replace(claim.lease, instance="two")
    for attempt in (
        house.elsewhere.release(copy), house.elsewhere.say(copy, Status("mine")),
        house.elsewhere.finish(copy, [Done("mine")], b""),
    ):  # fmt: skip
        with pytest.raises(LeaseLost):
            await attempt
    assert [one.standing for one in await house.elsewhere.renew([copy, claim.lease])] == ["lost", "held"]
    assert (await house.elsewhere.finish(claim.lease, [Done("done")], b"")).run.state is State.COMPLETED


async def test_a_process_that_does_not_name_itself_is_heard_as_before(house: House) -> None:
    await house.start(far())
    await house.ask()
    claim = await house.claim(instance="one")
    unnamed = replace(claim.lease, instance="")
    assert (await house.elsewhere.renew([unnamed]))[0].standing == "held"
    assert (await house.elsewhere.release(unnamed)).state is State.SUBMITTED
    before = (await house.claim()).lease
    assert (await house.elsewhere.release(replace(before, instance="two"))).state is State.SUBMITTED


@pytest.mark.parametrize(("leaves", "left"), [("one", ["two", ""]), ("two", ["one", ""]), ("", ["one", "two"])])
async def test_a_process_that_leaves_gives_back_only_what_it_holds(house: House, leaves: str, left: list[str]) -> None:
    await house.start(far())
    held = {}
    for instance in ("one", "two", ""):
        await house.ask()
        held[instance] = await house.claim(instance=instance)
    await house.elsewhere.release_instance(ME, leaves)
    working = [name for name, claim in held.items() if (await house.run(claim)).state is State.WORKING]
    assert working == left


async def test_of_two_processes_that_come_at_once_the_one_that_lost_does_not_take_the_lease(house: House) -> None:
    """As on two replicas: both note when the lease ends before either knows who has won."""
    await house.start(far())
    await house.ask()
    claim = await house.claim(instance="one")
    rival = replace(claim.lease, instance="two")
    await house.elsewhere._leases.hold(rival, claim.until)
    with pytest.raises(LeaseLost):
        await house.elsewhere.release(rival)
    assert (await house.elsewhere.renew([claim.lease]))[0].standing == "held"
