"""Slow, long or malformed requests: each gets its answer, and the server keeps serving the others."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio

from parley.http import connections
from parley.testing.servers import Server, serving
from tests.permissions.house import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEND = b"POST /agents/echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = SEND + b"transfer-encoding: chunked\r\n\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("data"), [echo], max_body_bytes=2_000_000) as running:
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "BODY_S", 0.3)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def dribble(self, data: bytes, pause_s: float = 0.05) -> None:
        """One byte after the other, until somebody has enough of it."""
        try:
            for byte in data:
                self._writer.write(bytes([byte]))
                await self._writer.drain()
                await asyncio.sleep(pause_s)
        except ConnectionError:
            pass

    async def send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            pass

    async def said(self) -> bytes:
        """All until the server hangs up."""
        try:
            async with asyncio.timeout(5):
                return await self._reader.read()
        except ConnectionError:
            return b""

    async def answer(self) -> tuple[int, Any]:
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 5)
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), json.loads(await self._reader.readexactly(length))

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


@pytest_asyncio.fixture(loop_scope="module")
async def peer(server: Server) -> AsyncIterator[Peer]:
    place = urlsplit(server.url)
    peer = Peer(*await asyncio.open_connection(place.hostname, place.port))
    yield peer
    await peer.close()


async def is_well(server: Server) -> bool:
    async with httpx2.AsyncClient() as http:
        return (await http.get(f"{server.url}/healthz")).status_code == 200


async def test_a_connection_that_says_nothing_is_closed(server: Server, peer: Peer) -> None:
    assert await peer.said() == b""


async def test_line_breaks_are_nothing_too(server: Server, peer: Peer) -> None:
    dribbling = asyncio.create_task(peer.dribble(b"\r\n" * 40))
    assert await peer.said() == b""
    await dribbling


async def test_headers_that_do_not_come_to_an_end_in_time(server: Server, peer: Peer) -> None:
    dribbling = asyncio.create_task(peer.dribble(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: yes"))
    status, body = await peer.answer()
    assert (status, body["error"]["code"]) == (408, "request_timeout")
    assert await peer.said() == b""
    await dribbling


async def test_a_body_that_dribbles(server: Server, peer: Peer) -> None:
    await peer.send(SEND + b"content-length: 1000\r\n\r\n")
    dribbling = asyncio.create_task(peer.dribble(b" " * 40))
    status, body = await peer.answer()
    assert (status, body["error"]["code"]) == (408, "request_timeout")
    await dribbling
    assert await is_well(server)


async def test_a_body_that_takes_its_time_and_is_not_slow_is_read(server: Server, peer: Peer) -> None:
    await peer.send(SEND + b"content-length: 120000\r\n\r\n")
    for _ in range(12):
        await peer.send(b" " * 10_000)
        await asyncio.sleep(0.06)
    status, body = await peer.answer()
    assert (status, body["error"]["code"]) == (200, -32700)


async def test_the_second_request_of_a_connection_has_no_more_time_than_the_first(server: Server, peer: Peer) -> None:
    await peer.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await peer.answer())[0] == 200
    await peer.send(b"GET /healthz HTTP/1.1\r\nhost: loc")
    assert (await peer.answer())[0] == 408


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 300_000,
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"x-many: a\r\n" * 400,
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz?" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        CHUNKED + b"1\r\n \r\n0\r\n" + b"x-late: a\r\n" * 400,
    ],
    ids=["one long header", "many headers", "a long path", "a long query", "many headers behind the body"],
)
async def test_a_head_that_is_too_large(server: Server, peer: Peer, head: bytes) -> None:
    await peer.send(head)
    assert (await peer.said()).startswith(b"HTTP/1.1 431 ") or head.startswith(CHUNKED)
    assert await is_well(server)


async def test_a_head_within_the_limit_is_read(server: Server, peer: Peer) -> None:
    await peer.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 60_000 + b"\r\n\r\n")
    assert (await peer.answer())[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
        SEND + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        SEND + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        SEND + b"content-length: -1\r\n\r\n",
        CHUNKED + b"zz\r\n",
    ],
    ids=[
        "TLS", "version", "address", "bytes in the path", "no colon", "a zero byte", "two lengths",
        "a length and chunks", "a negative length", "a chunk of no size",
    ],
)  # fmt: skip
async def test_what_is_not_http_is_refused_and_the_connection_closed(
    server: Server, peer: Peer, request_: bytes
) -> None:
    await peer.send(request_)
    said = await peer.said()
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"invalid_http" in said
    assert await is_well(server)


async def test_a_body_in_very_many_pieces_costs_no_more_than_its_length(server: Server, peer: Peer) -> None:
    begun = time.process_time()
    await peer.send(CHUNKED + b"1\r\n \r\n" * 500_000 + b"0\r\n\r\n")
    status, _ = await peer.answer()
    assert status == 200
    assert time.process_time() - begun < 4
