"""Agents that do everything that AG-UI has an event for."""

import asyncio
import os
import time
from pathlib import Path

import msgspec
from msgspec import Raw

from parley import ArtifactChunk, Done, Failed, NeedInput, Part, Status, Text, Turn, Usage, agent


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    for word in turn.text.split():
        yield Text(f"{word} ")


@agent("poet")
async def poet(turn: Turn):
    """Thinks, writes, asks for a colour, and makes a file."""
    if turn.number == 1:
        yield Status("thinking")
        yield Text("Roses ")
        yield Text("are")
        yield NeedInput("Which colour?", choices=("red", "blue"))
        return
    yield ArtifactChunk({"colour": turn.answer}, id="result", name="Result")
    yield Usage("gpt", 5, 7)
    yield Text(f"{turn.answer}.")
    yield Done("Bye.")


@agent("form")
async def form(turn: Turn):
    """Asks for an object."""
    if turn.number == 1:
        yield NeedInput(
            "Where to?", schema={"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
        )
        return
    yield Text(f"To {turn.answer['city']}.")


@agent("map")
async def mapper(turn: Turn):
    """Calls a tool of the front end, and says what came back."""
    if turn.number == 1:
        about = msgspec.json.decode(turn.message.metadata)["urn:parley:agui"]
        called = {"name": about["tools"][0]["name"], "arguments": {"zoom": about["state"]["zoom"] + 1}}
        yield NeedInput("Shows the map.", metadata={"urn:parley:front-end-tool": called})
        return
    yield Text(f"The map says {turn.text}.")


@agent("board")
async def board(turn: Turn):
    """Shares its state."""
    yield ArtifactChunk({"count": 1}, id="state", name="state")
    patch = Raw(b'[{"op": "replace", "path": "/count", "value": 2}]')
    yield ArtifactChunk(Part(data=patch, media_type="application/json-patch+json"), id="state", name="state")


@agent("clumsy")
async def clumsy(turn: Turn):
    """Fails."""
    yield Text("I ")
    yield Failed("tired", "Too tired.")


@agent("gated")
async def gated(turn: Turn):
    """Writes in two pieces, and waits in between for a file."""
    yield Text("First, ")
    await asyncio.to_thread(_waited)
    yield Text("then.")


@agent("saga")
async def saga(turn: Turn):
    """Tells a story in two parts, and asks in between."""
    if turn.number == 1:
        yield Text("Once ")
        yield Text("upon a time.")
        yield NeedInput("Who?", choices=("a king", "a fox"))
        return
    yield Text(f"There was {turn.answer}, ")
    await asyncio.to_thread(_waited)
    yield Text("and it ended.")


def _waited() -> None:
    while not Path(os.environ["GATE"]).exists():
        time.sleep(0.02)


AGENTS = (echo, poet, form, mapper, board, clumsy, gated, saga)
