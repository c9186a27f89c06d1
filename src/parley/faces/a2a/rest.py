"""HTTP+JSON binding of A2A: 1.x at the agent's address, 0.3 below its `/v1`."""

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
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
from parley.faces.a2a.calls import call_of, is_poll, open_stream, perform, refusal_headers, version_of, write_stream
from parley.faces.a2a.dialect import STREAMING, Dialect, Operation, convert, encode, read
from parley.faces.a2a.errors import A2AFault, details_of, fault_of
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v03rest import V03Rest
from parley.faces.a2a.v1 import V1
from parley.faces.a2a.v11 import V11
from parley.http.requests import MAX_BODY, answer, check_text, header, is_json, read_json
from parley.http.sse import while_connected

_OLD, _OLD_PYTHON, _FLAT = V03Rest(), V03Rest(twice=True), V03()
_NEW: dict[str, Dialect] = {V1.version: V1(), V11.version: V11()}
A2A_JSON = b"application/a2a+json"
JSON = b"application/json"


class RestPath(Struct, frozen=True):
    """A path below an agent's address: the operation of each method, and the params of its variable segments."""

    path: str
    operations: dict[str, Operation]
    names: Mapping[str, str] = MappingProxyType({"id": "id"})


_HOOKS = "tasks/{id}/pushNotificationConfigs"
PATHS = (
    RestPath("message:send", {"POST": "send"}),
    RestPath("message:stream", {"POST": "stream"}),
    RestPath("tasks", {"GET": "list"}),
    RestPath("extendedAgentCard", {"GET": "card"}),
    RestPath("tasks/{id}:cancel", {"POST": "cancel"}),
    RestPath("tasks/{id}:fork", {"POST": "fork"}),
    RestPath("tasks/{id}:subscribe", {"GET": "subscribe", "POST": "subscribe"}),
    RestPath("tasks/{id}", {"GET": "get"}),
    RestPath(_HOOKS, {"GET": "list_hooks", "POST": "set_hook"}, {"id": "taskId"}),
    RestPath(f"{_HOOKS}/{{config}}", {"GET": "get_hook", "DELETE": "delete_hook"}, {"id": "taskId", "config": "id"}),
)
OLD_PATHS = (*(one for one in PATHS if one.path != "extendedAgentCard"), RestPath("card", {"GET": "card"}))
_ONLY_NEW = frozenset(("list", "fork"))


class RestRequest(Struct, frozen=True):
    """Operation of a path and a method, and the params from the path."""

    operation: Operation
    given: dict[str, object]


class _CancelBody(Struct, frozen=True):
    metadata: dict[str, object] | None = None
    tenant: str | None = None


class Rest:
    def __init__(self, operations: Operations, max_body: int = MAX_BODY) -> None:
        self._operations = operations
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. `path_params` has the agent's `slug`, and the `rest` of the path below its address."""
        media, place = _media(scope), scope["path_params"]
        failure = partial(_failure, old=_is_old(place["rest"].split("/")))
        try:
            call = call_of(scope, place["slug"])
            dialect, request = _routed(scope, place["rest"])
            params = await self._params(scope, receive, dialect, request)
            if request.operation in STREAMING:
                stream = await open_stream(self._operations, dialect, request.operation, call, params)
                return await write_stream(receive, send, stream, dialect, (b"", b""), lambda error: failure(error)[1])
            work = perform(self._operations, dialect, request.operation, call, params)
            result = await (while_connected(receive, work) if is_poll(params) else work)
        except ParleyError as error:
            self._operations.refused(error)
            status, body = failure(error)
            allow = error.details.get("allow")
            headers = [(b"allow", str(allow).encode())] if allow else refusal_headers(error, scope)
            return await answer(send, status, body, headers)
        return await answer(send, 200, encode({} if result is None else result), media=media)

    async def _params(self, scope: Scope, receive: Receive, dialect: Dialect, request: RestRequest) -> Any:
        kind = dialect.params[request.operation]
        body = await read_json(receive, self._max_body)
        if scope["method"] == "POST" and body:
            if not is_json(scope):
                raise MediaTypeNotSupported("Content-Type must be application/a2a+json or application/json.")
            check_text(body)
        if request.operation in ("send", "stream"):
            return read(kind, _json(body))
        if request.operation == "set_hook":
            return replace(read(kind, _json(body)), task_id=request.given["taskId"])
        if request.operation == "fork":
            return replace(read(kind, _json(body or b"{}")), id=request.given["id"])
        if request.operation == "cancel" and body:
            return convert(kind, {**_members(body), **request.given})
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=False))
        return convert(kind, {**query, **request.given})


def _routed(scope: Scope, path: str) -> tuple[Dialect, RestRequest]:
    version, method = version_of(scope), scope["method"]
    steps = path.strip("/").split("/")
    request = _requested(method, path)
    if _is_old(steps):
        if request.operation in _ONLY_NEW:
            raise UnknownMethod("A2A 0.3 has no such operation.")
        # Python clients of 0.3 encode bytes differently from the schema; only the User-Agent distinguishes them.
        python = (header(scope, b"user-agent") or "").startswith("python-httpx/")
        return _OLD_PYTHON if python else _OLD, request
    if version in _NEW:
        return _NEW[version], request
    if request.operation == "get" and header(scope, b"a2a-version") is None:
        # Some 0.3 clients read a task at this path, and expect the format of JSON-RPC.
        return _FLAT, request
    raise VersionNotSupported(f"The path {path} requires A2A 1.0: send the header A2A-Version: 1.0.")


def _is_old(steps: list[str]) -> bool:
    return steps[0] == "v1"


def found_path(rest: str) -> tuple[RestPath, dict[str, str]] | None:
    """Find the row of the table for a path below an agent's address, and the values of its segments."""
    rest = rest.strip("/")
    old = rest.startswith("v1/")
    path = rest[3:] if old else rest
    for row, pattern in _OLD_PATTERNS if old else _PATTERNS:
        if values := pattern.fullmatch(path):
            return row, values.groupdict()
    return None


_PATTERNS, _OLD_PATTERNS = (
    [(row, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", row.path))) for row in rows] for rows in (PATHS, OLD_PATHS)
)


def _requested(method: str, rest: str) -> RestRequest:
    if not rest.strip("/"):
        raise MethodNotAllowed("The address of an agent accepts only JSON-RPC by POST.", allow="POST")
    if (found := found_path(rest)) is None:
        raise UnknownMethod(f"There is no operation at {rest.strip('/')[:80]!r}.")
    row, values = found
    if method not in row.operations:
        allow = ", ".join(row.operations)
        raise MethodNotAllowed(f"This path supports {allow}, not {method[:20]}.", allow=allow)
    return RestRequest(row.operations[method], {row.names[name]: value for name, value in values.items()})


def _json(body: bytes) -> bytes:
    if not body:
        raise Invalid("A body is required.", field="body")
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise InvalidJson(f"The request is not JSON: {error}") from None
    except RecursionError:
        raise Invalid("The request is nested too deeply.", field="body") from None
    return body


def _members(body: bytes) -> dict[str, object]:
    """Return the members of the body of a cancel; `null` has none (the official Go client sends it)."""
    members = _CancelBody() if body.strip() == b"null" else read(_CancelBody, _json(body))
    return {"metadata": members.metadata, "tenant": members.tenant}


def _media(scope: Scope) -> bytes:
    """Return the media type of the response: that of the request, or else an accepted one, or else A2A's own."""
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
        # 0.3 does not define the format of errors: some clients read the JSON-RPC code, some the name of the type.
        body |= {"code": fault.rpc, "message": error.message, "type": _type_name(fault)}
    return fault.http, encode(body)


def _type_name(fault: A2AFault) -> str | None:
    return "".join(word.capitalize() for word in fault.reason.split("_")) + "Error" if fault.reason else None
