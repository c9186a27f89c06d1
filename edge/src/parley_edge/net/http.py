"""HTTP/1.1 client on asyncio streams, for requests to the platform and the local agent.

It is our own because it is small: the program starts in half the time, and a canceled request closes its connection
at once.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import h11

from parley_edge.net.proxies import Proxies

LINES = "application/x-ndjson"
"""Media type of answers in lines: progress first, the result last."""
MAX_BODY = 10 * 1024 * 1024
CONNECT_S = 5.0
IDLE_S = 15.0
"""Maximum idle time of a reused connection; a NAT may drop it silently."""
_CHUNK = 64 * 1024
_PORTS = {"http": 80, "https": 443}


class HttpFault(Exception):
    """There is no usable answer."""


class CannotConnect(HttpFault):
    pass


class BrokenOff(HttpFault):
    """The connection ended, or the data is not HTTP."""


class TimedOut(HttpFault):
    pass


class TooLarge(HttpFault):
    pass


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of an answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Answer:
    head: Head
    body: bytes


class Connection:
    """A client connection; after a complete exchange it can be used for another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)
        self.idle_since = 0.0

    @property
    def reusable(self) -> bool:
        """True if the last exchange is complete and recent (a NAT drops idle connections silently) and not closed."""
        fresh = time.monotonic() - self.idle_since < IDLE_S
        return fresh and self._http.our_state is h11.IDLE and not (self._reader.at_eof() or self._writer.is_closing())

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Head:
        events = (
            h11.Request(method=method, target=target, headers=list(headers.items())),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        pieces = [self._http.send(event) or b"" for event in events]
        try:
            self._writer.write(b"".join(pieces))
            await self._writer.drain()
        except OSError as error:
            raise BrokenOff("The connection was closed.") from error
        return await self._head()

    async def _head(self) -> Head:
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                return Head(event.status_code, headers)
            if not isinstance(event, h11.InformationalResponse):
                raise BrokenOff("The connection was closed before the answer.")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. At its end the connection is ready for the next exchange, if it can be reused."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self.idle_since = time.monotonic()

    async def _event(self) -> h11.Event:
        try:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Event):
                    return event
                if event is h11.PAUSED:
                    raise BrokenOff("The answer does not belong to this request.")
                self._http.receive_data(await self._reader.read(_CHUNK))
        except (h11.RemoteProtocolError, OSError) as error:
            raise BrokenOff("The connection broke, or the answer is not HTTP.") from error

    def close(self) -> None:
        """Close at once, so that the other side notices."""
        self._writer.transport.abort()


# Why: docs/decisions/edge.md#speak-http-through-h11-alone
class Http:
    """HTTP client. Connections to the platform are reused (`keep`); each request to a local agent has its own."""

    def __init__(self, *, keep: bool = True, proxies: Proxies | None = None, max_body: int = MAX_BODY) -> None:
        self._keep = keep
        self._proxies = proxies
        self._max_body = max_body
        self._idle: dict[tuple[str, str], list[Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def ask(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", timeout_s: float
    ) -> Answer:
        """Send one request; return the complete answer."""
        async with self.exchange(method, url, headers=headers, body=body, timeout_s=timeout_s) as (head, chunks):
            return Answer(head, b"".join([chunk async for chunk in chunks]))

    @asynccontextmanager
    async def exchange(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", timeout_s: float
    ) -> AsyncGenerator[tuple[Head, AsyncGenerator[bytes, None]], None]:
        """Send one request; yield head and body as they arrive. Leaving the block early closes the connection."""
        parts = urlsplit(url)
        connection: Connection | None = None
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                connection, head = await self._begin(method, parts, headers, body)
                chunks = _limited(connection.chunks(), self._max_body)
                yield head, chunks
            self._put_back(parts, connection)
            connection = None
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"There was no answer within {timeout_s:g} s.") from None
        finally:
            if connection is not None:
                connection.close()

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def _begin(
        self, method: str, parts: SplitResult, headers: Mapping[str, str], body: bytes
    ) -> tuple[Connection, Head]:
        """Send the request. If a reused connection is dead, it has sent nothing, so the request uses another one."""
        target, headers = self._spoken(parts, headers, body)
        while (connection := self._taken(parts)) is not None:
            try:
                return connection, await self._send(connection, method, target, headers, body)
            except BrokenOff:
                continue
        connection = await self._open(parts)
        return connection, await self._send(connection, method, target, headers, body)

    async def _send(
        self, connection: Connection, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Head:
        try:
            return await connection.send(method, target, headers, body)
        except BaseException:
            connection.close()
            raise

    def _taken(self, parts: SplitResult) -> Connection | None:
        idle = self._idle.get((parts.scheme, parts.netloc), [])
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None

    def _put_back(self, parts: SplitResult, connection: Connection) -> None:
        if self._keep and connection.reusable:
            self._idle.setdefault((parts.scheme, parts.netloc), []).append(connection)
        else:
            connection.close()

    def _spoken(self, parts: SplitResult, headers: Mapping[str, str], body: bytes) -> tuple[str, dict[str, str]]:
        """The request target and the headers to send."""
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        always = {"Host": parts.netloc.rpartition("@")[2], "Content-Length": str(len(body))}
        # Nothing here decompresses bodies.
        always["Accept-Encoding"] = "identity"
        if not self._keep:
            always["Connection"] = "close"
        proxy = self._proxies.of(parts) if self._proxies else None
        if proxy is not None and parts.scheme == "http":
            return f"http://{always['Host']}{target}", {**always, **proxy.credentials, **headers}
        return target, {**always, **headers}

    async def _open(self, parts: SplitResult) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_S):
                return Connection(*await self._streams(parts))
        except TimeoutError:
            raise CannotConnect(f"There was no connection within {CONNECT_S:g} s.") from None
        except ssl.SSLError as error:
            raise CannotConnect(f"The secure connection failed: {error.reason or 'unknown reason'}.") from error
        except (OSError, ValueError) as error:
            raise CannotConnect(_plainly(error)) from error

    async def _streams(self, parts: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port, secure = parts.hostname or "", port_of(parts), parts.scheme == "https"
        proxy = self._proxies.of(parts) if self._proxies else None
        if proxy is None:
            return await _connected(host, port, self._context() if secure else None)
        reader, writer = await _connected(proxy.host, proxy.port, None)
        try:
            if secure:
                await proxy.tunnel(reader, writer, host, port)
                await writer.start_tls(self._context(), server_hostname=host)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def port_of(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


async def _connected(
    host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, trying all addresses of a name with a short delay in between: `localhost` often has two."""
    return await asyncio.open_connection(host, port, ssl=tls, happy_eyeballs_delay=0.25)


async def _limited(chunks: AsyncGenerator[bytes, None], limit: int) -> AsyncGenerator[bytes, None]:
    left = limit
    async for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise TooLarge(f"The answer is larger than {limit} bytes.")
        yield chunk


def _plainly(error: Exception) -> str:
    match error:
        case ConnectionRefusedError():
            return "The connection was refused: nothing listens there."
        case OSError(strerror=str(reason)) if reason:
            return f"There is no connection: {reason}."
        case _:
            return "There is no connection."
