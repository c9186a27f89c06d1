"""Readers that are slow, callers that must log in first, and what a task does meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.types import Message

from parley import ArtifactChunk, NeedAuth, Status, Text, Turn, agent
from parley.http import sse
from parley.testing.servers import Server, serving
from tests.faces.wires import WIRES, Wire

from .test_bindings import events

CHUNKS = 600
SIZE = 20_000


@agent("flood")
async def flood(turn: Turn):
    """Says more than any buffer on the way can hold."""
    yield Status("begin")
    for number in range(CHUNKS):
        yield ArtifactChunk(f"{number:06d}" + "x" * SIZE, id="flood", append=number > 0, last=False)


@agent("bank")
async def bank(turn: Turn):
    """Wants to know who asks before it answers."""
    if turn.number == 1:
        yield NeedAuth("Log in at the bank, then tell me.")
    else:
        yield Text(f"Thanks: {turn.text}")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", [flood, bank]) as running:
        yield running


@pytest.mark.slow
async def test_a_reader_that_stops_reading_holds_up_nobody_and_loses_nothing(server: Server) -> None:
    place = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1000)
    _, _, body = Wire("JSON-RPC 1.0").request("stream", "")
    content = json.dumps(body).encode()
    head = f"POST /agents/flood HTTP/1.1\r\nHost: {place.netloc}\r\nA2A-Version: 1.0\r\nConnection: close\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
    await reader.readuntil(b"id: 2")
    # From here on nothing is read, and the task ends all the same.
    async with httpx2.AsyncClient(base_url=server.url) as http:
        async with asyncio.timeout(30):
            state = ""
            while state != "TASK_STATE_COMPLETED":
                page = await http.get("/agents/flood/tasks?historyLength=0", headers={"A2A-Version": "1.0"})
                state = page.json()["tasks"][0]["status"]["state"]
    received = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    numbers = [int(piece[:6]) for piece in received.split(b'{"text":"')[1:] if piece[:6].isdigit()]
    shown = b"".join(received.split(b"\r\n"))
    assert numbers[0] == 0
    assert b"TASK_STATE_COMPLETED" in shown
    for number in range(CHUNKS):
        assert b"%06dxxx" % number in shown


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_task_waits_until_its_caller_has_logged_in(server: Server, wire: Wire) -> None:
    at = Wire(wire.name, "/agents/bank")
    async with httpx2.AsyncClient(base_url=server.url) as http:
        frames = [frame.get("result", frame) for _, frame in events(await at.ask(http, "stream"))]
        last = frames[-1].get("statusUpdate", frames[-1])
        assert last["status"]["state"] in ("TASK_STATE_AUTH_REQUIRED", "auth-required")
        assert "Log in" in json.dumps(last["status"]["message"])
        done = at.result(await at.ask(http, "send", last["taskId"], text="done"))
        assert "Thanks: done" in json.dumps(done)


@agent("thinker")
async def thinker(turn: Turn):
    """Takes its time, and may fail after it."""
    await asyncio.sleep(0.2)
    yield Text("At last.")


@pytest.mark.parametrize("wire", [WIRES[0], WIRES[2]], ids=lambda wire: wire.name)
async def test_a_blocking_send_is_kept_alive_by_spaces(
    tmp_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.03)
    at = Wire(wire.name, "/agents/thinker")
    async with serving(tmp_path / "data", [thinker]) as server, httpx2.AsyncClient(base_url=server.url) as http:
        reply = await at.ask(http, "send")
        assert reply.text.startswith("   ")
        assert "At last." in json.dumps(reply.json()["result"])
        assert reply.headers["content-type"] == "application/json"
        quick = await at.ask(http, "get", "nope")
        assert quick.text.startswith("{")


async def test_an_answer_that_comes_just_when_the_waiting_becomes_long_is_a_whole_one() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    patient = sse.KeepAlive(send)
    patient.start()
    await patient.answer(404, b"{}")
    assert [(message["type"], message.get("status")) for message in sent] == [
        ("http.response.start", 404), ("http.response.body", None),
    ]  # fmt: skip
