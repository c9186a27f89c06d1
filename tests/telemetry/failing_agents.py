"""Agents for servers whose log cannot be written."""

from parley import Done, Turn, agent


@agent("echo")
async def echo(turn: Turn):
    yield Done(turn.text)


@agent("raiser")
async def raiser(turn: Turn):
    yield Done(str(1 / 0))
