"""An agent whose every step can be told from every other, for servers that are killed."""

import asyncio

from parley import ArtifactChunk, Done, NeedInput, Status, Turn, agent

STEPS = 40


@agent("ticker", rescue="resume")
async def ticker(turn: Turn):
    """Counts, and goes on counting where it was when it is taken up again."""
    done = sum(len((part.text or "").split()) for made in turn.artifacts for part in made.parts)
    for number in range(done, STEPS):
        yield ArtifactChunk(f"{number} ", id="ticks", append=number > 0, last=number == STEPS - 1)
        yield Status(f"tick {number}")
        await asyncio.sleep(0.05)
    yield Done("counted")


@agent("asker")
async def asker(turn: Turn):
    """Asks twice."""
    if turn.number < 3:
        yield NeedInput(f"question {turn.number}")
    else:
        yield Done(f"heard {turn.text}")
