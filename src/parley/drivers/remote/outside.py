"""The way out: connections to other hosts, shared by all remote agents of a process."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache

import httpx2

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
"""A stream holds its connection for as long as its task lasts."""

OpenTransport = Callable[[], httpx2.AsyncBaseTransport]


def plain_transport() -> httpx2.AsyncBaseTransport:
    return httpx2.AsyncHTTPTransport(verify=_tls(), limits=LIMITS, trust_env=False)


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes a while."""
    return httpx2.create_ssl_context()


class Outside:
    """Connections of the running loop. `open_transport` is where a guard over outbound calls belongs."""

    def __init__(self, open_transport: OpenTransport = plain_transport) -> None:
        self.open_transport = open_transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: httpx2.AsyncBaseTransport | None = None
        self._users = 0

    def transport(self) -> httpx2.AsyncBaseTransport:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._loop is not loop:
            self._transport, self._loop = self.open_transport(), loop
        return self._transport

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None, None]:
        """Close the connections when the last one who uses them is done."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and self._transport is not None:
                transport, self._transport = self._transport, None
                await transport.aclose()


OUTSIDE = Outside()
