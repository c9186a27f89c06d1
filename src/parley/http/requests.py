"""Functions that all HTTP faces share: read a body within its limit, send JSON, parse headers and page tokens."""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from parley.errors import Invalid, InvalidJson, ParleyError, PayloadTooLarge
from parley.ids import is_id
from parley.json_values import check_depth
from parley.runs.rules.state import Run

MAX_BODY = 10 * 1024 * 1024
SMALL_BODY = 64 * 1024
"""Bodies up to this size are checked on the event loop, larger ones in a thread."""
MAX_PAGE = 100

Headers = list[tuple[bytes, bytes]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


class ClientGone(Exception):
    """The client closed the connection before its request was complete, so there is no one to answer."""


class Endpoint:
    """Wraps a plain ASGI function so that Starlette's router accepts it as an application."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._handler(scope, receive, send)


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name; built once per request."""
    found: dict[bytes, bytes] | None = scope.get("parley.headers")
    if found is None:
        found = scope["parley.headers"] = dict(scope["headers"])
    return found


def header(scope: Scope, name: bytes) -> str | None:
    value = headers_of(scope).get(name)
    return None if value is None else value.decode("latin-1").strip()


def asked_version(scope: Scope) -> str:
    """Return `A2A-Version` from the header or else the query, without its patch number; empty when there is none."""
    asked = header(scope, b"a2a-version")
    if asked == "1.0":
        return asked
    if asked is None and scope.get("query_string"):
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("A2A-Version", [""])[0].strip()
    return ".".join((asked or "").split(".")[:2])


def is_json(scope: Scope) -> bool:
    """Return True if the content type is JSON, or if the request has none."""
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
            raise PayloadTooLarge(f"The request exceeds the limit of {limit} bytes.", limit=limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            # Joined only here, so that each piece is copied once, however many there are.
            return b"".join(pieces)


async def read_json(receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Read a body, check its size and nesting depth, and return it undecoded."""
    body = await read_body(receive, limit)
    if len(body) <= SMALL_BODY:
        check_depth(body)
    else:
        await asyncio.to_thread(check_depth, body)
    return body


def check_text(body: bytes) -> None:
    """Check that a body is UTF-8. The JSON parser does not check values that are passed on undecoded."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson("The request is not UTF-8.", position=error.start) from None


def retry_headers(error: ParleyError) -> Headers:
    """Return the `Retry-After` header of an error that has a delay."""
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
                (b"content-type", media),
                (b"content-length", b"%d" % len(body)),
                *(headers or ()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


# A page token is the place after which the next page of runs starts: a run and the time of its status on this page.


def page_token(runs: list[Run], size: int) -> str:
    """Return the token of the page after these runs; empty when there is none."""
    if len(runs) < size or not runs:
        return ""
    return place_token((runs[-1].status_at, runs[-1].id))


def place_token(place: tuple[int, str] | None) -> str:
    """Encode a place as a token that `page_cursor` reads; empty for no place."""
    return urlsafe_b64encode(f"{place[0]}:{place[1]}".encode()).decode().rstrip("=") if place else ""


def page_cursor(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        at, _, run = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode().partition(":")
        if not 0 <= int(at) < 2**63 or not is_id(run):
            raise ValueError
        return int(at), run
    except ValueError:
        raise Invalid("pageToken is invalid: use the one from the previous page.", field="pageToken") from None


def page_size(size: int | None) -> int:
    if size is None:
        return 50
    if not 1 <= size <= MAX_PAGE:
        raise Invalid(f"pageSize must be between 1 and {MAX_PAGE}.", field="pageSize")
    return size


def time_ms(text: str, field: str) -> int:
    """Convert an ISO 8601 time to Unix milliseconds; without an offset it counts as UTC."""
    try:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(f"{field} must be an ISO 8601 time.", field=field) from None
