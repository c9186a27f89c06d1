"""The socket of a server: who is accepted, and when."""

import asyncio
import socket
from typing import ClassVar

import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from parley.http.connections import GuardedConnection
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
