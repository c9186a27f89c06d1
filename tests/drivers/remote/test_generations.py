"""A remote of A2A 1.1: missed updates are made up for, and a task without streaming is followed by long polls."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from parley import ArtifactChunk, Done, NeedInput, Status, Turn, agent
from parley.client import Client
from parley.drivers.remote import OutboundConnections, RemoteDriver, RemoteOptions, blank_remote
from parley.drivers.remote.connections import plain_transport
from parley.drivers.remote.translation import RemoteTask
from parley.ids import new_id
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.state import Run
from parley.testing.processes import until
from parley.testing.servers import serving
from tests.drivers.conftest import remote, send, state, texts, words

BINDINGS: tuple[Any, ...] = ("JSONRPC", "HTTP+JSON", "GRPC")
RESUMABLE = b"urn:parley:extension:resumable-streams:1"
WORDS = {f"word-{number}": word for number, word in enumerate(("one", "two", "three", "four"))}


@agent("teller")
async def teller(turn: Turn):
    """Tells some words, one by one."""
    yield Status("thinking")
    for id_, word in WORDS.items():
        yield ArtifactChunk(word, id=id_)
    yield NeedInput("More?") if turn.number == 1 else Done("Bye.")


class Outside(httpx2.AsyncBaseTransport):
    """The way to a remote that numbers the updates of its tasks, and not the events of its streams. Some of these get
    lost, and it may refuse to show its card to clients of 1.1."""

    def __init__(self, lost: frozenset[int] = frozenset(), *, strict: bool = False) -> None:
        self._transport = plain_transport()
        self._lost = lost
        self._strict = strict
        self.polls = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        self.polls += b"currentGeneration" in content or b"currentGeneration" in request.url.query
        if request.url.path.endswith(".json"):
            if self._strict and request.headers["A2A-Version"] == "1.1":
                return httpx2.Response(400, request=request)
            reply = await self._transport.handle_async_request(request)
            card = (await reply.aread()).replace(RESUMABLE, b"urn:none")
            return httpx2.Response(reply.status_code, content=card, request=request)
        reply = await self._transport.handle_async_request(request)
        if "text/event-stream" in reply.headers.get("content-type", ""):
            reply.stream = _Lossy(reply.stream, self._lost)
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self


class _Lossy(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, lost: frozenset[int]) -> None:
        self._stream = stream
        self._lost = lost

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._stream:
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                numbers = (b'"generation":%d}' % number for number in self._lost)
                if b'Update":' not in event or not any(number in event for number in numbers):
                    yield event + b"\n\n"
        yield rest

    async def aclose(self) -> None:
        await self._stream.aclose()


def through(outside: Outside, url: str, **options: Any) -> RemoteDriver:
    return RemoteDriver(blank_remote("teller"), RemoteOptions(url, **options), OutboundConnections(lambda: outside))


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("lost", [{5}, {4, 6}, {3, 4, 5, 6}], ids=str)
async def test_updates_that_got_lost_on_the_way_are_made_up_for(tmp_path: Path, binding: Any, lost: set[int]) -> None:
    async with serving(tmp_path / "back", [teller]) as back, Outside(frozenset(lost)) as outside:
        driver = through(outside, back.agent("teller"), bindings=(binding,))
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("teller")) as client:
            task = await send(client, "go")
            assert (state(task), words(task), texts(task)) == ("input_required", "More?", WORDS)
            task = await send(client, "on", task=task["id"])
            assert (state(task), words(task)) == ("completed", "Bye.")


async def test_a_remote_that_is_asked_as_one_of_1_0_numbers_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "back", [teller]) as back, Outside() as outside:
        for version, numbered in (("1.0", False), (None, True)):
            peer = await through(outside, back.agent("teller"), version=version).peer()
            async with Client(back.agent("teller")) as client:
                task = (await client.send("go"))["task"]["id"]
            assert bool((await peer.get(task)).generation) is numbered


async def test_a_server_that_refuses_cards_to_clients_of_1_1_is_asked_as_one_of_1_0(tmp_path: Path) -> None:
    async with serving(tmp_path / "back", [teller]) as back, Outside(strict=True) as outside:
        driver = through(outside, back.agent("teller"))
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("teller")) as client:
            assert texts(await send(client, "go")) == WORDS


async def test_every_binding_passes_on_the_same_generations(tmp_path: Path) -> None:
    async with serving(tmp_path, [teller], grpc_port=0) as back:
        for binding in BINDINGS:
            peer = await remote("teller", back.agent("teller"), bindings=(binding,)).peer()
            asked = Message(new_id(), (text_part("go"),))
            steps = [step async for step in peer.send(asked, None, None, new_id(), hops=1)]
            numbers = [step.generation for step in steps]
            assert numbers == list(range(1, len(steps) + 1)), binding
            task = steps[0].heard
            assert isinstance(task, RemoteTask)
            assert task.generation == 1
            assert (await peer.get(task.task)).generation == numbers[-1]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_without_streaming_is_followed_by_long_polls(tmp_path: Path, binding: Any) -> None:
    opened = asyncio.Event()

    @agent("gate", streaming=False)
    async def gate(turn: Turn):
        yield Status("waiting")
        await opened.wait()
        yield Done("open")

    async with serving(tmp_path / "back", [gate], grpc_port=0) as back:
        driver = remote("gate", back.agent("gate"), bindings=(binding,))
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("gate"), version="1.1") as client:
            task = (await client.send("go", configuration={"returnImmediately": True}))["task"]
            # Only a long poll follows a task of an agent that does not stream.
            await until(lambda: back.exchange.streams.followers == 1)
            before = await client.get(task["id"])
            opened.set()
            after = await client.poll(task["id"], before["generation"])
            assert (state(after), words(after)) == ("completed", "open")


async def test_a_long_poll_that_ends_without_a_change_is_repeated(tmp_path: Path) -> None:
    opened = asyncio.Event()

    @agent("teller", streaming=False)
    async def slow(turn: Turn):
        await opened.wait()
        yield Done("open")

    async with serving(tmp_path / "back", [slow], long_poll_s=0.1) as back, Outside() as outside:
        driver = through(outside, back.agent("teller"))
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("teller")) as client:
            sent = asyncio.ensure_future(send(client, "go"))
            await until(lambda: outside.polls >= 3)
            opened.set()
            assert words(await sent) == "open"


@pytest.mark.parametrize("binding", ["HTTP+JSON", "GRPC"])
async def test_a_remote_that_holds_a_poll_for_longer_than_we_wait_is_not_lost(
    tmp_path: Path, binding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()
    held = 0

    @agent("teller", streaming=False)
    async def slow(turn: Turn):
        await opened.wait()
        yield Done("open")

    async def counted(run: Run, generation: int, limit_s: float) -> Run:
        nonlocal held
        held += 1
        return await outgrown(run, generation, limit_s)

    async with serving(tmp_path / "back", [slow], grpc_port=0) as back:
        outgrown = back.exchange.outgrown
        monkeypatch.setattr(back.exchange, "outgrown", counted)
        options: dict[str, Any] = {"bindings": (binding,), "timeout_s": 0.2, "patience_s": 0.3}
        driver = remote("teller", back.agent("teller"), **options)
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("teller")) as client:
            sent = asyncio.ensure_future(send(client, "go"))
            await until(lambda: held >= 3)
            opened.set()
            assert words(await sent) == "open"
