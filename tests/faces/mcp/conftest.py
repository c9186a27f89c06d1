import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from parley import ArtifactChunk, Done, NeedInput, Status, Text, Turn, agent
from parley.runs.rules.agents import Extension, Skill
from parley.testing.servers import Server, serving
from tests.faces.conftest import greeter, picky, sleeper

LARGE = b"\x89PNG" + bytes(300_000)
SKILL = Skill("repeat", "Repeat", "Repeats every word.", examples=("say hello",))


@agent("echo", description="Says what you said.", skills=[SKILL])
async def echo(turn: Turn):
    yield Status("listening")
    for word in turn.text.split():
        yield Text(f"{word} ")
        await asyncio.sleep(0.025)


@agent("writer")
async def writer(turn: Turn):
    """Asks for a name, and makes something of it."""
    if turn.number == 1:
        yield Text("Hello.")
        yield NeedInput("Which name?")
        return
    yield ArtifactChunk({"name": turn.text, "count": 42}, id="result", name="Result")
    yield Done(f"Bye, {turn.text}.")


@agent("maker")
async def maker(turn: Turn):
    """Makes files, small and large."""
    yield ArtifactChunk(b"GIF89a", id="small", filename="dot.gif", media_type="image/gif")
    yield ArtifactChunk("a,b\n1,2\n", id="table", filename="table.csv", media_type="text/csv")
    yield ArtifactChunk(LARGE, id="large", filename="large.png", media_type="image/png")
    yield Text("x" * 100_000)


@agent("clumsy")
async def clumsy(turn: Turn):
    """Falls over something that is nobody's business."""
    yield Status("walking")
    raise ValueError("secret: swordfish")


@agent("special", extensions=(Extension("urn:example:special", required=True),))
async def special(turn: Turn):
    """Cannot be asked with words alone."""
    yield Text(turn.text)


AGENTS = (echo, writer, sleeper, maker, greeter, picky, clumsy, special)


@asynccontextmanager
async def connected(url: str, mode: str = "auto", headers: dict[str, str] | None = None) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, max_body_bytes=200_000) as running:
        yield running


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    """The handshake of before 2026-07-28, and what the client finds by itself, which is what holds since."""
    return request.param


@pytest.fixture
async def client(server: Server, mode: str) -> AsyncIterator[Client]:
    """Held by a task of its own: the client must be left by the task that entered it, and fixtures are not."""
    ready, done = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def hold() -> None:
        async with connected(server.url, mode) as client:
            ready.set_result(client)
            await done.wait()

    holding = asyncio.ensure_future(hold())
    await asyncio.wait((holding, ready), return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await holding
    yield ready.result()
    done.set()
    await holding
