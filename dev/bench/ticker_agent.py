"""An agent that sends the current time again and again, so that a follower can measure the delay."""

import asyncio
import time

from parley import Status, Turn, agent

TICKS = 200
EVERY_S = 0.02


@agent("ticker")
async def ticker(turn: Turn):
    for _ in range(TICKS):
        yield Status(str(time.time_ns()))
        await asyncio.sleep(EVERY_S)
