"""Agents of the servers. They take a little time, so that faults can happen while they work."""

import asyncio
import os
import random
import time
from pathlib import Path

from parley import NeedInput, Status, Text, Turn, agent

MARKS = Path(os.environ.get("CHAOS_MARKS", "."))
LIMIT = 3


@agent("steps")
async def steps(turn: Turn):
    """Takes a few steps, and begins again when its process dies."""
    for number in range(random.randint(1, 5)):
        yield Status(f"step {number}")
        await asyncio.sleep(random.choice([0, 0.02, 0.2]))
        yield Text(f"{number} ")
    yield Text(f"<{turn.text}>")


@agent("fragile", rescue="fail")
async def fragile(turn: Turn):
    """Says honestly that it was interrupted."""
    yield Status("careful")
    await asyncio.sleep(0.2)
    yield Text(f"<{turn.text}>")


@agent("room", max_concurrent=LIMIT)
async def room(turn: Turn):
    """Limited agent: only a few turns may run at a time on all replicas; each records its start and end."""
    visit = f"{turn.run_id}/{turn.epoch}"
    noted("in", visit)
    try:
        for _ in range(6):
            await asyncio.sleep(0.12)
            yield Status("inside")
    finally:
        noted("out", visit)
    yield Text(f"<{turn.text}>")


def noted(what: str, visit: str) -> None:
    """Append one short line to a file; atomic, also with concurrent writers."""
    with (MARKS / "room").open("a") as marks:
        marks.write(f"{os.getpid()} {visit} {what} {time.monotonic()}\n")


@agent("asker")
async def asker(turn: Turn):
    """Asks back once."""
    await asyncio.sleep(random.choice([0, 0.1]))
    if turn.number == 1:
        yield NeedInput("And then?")
        return
    yield Text(f"<{turn.text}>")


@agent("sleeper")
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("asleep")
    await asyncio.Event().wait()
