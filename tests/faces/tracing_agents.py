"""An agent that is interrupted the first time, for a server that is killed."""

import asyncio

from parley import ArtifactChunk, Status, Turn, agent
from parley.telemetry.trace import current, headers_for


@agent("patient")
async def patient(turn: Turn):
    if turn.attempt == 0:
        yield Status("begun")
        await asyncio.Event().wait()
    yield ArtifactChunk(dict(headers_for(current())), id="trace")
