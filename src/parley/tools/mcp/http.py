"""A server that is an address: streamable HTTP, through the guard that everything outbound passes."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from parley.tools.mcp.faults import Fault, Flooded, Nonsense
from parley.tools.mcp.words import OpenTransport

CONNECT_S = 5.0
Broken = Callable[[Fault], None]
"""Told of what the library would keep to itself."""


class _Body(httpx2.AsyncByteStream):
    """Not more than so much in a minute: one answer, or what a stream that stays open says meanwhile."""

    def __init__(self, body: httpx2.AsyncByteStream, most: int, broken: Broken) -> None:
        self._body = body
        self._most = most
        self._broken = broken

    async def __aiter__(self) -> AsyncIterator[bytes]:
        since, read = time.monotonic(), 0
        async for chunk in self._body:
            if time.monotonic() - since > 60:
                since, read = time.monotonic(), 0
            read += len(chunk)
            if read > self._most:
                fault = Flooded(f"The server's answer is longer than {self._most:,} bytes.")
                self._broken(fault)
                raise fault
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class Measured(httpx2.AsyncBaseTransport):
    """Bodies are limited as they come; one that is compressed could be anything, and was not asked for."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, most: int, broken: Broken) -> None:
        self._transport = transport
        self._most = most
        self._broken = broken

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise Nonsense("The server's answer is compressed, which was not asked for.")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, self._most, self._broken)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def reached(
    url: str, headers: Mapping[str, str], most: int, open_transport: OpenTransport, broken: Broken
) -> AsyncGenerator[TransportStreams, None]:
    """The streams of a session. How long an answer may take is said for each call, not here."""
    client = httpx2.AsyncClient(
        transport=Measured(open_transport(), most, broken), headers={"accept-encoding": "identity", **headers},
        timeout=httpx2.Timeout(None, connect=CONNECT_S), follow_redirects=False, trust_env=False,
    )  # fmt: skip
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=most) as streams:
        yield streams
