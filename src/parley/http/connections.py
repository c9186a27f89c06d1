"""Limits on the time and size of an incoming request, enforced before any face sees it.

uvicorn has no such limits: a client that sends very slowly would hold its connection for ever, and a request head that
never ends would fill the memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from parley.telemetry import tell

HEAD_S = 10.0
"""Longest time for the first line and the headers, and longest silence of a new connection."""
BODY_S = 20.0
"""Longest time that a body may arrive more slowly than SLOWEST."""
SLOWEST = 1024
"""Lowest average speed of a body, in bytes per second."""
LINGER_S = 1.0
"""Longest time that a refused client may continue to send. If the connection closed at once, the client could not read
the reason."""
MAX_HEAD = 64 * 1024
MAX_HEADERS = 200

_INVALID = (b"400 Bad Request", "invalid_http", "The request is not valid HTTP/1.1.")
_SLOW = (b"408 Request Timeout", "request_timeout", "The request arrived too slowly.")
_LARGE = (
    b"431 Request Header Fields Too Large", "headers_too_large",
    f"The request line and the headers exceed the limit of {MAX_HEAD} bytes or {MAX_HEADERS} headers.",
)  # fmt: skip


JOINED_BYTES = 64 * 1024
"""Longest first piece of a body that is copied to be written together with the head."""


class _HeadTooLarge(Exception):
    """Raised inside the parser, which turns it into an error of its own."""


class _Reply:
    """Transport of one response. It writes the head together with the first piece of the body, if that follows in the
    same round of the event loop: a second write would be a second system call, and wake the client twice."""

    __slots__ = ("_begun", "_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._begun = False
        self._held = b""

    def write(self, data: bytes) -> None:
        if not self._begun:
            self._begun, self._held = True, data
            self._loop.call_soon(self._flush)
        elif self._held and len(data) <= JOINED_BYTES:
            head, self._held = self._held, b""
            self._transport.write(head + data)
        else:
            self._flush()
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._held:
            head, self._held = self._held, b""
            self._transport.write(head)


# A server may have thousands of open streams. Each object below replaces one that would hold an empty deque for every
# connection, which takes 0.7 kB.


class _Event:
    """Event that works like `asyncio.Event`."""

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        self._set = False

    async def wait(self) -> None:
        while not self._set:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters = (*(one for one in self._waiters if not one.done()), waiter)
            await waiter


class _Flow(FlowControl):
    """Flow control that makes its event when it first has to wait."""

    def __init__(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportMissingSuperCall]
        self._transport = transport
        self._writable: _Event | None = None
        self.read_paused = self.write_paused = False

    async def drain(self) -> None:
        if self._writable is not None:
            await self._writable.wait()

    def pause_writing(self) -> None:
        self.write_paused, self._writable = True, _Event()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()


class _Pipeline(list[object]):
    """Queue of the requests that arrived before the response to an earlier one was complete."""

    def appendleft(self, request: object) -> None:
        self.insert(0, request)


class _Receive:
    """`receive` of a request. It also calls back when the client has left, so that nothing needs to wait in it."""

    __slots__ = ("_connection", "_receive")

    def __init__(self, receive: Receive, connection: "GuardedConnection") -> None:
        self._receive = receive
        self._connection = connection

    def __call__(self) -> Awaitable[Message]:
        return self._receive()

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        self._connection.on_disconnect(left)


# Why: docs/decisions/http.md#refuse-slow-and-endless-requests-at-the-connection
class GuardedConnection(HttpToolsProtocol):
    """HTTP connection that enforces the limits. A timer runs only while a request is incomplete: most requests arrive
    in one piece and cost nothing."""

    # With these in the instance's dictionary too, it could not share its keys with those of other connections.
    __slots__ = ("_app", "_count", "_left", "_over", "_phase", "_received", "_refusal", "_since", "_size", "_timer")

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._phase: Literal["idle", "head", "body"] = "idle"
        self._size = self._count = self._received = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._refusal = _INVALID
        self._over = False
        self._left: Callable[[], None] | None = None
        super().__init__(config, server_state, app_state, _loop)
        self.pipeline = _Pipeline()  # type: ignore[assignment]

    @property
    def app(self) -> ASGIApp:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._handle

    @app.setter
    def app(self, app: ASGIApp) -> None:
        self._app = app

    def _handle(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._app(scope, _Receive(receive, self), send)

    def on_disconnect(self, left: Callable[[], None] | None) -> None:
        """Call `left` when the client has left, or nothing any more."""
        self._left = left
        if left is not None:
            # Without reading, it would not be noticed.
            self.flow.resume_reading()
            if self.cycle.disconnected:
                left()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._wait(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)
        self._tell_left()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        before = self._phase
        self._received += len(data)
        super().data_received(data)
        if self._phase == "head" and self._received > MAX_HEAD:
            self._refuse(_LARGE)
        if self._over:
            return
        if self._phase == "idle" and self._answering:
            self._stop()
        elif self._timer is None or self._phase != before:
            self._wait(BODY_S if self._phase == "body" else HEAD_S)

    def on_message_begin(self) -> None:
        self._phase = "head"
        self._size = self._count = self._received = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; also called for the trailers of a chunked body."""
        self._count += 1
        self._grow(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._phase, self._received, self._since = "body", 0, self.loop.time()
        super().on_headers_complete()
        if self.cycle:
            # The handler of the request starts in the next round of the event loop.
            self.cycle.transport = _Reply(self.transport, self.loop)  # type: ignore[assignment]
            self.cycle.message_event = _Event()  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        # Appending to bytes would copy the whole body again for each of many small chunks.
        cycle = self.cycle
        if cycle.body and isinstance(cycle.body, bytes):
            cycle.body = bytearray(cycle.body)  # type: ignore[assignment]
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase = "idle"
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    @property
    def _answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_HEAD or self._count > MAX_HEADERS:
            self._refusal = _LARGE
            raise _HeadTooLarge

    def _wait(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._looked)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _looked(self) -> None:
        """Refuse the request when its time is up, unless the body arrives fast enough or reading is paused."""
        self._timer = None
        if self._over:
            return self.transport.close()
        elapsed = self.loop.time() - self._since
        if self._phase == "body" and self._answering:
            if self.flow.read_paused or self._received >= SLOWEST * elapsed:
                return self._wait(BODY_S)
        elif self._phase != "head":
            # There was no request, or it was answered long ago.
            return self.transport.close()
        return self._refuse(_SLOW)

    def _refuse(self, refusal: tuple[bytes, str, str]) -> None:
        """Send the refusal and close. Send nothing into a response that has started or is for an earlier request."""
        if self.transport.is_closing():
            return
        self._over = True
        status, code, message = refusal
        tell("http.refused", code=code)
        if not self._answering or (self._phase == "body" and not self.cycle.response_started):
            body = msgspec.json.encode({"error": {"code": code, "message": message}})
            head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, len(body)) + body)
            self.transport.write_eof()
        if self._answering:
            # Signal to the handler of the request that the client will not read the response.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._tell_left()
        self._wait(LINGER_S)

    def _tell_left(self) -> None:
        if self._left is not None:
            self._left()
