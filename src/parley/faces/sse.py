"""The one writer of server-sent events: raw ASGI, a comment when nothing happens, gone when the client is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.types import Receive, Send

from parley.errors import Stopping
from parley.faces.http import Headers
from parley.telemetry import tell

KEEP_ALIVE_S = 3.0
"""The official client gives up after five seconds of silence."""

WATCH_AFTER_S = 0.1

T = TypeVar("T")
Chunk = tuple[bytes, bool]
"""Whole frames, and whether they are the last."""

EVENTS = b"text/event-stream; charset=utf-8"

_HEADERS: Headers = [
    (b"content-type", EVENTS),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b": keep-alive\n"
"""One line: an empty one behind it would be an event without data to parsers that remember the last id, and the
clients of A2A 0.3 have such a parser."""

_GOODBYE = b": stopping\nretry: 500\n"
"""When to come back, in milliseconds; without an empty line, for the same reason."""


_NOTHING = {"type": "http.response.body", "body": b"", "more_body": True}


def frame(id_: int, data: bytes) -> bytes:
    """`data` is one line: JSON has no bare line breaks."""
    return b"id: %d\ndata: %b\n\n" % (id_, data)


def message(data: bytes, id_: str = "") -> bytes:
    """The same with an id that is no number, or with none; without data it only tells where to go on from."""
    return b"id: %b\ndata: %b\n\n" % (id_.encode(), data) if id_ else b"data: %b\n\n" % data


async def write(
    receive: Receive,
    send: Send,
    steps: AsyncIterator[T],
    written: Callable[[T], Chunk | Awaitable[Chunk]],
    headers: Headers | None = None,
) -> None:
    """Send steps as they come, as `written` puts them; an empty chunk stands for silence and becomes a comment."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *(headers or ())]})
    watch = _Watch(receive)
    try:
        async for step in steps:
            chunk = written(step)
            data, last = chunk if isinstance(chunk, tuple) else await chunk
            body = data or (b"" if last else _COMMENT)
            await send({"type": "http.response.body", "body": body, "more_body": not last})
            if not last:
                # Servers wait for a slow client before they write, not after: nothing more is read until it has read.
                await send(_NOTHING)
    except asyncio.CancelledError:
        if not watch.left:
            raise
    except Stopping as error:
        # Not an end of what was followed: the client asks again with the last id, and is answered by another server.
        tell("stream.broken", code=error.code)
        await send({"type": "http.response.body", "body": _GOODBYE})
    finally:
        watch.stop()


async def end(send: Send, data: bytes) -> None:
    """The last words of a stream that broke off."""
    await send({"type": "http.response.body", "body": data})


class _Watch:
    """Ends the writer when its client has left. Most streams are over before it is worth looking."""

    def __init__(self, receive: Receive) -> None:
        self.left = False
        self._receive = receive
        self._writer = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _start(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._writer is not None:
            self._writer.cancel()
