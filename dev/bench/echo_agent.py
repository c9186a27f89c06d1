"""The agent that the peers serve too: it says hello."""

from parley import Text, Turn, agent


@agent("echo")
async def echo(turn: Turn):
    """Says hello."""
    yield Text("hello")
