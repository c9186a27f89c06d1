"""A whole run: the world is opened, everybody works while it breaks, all comes to rest, and the checker looks."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from chaos.agents import LIMIT
from chaos.checking import check
from chaos.clients import Crowd
from chaos.faults import Hands, schedule
from chaos.history import History
from chaos.outcome import Outcome
from chaos.resting import REST_S, read, rested
from chaos.world import World, opened

CLIENTS = 50

Say = Callable[[str], None]


async def run(folder: Path, seed: int, seconds: float, say: Say) -> Outcome:
    history = History()
    async with opened(folder, history) as world:
        say("the world is there")
        crowd = Crowd(world, CLIENTS, random.Random(seed))
        await crowd.begin()
        await _broken(world, crowd, seed, seconds, say)
        began = time.monotonic()
        say("everything has ended" if await rested(world, crowd) else "not everything has come to its end")
        rest_s = time.monotonic() - began
        logs = await read(world, crowd)
        await crowd.close()
    return Outcome(seed, seconds, history, logs, check(history, logs, LIMIT), rest_s)


async def _broken(world: World, crowd: Crowd, seed: int, seconds: float, say: Say) -> None:
    stop = asyncio.Event()
    working = asyncio.ensure_future(crowd.work(stop))
    hands = Hands(world, say)
    await asyncio.gather(hands.carry_out(schedule(seed, seconds)), asyncio.sleep(seconds))
    say("nothing breaks any more")
    stop.set()
    crowd.give_up_at(time.monotonic() + REST_S)
    await working
