"""An agent that says what time it is, again and again: whoever follows it can tell how late the word arrives."""

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
