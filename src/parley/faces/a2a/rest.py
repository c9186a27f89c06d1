"""The HTTP+JSON binding of A2A: 1.0 at the agent's address, 0.3 under its `/v1`."""

from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from parley.errors import (
    Invalid,
    InvalidJson,
    MediaTypeNotSupported,
    MethodNotAllowed,
    ParleyError,
    UnknownMethod,
    VersionNotSupported,
)
from parley.faces.a2a.dialect import STREAMING, Dialect, Operation, convert, encode, read
from parley.faces.a2a.faults import Fault, details_of, fault_of
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.serving import call_of, open_stream, perform, refusal_headers, version_of, write_stream
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v03rest import V03Rest
from parley.faces.a2a.v1 import V1
from parley.faces.http import MAX_BODY, answer, check_text, header, is_json, read_json

_NEW, _OLD, _OLD_PYTHON, _FLAT = V1(), V03Rest(), V03Rest(twice=True), V03()
A2A_JSON = b"application/a2a+json"
JSON = b"application/json"
_HOOKS = "pushNotificationConfigs"


class Route(Struct, frozen=True):
    """What a path and a method ask for, and what the path says about it."""

    operation: Operation
    given: dict[str, object] = {}


class _CancelBody(Struct, frozen=True):
    metadata: dict[str, object] | None = None
    tenant: str | None = None


class Rest:
    def __init__(self, operations: Operations, max_body: int = MAX_BODY) -> None:
        self._operations = operations
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`path_params`: the agent's `slug`, and the `rest` of the path behind its address."""
        media, place = _media(scope), scope["path_params"]
        failure = partial(_failure, old=_is_old(place["rest"].split("/")))
        try:
            call = call_of(scope, place["slug"])
            dialect, route = _routed(scope, place["rest"])
            params = await self._params(scope, receive, dialect, route)
            if route.operation in STREAMING:
                stream = await open_stream(self._operations, dialect, route.operation, call, params)
                return await write_stream(receive, send, stream, dialect, (b"", b""), lambda error: failure(error)[1])
            result = await perform(self._operations, dialect, route.operation, call, params)
        except ParleyError as error:
            self._operations.refused(error)
            status, body = failure(error)
            allow = error.details.get("allow")
            headers = [(b"allow", str(allow).encode())] if allow else refusal_headers(error, scope)
            return await answer(send, status, body, headers)
        return await answer(send, 200, encode({} if result is None else result), media=media)

    async def _params(self, scope: Scope, receive: Receive, dialect: Dialect, route: Route) -> Any:
        kind = dialect.params[route.operation]
        body = await read_json(receive, self._max_body)
        if scope["method"] == "POST" and body:
            if not is_json(scope):
                raise MediaTypeNotSupported("A request is application/a2a+json or application/json.")
            check_text(body)
        if route.operation in ("send", "stream"):
            return read(kind, _json(body))
        if route.operation == "set_hook":
            return replace(read(kind, _json(body)), task_id=route.given["taskId"])
        if route.operation == "fork":
            return replace(read(kind, _json(body or b"{}")), id=route.given["id"])
        if route.operation == "cancel" and body:
            return convert(kind, {**_members(body), **route.given})
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=False))
        return convert(kind, {**query, **route.given})


def _routed(scope: Scope, path: str) -> tuple[Dialect, Route]:
    version, method = version_of(scope), scope["method"]
    steps = path.strip("/").split("/")
    if _is_old(steps):
        # Nothing else tells the Python clients of 0.3 from others, which write bytes as the schema says.
        python = (header(scope, b"user-agent") or "").startswith("python-httpx/")
        return _OLD_PYTHON if python else _OLD, _old_route(method, steps[1:])
    route = _route(method, steps)
    if version == "1.0":
        return _NEW, route
    if route.operation == "get" and header(scope, b"a2a-version") is None:
        # Some clients of 0.3 read a task at this path, and expect it as JSON-RPC writes it.
        return _FLAT, route
    raise VersionNotSupported(f"{path} is served in A2A 1.0: send the header A2A-Version: 1.0.")


def _is_old(steps: list[str]) -> bool:
    return steps[0] == "v1"


def _old_route(method: str, steps: list[str]) -> Route:
    if steps == ["card"]:
        return _allowed(method, GET=Route("card"))
    route = _route(method, steps)
    if route.operation in ("card", "list", "fork"):
        raise UnknownMethod("There is no such operation in A2A 0.3.")
    return route


def _route(method: str, steps: list[str]) -> Route:
    match steps:
        case [""]:
            raise MethodNotAllowed("An agent's address takes JSON-RPC by POST.", allow="POST")
        case ["message:send"]:
            return _allowed(method, POST=Route("send"))
        case ["message:stream"]:
            return _allowed(method, POST=Route("stream"))
        case ["tasks"]:
            return _allowed(method, GET=Route("list"))
        case ["extendedAgentCard"]:
            return _allowed(method, GET=Route("card"))
        case ["tasks", name]:
            return _task_route(method, name)
        case ["tasks", task, hooks] if hooks == _HOOKS:
            given: dict[str, object] = {"taskId": task}
            return _allowed(method, GET=Route("list_hooks", given), POST=Route("set_hook", given))
        case ["tasks", task, hooks, hook] if hooks == _HOOKS:
            given = {"taskId": task, "id": hook}
            return _allowed(method, GET=Route("get_hook", given), DELETE=Route("delete_hook", given))
        case _:
            raise UnknownMethod(f"There is no operation at {'/'.join(steps)[:80]!r}.")


def _task_route(method: str, name: str) -> Route:
    task, colon, verb = name.rpartition(":")
    if colon and verb == "cancel":
        return _allowed(method, POST=Route("cancel", {"id": task}))
    if colon and verb == "fork":
        return _allowed(method, POST=Route("fork", {"id": task}))
    if colon and verb == "subscribe":
        return _allowed(method, GET=Route("subscribe", {"id": task}), POST=Route("subscribe", {"id": task}))
    return _allowed(method, GET=Route("get", {"id": name}))


def _allowed(method: str, **routes: Route) -> Route:
    if method not in routes:
        allow = ", ".join(routes)
        raise MethodNotAllowed(f"This path takes {allow}, not {method[:20]}.", allow=allow)
    return routes[method]


def _json(body: bytes) -> bytes:
    if not body:
        raise Invalid("The request needs a body.", field="body")
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise InvalidJson(f"The request is not JSON: {error}") from None
    except RecursionError:
        raise Invalid("The request is nested too deep.", field="body") from None
    return body


def _members(body: bytes) -> dict[str, object]:
    """Those of a cancel; `null` has none (the official Go client sends it)."""
    members = _CancelBody() if body.strip() == b"null" else read(_CancelBody, _json(body))
    return {"metadata": members.metadata, "tenant": members.tenant}


def _media(scope: Scope) -> bytes:
    """As the client wrote, or as it asks to be written to; A2A's own type when it says neither."""
    for name in (b"content-type", b"accept"):
        value = header(scope, name) or ""
        if "application/a2a+json" in value:
            return A2A_JSON
        if "application/json" in value:
            return JSON
    return A2A_JSON


def _failure(error: ParleyError, *, old: bool) -> tuple[int, bytes]:
    fault = fault_of(error)
    body: dict[str, object] = {
        "error": {
            "code": fault.http,
            "status": fault.status,
            "message": error.message,
            "details": details_of(error, fault),
        }
    }
    if old:
        # 0.3 leaves open how an error looks: some clients read its JSON-RPC code, some the name of its type.
        body |= {"code": fault.rpc, "message": error.message, "type": _type_name(fault)}
    return fault.http, encode(body)


def _type_name(fault: Fault) -> str | None:
    return "".join(word.capitalize() for word in fault.reason.split("_")) + "Error" if fault.reason else None
