"""Limits on answers of other servers: no compressed bodies, and no more bytes than the caller accepts.

A compressed body of some kilobytes can expand to gigabytes. Requests therefore ask for `identity`, and an answer that
is compressed all the same is refused before it is decompressed.
"""

import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import httpx2

from parley.errors import ReplyCompressed, ReplyTooLarge

# Trusted certificates for TLS.


@cache
def certificates() -> ssl.SSLContext:
    """Return the TLS context of all our clients. It is loaded once, since that takes longer than everything else about
    a client."""
    return httpx2.create_ssl_context()


MAX_BYTES = 64 * 1024 * 1024
"""Largest answer, and largest event of a stream."""
PLAIN = {"Accept-Encoding": "identity"}

_WITHOUT_BODY = (204, 304)
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")
_KEPT = max(map(len, _BLANK_LINES)) - 1


def check_encoding(response: httpx2.Response) -> None:
    """Raise ReplyCompressed if the body is compressed."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity") and response.status_code not in _WITHOUT_BODY:
        raise ReplyCompressed("The answer is compressed, but compression was not requested.")


def limit(response: httpx2.Response, most: int = MAX_BYTES) -> None:
    """Refuse a compressed body now, and a body of more than `most` bytes while it is read.

    An event stream may have any length: there the limit applies to each event.
    """
    check_encoding(response)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    streams = "text/event-stream" in response.headers.get("content-type", "")
    response.stream = _Limited(response.stream, most, by_event=streams)


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, most: int, *, by_event: bool) -> None:
        self._body = body
        self._most = most
        self._by_event = by_event

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, end = 0, b""
        async for chunk in self._body:
            size += len(chunk)
            if self._by_event:
                size = _unfinished(end + chunk, size)
                end = (end + chunk)[-_KEPT:]
            if size > self._most:
                what = "An event of the stream" if self._by_event else "The answer"
                raise ReplyTooLarge(f"{what} is larger than {self._most} bytes.", limit=self._most)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def _unfinished(data: bytes, size: int) -> int:
    """Return the size of the unfinished event at the end of `data`: the bytes after the last blank line, or `size` if
    there is none."""
    ends = [found + len(line) for line in _BLANK_LINES if (found := data.rfind(line)) >= 0]
    return len(data) - max(ends) if ends else size


class LimitedTransport(httpx2.AsyncBaseTransport):
    """Requests uncompressed answers and applies the limits, for any client that uses it."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, most: int | None = None) -> None:
        """`most`: None leaves the size limit to the caller."""
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = PLAIN["Accept-Encoding"]
        response = await self._inner.handle_async_request(request)
        try:
            if self._most is None:
                check_encoding(response)
            else:
                limit(response, self._most)
        except ReplyTooLarge:
            await response.aclose()
            raise
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def open_client(most: int = MAX_BYTES, **options: Any) -> httpx2.AsyncClient:
    """Open a client with these limits and other `options`. Limits are applied by a hook and not by a transport, because
    a client with its own transport ignores the proxies of the environment."""

    async def check(response: httpx2.Response) -> None:
        limit(response, most)

    headers = {**PLAIN, **options.pop("headers", {})}
    hooks = {"response": [check]}
    return httpx2.AsyncClient(verify=certificates(), headers=headers, event_hooks=hooks, **options)
