"""Agents for tests with several replicas: they leave marks that all processes can see."""

import asyncio
import os
from pathlib import Path

from parley import Status, Text, Turn, agent

MARKS = Path(os.environ.get("PARLEY_TEST_MARKS", "."))


@agent("walker")
async def walker(turn: Turn):
    """Twenty steps, one after another."""
    for number in range(20):
        yield Status(f"step {number}")
        await asyncio.sleep(0.03)
    yield Text("arrived")


@agent("alone", max_concurrent=1)
async def alone(turn: Turn):
    """Only one of its turns may run at a time, wherever it runs."""
    inside = MARKS / "inside"
    descriptor = os.open(inside, os.O_CREAT | os.O_EXCL)
    try:
        with (MARKS / "order").open("a") as order:
            order.write(turn.text + "\n")
        await asyncio.sleep(0.002)
    finally:
        os.close(descriptor)
        inside.unlink()
    yield Text("done")


@agent("sleeper")
async def sleeper(turn: Turn):
    yield Status("asleep")
    await asyncio.Event().wait()
