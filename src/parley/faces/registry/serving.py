"""What the calls of this face share: reading them, and refusing in the contract's shape, `{"error": "text"}`."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.core.nodes import NodeEvent, check_id
from parley.errors import Invalid, InvalidJson, NodeRemoved, NodeUnavailable, OutboundRefused, ParleyError
from parley.faces.http import Endpoint, Headers, answer, check_text, read_json, retry_headers
from parley.faces.refusals import status_of
from parley.faces.registry.showing import event_view
from parley.telemetry import tell

MAX_BODY = 256 * 1024
MAX_PAGE = 1000

T = TypeVar("T")
PRIVATE: Headers = [(b"cache-control", b"no-store")]


class Reply(Struct, frozen=True):
    status: int
    content: object
    headers: Headers = []


Action = Callable[[Scope, Receive], Awaitable[Reply]]


def route(method: str, path: str, action: Action) -> Route:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await action(scope, receive)
        except ParleyError as error:
            return await refuse(send, error)
        return await answer(send, reply.status, reply.content, [*PRIVATE, *reply.headers])

    return Route(path, Endpoint(handle), methods=[method])


async def refuse(send: Send, error: ParleyError) -> None:
    status, more = _status(error)
    if status == 401:
        tell("auth.refused", code=error.code)
    await answer(send, status, {"error": error.message, **more}, [*PRIVATE, *retry_headers(error)])


def _status(error: ParleyError) -> tuple[int, dict[str, object]]:
    details = error.details
    if isinstance(error, NodeRemoved):
        last = details.get("last_event")
        return 410, {"last_event": event_view(last) if isinstance(last, NodeEvent) else None}
    if isinstance(error, NodeUnavailable):
        return 503, {"status": details.get("status")}
    if isinstance(error, OutboundRefused):
        return 400, {}
    return status_of(error)[0], {"children": children} if (children := details.get("children")) else {}


async def body_of(receive: Receive, kind: type[T], limit: int = MAX_BODY) -> T:
    body = await read_json(receive, limit)
    check_text(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidJson("invalid request body") from None


def id_of(scope: Scope) -> str:
    return check_id(scope["path_params"]["id"])


def query_of(scope: Scope) -> QueryParams:
    return QueryParams(scope["query_string"])


def number_of(query: QueryParams, name: str, default: int | None = None, most: int | None = None) -> int | None:
    """A whole number of one or more; what is over the most is the most."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise Invalid(f"{name} must be a positive integer", field=name)
    return int(text) if most is None else min(int(text), most)


def page_headers(ids: list[str], limit: int) -> Headers:
    """Lists are plain arrays, so where they go on is said beside them."""
    return [(b"x-next-after", ids[-1].encode())] if len(ids) == limit else []
