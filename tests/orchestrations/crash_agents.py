"""Agents for tests that kill servers: every piece of work that is done leaves a line in a file all processes share."""

import asyncio
import os
from pathlib import Path

from parley import Text, Turn, agent

MARKS = Path(os.environ.get("PARLEY_TEST_MARKS", "."))


@agent("mark")
async def mark(turn: Turn):
    """Takes a moment, and says when it is done."""
    await asyncio.sleep(0.05)
    with (MARKS / "done").open("a") as done:
        done.write(turn.text + "\n")
    yield Text(f"[{turn.text}]")


@agent("stuck")
async def stuck(turn: Turn):
    """Never ends by itself."""
    with (MARKS / "stuck").open("a") as begun:
        begun.write(f"{turn.text}\n")
    await asyncio.Event().wait()
    yield Text("never")
