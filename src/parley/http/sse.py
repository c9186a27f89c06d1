"""Writer of server-sent events for all faces: raw ASGI, keep-alive comments, stops when the client disconnects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.types import Receive, Send

from parley.errors import Stopping
from parley.http.requests import ClientGone, Headers, answer
from parley.telemetry import tell

KEEP_ALIVE_S = 3.0
"""Seconds between keep-alives. The official A2A client gives up after five seconds of silence."""

WATCH_AFTER_S = 0.1

T = TypeVar("T")
Chunk = tuple[bytes, bool]
"""Complete frames, and True if they are the last."""

EVENTS = b"text/event-stream; charset=utf-8"

_HEADERS: Headers = [
    (b"content-type", EVENTS),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b": keep-alive\n"
"""A single line without an empty line after it: parsers that remember the last id would take the empty line for an
event without data, and A2A 0.3 clients have such a parser."""

_GOODBYE = b": stopping\nretry: 500\n"
"""Asks the client to reconnect after this many milliseconds; without an empty line, for the same reason."""


_NOTHING = {"type": "http.response.body", "body": b"", "more_body": True}


def frame(id_: int, data: bytes) -> bytes:
    """Encode an event with a number as its id. `data` is one line: JSON has no bare line breaks."""
    return b"id: %d\ndata: %b\n\n" % (id_, data)


def message(data: bytes, id_: str = "") -> bytes:
    """Encode an event with a text as its id, or without an id. With an id and no data it only sets the client's
    cursor."""
    return b"id: %b\ndata: %b\n\n" % (id_.encode(), data) if id_ else b"data: %b\n\n" % data


# Why: docs/decisions/http.md#send-keep-alive-comments-without-an-empty-line
async def write(
    receive: Receive,
    send: Send,
    steps: AsyncIterator[T],
    written: Callable[[T], Chunk | Awaitable[Chunk]],
    headers: Headers | None = None,
) -> None:
    """Send steps as they come, encoded by `written`; an empty chunk stands for silence and becomes a comment."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *(headers or ())]})
    watch = DisconnectWatch(receive)
    try:
        async for step in steps:
            chunk = written(step)
            data, last = chunk if isinstance(chunk, tuple) else await chunk
            body = data or (b"" if last else _COMMENT)
            await send({"type": "http.response.body", "body": body, "more_body": not last})
            if not last:
                # uvicorn waits for a slow client before a write, not after it. This empty write waits until the client
                # has read, so that no further step is fetched before.
                await send(_NOTHING)
            # The next step may come late: keep nothing of this one.
            del step, chunk, data, body
    except asyncio.CancelledError:
        if not watch.left:
            raise
    except Stopping as error:
        # The followed run has not ended: the client reconnects with the last id, and another replica answers.
        tell("stream.broken", code=error.code)
        await send({"type": "http.response.body", "body": _GOODBYE})
    finally:
        watch.stop()


async def end(send: Send, data: bytes) -> None:
    """Send the last data of a stream that was interrupted."""
    await send({"type": "http.response.body", "body": data})


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Await work for a client; raise ClientGone, and cancel the work, when the client has disconnected."""
    watch = DisconnectWatch(receive)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.left:
            raise ClientGone from None
        raise
    finally:
        watch.stop()


class DisconnectWatch:
    """Cancels the current task when its client has disconnected. It starts late because most responses end before
    that. Our own server calls back; under another one a task waits for the disconnect."""

    def __init__(self, receive: Receive) -> None:
        self.left = False
        self._receive = receive
        self._writer = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._forget: Callable[[None], None] | None = None
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._forget is not None:
            self._forget(None)

    def _start(self) -> None:
        self._timer = None
        on_disconnect = getattr(self._receive, "on_disconnect", None)
        if on_disconnect is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())
        else:
            self._forget = on_disconnect
            on_disconnect(self._gone)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone()

    def _gone(self) -> None:
        self.left = True
        if self._writer is not None:
            self._writer.cancel()


# Keep-alive for a client that waits for one JSON response: spaces are sent first, which JSON allows.

_JSON_HEADERS = [(b"content-type", b"application/json"), (b"x-accel-buffering", b"no")]


# Why: docs/decisions/faces.md#keep-a-blocking-json-rpc-send-alive-with-spaces
class KeepAlive:
    """Keeps a connection alive while a response is being made. Costs only a timer when the response is quick.

    Create it when the waiting starts, and call `answer` when it ends. Once a space was sent, the status is 200: use it
    only for bindings that report errors in the body.
    """

    def __init__(self, send: Send, *, held: bool = False) -> None:
        """With `held`, nothing is sent before `start` is called, so that the status is still open."""
        self._send = send
        self._filling: asyncio.Task[None] | None = None
        self.begun = False
        """True once something was sent, so that the status is 200."""
        self._timer = None if held else asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self.start)

    async def answer(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        self.stop()
        if self._filling is not None:
            await asyncio.gather(self._filling, return_exceptions=True)
        if not self.begun:
            return await answer(self._send, status, body, headers)
        return await self._send({"type": "http.response.body", "body": body})

    def stop(self) -> None:
        """Stop the keep-alive without a response: the client has gone."""
        if self._timer is not None:
            self._timer.cancel()
        if self._filling is not None:
            self._filling.cancel()

    def start(self) -> None:
        """Start the response, with status 200."""
        self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": _JSON_HEADERS})
        while True:
            await self._send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.sleep(KEEP_ALIVE_S)
