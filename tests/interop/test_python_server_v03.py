"""A server of a2a-sdk 0.3.26 behind our remote driver: what it says while nobody listens is not lost."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from parley.client import Client, Json
from parley.drivers.remote import OutboundConnections, RemoteDriver, RemoteOptions, blank_remote
from parley.drivers.remote.connections import plain_transport
from parley.ids import RunId
from parley.runs.rules.content import text_of
from parley.runs.rules.events import ArtifactAdded
from parley.runs.streams import read_all
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from tests.drivers.conftest import send, state, texts, words

from .installed import HERE, python_client

pytestmark = pytest.mark.slow

SDK = "a2a-sdk[http-server]==0.3.26"
STEPS = 25
COUNTED = "".join(f"{number} " for number in range(STEPS))


class Counter:
    """The server in its own process, and how far it may count."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self.url = url
        self._http = http

    async def count(self, steps: int) -> int:
        """Let it make some more steps; the number of tasks that it was given."""
        reply = await self._http.post(f"{self.url}/steps/{steps}", timeout=20)
        return int(reply.text)

    async def calls(self) -> int:
        return int((await self._http.get(f"{self.url}/calls")).text)


@pytest.fixture(scope="session")
def python() -> Path:
    return python_client(SDK, "uvicorn")


@pytest.fixture
async def counter(python: Path) -> AsyncIterator[Counter]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(str(python), str(HERE / "server_v03.py"), str(port))
    try:
        async with httpx2.AsyncClient() as http:

            async def answers() -> bool:
                try:
                    return (await http.get(f"{url}/.well-known/agent-card.json")).is_success
                except httpx2.TransportError:
                    return False

            await until(answers, 30)
            yield Counter(url, http)
    finally:
        process.kill()
        await process.wait()


class Breakable(httpx2.AsyncBaseTransport):
    """Connections that can be cut, and refused until they are allowed again."""

    def __init__(self) -> None:
        self._transport = plain_transport()
        self._cut = asyncio.Event()
        self.refused = 0
        self.opened = 0
        """Answers since the last cut."""

    def cut(self) -> None:
        self.opened = 0
        self._cut.set()

    def mend(self) -> None:
        self._cut = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._cut.is_set():
            self.refused += 1
            raise httpx2.ConnectError("cut")
        reply = await self._transport.handle_async_request(request)
        reply.stream = _Body(reply.stream, self._cut)
        self.opened += 1
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self


class _Body(httpx2.AsyncByteStream):
    def __init__(self, body: Any, cut: asyncio.Event) -> None:
        self._body = body
        self._cut = cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._body)
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            while True:
                chunk = asyncio.ensure_future(anext(chunks))
                await asyncio.wait((chunk, cut), return_when=asyncio.FIRST_COMPLETED)
                if not chunk.done():
                    chunk.cancel()
                    raise httpx2.ReadError("cut")
                yield chunk.result()
        except StopAsyncIteration:
            return
        finally:
            cut.cancel()

    async def aclose(self) -> None:
        await self._body.aclose()


def ticks(task: Json) -> str:
    return texts({"artifacts": [], **task}).get("ticks", "")


async def begun(client: Client, text: str = "count") -> str:
    sent = await client.send(text, configuration={"returnImmediately": True})
    return sent["task"]["id"]


async def counted(client: Client, task: str, upto: int) -> None:
    async def so_far() -> bool:
        return f"{upto} " in ticks(await client.get(task))

    await until(so_far, 20)


async def ended(client: Client, task: str) -> Json:
    async def over() -> bool:
        return state(await client.get(task)) in ("completed", "failed")

    await until(over, 30)
    return await client.get(task)


@pytest.mark.parametrize("text", ["count", "bare"])
@pytest.mark.parametrize("times", [1, 3])
async def test_what_is_made_while_the_connection_is_cut_is_not_lost(
    tmp_path: Path, counter: Counter, times: int, text: str
) -> None:
    async with Breakable() as wire:
        driver = RemoteDriver(blank_remote("counter"), RemoteOptions(counter.url), OutboundConnections(lambda: wire))
        async with serving(tmp_path, [driver]) as front, Client(front.agent("counter")) as client:
            task, made = await begun(client, text), 0
            for _ in range(times):
                await counter.count(4)
                await counted(client, task, made + 3)
                wire.cut()
                await until(lambda: wire.refused > 0)
                await counter.count(3)
                wire.mend()
                await until(lambda: wire.opened > 0)
                wire.refused, made = 0, made + 7
            tasks = await counter.count(STEPS - made)
            found = await ended(client, task)
            events = await read_all(front.exchange.store, RunId(task))
    assert (state(found), words(found), ticks(found)) == ("completed", "counted", COUNTED)
    chunks = [event.payload for event in events if isinstance(event.payload, ArtifactAdded)]
    assert "".join(text_of(chunk.parts) for chunk in chunks) == COUNTED
    assert tasks == 1


async def test_what_is_made_before_the_end_while_the_connection_is_cut_is_not_lost(
    tmp_path: Path, counter: Counter
) -> None:
    async with Breakable() as wire:
        driver = RemoteDriver(blank_remote("counter"), RemoteOptions(counter.url), OutboundConnections(lambda: wire))
        async with serving(tmp_path, [driver]) as front, Client(front.agent("counter")) as client:
            task = await begun(client)
            await counter.count(4)
            await counted(client, task, 3)
            wire.cut()
            await counter.count(STEPS - 4)
            wire.mend()
            found = await ended(client, task)
    assert (state(found), words(found), ticks(found)) == ("completed", "counted", COUNTED)


@pytest.mark.parametrize("text", ["count", "bare"])
async def test_what_is_made_while_our_server_is_killed_is_not_lost(tmp_path: Path, counter: Counter, text: str) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "counter.yaml").write_text(f"driver: remote\nremote:\n  url: {counter.url}\n")
    process = await ServerProcess.start([agents], tmp_path / "data")
    try:
        async with Client(f"{process.url}/agents/counter") as client:
            task = await begun(client, text)
            await counter.count(7)
            await counted(client, task, 6)
        await process.kill()
        await counter.count(9)
        before = await counter.calls()
        process = await ServerProcess.start([agents], tmp_path / "data")
        async with Client(f"{process.url}/agents/counter") as client:

            async def called() -> bool:
                return await counter.calls() > before

            await until(called, 30)
            tasks = await counter.count(STEPS - 16)
            found = await ended(client, task)
    finally:
        await process.stop()
    assert (state(found), words(found), ticks(found)) == ("completed", "counted", COUNTED)
    assert tasks == 1


async def test_what_is_made_after_an_answer_while_the_connection_is_cut_is_not_lost(
    tmp_path: Path, counter: Counter
) -> None:
    async with Breakable() as wire:
        driver = RemoteDriver(blank_remote("counter"), RemoteOptions(counter.url), OutboundConnections(lambda: wire))
        async with serving(tmp_path, [driver]) as front, Client(front.agent("counter")) as client:
            asked = await send(client, "ask")
            assert (state(asked), words(asked)) == ("input_required", "How far?")
            task = asked["id"]
            await client.send("count", task=task, configuration={"returnImmediately": True})
            await counter.count(4)
            await counted(client, task, 3)
            wire.cut()
            await until(lambda: wire.refused > 0)
            await counter.count(3)
            wire.mend()
            await until(lambda: wire.opened > 0)
            await counter.count(STEPS - 7)
            found = await ended(client, task)
    assert (state(found), words(found), ticks(found)) == ("completed", "counted", COUNTED)
