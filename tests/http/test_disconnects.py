"""Streams end when their client leaves, under our server and under others."""

import asyncio
from collections.abc import AsyncGenerator

import uvicorn
import uvloop
from starlette.types import Message, Receive, Scope, Send

from parley.http import sse
from parley.http.connections import GuardedConnection
from parley.http.server import Prompt, bind


class _Endless:
    """Steps that never come."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def steps(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"data: begun\n\n"
            await asyncio.Event().wait()
        finally:
            self.closed.set()


async def _written(endless: _Endless, receive: Receive, send: Send) -> None:
    steps = endless.steps()
    try:
        await sse.write(receive, send, steps, lambda step: (step, False))
    finally:
        await steps.aclose()


def test_our_server_tells_of_a_client_that_left() -> None:
    receivers: list[Receive] = []

    async def main() -> None:
        endless = _Endless()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            receivers.append(receive)
            await _written(endless, receive, send)

        with bind("127.0.0.1", 0) as listener:
            config = uvicorn.Config(app, loop="none", http=GuardedConnection, ws="none", lifespan="off")
            server = Prompt(config)
            serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            await reader.readuntil(b"data: begun")
            writer.close()
            await asyncio.wait_for(endless.closed.wait(), 5)
            server.should_exit = True
            await serving

    uvloop.run(main())
    assert hasattr(receivers[0], "on_disconnect")


async def test_another_server_is_asked_for_the_disconnect() -> None:
    endless, left = _Endless(), asyncio.Event()
    sent: list[Message] = []

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    writing = asyncio.create_task(_written(endless, receive, send))
    await asyncio.sleep(2 * sse.WATCH_AFTER_S)
    assert not endless.closed.is_set()
    left.set()
    await asyncio.wait_for(endless.closed.wait(), 5)
    await writing
    assert sent[1]["body"] == b"data: begun\n\n"
