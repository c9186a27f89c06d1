"""Agents for the crash test: each takes a few steps and leaves a mark at each."""

import asyncio

from parley import Status, Text, Turn, agent


@agent("steps")
async def steps(turn: Turn):
    """Restarts from the beginning when its process dies."""
    for number in range(4):
        yield Status(f"step {number}")
        await asyncio.sleep(0.01)
        yield Text(f"{number} ")


@agent("fragile", rescue="fail")
async def fragile(turn: Turn):
    """Says honestly that it was interrupted."""
    for number in range(4):
        yield Status(f"step {number}")
        await asyncio.sleep(0.01)
