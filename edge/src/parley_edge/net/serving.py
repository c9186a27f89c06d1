"""HTTP/1.1 server for an adapter: one request per connection. Closing the connection cancels the work."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import h11

from parley_edge.json_values import Json, encoded
from parley_edge.net.http import LINES, MAX_BODY

_CHUNK = 64 * 1024
_REQUEST_S = 30.0
_CLOSE = ("Connection", "close")


class _Unreadable(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """One request and its answer: a JSON object, optionally after lines of progress."""

    def __init__(self, http: h11.Connection, writer: asyncio.StreamWriter, request: Request) -> None:
        self._http = http
        self._writer = writer
        self._begun = False
        self.request = request
        self.address = str(writer.get_extra_info("sockname")[0])
        """Local address of the connection."""

    def line(self, said: Json) -> None:
        """Send progress, if the client accepts it."""
        if LINES not in self.request.headers.get("accept", "") or self._http.our_state is h11.DONE:
            return
        if not self._begun:
            self._begun = True
            self._send(h11.Response(status_code=200, headers=[("Content-Type", LINES), _CLOSE]))
        self._send(h11.Data(data=encoded(said) + b"\n"))

    async def answer(self, said: Json, status: int = 200) -> None:
        body = encoded(said)
        if not self._begun:
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), _CLOSE]
            self._send(h11.Response(status_code=status, headers=headers))
        self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        await self._writer.drain()

    def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")


Handle = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handle, host: str, port: int) -> AsyncGenerator[int, None]:
    """Serve for the duration of the block; yields the port. At the end, running requests are canceled."""
    under_way: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(_serve(handle, reader, writer))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    server = await asyncio.start_server(accept, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _serve(handle: Handle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    http = h11.Connection(h11.SERVER)
    try:
        with suppress(OSError, TimeoutError, h11.LocalProtocolError):
            await _exchange(handle, http, reader, writer)
            writer.write_eof()
    finally:
        writer.close()


async def _exchange(
    handle: Handle, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(_REQUEST_S):
            request = await _read(http, reader, writer)
    except _Unreadable as error:
        nothing = Request("", "", {}, b"")
        await Exchange(http, writer, nothing).answer({"success": False, "error": str(error)}, error.status)
        return
    if request is not None:
        await _unless_hung_up(handle(Exchange(http, writer, request)), reader)


async def _unless_hung_up(handling: Awaitable[None], reader: asyncio.StreamReader) -> None:
    """Cancel the work if the client closes the connection."""
    work = asyncio.ensure_future(handling)
    hung_up = asyncio.ensure_future(_end_of(reader))
    try:
        await asyncio.wait((work, hung_up), return_when=asyncio.FIRST_COMPLETED)
    finally:
        hung_up.cancel()
        if not work.done():
            work.cancel()
        await asyncio.wait((work,))
    if not work.cancelled():
        work.result()


async def _end_of(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(_CHUNK):
            pass


async def _read(http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """Read a request; None if the client closed without sending one, as port checks do."""
    head: h11.Request | None = None
    body = bytearray()
    try:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                if http.they_are_waiting_for_100_continue:
                    writer.write(http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                http.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY:
                    raise _Unreadable(413, f"The request is larger than {MAX_BODY} bytes.")
            else:
                return None if head is None else _request(head, bytes(body))
    except h11.RemoteProtocolError:
        raise _Unreadable(400, "The request is not HTTP.") from None


def _request(head: h11.Request, body: bytes) -> Request:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode(), head.target.decode("latin-1").partition("?")[0], headers, body)
