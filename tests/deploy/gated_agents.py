"""An agent that goes on only when a test says so, by files that every process can see."""

import os
from pathlib import Path

from parley import Status, Text, Turn, agent
from parley.testing.processes import until

GATES = Path(os.environ.get("PARLEY_TEST_GATES", "."))
STEPS = 4


@agent("gated")
async def gated(turn: Turn):
    for number in range(STEPS):
        yield Status(f"step {number}")
        await until((GATES / f"{turn.text}-{number}").exists, timeout_s=60)
    yield Text("through")
