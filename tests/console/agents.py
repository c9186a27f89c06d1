"""Agents for the console's demo data."""

import asyncio

from parley import ArtifactChunk, Skill, Status, Text, Turn, agent
from parley.demo import echo, relay, writer

__all__ = ["author", "echo", "fussy", "relay", "sleeper", "slow", "writer"]


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


@agent("author", name="Author", skills=[Skill("write", "Write", "Writes plans and pages.", ("demo",), ("A picnic",))])
async def author(turn: Turn):
    """Writes down what it is asked for, and numbers what it has written."""
    words = turn.text.strip().splitlines()
    number = sum(said.role == "user" for said in turn.history)
    lines = ["# A picnic by the river", "", f"Draft after {len(words)} lines.", "", "## Steps", ""]
    lines += ["1. Find a place in the shade", "2. Ask who comes", f"3. Carry {number + 4} baskets", ""]
    for line in lines:
        yield Text(f"{line}\n")


_refused: set[str] = set()


@agent("fussy", name="Fussy")
async def fussy(turn: Turn):
    """Refuses what it hears for the first time, and waits where it is told to."""
    if "slowly" in turn.text:
        await asyncio.sleep(2)
    if "fail" in turn.text and turn.text not in _refused:
        _refused.add(turn.text)
        raise ValueError("Not this time.")
    yield Text("A room above the harbour.")
