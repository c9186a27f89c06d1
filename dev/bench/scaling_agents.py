"""Two agents: one that answers at once, and one that says a hundred things first, each an event of its own."""

from parley import Status, Text, Turn, agent

SAID = 100


@agent("echo")
async def echo(turn: Turn):
    """Says hello."""
    yield Text("hello")


@agent("long")
async def long(turn: Turn):
    """Reads page after page."""
    for page in range(SAID):
        yield Status(f"Reading page {page} of {SAID}.")
    yield Text("hello")
