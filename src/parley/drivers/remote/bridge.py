"""Transport that sends the A2A SDK's httpx requests through httpx2, which everything else here uses.

It also records the event numbers of streams, which the SDK does not expose.
"""

import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from typing import Any, cast

import httpcore2
import httpx
import httpx2
import msgspec

from parley.drivers.remote.connections import OutboundConnections
from parley.errors import ReplyTooLarge

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a reply, and of one event of a stream."""

Numbers = deque[int | None]
BROKEN = (
    httpx2.TransportError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException,
)  # fmt: skip
"""Errors of a broken connection. Those of httpcore come unwrapped if a stream is closed while its connection breaks."""

NUMBERS: ContextVar[Numbers | None] = ContextVar("numbers", default=None)
"""Receives the number of each event of the next stream that the current asyncio task opens."""

_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Characters that httpx treats as line ends, with their JSON escapes. In JSON they occur only inside strings, where
they can be escaped."""

_FRAMING = (b"content-length", b"transfer-encoding")


def tidy(value: Any) -> bytes:
    """Encode JSON that went through protobuf, which has only floating-point numbers and no order. Whole numbers are
    written as integers, and equal values give equal bytes, so that a send repeated after a crash is identical."""
    return msgspec.json.encode(_whole(value), order="sorted")


def _tidied(body: bytes) -> bytes:
    return tidy(msgspec.json.decode(body)) if body else body


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_whole(one) for one in cast(list[Any], value)]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


# Why: docs/decisions/drivers.md#carry-the-official-clients-requests-over-httpx2
class Bridge(httpx.AsyncBaseTransport):
    def __init__(self, outside: OutboundConnections, named: str, most: int = MAX_BYTES) -> None:
        self._outside = outside
        self._named = httpx.URL(named)
        self._most = most

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = httpx2.Request(
            request.method,
            str(request.url),
            headers=[(name, value) for name, value in request.headers.raw if name.lower() not in _FRAMING],
            content=_tidied(await request.aread()),
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        transport = self._outside.transport(named=_place(request.url) == _place(self._named))
        try:
            reply = await transport.handle_async_request(asked)
        except BROKEN as error:
            raise _translated(error) from error
        return httpx.Response(
            reply.status_code,
            headers=reply.headers.raw,
            stream=_Body(reply, NUMBERS.get(), self._most),
            request=request,
        )


def _place(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class _Body(httpx.AsyncByteStream):
    def __init__(self, reply: httpx2.Response, numbers: Numbers | None, most: int) -> None:
        self._reply = reply
        self._numbers = numbers
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = self._chunks()
        if "text/event-stream" in self._reply.headers.get("content-type", ""):
            chunks = numbered(chunks, self._numbers, self._most)
        async for chunk in chunks:
            yield chunk

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        size, stream = 0, "text/event-stream" in self._reply.headers.get("content-type", "")
        assert isinstance(self._reply.stream, httpx2.AsyncByteStream)
        try:
            async for chunk in self._reply.stream:
                size += len(chunk)
                if size > self._most and not stream:
                    raise ReplyTooLarge(f"The reply is larger than the limit of {self._most} bytes.", limit=self._most)
                yield chunk
        except BROKEN as error:
            raise _translated(error) from error

    async def aclose(self) -> None:
        await self._reply.aclose()


async def numbered(
    chunks: AsyncIterator[bytes], numbers: Numbers | None, most: int = MAX_BYTES
) -> AsyncGenerator[bytes, None]:
    """Yield whole lines as they arrive. The number of each event with data is recorded when the event is complete."""
    rest, number, data = b"", None, False
    async for chunk in chunks:
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        if len(rest) > most or any(len(line) > most for line in lines):
            raise ReplyTooLarge(f"An event of the stream is larger than the limit of {most} bytes.", limit=most)
        for line in lines:
            if line.startswith(b"id:"):
                digits = line[3:].strip()
                number = int(digits) if digits.isdigit() and len(digits) < 16 else None
            elif line.startswith(b"data:"):
                data = data or bool(line[5:].strip())
            elif not line:
                if data and numbers is not None:
                    numbers.append(number)
                number, data = None, False
        if lines:
            yield _on_one_line(b"\n".join([*lines, b""]))
    if rest:
        yield _on_one_line(rest)


def _on_one_line(text: bytes) -> bytes:
    for separator, escaped in _SEPARATORS:
        text = text.replace(separator, escaped)
    return text


def _translated(error: Exception) -> httpx.TransportError:
    kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.TransportError)
    return kind(type(error).__name__)
