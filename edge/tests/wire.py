"""A bare HTTP/1.1 server for tests, that can also fail as servers do: no answer, half an answer, not HTTP at all."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import h11


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the one who asked closes the connection before the answer."""


@dataclass
class Said:
    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


class Drop(Exception):
    """Close the connection instead of answering."""


class Raw(Exception):
    """Write these bytes instead of an answer, and close."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content


Answering = Callable[[Asked], Awaitable[Said]]


class Wire:
    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0
        self.connections = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Again at the same port, if it was started before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As a crash would: whoever waits for an answer gets none."""
        if self._server is not None:
            self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        try:
            with suppress(OSError, h11.ProtocolError):
                while (asked := await _read(http, reader)) is not None:
                    await self._answer(http, asked, reader, writer)
                    if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                        break
                    http.start_next_cycle()
        except Drop:
            writer.transport.abort()
        except Raw as raw:
            writer.write(raw.content)
        finally:
            writer.close()

    async def _answer(
        self, http: h11.Connection, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        watching = asyncio.create_task(_watch(http, reader, asked))
        try:
            said = await self._answering(asked)
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
        headers = {"Content-Type": said.media_type, "Content-Length": str(len(said.body)), **said.headers}
        events = [h11.Response(status_code=said.status, headers=list(headers.items())), h11.Data(data=said.body)]
        writer.write(b"".join(http.send(event) or b"" for event in (*events, h11.EndOfMessage())))
        await writer.drain()


async def _watch(http: h11.Connection, reader: asyncio.StreamReader, asked: Asked) -> None:
    with suppress(OSError):
        while more := await reader.read(65536):
            http.receive_data(more)
    asked.hung_up.set()


async def _read(http: h11.Connection, reader: asyncio.StreamReader) -> Asked | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Asked(head.method.decode(), head.target.decode(), headers, body)
        else:
            return None
