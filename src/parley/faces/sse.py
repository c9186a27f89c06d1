"""The one writer of server-sent events: raw ASGI, a comment when nothing happens, gone when the client is."""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Receive, Send

from parley.faces.http import Headers

KEEP_ALIVE_S = 3.0
"""The official client gives up after five seconds of silence."""

_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT = b": keep-alive\n\n"


def frame(id_: int, data: bytes) -> bytes:
    """`data` is one line: JSON has no bare line breaks."""
    return b"id: %d\ndata: %b\n\n" % (id_, data)


async def write(receive: Receive, send: Send, frames: AsyncIterator[bytes], headers: Headers | None = None) -> None:
    """Send frames as they come; an empty one stands for silence and becomes a comment."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *(headers or ())]})
    writer = asyncio.current_task()
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        if writer is not None:
            writer.cancel()

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        async for data in frames:
            await send({"type": "http.response.body", "body": data or _COMMENT, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except asyncio.CancelledError:
        if not left:
            raise
    finally:
        watcher.cancel()
