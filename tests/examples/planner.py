"""An agent that writes a plan in two pieces, and waits in between for a file."""

import asyncio
import os
import time
from pathlib import Path

from parley import Text, Turn, agent


def _waited() -> None:
    while not Path(os.environ["GATE"]).exists():
        time.sleep(0.02)


@agent("chat")
async def chat(turn: Turn):
    """Plans, slowly."""
    yield Text("First the trams, ")
    await asyncio.to_thread(_waited)
    yield Text("then the light.")
