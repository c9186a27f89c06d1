"""Agents for the console's demo data."""

import asyncio

from parley import ArtifactChunk, Skill, Status, Text, Turn, agent
from parley.demo import echo, relay, writer

__all__ = ["echo", "relay", "sleeper", "slow", "writer"]


@agent("sleeper", name="Sleeper")
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("Counting sheep")
    await asyncio.Event().wait()


@agent("slow", name="Slow", skills=[Skill("count", "Count", "Counts slowly.", ("demo",), ("12",))], rescue="restart")
async def slow(turn: Turn):
    """Counts to what it is told, word by word."""
    for number in range(1, int(turn.text) + 1):
        yield Text(f"{number} ")
        await asyncio.sleep(0.1)
    yield ArtifactChunk({"counted": int(turn.text)}, id="result", name="Result")
