"""The way out: connections to other hosts, shared by all remote agents of a process."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2

from parley.certificates import certificates
from parley.security.replies import LimitedTransport

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
"""A stream holds its connection for as long as its task lasts."""

OpenTransport = Callable[[], httpx2.AsyncBaseTransport]


def plain_transport() -> httpx2.AsyncBaseTransport:
    return httpx2.AsyncHTTPTransport(verify=certificates(), limits=LIMITS, trust_env=False)


class Outside:
    """Connections of the running loop: to what a definition names, and, guarded, to where a card leads."""

    def __init__(
        self, open_transport: OpenTransport = plain_transport, open_guarded: OpenTransport | None = None
    ) -> None:  # fmt: skip
        self.open_transport = open_transport
        self.open_guarded = open_guarded
        """How to reach what nobody here has named."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: dict[bool, httpx2.AsyncBaseTransport] = {}
        self._users = 0

    def transport(self, *, named: bool = True) -> httpx2.AsyncBaseTransport:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._opened, self._loop = {}, loop
        guarded = not named and self.open_guarded is not None
        if guarded not in self._opened:
            opens = self.open_guarded if guarded and self.open_guarded else self.open_transport
            self._opened[guarded] = LimitedTransport(opens())
        return self._opened[guarded]

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None, None]:
        """Close the connections when the last one who uses them is done."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                opened, self._opened = self._opened, {}
                for transport in opened.values():
                    await transport.aclose()


OUTSIDE = Outside()
