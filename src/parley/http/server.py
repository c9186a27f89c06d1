"""The listening socket, a uvicorn server on it that announces its start and stops promptly, and ASGI's lifespan."""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp, Receive, Send

from parley.errors import ConfigurationError, ParleyError
from parley.http.connections import GuardedConnection
from parley.telemetry import tell

STOP_WAIT_S = 2
HANG_UP_S = 0.5
_EVERYWHERE = ("0.0.0.0", "::")
"""Addresses to listen on that clients cannot connect to."""
_LOOK_S = 0.005
ACCEPT_BATCH = 64
SHARED_BATCH = 1
"""With a listening socket that several processes share, one at a time: those that are not busy accept more."""
LEAVE_LOOK_S = 0.05
ACCEPT_PAUSE_S = 1.0
UNSENT_BYTES = 128 * 1024
"""Unsent bytes that the kernel buffers per connection. By default it would buffer megabytes for a client that does not
read, and a stream would read and render all of them in vain."""


def _is_failure(record: logging.LogRecord) -> bool:
    """Keep cancelled requests out of the log: a stop cancels requests."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


# Why: docs/decisions/http.md#stop-without-uvicorns-polling
class Prompt(uvicorn.Server):
    """Server that stops as soon as it is asked to and all requests are answered.

    uvicorn checks for a stop ten times a second and then waits another tenth of a second. Here that time would pass
    between the signal and the hand-over of running work.
    """

    def __init__(self, config: uvicorn.Config, batch: int = ACCEPT_BATCH) -> None:
        self._told_to_stop = asyncio.Event()
        self._batch = batch
        logging.getLogger("uvicorn.error").addFilter(_is_failure)
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        return self._told_to_stop.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:  # uvicorn's own attribute, which it also sets itself
        if value:
            self._told_to_stop.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # also updates the time of the Date header
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told_to_stop.wait(), 1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self.servers = [Acceptor(each, self._connection, self._batch) for each in sockets or ()]  # type: ignore[assignment]

    def _connection(self) -> asyncio.Protocol:
        config = self.config
        return config.http_protocol_class(config=config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._answered()
        except TimeoutError:
            await self._hang_up()

    async def _hang_up(self) -> None:
        """Cancel the remaining requests, then close their connections. The order matters: to a handler, a client that
        disconnects by itself can mean more, such as a cancel."""
        for task in self.server_state.tasks:
            task.cancel("The server stops.")
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_UP_S):
                await self._answered()

    async def _answered(self) -> None:
        state = self.server_state
        while (state.connections or state.tasks) and not self.force_exit:  # noqa: ASYNC110  no event for the last
            await asyncio.sleep(_LOOK_S)


class Acceptor:
    """Accepts connections in batches. uvloop accepts one per iteration of the event loop, so that new clients would
    wait when iterations are long."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], batch: int) -> None:
        self._listener = listener
        self._protocol = protocol
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._start()

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()

    def _start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(self._batch):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Most likely there are no free file descriptors; try again after a pause.
                tell("http.not_accepted", error=error)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(ACCEPT_PAUSE_S, self._start)
                return
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with suppress(OSError):
            await self._loop.connect_accepted_socket(self._protocol, connection)


class Listening(Prompt):
    """Server that calls `announce` once it listens. On a signal it first awaits `drained`, which hands over running
    work while requests are still answered, and does not raise the signal again. A second signal stops without
    waiting."""

    def __init__(
        self,
        app: ASGIApp,
        announce: Callable[[], None],
        drained: Callable[[], Awaitable[None]] | None = None,
        *,
        signals: bool = True,
        shared: bool = False,
    ) -> None:
        config = uvicorn.Config(
            app,
            loop="none",
            http=GuardedConnection,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=STOP_WAIT_S,
            server_header=False,
            proxy_headers=False,
        )
        super().__init__(config, SHARED_BATCH if shared else ACCEPT_BATCH)
        self._tell = announce
        self._drained = drained
        self._draining: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._signals = (signal.SIGTERM, signal.SIGINT) if signals else ()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for one in self._signals:
            loop.add_signal_handler(one, self._told, one)
        yield

    def stop(self) -> None:
        """Stop as on SIGTERM, unless that has begun."""
        if self._draining is None:
            self._told(signal.SIGTERM)

    def leave(self, busy: Callable[[], bool], within_s: float) -> None:
        """Stop without refusing a request, because another process accepts from the same socket: accept no more,
        answer what comes on open connections and close each, and wait at most `within_s` until nothing is `busy`."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(busy, within_s))

    async def _leave(self, busy: Callable[[], bool], within_s: float) -> None:
        for acceptor in self.servers:
            acceptor.close()
        self.config.encoded_headers.append((b"connection", b"close"))
        await self.on_tick(0)  # puts the header into the answers from now on
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while busy() or any(not _streams(one) for one in self.server_state.connections):  # noqa: ASYNC110
                    await asyncio.sleep(LEAVE_LOOK_S)
        self.stop()

    def _told(self, one: signal.Signals) -> None:
        if self._drained is None or self._draining is not None:
            return self.handle_exit(one, None)
        self._draining = asyncio.get_running_loop().create_task(self._drain(self._drained, one))
        return None

    async def _drain(self, drained: Callable[[], Awaitable[None]], one: signal.Signals) -> None:
        try:
            await drained()
        finally:
            self.handle_exit(one, None)


def _streams(connection: object) -> bool:
    """Return whether a connection is in the middle of an answer: a stream, which a stop tells to go on elsewhere."""
    cycle = getattr(connection, "cycle", None)
    return cycle is not None and cycle.response_started and not cycle.response_complete


def bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
    # Accepted connections inherit this option. asyncio sets it only on sockets that it opens itself, uvloop on all.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if unsent := getattr(socket, "TCP_NOTSENT_LOWAT", None):
        listener.setsockopt(socket.IPPROTO_TCP, unsent, UNSENT_BYTES)
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in _EVERYWHERE:
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def live(opened: AbstractAsyncContextManager[object], receive: Receive, send: Send) -> None:
    """Keep the context open from the server's start to its stop. An error of the start is reported to the server, which
    then does not start."""
    await receive()
    started = False
    try:
        async with opened:
            await send({"type": "lifespan.startup.complete"})
            started = True
            await receive()
    except ParleyError as error:
        if started:
            raise
        await send({"type": "lifespan.startup.failed", "message": error.message})
        return
    await send({"type": "lifespan.shutdown.complete"})
