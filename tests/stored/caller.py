"""The function of an agent that has tools."""

from parley import NeedInput, Turn


async def caller(turn: Turn):
    """Asks for more; its tools are called by their users."""
    yield NeedInput("More?")
