"""Time until all followers of a run have received an event."""

import asyncio
import statistics
from functools import partial
from pathlib import Path
from time import perf_counter

import uvloop

from dev.bench.data import AGENT, ANSWER, REPORT, scratch, start
from dev.bench.rows import Case
from parley.app import open_exchange
from parley.http.sse import KEEP_ALIVE_S
from parley.ids import new_run_id
from parley.runs.rules.commands import Begin, Emit
from parley.runs.streams import Follower
from parley.settings import load

EMITS = 300


def cases() -> list[Case]:
    return [
        Case("followers.1", "ms", partial(reach, 1), "the append alone", partial(reach, 0)),
        _many(100),
        _many(1000),
    ]


def _many(count: int) -> Case:
    return Case(
        f"followers.{count}", "ms", partial(reach, count), "one follower", partial(reach, 1),
        note=lambda value: f"{value * 1000 / count:.1f} µs per follower",
    )  # fmt: skip


class Arrivals:
    """When the last of `count` followers had the event."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._missing = 0
        self._done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def expect(self) -> "asyncio.Future[float]":
        self._missing = self._count
        self._done = asyncio.get_running_loop().create_future()
        return self._done

    def arrive(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._done.set_result(perf_counter())


def reach(followers: int) -> float:
    """Median milliseconds from asking for an append to the last follower having it."""
    with scratch() as directory:
        return uvloop.run(_reach(directory, followers))


async def _reach(directory: Path, followers: int) -> float:
    async with open_exchange(load(data_dir=directory, store="sqlite"), []) as exchange:
        run_id = new_run_id()
        await exchange.commands.execute(run_id, start())
        run = (await exchange.commands.execute(run_id, Begin(AGENT))).run
        arrivals = Arrivals(followers)
        tasks = [
            asyncio.create_task(_follow(exchange.streams.begin(run_id, run.version), arrivals))
            for _ in range(followers)
        ]
        times: list[float] = []
        for _ in range(EMITS):
            arrived = arrivals.expect()
            started = perf_counter()
            await exchange.commands.execute(run_id, Emit(run.epoch, REPORT))
            last = await arrived if followers else perf_counter()
            times.append(last - started)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await exchange.commands.execute(run_id, Emit(run.epoch, ANSWER))
    return statistics.median(times) * 1000


async def _follow(follower: Follower, arrivals: Arrivals) -> None:
    """As a stream does it, with a timer for the silence."""
    with follower:
        while True:
            if await follower.next(KEEP_ALIVE_S):
                arrivals.arrive()
