"""The agent of `dev.bench.overload`: it may be asked fifty times a second."""

from parley import Text, Turn, agent


@agent("echo", max_per_second=50, max_burst=50)
async def echo(turn: Turn):
    """Says hello."""
    yield Text("hello")
