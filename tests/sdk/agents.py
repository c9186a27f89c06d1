"""Agents for the SDK, beside the model in `chat.yaml`: one that asks, one that fails, one that never ends."""

import asyncio

from parley import Failed, NeedInput, Text, Turn, agent


@agent("asker")
async def asker(turn: Turn):
    yield NeedInput("Which colour?")


@agent("broken")
async def broken(turn: Turn):
    yield Failed("no_paper", "Out of paper.")


@agent("sleeper")
async def sleeper(turn: Turn):
    await asyncio.Event().wait()
    yield Text("awake")


@agent("reader", capabilities=("read_plan",))
async def reader(turn: Turn):
    yield Text("read")
