"""Clients that subscribe from the start of a long log and do not read: the server reads no further for them."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2 as new
from a2a.types import a2a_pb2_grpc as new_grpc

from parley import Text, Turn, agent
from parley.ids import RunId
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Event, InputRequired, Started
from parley.runs.streams import PAGE
from parley.testing.logs import LogWriter, put
from parley.testing.processes import until
from parley.testing.servers import Server, serving

from .test_grpc import address_of

EVENTS = 20_000
WORDS = "About a hundred characters of progress, as agents report it again and again while they work on it."
CLIENTS = 8
MOST_PAGES = 10
"""Pages per client: about 128 KiB in the process, 128 KiB in the kernel and what the client's kernel takes."""


@agent("echo")
async def echo(turn: Turn):
    """Says what you said."""
    yield Text(turn.text)


@agent("agent")
async def quiet(turn: Turn):
    """Owns the long log."""
    yield Text("done")


class Reads:
    """A server with one long log, and the number of pages that were read of it."""

    def __init__(self, server: Server, run: RunId) -> None:
        self.server = server
        self.run = run
        self.count = 0
        self._read = server.exchange.store.read
        server.exchange.store.read = self._counted  # type: ignore[method-assign]

    async def _counted(self, run: RunId, after: int, limit: int) -> list[Event]:
        self.count += 1
        return await self._read(run, after, limit)

    async def settle(self) -> None:
        """Return once nothing more is read. Every new connection on the way is answered."""
        quiet, seen = 0, -1
        while quiet < 20:
            async with httpx2.AsyncClient() as http:
                assert (await http.get(f"{self.server.url}/healthz")).status_code == 200
            quiet, seen = (quiet + 1 if seen == self.count else 0), self.count


@pytest.fixture
async def reads(tmp_path: Path) -> AsyncIterator[Reads]:
    async with serving(tmp_path / "data", [echo, quiet], grpc_port=0) as server:
        log = LogWriter()
        await put(server.exchange.store, log.start())
        await put(server.exchange.store, log.append(Started(1)))
        await put(server.exchange.store, log.progress(EVENTS, WORDS))
        await put(server.exchange.store, log.append(InputRequired((text_part("Which name?"),))))
        yield Reads(server, log.run_id)


def _request(server: Server, run: RunId, face: str) -> bytes:
    host = urlsplit(server.url).netloc
    if face == "REST":
        head = f"POST /agents/agent/tasks/{run}:subscribe HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\n"
        return head.encode() + b"Last-Event-ID: 0\r\nContent-Length: 0\r\n\r\n"
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": run}}
    body = json.dumps(call).encode()
    head = f"POST /agents/agent HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\nLast-Event-ID: 0\r\n"
    return head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("face", ["JSON-RPC", "REST"])
async def test_no_page_is_read_for_a_client_that_does_not_read(reads: Reads, face: str) -> None:
    place = urlsplit(reads.server.url)
    loop, clients = asyncio.get_running_loop(), list[socket.socket]()
    for _ in range(CLIENTS):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        client.setblocking(False)
        await loop.sock_connect(client, (place.hostname, place.port))
        await loop.sock_sendall(client, _request(reads.server, reads.run, face))
        assert (await loop.sock_recv(client, 12)).endswith(b"200")
        clients.append(client)
    await reads.settle()
    assert CLIENTS <= reads.count <= CLIENTS * MOST_PAGES < CLIENTS * EVENTS / PAGE
    assert reads.server.exchange.streams.followers == CLIENTS
    for client in clients:
        client.close()
    await until(lambda: not reads.server.exchange.streams.followers)


async def test_no_page_is_read_for_a_grpc_client_that_does_not_read(reads: Reads) -> None:
    async with grpc.aio.insecure_channel(await address_of(reads.server)) as channel:
        request = new.SubscribeToTaskRequest(tenant="agent", id=reads.run)
        metadata = (("a2a-version", "1.0"), ("last-event-id", "0"))
        following = new_grpc.A2AServiceStub(channel).SubscribeToTask(request, metadata=metadata)
        await following.read()
        await reads.settle()
        assert 1 <= reads.count <= MOST_PAGES
        following.cancel()


async def test_a_client_that_reads_gets_the_whole_log_while_others_hang(reads: Reads) -> None:
    place = urlsplit(reads.server.url)
    hanging = [await asyncio.open_connection(place.hostname, place.port, limit=1000) for _ in range(CLIENTS)]
    for _, writer in hanging:
        writer.write(_request(reads.server, reads.run, "JSON-RPC"))
    _, writer = reader = await asyncio.open_connection(place.hostname, place.port)
    writer.write(_request(reads.server, reads.run, "JSON-RPC"))
    seen = Counter[bytes]()
    async for line in reader[0]:
        seen[line[:4]] += 1
        if line.startswith(b"id: %d\n" % (EVENTS + 4)):
            break
    assert seen[b"id: "] >= EVENTS
    for _, each in (*hanging, reader):
        each.transport.abort()
    await until(lambda: not reads.server.exchange.streams.followers)
