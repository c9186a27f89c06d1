"""Codes and tokens of runtimes, by the clock."""

import asyncio

import pytest

from parley.errors import InvalidPairingToken, RateLimited, RuntimeRevoked, Unauthenticated
from parley.paired.runtimes import CODE_LIFE_S, MAX_WRONG, REMEMBER_MS, Described, Runtimes
from parley.stores.records import MemoryRecords


class World:
    def __init__(self) -> None:
        self.now = 1_000_000
        self.records = MemoryRecords()
        self.runtimes = self.another()

    def another(self) -> Runtimes:
        """Another process on the same database."""
        return Runtimes(self.records, 60, lambda: self.now, lambda: self.now / 1000)

    def pass_s(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_code_works_for_ten_minutes(world: World) -> None:
    codes = [(await world.runtimes.pair("far")).text for _ in range(2)]
    world.pass_s(CODE_LIFE_S - 1)
    await world.another().attach(codes[0], Described())
    world.pass_s(1)
    with pytest.raises(InvalidPairingToken):
        await world.runtimes.attach(codes[1], Described())


async def test_of_many_who_attach_with_one_code_one_does(world: World) -> None:
    code = (await world.runtimes.pair("far")).text
    tries = [world.another().attach(code, Described()) for _ in range(10)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, tuple) for result in results) == 1


async def test_wrong_codes_are_counted_for_a_minute(world: World) -> None:
    for _ in range(MAX_WRONG):
        with pytest.raises(InvalidPairingToken):
            await world.runtimes.attach("0000", Described())
        world.pass_s(1)
    with pytest.raises(RateLimited) as refused:
        await world.runtimes.attach("0000", Described())
    assert refused.value.details["retry_after"] == 41
    world.pass_s(41)
    with pytest.raises(InvalidPairingToken):
        await world.runtimes.attach("0000", Described())


async def test_wrong_codes_do_not_keep_a_right_one_out(world: World) -> None:
    for _ in range(MAX_WRONG):
        with pytest.raises(InvalidPairingToken):
            await world.runtimes.attach("0000", Described())
    code = (await world.runtimes.pair("far")).text
    runtime, _, before = await world.runtimes.attach(code, Described("studio", "1.0"))
    assert (runtime.agent, runtime.name, before) == ("far", "studio", None)


async def test_a_token_is_known_as_replaced_for_a_month(world: World) -> None:
    (first, old, _), (second, new, before) = [
        await world.runtimes.attach((await world.runtimes.pair("far")).text, Described()) for _ in range(2)
    ]
    assert before == first
    assert (await world.another().runtime_for(new)).id == second.id
    with pytest.raises(RuntimeRevoked, match="replaced"):
        await world.another().runtime_for(old)
    await world.runtimes.tick()
    with pytest.raises(RuntimeRevoked):
        await world.runtimes.check(first)
    world.pass_s(REMEMBER_MS / 1000)
    await world.runtimes.tick()
    with pytest.raises(Unauthenticated):
        await world.runtimes.runtime_for(old)
    assert await world.runtimes.runtime_for(new) == second


async def test_codes_that_nobody_used_are_forgotten(world: World) -> None:
    await world.runtimes.pair("far")
    world.pass_s(CODE_LIFE_S)
    await world.runtimes.tick()
    assert await world.records.list("runtime.code") == []


async def test_a_runtime_is_online_while_it_is_heard_of(world: World) -> None:
    assert await world.runtimes.word_for("far") == "not paired"
    runtime, _, _ = await world.runtimes.attach((await world.runtimes.pair("far")).text, Described())
    for _ in range(5):
        world.pass_s(30)
        await world.another().note(runtime)
        assert await world.runtimes.word_for("far") == "online"
    world.pass_s(90)
    assert await world.runtimes.word_for("far") == "offline"
    await world.runtimes.note(runtime, "detached")
    assert await world.runtimes.word_for("far") == "offline"
    await world.runtimes.note(runtime)
    assert await world.runtimes.word_for("far") == "online"
    await world.runtimes.revoke("far")
    assert await world.runtimes.word_for("far") == "not paired"


async def test_signs_of_life_are_written_down_now_and_then(world: World) -> None:
    runtime, _, _ = await world.runtimes.attach((await world.runtimes.pair("far")).text, Described())
    written = set[int]()
    for _ in range(100):
        world.pass_s(0.5)
        await world.runtimes.note(runtime)
        written.add((await world.runtimes.last_seen(runtime)).at)
    assert len(written) <= 5
