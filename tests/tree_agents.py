"""Agents for tests with trees of tasks: each task calls a pretended model and starts random children."""

import asyncio
import os
import random
import time
import uuid
from pathlib import Path

from parley import Text, Turn, agent
from parley.runs.rules.usage import Usage

TOKENS = 10


def note(turn: Turn, tree: str, what: str, call: str) -> None:
    """Add a line to the list of calls, which all processes share and which survives them."""
    line = f"{time.monotonic()} {os.getpid()} {tree} {what} {call}\n"
    with Path(os.environ["PARLEY_TEST_CALLS"]).open("a") as calls:
        calls.write(line)


@agent("node")
async def node(turn: Turn):
    """`TREE DEPTH PATH`: some calls, and below the last level up to three children at a time."""
    tree, depth, path = turn.text.split()
    dice = random.Random(f"{tree}/{path}")

    async def call() -> int:
        calls.append(uuid.uuid4().hex)
        note(turn, tree, "begin", calls[-1])
        await asyncio.sleep(dice.uniform(0.01, 0.05))
        turn.record(Usage("m", TOKENS))
        return 1

    calls: list[str] = []
    for number in range(dice.randint(1, 2)):
        await turn.step("model", call, key=str(number))
        if calls:
            note(turn, tree, "end", calls[-1])
    children = dice.randint(1, 3) if int(depth) else 0
    asks = (turn.ask("node", f"{tree} {int(depth) - 1} {path}.{number}") for number in range(children))
    await asyncio.gather(*asks)
    await turn.step("model", call, key="last")
    if calls:
        note(turn, tree, "end", calls[-1])
    yield Text("done")
