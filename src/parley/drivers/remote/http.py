"""HTTP requests to a remote agent, over the connections that all remote agents share, and the errors of its replies."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import httpcore2
import httpx2
import msgspec

from parley.drivers.remote.connections import OutboundConnections
from parley.drivers.remote.options import RemoteOptions
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused
from parley.errors import ParleyError
from parley.security.outbound import MAX_BYTES, limit

CONNECT_S = 5.0
TRANSIENT = frozenset((408, 425, 429, 502, 503, 504))
_BROKEN = (httpx2.TransportError, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException)
"""Errors of a broken connection. Those of httpcore come unwrapped if a stream is closed while its connection breaks."""
_UNSENT = frozenset(("ConnectError", "ConnectTimeout", "PoolTimeout"))
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_BLANK = {"User-Agent": "parley", "Accept": "*/*"}

T = TypeVar("T")

_parsed = lru_cache(256)(httpx2.URL)
"""Parses a URL. Most requests go to the same few."""


class RemoteHttp:
    """Requests to one remote agent. A place that its definition does not name passes the guard."""

    def __init__(self, outside: OutboundConnections, options: RemoteOptions, most: int = MAX_BYTES) -> None:
        """`most` is the maximum size of a reply, and of one event of a stream."""
        self._outside = outside
        self._named = httpx2.URL(options.url)
        self._most = most
        self._extensions = {"timeout": httpx2.Timeout(options.timeout_s, connect=CONNECT_S).as_dict()}

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        """Return the reply as soon as its headers are there. Read or close it in any case."""
        try:
            place = _parsed(url)
            named = (place.scheme, place.host, place.port) == (self._named.scheme, self._named.host, self._named.port)
            request = httpx2.Request(
                method, place, headers={**_BLANK, **headers}, content=content, extensions=self._extensions
            )
            reply = await self._outside.transport(named=named).handle_async_request(request)
        except Exception as error:
            raise translated(error) from error
        limit(reply, self._most)
        return reply

    async def content(self, reply: httpx2.Response) -> bytes:
        """Read a reply to its end, so that its connection can be used again."""
        try:
            return b"".join([chunk async for chunk in chunks_of(reply)])
        except Exception as error:
            raise translated(error) from error
        finally:
            await reply.aclose()

    async def close(self, reply: httpx2.Response, chunks: AsyncIterator[bytes], *, ended: bool) -> None:
        """Close a stream. `ended`: the event that ends it was read. What is left is then read in the background, so
        that the connection can be used again."""
        if ended:
            self._outside.read_rest(reply, chunks)
        else:
            await reply.aclose()


def chunks_of(reply: httpx2.Response) -> AsyncIterator[bytes]:
    assert isinstance(reply.stream, httpx2.AsyncByteStream)
    return aiter(reply.stream)


def is_stream(reply: httpx2.Response) -> bool:
    return "text/event-stream" in reply.headers.get("content-type", "")


def readable(read: Callable[[bytes | str], T], content: bytes | str) -> T:
    """Read JSON. Raise RemoteRefused if it is not as expected."""
    try:
        # Values that are passed on undecoded are not checked by the decoder.
        return read(content if isinstance(content, str) else content.decode())
    except _UNREADABLE as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> RemoteRefused:
    return RemoteRefused("other", f"Its answer is not valid A2A ({type(error).__name__}).")


# Errors as ConnectionLost or RemoteRefused. The texts contain nothing that was sent.


def translated(error: Exception) -> Exception:
    if isinstance(error, ParleyError | ConnectionLost | RemoteRefused):
        return error
    if isinstance(error, _BROKEN):
        name = type(error).__name__
        return ConnectionLost(name, unsent=name in _UNSENT, silent=name.endswith(("Timeout", "TimeoutException")))
    return unreadable(error)


class _Fault(msgspec.Struct):
    """The error in a reply over HTTP. A2A 0.3 has its type and message beside it."""

    error: Any = None
    type: Any = None
    message: Any = None


_fault = msgspec.json.Decoder(_Fault).decode
_REASONS = {
    "TASK_NOT_FOUND": "TaskNotFoundError",
    "UNSUPPORTED_OPERATION": "UnsupportedOperationError",
}


def status_refused(status: int, content: bytes, *, reasons: bool) -> Exception:
    """Return the error for an HTTP status. `reasons`: the binding names the error of A2A in its content."""
    try:
        fault = _fault(content)
    except _UNREADABLE:
        fault = _Fault()
    words = _text(fault.error, "message") or (fault.message if isinstance(fault.message, str) else "")
    if reasons and (refused := _reasoned(_reason(fault.error) or fault.type, words)) is not None:
        return refused
    if status in (401, 403):
        return RemoteRefused("credentials", f"It refused our credentials (HTTP {status}).")
    if status in TRANSIENT:
        return ConnectionLost(f"HTTP {status}", unsent=status in (429, 503))
    return RemoteRefused("unknown" if status in (404, 405, 501) else "other", words or f"HTTP {status}.")


def event_refused(error: object) -> RemoteRefused:
    """Return the error for an event of a stream over HTTP+JSON."""
    words = _text(error, "message")
    return _reasoned(_reason(error), words) or RemoteRefused("other", words or "Its stream reported an error.")


def rpc_refused(error: object) -> RemoteRefused:
    """Return the error for the error object of a JSON-RPC response."""
    words = _text(error, "message")
    match code := _members(error).get("code"):
        case -32001:
            return RemoteRefused("not_found", "It does not know the task.")
        case -32004:
            return RemoteRefused("over", words or "This operation is not supported")
        case -32601:
            return RemoteRefused("unknown", "It does not support the operation.")
        case _:
            return RemoteRefused("other", words or f"JSON-RPC error {code}")


def _reasoned(reason: object, words: str) -> RemoteRefused | None:
    match _REASONS.get(reason, reason) if isinstance(reason, str) else None:
        case "TaskNotFoundError":
            return RemoteRefused("not_found", "It does not know the task.")
        case "UnsupportedOperationError":
            return RemoteRefused("over", words or "This operation is not supported")
        case _:
            return None


def _reason(error: object) -> object:
    """Return the reason in the first ErrorInfo of an error of `google.rpc.Status`."""
    details = _members(error).get("details")
    for one in cast(list[object], details) if isinstance(details, list) else ():
        if str(_members(one).get("@type", "")).endswith("google.rpc.ErrorInfo"):
            return _members(one).get("reason")
    return None


def _text(error: object, name: str) -> str:
    found = _members(error).get(name)
    return found if isinstance(found, str) else ""


def _members(value: object) -> dict[str, object]:
    return cast(dict[str, object], value) if isinstance(value, dict) else {}
