"""A node of the platform: `python -m dev.chaos.member`, set up by the environment."""

import asyncio

from parley import Status, Text, Turn, agent
from parley.node import Node


@agent("member")
async def member(turn: Turn):
    """Says it again, after a while."""
    yield Status("thinking")
    await asyncio.sleep(0.1)
    yield Text(f"<{turn.text}>")


if __name__ == "__main__":
    Node(member).run()
