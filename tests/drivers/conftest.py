"""Agents that stand at the far end, and ours in front of them."""

import asyncio
from typing import Any

from parley import ArtifactChunk, Done, Failed, NeedAuth, NeedInput, Rejected, Status, Text, Turn, agent
from parley.client import Client, Json
from parley.drivers.remote import RemoteDriver, RemoteOptions, blank_remote

SEPARATORS = "a\u2028b\u2029c\x85d"


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    yield Text(turn.text)


@agent("writer")
async def writer(turn: Turn):
    """Streams, asks, makes a file."""
    if turn.number == 1:
        yield Status("thinking")
        for word in ("one ", "two ", "three"):
            yield ArtifactChunk(word, id="words", name="Words", append=word != "one ", last=word == "three")
            await asyncio.sleep(0.03)
        yield NeedInput("Which name?")
        return
    yield ArtifactChunk({"name": turn.text, "count": 42}, id="result", name="Result")
    yield Done(f"Bye, {turn.text}.")


@agent("vault")
async def vault(turn: Turn):
    """Wants to know who you are."""
    if turn.number == 1:
        yield NeedAuth("Who are you?")
    else:
        yield Text(f"Welcome, {turn.text}.")


@agent("sleeper")
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("asleep")
    await asyncio.Event().wait()


@agent("file", input_modes=("*/*",))
async def file(turn: Turn):
    """Gives back what it got, and large bytes."""
    for number, part in enumerate(await turn.loaded(turn.message.parts)):
        yield ArtifactChunk(part, id=f"part-{number}")
    yield ArtifactChunk(b"\x01" * 100_000, id="large", filename="large.bin", media_type="application/x-large")


@agent("greeter", replies="message")
async def greeter(turn: Turn) -> str:
    """Answers with a message instead of a task."""
    return f"Hello, {turn.text}."


@agent("picky")
async def picky(turn: Turn):
    """Rejects everything."""
    yield Rejected("not_today", "Not today.")


@agent("broken")
async def broken(turn: Turn):
    """Fails, and says why."""
    yield Failed("no_paper", "Out of paper. " + "x" * 5000)


@agent("lines")
async def lines(turn: Turn):
    """Says what some take for the end of a line."""
    yield Status(SEPARATORS)
    yield Text(SEPARATORS)


@agent("talk")
async def talk(turn: Turn):
    """Says in which conversation it is, and what it was told beside the words."""
    metadata = turn.message.metadata
    told = bytes(metadata).decode() if isinstance(metadata, bytes | memoryview) or metadata else ""
    yield ArtifactChunk({"conversation": turn.conversation, "metadata": told}, id="about")


@agent("plain", streaming=False)
async def plain(turn: Turn):
    """Does not stream."""
    if turn.number == 1:
        yield Text("first ")
        await asyncio.sleep(0.3)
        yield NeedInput("And then?")
    else:
        await asyncio.sleep(0.1)
        yield Text(turn.text)


BACK = (echo, writer, vault, sleeper, file, greeter, picky, broken, lines, talk, plain)


def remote(slug: str, url: str, **options: Any) -> RemoteDriver:
    return RemoteDriver(blank_remote(slug), RemoteOptions(url, **options))


def fronts(url: str, **options: Any) -> list[RemoteDriver]:
    return [remote(one.agent.slug, f"{url}/agents/{one.agent.slug}", **options) for one in BACK]


def texts(task: Json) -> dict[str, str]:
    return {one["artifactId"]: "".join(part.get("text", "") for part in one["parts"]) for one in task["artifacts"]}


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def words(task: Json) -> str:
    return "".join(part["text"] for part in task["status"]["message"]["parts"])


async def send(client: Client, text: str, **more: Any) -> Json:
    result = await client.send(text, **more)
    return result.get("task", result)
