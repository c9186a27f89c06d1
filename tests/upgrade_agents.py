"""Agents for servers of two versions side by side: only what both know."""

import asyncio

from parley import NeedInput, Status, Text, Turn, agent

STEPS = 20


@agent("walker")
async def walker(turn: Turn):
    """Some steps, one after another, and what was said at the end."""
    for number in range(STEPS):
        yield Status(f"step {number}")
        await asyncio.sleep(0.03)
    yield Text(f"{turn.text} arrived")


@agent("asker")
async def asker(turn: Turn):
    """Asks once, and ends with the answer."""
    if len(turn.history) < 2 and turn.text != "answer":
        yield NeedInput("Which one?")
        return
    yield Text(f"It is {turn.text}")


@agent("pair", max_concurrent=2)
async def pair(turn: Turn):
    """At most two at a time, wherever they are."""
    await asyncio.sleep(0.05)
    yield Text(turn.text)


@agent("sleeper")
async def sleeper(turn: Turn):
    """Says nothing: the older version may miss a cancel that comes at another server just as an agent speaks."""
    await asyncio.Event().wait()
    yield Text("awake")
