"""Agents that make documents, each in the way that a test needs."""

import asyncio
from pathlib import Path

from parley import NeedInput, Skill, Status, Text, Turn, agent
from parley.drivers.llm.driver import LlmDriver
from parley.models.llm import Sampling
from parley.models.offline import NAME, OfflineModel
from parley.runs.rules.agents import Agent

writer = LlmDriver(
    Agent(
        "writer", "Writer", "Writes by the offline model.", skills=(Skill("write", "Write", "Writes."),), model=NAME,
        input_modes=OfflineModel().reads,
    ),
    OfflineModel(pause_s=0),
    Sampling(max_tokens=1000),
    models=("offline-*",),
)  # fmt: skip


@agent("blog_post_writer", capabilities=("create_plan", "read_plan", "build.*"))
async def blog_post_writer(turn: Turn):
    """Can do little."""
    yield Text("# Post")


@agent("talker", capabilities=("chat",))
async def talker(turn: Turn):
    """Can do nothing of this."""
    yield Text("hello")


@agent("asker")
async def asker(turn: Turn):
    """Asks for whom, then writes."""
    if turn.number == 1:
        yield NeedInput("For whom?")
        return
    yield Text(f"# For {turn.text}")


@agent("broken")
async def broken(turn: Turn):
    """Raises."""
    yield Text("# Half a ")
    raise ValueError("a secret of the agent")


@agent("sleeper")
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("asleep")
    yield Text("# So far")
    await asyncio.Event().wait()


@agent("stubborn")
async def stubborn(turn: Turn):
    """Takes a while to stop."""
    yield Status("at it")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.3)


@agent("full", max_concurrent=1, max_queued=0)
async def full(turn: Turn):
    """Has time for one only."""
    await asyncio.Event().wait()
    yield Text("never")


@agent("hidden", visibility="private", allow=("service:ann",))
async def hidden(turn: Turn):
    """Is there for one caller only."""
    yield Text("# Hidden")


@agent("silent")
async def silent(turn: Turn):
    """Says nothing."""
    return
    yield Text("")


@agent("odd")
async def odd(turn: Turn):
    """Says what cannot be kept."""
    yield Text("# Odd\0\n\none\0two")


AGENTS = (writer, blog_post_writer, talker, asker, broken, sleeper, stubborn, full, hidden, silent, odd)
FILE = Path(__file__)
