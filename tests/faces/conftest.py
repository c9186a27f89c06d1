import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley import ArtifactChunk, Done, NeedInput, Rejected, Status, Text, Turn, agent
from parley.client import Client
from parley.testing.servers import Server, serving


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    yield Text(turn.text)


@agent("writer")
async def writer(turn: Turn):
    """Streams, asks, makes a file: every kind of frame."""
    if turn.number == 1:
        yield Status("thinking")
        for word in ("one ", "two ", "three"):
            yield Text(word)
            await asyncio.sleep(0.025)
        yield NeedInput("Which name?")
        return
    yield ArtifactChunk({"name": turn.text, "count": 42}, id="result", name="Result")
    yield Done(f"Bye, {turn.text}.")


@agent("sleeper")
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("asleep")
    await asyncio.Event().wait()


@agent("file", input_modes=("*/*",))
async def file(turn: Turn):
    """Gives back the bytes it got, and some more."""
    yield ArtifactChunk(turn.message.parts[0], id="same")
    yield ArtifactChunk(b"\x00" * 100_000, id="large")


@agent("greeter", replies="message")
async def greeter(turn: Turn) -> str:
    """Answers with a message instead of a task."""
    return f"Hello, {turn.text}."


@agent("picky")
async def picky(turn: Turn):
    """Rejects everything."""
    yield Rejected("not_today", "Not today.")


AGENTS = (echo, writer, sleeper, file, greeter, picky)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, max_body_bytes=200_000, max_payload_bytes=150_000) as running:
        yield running


class Clients:
    """Clients for the agents of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._clients: dict[str, Client] = {}

    def __getattr__(self, slug: str) -> Client:
        if slug not in self._clients:
            self._clients[slug] = Client(self._server.agent(slug))
        return self._clients[slug]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.__aexit__()


@pytest.fixture
async def clients(server: Server) -> AsyncIterator[Clients]:
    clients = Clients(server)
    yield clients
    await clients.close()
