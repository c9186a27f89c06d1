"""An agent that works on and on, and says a word whenever its process gets SIGUSR1."""

import asyncio
import signal

from parley import Status, Turn, agent


@agent("pulse")
async def pulse(turn: Turn):
    beat = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, beat.set)
    while True:
        await beat.wait()
        beat.clear()
        yield Status("beat")
