"""Agents that do their work in the server; `far_agent.py` does the same behind a runtime."""

import asyncio
from uuid import uuid4

from msgspec import Raw

from parley import AgentError, ArtifactChunk, NeedInput, Status, Text, Turn, agent

ABOUT = Raw(b'{"artifactType":"report","filename":"out/r.md","keywords":["a"]}')


@agent("near", name="Same", description="The same agent, wherever it works.")
async def near(turn: Turn):
    match turn.text:
        case "fail":
            raise AgentError("It cannot be done.")
        case "ask":
            yield Status("thinking")
            yield NeedInput("Which one?")
        case "file":
            yield Status("writing")
            yield ArtifactChunk(
                "# Report", id=str(uuid4()), name="Result", description="short", filename="out/r.md",
                media_type="text/markdown", metadata=ABOUT,
            )  # fmt: skip
            yield Text("see the file")
        case "data":
            yield Text("see the data")
            yield ArtifactChunk({"n": 1.0, "list": [1, "two", None]})
        case "long":
            yield Text("word " * 20_000)
        case "hang":
            yield Status("asleep")
            await asyncio.Event().wait()
        case text:
            yield Status("thinking")
            yield Status("still thinking")
            yield Text(f"It is {text}.")


@agent("near-reply", name="Same", description="Answers with a message.", replies="message")
async def near_reply(turn: Turn) -> str:
    return f"It is {turn.text}."
