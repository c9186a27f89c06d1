"""Transports to MCP servers (a program or a URL), and limits on what a server may send."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from parley.limits import Minute
from parley.processes.programs import Program, Running, running
from parley.tools.mcp.errors import Flooded, Gone, McpError, Nonsense, OpenTransport

# A server with a URL: streamable HTTP, through the guard for all outbound requests.

CONNECT_S = 5.0
Broken = Callable[[McpError], None]
"""Called with errors that the library would not report."""


class _Body(httpx2.AsyncByteStream):
    """Limits the bytes per minute: of one answer, or of a stream that stays open."""

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
    """Limits bodies as they are read. Refuses compressed bodies, which were not requested and whose real size is
    unknown."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, most: int, broken: Broken) -> None:
        self._transport = transport
        self._most = most
        self._broken = broken

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise Nonsense("The server's answer is compressed, but compression was not requested.")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Body(response.stream, self._most, self._broken)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def reached(
    url: str, headers: Mapping[str, str], most: int, open_transport: OpenTransport, broken: Broken
) -> AsyncGenerator[TransportStreams, None]:
    """Open the streams of a session. Time limits of answers are set per call, not here."""
    client = httpx2.AsyncClient(
        transport=Measured(open_transport(), most, broken),
        headers={"accept-encoding": "identity", **headers},
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=most) as streams:
        yield streams


# Limits on what a server may send: bytes at once, and unsolicited messages.
#
# A session reads through `Bounded`; a server that exceeds the limits ends its session and not this process.

PER_MINUTE = 3_000
"""Messages that are not answers."""
_OF_INTEREST = (
    "notifications/progress", "notifications/cancelled", "notifications/tools/", "notifications/subscriptions/",
)  # fmt: skip

Item = SessionMessage | Exception


class MessageSource(Protocol):
    """Source of messages; raises anyio.EndOfStream at the end, and McpError if the server exceeds its limits."""

    async def receive(self) -> Item: ...

    async def aclose(self) -> None: ...


def wire_limit(max_output: int) -> int:
    """Return the size limit of a message. A tool's answer can be in it twice (as text and as a value), and the text
    with every quote escaped."""
    return 4 * max_output + 64 * 1024


# Why: docs/decisions/tools.md#bound-the-official-mcp-library-from-below
class Bounded:
    """Messages of one server for its session. `ended` is set when there are no more, and `fault` is the reason."""

    def __init__(self, source: MessageSource) -> None:
        self._source = source
        self._unasked = Minute()
        self.ended = asyncio.Event()
        self.fault: McpError | None = None
        self.last_context = None

    async def receive(self) -> Item:
        while True:
            # Let other tasks run: a server may send without a pause.
            await asyncio.sleep(0)
            try:
                item = await self._source.receive()
                if self._is_wanted(item):
                    self.last_context = getattr(self._source, "last_context", None)
                    return item
            except McpError as fault:
                self._end(fault)
                raise anyio.EndOfStream from None
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._end(Gone("The server ended."))
                raise

    def _is_wanted(self, item: Item) -> bool:
        if isinstance(item, Exception):
            self._count()
            return False
        message = item.message
        if isinstance(message, JSONRPCNotification):
            self._count()
            return message.method.startswith(_OF_INTEREST)
        if isinstance(message, JSONRPCRequest):
            self._count()
        return True

    def _count(self) -> None:
        if not self._unasked.admits(PER_MINUTE, int(time.monotonic() * 1000)):
            raise Flooded("The server sent too many unsolicited messages.")

    def _end(self, fault: McpError) -> None:
        if self.fault is None:
            self.fault = fault
        self.ended.set()

    async def aclose(self) -> None:
        await self._source.aclose()

    def __aiter__(self) -> "Bounded":
        return self

    async def __anext__(self) -> Item:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "Bounded":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


MAX_UNREAD = 16 * 1024 * 1024
"""Bytes kept in memory for a server that does not read."""


class Lines:
    """Reads the program's output. A line that does not begin like JSON is other output of the program, and ignored."""

    def __init__(self, program: Running, most: int) -> None:
        self._program = program
        self._most = most
        self._buffer = bytearray()
        self._looked = 0

    async def receive(self) -> Item:
        while not (line := await self._line()).startswith(b"{"):
            if line:
                return ValueError("chatter")
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            raise Nonsense("The server sent a message that is not valid MCP.") from None

    async def aclose(self) -> None:
        """Does nothing: the process is stopped by its owner."""

    async def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._looked)) < 0:
            self._looked = len(self._buffer)
            if self._looked > self._most:
                raise Flooded(f"The server's answer is longer than {self._most:,} bytes.")
            chunk = await self._program.read()
            if not chunk:
                raise anyio.EndOfStream
            self._buffer += chunk
        line = bytes(self._buffer[:end]).strip()
        del self._buffer[: end + 1]
        self._looked = 0
        return line


class StdioWriter:
    """Writes to the program's input. Never waits: there is a limit to the bytes that the program has not read."""

    def __init__(self, program: Running) -> None:
        self._program = program

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if not self._program.say(line, MAX_UNREAD):
            raise anyio.BrokenResourceError
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Does nothing: the process is stopped by its owner."""

    async def __aenter__(self) -> "StdioWriter":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def started(
    program: Program, env: Mapping[str, str], most: int
) -> AsyncGenerator[tuple[Lines, StdioWriter, Running], None]:
    """Start a program and yield its streams; raise OSError if the program does not exist."""
    async with running(program, env, None) as process:
        yield Lines(process, most), StdioWriter(process), process
