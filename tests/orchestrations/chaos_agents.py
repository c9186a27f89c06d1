"""An agent for tests that kill servers while other things happen: each piece of work leaves a line in a file that all
processes share, and some of it fails."""

import asyncio
import os
import random
from pathlib import Path

from parley import Failed, Text, Turn, agent

MARKS = Path(os.environ.get("PARLEY_TEST_MARKS", "."))


@agent("worker")
async def worker(turn: Turn):
    await asyncio.sleep(random.choice([0, 0.01, 0.05]))
    if random.random() < 0.2:
        yield Failed("broken", "It broke.")
        return
    with (MARKS / "done").open("a") as done:
        done.write(turn.text + "\n")
    yield Text(f"[{turn.text}]")
