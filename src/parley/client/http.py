"""HTTP calls of clients: send a request, decode its response, or open a stream of events."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import msgspec
from msgspec import Struct

from parley.client.sse import read_events
from parley.errors import ParleyError
from parley.security.outbound import limit

T = TypeVar("T")
Json = dict[str, Any]
"""A JSON object."""

RETRIES = 8
FIRST_RETRIES = 3
"""Retries before the server has answered once. Fewer than RETRIES, because it is probably not running."""
_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Unreachable(ParleyError):
    """No server answers at the address, or the connection broke too often."""

    code = "unreachable"


class _ErrorBody(Struct):
    error: Json | str


class HttpAnswer(Struct, frozen=True):
    """Response of a server to one request."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def body(self) -> Any:
        """Decoded body; None when it is not JSON."""
        return self.read(object)

    def read(self, type_: type[T]) -> T | None:
        """Decode the body as a type; None when it is not JSON of that type."""
        try:
            return msgspec.json.decode(self.content, type=type_)
        except _UNREADABLE:
            return None

    @property
    def error(self) -> Json | None:
        """Error object of the body, also if the server sent a text instead of an object; None when there is none."""
        found = self.read(_ErrorBody)
        if found is None:
            return None
        return {"message": found.error} if isinstance(found.error, str) else found.error

    @property
    def error_code(self) -> str:
        return str((self.error or {}).get("code", ""))

    @property
    def error_message(self) -> str:
        return str((self.error or {}).get("message", ""))


async def ask(
    http: httpx2.AsyncClient, method: str, url: str, *, max_bytes: int | None = None, **request: Any
) -> HttpAnswer:
    """Send a request and read the whole response, of at most `max_bytes`. Transport errors are raised as they are."""
    async with http.stream(method, url, **request) as response:
        if max_bytes is not None:
            limit(response, max_bytes)
        return await _answer(response)


@asynccontextmanager
async def open_events(
    http: httpx2.AsyncClient, method: str, url: str, refuse: Callable[[HttpAnswer], object], **request: Any
) -> AsyncGenerator[AsyncGenerator[tuple[int | None, str], None], None]:
    """Open a stream of events: the number and the data of each. `refuse` raises for a response that is no stream."""
    async with http.stream(method, url, **request) as response:
        if not response.is_success or "text/event-stream" not in response.headers.get("content-type", ""):
            refuse(await _answer(response))
        async with aclosing(read_events(response.aiter_bytes())) as events:
            yield events


@contextmanager
def reaching(
    name: str, unreachable: Callable[[str], ParleyError] = Unreachable, *also: type[Exception]
) -> Generator[None, None, None]:
    """Raise `unreachable` for transport errors within the block; `name` is the server's name in the message."""
    try:
        yield
    except (httpx2.TransportError, httpx2.InvalidURL, *also) as error:
        raise unreachable(f"{name} does not answer ({type(error).__name__}).") from error


def token_headers(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def pause_s(tries: int) -> float:
    """Return the seconds to wait after this many failed attempts in a row."""
    return min(_PAUSE_S * 2**tries, _LONGEST_PAUSE_S)


async def _answer(response: httpx2.Response) -> HttpAnswer:
    await response.aread()
    return HttpAnswer(str(response.url), response.status_code, response.headers, response.content)
