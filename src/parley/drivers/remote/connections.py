"""Outbound connections to other hosts, shared by all remote agents of a process."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import httpx2

from parley.drivers.remote.translation import ConnectionLost
from parley.security.outbound import LimitedTransport, certificates

# Why: docs/decisions/drivers.md#close-idle-connections-to-remote-agents-after-four-seconds
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=4.0)
"""No limit on connections, because a stream holds its connection for as long as its task lasts."""

REST_S = 2.0
REST_BYTES = 64 * 1024
"""The end of a stream, after the event that ends it, is read for this long and up to this size."""

OpenTransport = Callable[[], httpx2.AsyncBaseTransport]


def plain_transport() -> httpx2.AsyncBaseTransport:
    return httpx2.AsyncHTTPTransport(verify=certificates(), limits=LIMITS, trust_env=False)


class OutboundConnections:
    """Connections of the running event loop: plain ones to addresses in definitions, guarded ones to addresses in
    agent cards."""

    def __init__(
        self, open_transport: OpenTransport = plain_transport, open_guarded: OpenTransport | None = None
    ) -> None:
        self._open_transport = open_transport
        self._guards = [open_guarded] if open_guarded is not None else []
        """Factories of guarded transports, for addresses that no definition names. The last one is used."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: dict[bool, httpx2.AsyncBaseTransport] = {}
        self._users = 0
        self._reading: set[asyncio.Task[None]] = set()

    def transport(self, *, named: bool = True) -> httpx2.AsyncBaseTransport:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._opened, self._reading, self._loop = {}, set(), loop
        guarded = not named and bool(self._guards)
        if guarded not in self._opened:
            opens = self._guards[-1] if guarded else self._open_transport
            self._opened[guarded] = LimitedTransport(opens())
        return self._opened[guarded]

    def read_rest(self, reply: httpx2.Response, chunks: AsyncIterator[bytes]) -> None:
        """Read the end of a reply in the background, and close it. A connection can be used again only if its last
        reply was read to the end."""
        task = asyncio.get_running_loop().create_task(_read_rest(reply, chunks))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    @asynccontextmanager
    async def kept(self, open_guarded: OpenTransport | None = None) -> AsyncGenerator[None, None]:
        """Close the connections when the last block that uses them ends. `open_guarded` opens the transport to
        addresses that no definition names."""
        self._users += 1
        guards = [open_guarded] if open_guarded is not None else []
        self._guards += guards
        try:
            yield
        finally:
            for guard in guards:
                self._guards.remove(guard)
            self._users -= 1
            if self._users == 0:
                reading = list(self._reading)
                for task in reading:
                    task.cancel()
                await asyncio.gather(*reading, return_exceptions=True)
                opened, self._opened = self._opened, {}
                for transport in opened.values():
                    await transport.aclose()


async def _read_rest(reply: httpx2.Response, chunks: AsyncIterator[bytes]) -> None:
    size = 0
    try:
        # A connection that breaks now has done its work.
        with suppress(Exception):
            async with asyncio.timeout(REST_S):
                async for chunk in chunks:
                    size += len(chunk)
                    if size > REST_BYTES:
                        break
    finally:
        with suppress(Exception):
            await reply.aclose()


OUTSIDE = OutboundConnections()


# Waiting for a remote agent that cannot be reached at the moment.

_PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)


class Backoff:
    """Waits a little longer before each retry, and gives up after `seconds` without a sign of life."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._tries = 0
        self._since = time.monotonic()

    async def wait(self, lost: ConnectionLost) -> None:
        pause = _PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)] * random.uniform(0.5, 1.0)
        if time.monotonic() + pause - self._since > self._seconds:
            raise lost
        self._tries += 1
        await asyncio.sleep(pause)
