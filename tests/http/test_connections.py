"""The socket of a server: who is accepted, and when."""

import asyncio
import socket
from typing import ClassVar

import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from parley.http.connections import JOINED_BYTES, GuardedConnection
from parley.http.server import ACCEPT_BATCH, UNSENT_BYTES, Prompt, bind

CLIENTS = 50


class Counting(GuardedConnection):
    rounds = 0
    made: ClassVar[list[int]] = []

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.made.append(self.rounds)
        super().connection_made(transport)


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_clients_that_wait_are_accepted_together() -> None:
    assert CLIENTS < ACCEPT_BATCH

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def count() -> None:
            Counting.rounds += 1
            loop.call_soon(count)

        with bind("127.0.0.1", 0) as listener:
            clients = [socket.create_connection(listener.getsockname()) for _ in range(CLIENTS)]
            config = uvicorn.Config(_app, loop="none", http=Counting, ws="none", lifespan="off", log_level="critical")
            server = Prompt(config)
            serving = loop.create_task(server.serve(sockets=[listener]))
            count()
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 204")
            writer.close()
            for client in clients:
                client.close()
            server.should_exit = True
            await serving

    uvloop.run(main())
    assert len(Counting.made) == CLIENTS + 1
    assert Counting.made[CLIENTS - 1] - Counting.made[0] <= 2


def test_the_kernel_holds_little_for_a_client_that_does_not_read() -> None:
    with bind("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES


class Written(asyncio.Transport):
    """Records each write, which is a system call on a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.writes.append(b"closed")


async def _writes_of(app: ASGIApp, rounds: int = 5, head: bytes = b"") -> list[bytes]:
    config = uvicorn.Config(app, http=GuardedConnection, ws="none", lifespan="off", log_level="critical")
    config.load()
    connection, transport = GuardedConnection(config, ServerState(), {}), Written()
    connection.connection_made(transport)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n" + head + b"\r\n")
    for _ in range(rounds):
        await asyncio.sleep(0)
    writes = list(transport.writes)
    connection.connection_lost(None)
    return writes


async def _responded(send: Send, *pieces: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})


async def test_a_response_is_one_write() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _responded(send, b"all of it")
        await send({"type": "http.response.body", "body": b""})

    whole, *rest = await _writes_of(app)
    assert whole.startswith(b"HTTP/1.1 200 ")
    assert whole.endswith(b"\r\n\r\n9\r\nall of it\r\n")
    assert rest == [b"0\r\n\r\n"]


async def test_a_head_without_a_body_is_written_at_once() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _responded(send)
        await asyncio.Event().wait()

    (head,) = await _writes_of(app)
    assert head.endswith(b"\r\n\r\n")


async def test_a_large_body_is_not_copied_behind_its_head() -> None:
    body = bytes(JOINED_BYTES + 1)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    head, *rest = await _writes_of(app)
    assert head.endswith(b"\r\n\r\n")
    assert rest == [body]


async def test_a_response_is_written_before_its_connection_closes() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    *written, closed = await _writes_of(app, head=b"Connection: close\r\n")
    assert b"".join(written).startswith(b"HTTP/1.1 204 ")
    assert closed == b"closed"
