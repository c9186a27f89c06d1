import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley import ArtifactChunk, NeedInput, Status, Text, Turn, agent
from parley.client.control import Owner, RuntimeClient
from parley.testing.databases import fresh_database
from parley.testing.servers import Server, serving
from tests.faces.control.wire import SECRET, Wire, undeclared


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    yield Text(turn.text)


@agent("sleeper")
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("asleep")
    await asyncio.Event().wait()


@agent("asker")
async def asker(turn: Turn):
    """Asks once, and makes a file of the answer."""
    if turn.number == 1:
        yield NeedInput("Which name?")
        return
    yield ArtifactChunk({"name": turn.text}, id="result", name="Result")


@agent("greeter", replies="message")
async def greeter(turn: Turn) -> str:
    """Answers with a message instead of a task."""
    return f"Hello, {turn.text}."


@agent("broken")
async def broken(turn: Turn):
    """Raises."""
    yield Status("about to")
    raise ValueError("a secret of the agent")


@agent("hidden", visibility="private", allow=("user:7",))
async def hidden(turn: Turn) -> str:
    """Is there for one user only."""
    return "hello"


AGENTS = (echo, sleeper, asker, greeter, broken, hidden)


@pytest.fixture(params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    settings: dict[str, object] = {"store": request.param}
    if request.param == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    async with serving(tmp_path / "data", AGENTS, **settings) as running:
        yield running


@pytest.fixture
async def wire(server: Server) -> AsyncIterator[Wire]:
    """Raw requests on behalf of user 42; whatever they are answered must be in the contract's document."""
    async with Wire(server.url) as raw:
        yield raw
        document = (await raw.get("/openapi.json")).json()
        assert undeclared(document, raw.answered) == []


@pytest.fixture
async def client(server: Server) -> AsyncIterator[RuntimeClient]:
    async with RuntimeClient(server.url, SECRET, owner=Owner(user_id=42)) as signed:
        yield signed
