"""Agents for tests with several workers."""

import asyncio
import os

from parley import Status, Text, Turn, agent


@agent("quick")
async def quick(turn: Turn):
    """A few steps, and the process that took them."""
    yield Status("thinking")
    await asyncio.sleep(0.02)
    yield Text(f"{os.getpid()}")


@agent("walker")
async def walker(turn: Turn):
    """Twenty steps, one after another."""
    for number in range(20):
        yield Status(f"step {number}")
        await asyncio.sleep(0.05)
    yield Text(f"{os.getpid()}")
