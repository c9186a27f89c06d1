"""A complete chaos run: start the system, run clients and faults, wait for the end, check."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from dev.chaos.agents import LIMIT
from dev.chaos.checking import check
from dev.chaos.clients import Crowd
from dev.chaos.faults import Hands, schedule
from dev.chaos.history import History
from dev.chaos.outcome import Outcome
from dev.chaos.resting import REST_S, read, rested
from dev.chaos.world import World, opened

CLIENTS = 50

Say = Callable[[str], None]


async def run(folder: Path, seed: int, seconds: float, say: Say, workers: int = 1) -> Outcome:
    history = History()
    async with opened(folder, history, workers) as world:
        say("the world is there")
        crowd = Crowd(world, CLIENTS, random.Random(seed))
        await crowd.begin()
        await _broken(world, crowd, seed, seconds, say, workers)
        began = time.monotonic()
        say("everything has ended" if await rested(world, crowd) else "not everything has come to its end")
        rest_s = time.monotonic() - began
        logs = await read(world, crowd)
        await crowd.close()
    return Outcome(seed, seconds, history, logs, check(history, logs, LIMIT), rest_s)


async def _broken(world: World, crowd: Crowd, seed: int, seconds: float, say: Say, workers: int) -> None:
    stop = asyncio.Event()
    working = asyncio.ensure_future(crowd.work(stop))
    hands = Hands(world, say)
    await asyncio.gather(hands.carry_out(schedule(seed, seconds, workers=workers > 1)), asyncio.sleep(seconds))
    say("nothing breaks any more")
    stop.set()
    crowd.give_up_at(time.monotonic() + REST_S)
    await _ended(working)


async def _ended(working: asyncio.Future[None]) -> None:
    """Wait for the clients. If one goes on long after it should have given up, print all stacks and fail."""
    await asyncio.wait([working], timeout=3 * REST_S)
    if not working.done():
        for task in asyncio.all_tasks():
            task.print_stack()
        raise TimeoutError("not every client has ended")
    await working
