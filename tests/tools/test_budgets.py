"""No caller exceeds its budget, with any number of concurrent calls on any replica."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.app import open_exchange, open_records
from parley.records import Records
from parley.stores.postgres import open_pool
from parley.stores.records import MemoryRecords, PostgresRecords
from parley.testing.databases import fresh_database
from parley.tools.executions import BUDGET_KIND, Budgets, Settlement
from parley.tools.rules.policy import Figures, Policy, evaluate
from tests.tools.conftest import OTHER, POLICY, World, keeper, settings_for, summary
from tests.tools.github import GitHubServer, Reply

EXHAUSTED = "policy_denied.budget_exhausted"
PLACE = ("user:42", "auth_abc")


def policy(total: int, cost: int = 1) -> dict[str, Any]:
    return {**POLICY, "budget": {"max_total_sats": total, "cost_sats": cost}}


async def figures(world: World) -> Figures:
    return await Budgets(world.records, world.clock).figures(PLACE)


async def test_what_was_done_is_spent(world: World) -> None:
    for _ in range(3):
        await world.tools.execute(world.ask(policy=policy(10, 3)))
    assert await figures(world) == Figures(9, 0)
    assert summary(await world.tools.execute(world.ask(policy=policy(10, 3)))) == ("blocked", "denied", EXHAUSTED)
    assert summary(await world.tools.execute(world.ask(policy=policy(10, 1))))[0] == "succeeded"
    assert await figures(world) == Figures(10, 0)
    assert len(world.hub.asked) == 4


async def test_what_was_done_before_counts_for_a_limit_that_is_set_later(small: World) -> None:
    for _ in range(3):
        await small.tools.execute(small.ask(policy={**POLICY, "budget": {}}))
    assert summary(await small.tools.execute(small.ask(policy=policy(3))))[2] == EXHAUSTED


async def test_each_principal_and_each_authorization_has_its_own(small: World) -> None:
    for more in ({}, {"principal": OTHER}, {"policy": {**policy(1), "authorization_id": "auth_other"}}):
        ask: dict[str, Any] = {"policy": policy(1), **more}
        assert summary(await small.tools.execute(small.ask(**ask)))[0] == "succeeded"
        assert summary(await small.tools.execute(small.ask(**ask)))[2] == EXHAUSTED


@pytest.mark.parametrize(
    ("operation", "reply", "after"),
    [
        ("get_issue", Reply(404), Figures(0, 0)),
        ("get_issue", Reply(500), Figures(0, 0)),
        ("get_issue", Reply(hold=True), Figures(0, 0)),
        ("get_issue", Reply(200, b"no json"), Figures(5, 0)),
        ("add_issue_comment", Reply(422), Figures(0, 0)),
        ("add_issue_comment", Reply(201, {}), Figures(5, 0)),
        ("add_issue_comment", Reply(502), Figures(0, 5)),
        ("add_issue_comment", Reply(cut=True), Figures(0, 5)),
        ("add_issue_comment", Reply(hold=True), Figures(0, 5)),
    ],
)
async def test_what_is_owed_follows_from_what_was_done(
    small: World, operation: str, reply: Reply, after: Figures
) -> None:
    small.hub.always = reply
    await small.another(limit_s=0.05).execute(small.ask(operation, policy=policy(100, 5)))
    assert await figures(small) == after


async def test_what_is_blocked_or_repeated_costs_nothing(small: World) -> None:
    await small.tools.execute(small.ask("add_issue_comment", write_approved=False))
    ask = small.ask(policy=policy(100, 5))
    for _ in range(3):
        await small.tools.execute(ask)
    assert await figures(small) == Figures(5, 0)


async def test_a_call_that_is_taken_up_again_is_paid_once(world: World) -> None:
    world.hub.replies.append(Reply(hold=True, done=True))
    ask = world.ask(policy=policy(5, 5))
    dying = world.another()
    task = asyncio.create_task(dying.execute(ask))
    await world.hub.began.wait()
    assert await figures(world) == Figures(0, 5)
    under_way = next(iter(dying._under_way.values())).task
    under_way.cancel()
    await asyncio.gather(task, under_way, return_exceptions=True)
    world.clock.pass_s(60)
    assert summary(await world.tools.execute(ask))[0] == "succeeded"
    assert await figures(world) == Figures(5, 0)


async def test_what_a_read_reserved_is_free_again_when_its_process_died(small: World) -> None:
    small.hub.replies.append(Reply(hold=True, done=True))
    slow = asyncio.create_task(small.tools.execute(small.ask(policy=policy(5, 5))))
    await small.hub.began.wait()
    here = Budgets(small.records, small.clock)
    assert await here.figures(PLACE) == Figures(0, 5)
    small.clock.pass_s(60)
    assert await here.figures(PLACE) == Figures(0, 0)
    small.hub.release.set()
    await slow
    assert await here.figures(PLACE) == Figures(5, 0)


async def test_reservations_that_ended_long_ago_are_not_kept(small: World) -> None:
    here = Budgets(small.records, small.clock)
    rule = Policy(policy(1), "coding.execute.v1")
    for number in range(5):
        await here.reserve(PLACE, f"c{number}", lambda seen: evaluate(rule, seen, 0), for_ms=1000)
        small.clock.pass_s(7200)
    record = await small.records.get(BUDGET_KIND, *PLACE)
    assert record is not None
    assert b"c4" in record.body
    assert b"c3" not in record.body


async def test_what_nobody_knows_stays_reserved(world: World) -> None:
    world.hub.always = Reply(cut=True)
    ask = world.ask("add_issue_comment", policy=policy(5, 5))
    await world.tools.execute(ask)
    await world.tools.execute(ask)
    assert await figures(world) == Figures(0, 5)
    assert summary(await world.tools.execute(world.ask(policy=policy(5))))[2] == EXHAUSTED


async def test_a_hundred_calls_on_two_replicas_spend_what_there_is_and_no_more(
    tmp_path: Path, hub: GitHubServer, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        values = await settings_for("postgres", request, tmp_path)
        world = await World(values, hub, stack).open()
        there = await stack.enter_async_context(open_exchange(values, [keeper]))
        records = await stack.enter_async_context(open_records(values))
        replicas = [world.tools, world.tools_on(there, records)]
        outcomes = await asyncio.gather(
            *(replicas[number % 2].execute(world.ask(policy=policy(10))) for number in range(100))
        )
        reasons = [summary(one)[2] for one in outcomes]
        assert reasons.count("policy_allowed.default") == 10
        assert reasons.count(EXHAUSTED) == 90
        assert len(hub.asked) == 10
        assert await figures(world) == Figures(10, 0)


@pytest.fixture(params=["memory", "postgres"])
async def both(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Records, Records]]:
    if request.param == "memory":
        shared = MemoryRecords()
        yield shared, shared
        return
    database = await fresh_database(request.getfixturevalue("postgres"))
    pools = [await open_pool(database) for _ in range(2)]
    yield PostgresRecords(pools[0]), PostgresRecords(pools[1])
    for pool in pools:
        await pool.close()


async def test_reservations_of_two_replicas_never_exceed_the_limit(both: tuple[Records, Records]) -> None:
    budgets = [Budgets(records) for records in both]
    rule = Policy(policy(10), "coding.execute.v1")

    async def one(number: int) -> bool:
        mine = budgets[number % 2]
        found = await mine.reserve(PLACE, f"c{number}", lambda seen: evaluate(rule, seen, 0))
        if found.allowed and number % 3 == 0:
            await mine.settle(PLACE, f"c{number}", "spent")
        return found.allowed

    allowed = await asyncio.gather(*(one(number) for number in range(60)))
    assert sum(allowed) == 10
    after = await budgets[0].figures(PLACE)
    assert after.spent + after.reserved == 10


steps = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["reserve", "spent", "released", "kept"]), st.integers(0, 6)),
    max_size=40,
)


@given(steps, st.integers(0, 12))
def test_whatever_happens_in_whatever_order_the_limit_holds_and_nothing_counts_twice(
    happens: list[tuple[int, str, int]], total: int
) -> None:
    async def play() -> None:
        budgets = Budgets(MemoryRecords())
        spent, reserved = 0, dict[str, int]()
        for number, what, cost in happens:
            call = f"c{number}"
            if what == "reserve":
                rule = Policy(policy(total, cost), "coding.execute.v1")
                found = await budgets.reserve(PLACE, call, lambda seen, rule=rule: evaluate(rule, seen, 0))
                if found.allowed:
                    reserved[call] = cost
            else:
                how: Settlement = what  # type: ignore[assignment]
                await budgets.settle(PLACE, call, how)
                spent += reserved.get(call, 0) if how == "spent" else 0
                if how != "kept":
                    reserved.pop(call, None)
            after = await budgets.figures(PLACE)
            assert after == Figures(spent, sum(reserved.values()))
            assert after.spent + after.reserved <= total

    asyncio.run(play())
