"""Work is bounded, and no lane takes it all."""

import asyncio
from collections import Counter

from parley.push.fair_queue import FairQueue
from parley.testing.processes import until


class Work:
    """Work that goes on until it is let go, and remembers in what order it began."""

    def __init__(self, most: int = 4, per_lane: int = 2) -> None:
        self.began: list[str] = []
        self.busy: Counter[str] = Counter()
        self.more: Counter[str] = Counter()
        self.gates: dict[str, asyncio.Event] = {}
        self.lanes: FairQueue[str] = FairQueue(self.do, most, per_lane)

    async def do(self, key: str) -> bool:
        self.began.append(key)
        assert not self.busy[key]
        self.busy[key] += 1
        try:
            await self.gates.setdefault(key, asyncio.Event()).wait()
        finally:
            self.busy[key] -= 1
        self.more[key] -= 1
        return self.more[key] > 0

    def let_go(self, *keys: str) -> None:
        for key in keys:
            self.gates.setdefault(key, asyncio.Event()).set()


async def test_one_lane_cannot_take_all_places() -> None:
    work = Work(most=4, per_lane=2)
    for number in range(10):
        work.lanes.put("slow", f"slow{number}")
    work.lanes.put("other", "other")
    await until(lambda: len(work.began) == 3)
    assert work.began == ["slow0", "slow1", "other"]
    work.let_go("slow0")
    await until(lambda: len(work.began) == 4)
    assert work.began[-1] == "slow2"
    await work.lanes.clear()
    assert len(work.lanes) == work.lanes.running == 0


async def test_no_more_than_so_many_at_once_and_lanes_take_turns() -> None:
    work = Work(most=2, per_lane=2)
    for lane in "abc":
        for number in range(2):
            work.lanes.put(lane, f"{lane}{number}")
    await until(lambda: len(work.began) == 2)
    work.let_go("a0", "a1", "b0", "b1", "c0", "c1")
    await until(lambda: len(work.lanes) == 0)
    assert sorted(work.began[:2]) == ["a0", "a1"]
    assert work.began[2:4] in (["b0", "c0"], ["c0", "b0"])
    assert len(work.began) == 6


async def test_a_key_that_is_put_while_it_is_worked_on_is_worked_on_once_more() -> None:
    work = Work()
    for _ in range(5):
        work.lanes.put("a", "key")
    await until(lambda: work.began == ["key"])
    for _ in range(5):
        work.lanes.put("a", "key")
    assert "key" in work.lanes
    work.let_go("key")
    await until(lambda: len(work.lanes) == 0)
    assert work.began == ["key", "key"]


async def test_whoever_has_more_to_do_waits_for_the_others_of_its_lane() -> None:
    work = Work(most=1, per_lane=1)
    work.more["long"] = 3
    work.let_go("long", "short")
    work.lanes.put("a", "long")
    work.lanes.put("a", "short")
    await until(lambda: len(work.lanes) == 0)
    assert work.began == ["long", "short", "long", "long"]


async def test_what_is_dropped_is_broken_off_or_never_begun() -> None:
    work = Work(most=1)
    work.lanes.put("a", "running")
    work.lanes.put("a", "waiting")
    await until(lambda: work.began == ["running"])
    await work.lanes.drop("waiting")
    await work.lanes.drop("running")
    await work.lanes.drop("nobody")
    assert work.began == ["running"]
    assert len(work.lanes) == 0


async def test_work_that_fails_gives_its_place_back() -> None:
    done: list[str] = []

    async def fail(key: str) -> bool:
        done.append(key)
        raise RuntimeError(key)

    lanes: FairQueue[str] = FairQueue(fail, 1, 1)
    lanes.put("a", "one")
    lanes.put("a", "two")
    await until(lambda: len(lanes) == 0)
    assert done == ["one", "two"]
