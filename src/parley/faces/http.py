"""What every HTTP face shares: reading a body within its limit, and answering with JSON."""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from parley.core.nesting import check_depth
from parley.errors import InvalidJson, ParleyError, PayloadTooLarge

MAX_BODY = 10 * 1024 * 1024
SMALL_BODY = 64 * 1024
"""Bodies up to this size are checked on the event loop, larger ones in a thread."""

Headers = list[tuple[bytes, bytes]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


class ClientGone(Exception):
    """The peer closed the connection before its request was complete; nobody is left to answer."""


class Endpoint:
    """A plain ASGI function as something Starlette's router takes as an application."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handler(scope, receive, send)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """By name; looked through once per request, however many ask."""
    found: dict[bytes, bytes] | None = scope.get("parley.headers")
    if found is None:
        found = scope["parley.headers"] = dict(scope["headers"])
    return found


def header(scope: Scope, name: bytes) -> str | None:
    value = headers_of(scope).get(name)
    return None if value is None else value.decode("latin-1").strip()


def asked_version(scope: Scope) -> str:
    """`A2A-Version` of the header or else the query, without its patch number; empty when there is none."""
    asked = header(scope, b"a2a-version")
    if asked == "1.0":
        return asked
    if asked is None and scope.get("query_string"):
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("A2A-Version", [""])[0].strip()
    return ".".join((asked or "").split(".")[:2])


def is_json(scope: Scope) -> bool:
    """What the request says its body is; one that says nothing is taken at its word."""
    media = header(scope, b"content-type")
    if not media or media == "application/json":
        return True
    kind = media.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def read_body(receive: Receive, limit: int = MAX_BODY) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise PayloadTooLarge(f"The request is over the limit of {limit} bytes.", limit=limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            # Only now: each piece is copied once, however many there are.
            return b"".join(pieces)


async def read_json(receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Read a body within its limit that is not nested too deeply; it is decoded by the caller."""
    body = await read_body(receive, limit)
    if len(body) <= SMALL_BODY:
        check_depth(body)
    else:
        await asyncio.to_thread(check_depth, body)
    return body


def check_text(body: bytes) -> None:
    """JSON is UTF-8; the parser does not look into values it only passes on."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson("The request is not UTF-8.", position=error.start) from None


def retry_headers(error: ParleyError) -> Headers:
    """How long to wait before asking again, where an error says so."""
    wait_s = error.details.get("retry_after")
    return [(b"retry-after", b"%d" % wait_s)] if isinstance(wait_s, int) else []


async def answer(
    send: Send,
    status: int,
    content: object,
    headers: Headers | None = None,
    media: bytes = b"application/json",
) -> None:
    body = content if isinstance(content, bytes) else _encode(content)
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", media), (b"content-length", b"%d" % len(body)), *(headers or ()),
            ],
        }
    )  # fmt: skip
    await send({"type": "http.response.body", "body": body})
