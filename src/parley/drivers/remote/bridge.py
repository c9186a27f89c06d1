"""The A2A SDK speaks through httpx, everything else here through httpx2: requests of the one go out by the other.

On their way back, events of a stream give away their numbers, which the SDK does not show.
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

from parley.drivers.remote.outside import Outside
from parley.errors import ReplyTooLarge

MAX_BYTES = 64 * 1024 * 1024
"""The largest reply, and the largest event of a stream."""

Numbers = deque[int | None]
BROKEN = (
    httpx2.TransportError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException,
)  # fmt: skip
"""A stream that is closed while it breaks lets through what lies below."""

NUMBERS: ContextVar[Numbers | None] = ContextVar("numbers", default=None)
"""Where the next stream that this task opens puts the number of each event."""

_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""httpx takes these for ends of lines. In JSON they occur within text only, where they can be written otherwise."""

_FRAMING = (b"content-length", b"transfer-encoding")


def tidy(value: Any) -> bytes:
    """JSON as it was meant. Protobuf knows only floating numbers, and no order: whole numbers are written as such, and
    equal values in equal bytes, so that a send that is repeated after a crash is the same."""
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


class Bridge(httpx.AsyncBaseTransport):
    def __init__(self, outside: Outside, named: str, most: int = MAX_BYTES) -> None:
        self._outside = outside
        self._named = httpx.URL(named)
        self._most = most

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = httpx2.Request(
            request.method, str(request.url),
            headers=[(name, value) for name, value in request.headers.raw if name.lower() not in _FRAMING],
            content=_tidied(await request.aread()),
            extensions={"timeout": request.extensions.get("timeout", {})},
        )  # fmt: skip
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
                    raise ReplyTooLarge(f"The reply is larger than {self._most} bytes.", limit=self._most)
                yield chunk
        except BROKEN as error:
            raise _translated(error) from error

    async def aclose(self) -> None:
        await self._reply.aclose()


async def numbered(
    chunks: AsyncIterator[bytes], numbers: Numbers | None, most: int = MAX_BYTES
) -> AsyncGenerator[bytes, None]:
    """Whole lines, as they come; the number of each event that holds data is put away when the event is complete."""
    rest, number, data = b"", None, False
    async for chunk in chunks:
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        if len(rest) > most or any(len(line) > most for line in lines):
            raise ReplyTooLarge(f"An event of the stream is larger than {most} bytes.", limit=most)
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
