"""JSON-RPC binding of A2A: 1.0 and 0.3 at one address, distinguished by the name of the method."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from starlette.types import Receive, Scope, Send

from parley.errors import (
    ContentNotSupported,
    Invalid,
    ParleyError,
    PayloadTooLarge,
    UnknownMethod,
    VersionNotSupported,
)
from parley.faces.a2a.calls import call_of, is_poll, open_stream, perform, refusal_headers, version_of, write_stream
from parley.faces.a2a.dialect import STREAMING, Dialect, Operation, encode, read
from parley.faces.a2a.errors import details_of, fault_of
from parley.faces.a2a.messages import A2ACall
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v1 import V1
from parley.faces.a2a.v11 import V11
from parley.http.face import Response
from parley.http.jsonrpc import Id, InvalidRequest, RpcRequest, id_of, parse
from parley.http.requests import MAX_BODY, answer, check_text, is_json, read_json
from parley.http.sse import EVENTS, KeepAlive, while_connected
from parley.runs.rules.access import Principal

_EMPTY = b"{}"
_STATUSES: dict[str, int] = {
    "unauthenticated": 401, "agent_not_found": 404, "permission_denied": 403,
    "rate_limited": 429, "too_many_unfinished": 429, "stopping": 503,
}  # fmt: skip
"""Error codes whose HTTP status is not 200."""

_NEWEST, _NEW, _OLD = V11(), V1(), V03()
METHODS: dict[str, tuple[Dialect, Operation]] = {
    "SendMessage": (_NEW, "send"),
    "SendStreamingMessage": (_NEW, "stream"),
    "GetTask": (_NEW, "get"),
    "ListTasks": (_NEW, "list"),
    "CancelTask": (_NEW, "cancel"),
    "SubscribeToTask": (_NEW, "subscribe"),
    "CreateTaskPushNotificationConfig": (_NEW, "set_hook"),
    "GetTaskPushNotificationConfig": (_NEW, "get_hook"),
    "ListTaskPushNotificationConfigs": (_NEW, "list_hooks"),
    "DeleteTaskPushNotificationConfig": (_NEW, "delete_hook"),
    "GetExtendedAgentCard": (_NEW, "card"),
    "message/send": (_OLD, "send"),
    "message/stream": (_OLD, "stream"),
    "message/sendSubscribe": (_OLD, "stream"),
    "tasks/get": (_OLD, "get"),
    "tasks/cancel": (_OLD, "cancel"),
    "tasks/resubscribe": (_OLD, "subscribe"),
    "tasks/pushNotificationConfig/set": (_OLD, "set_hook"),
    "tasks/pushNotificationConfig/get": (_OLD, "get_hook"),
    "tasks/pushNotificationConfig/list": (_OLD, "list_hooks"),
    "tasks/pushNotificationConfig/delete": (_OLD, "delete_hook"),
    "agent/getAuthenticatedExtendedCard": (_OLD, "card"),
}
_LONG: frozenset[Operation] = frozenset(("send", "cancel"))
"""Operations that may wait for an agent."""
_MODERN = {operation: name for name, (dialect, operation) in METHODS.items() if dialect is _NEW}


class RpcCall(Struct, frozen=True):
    """A request for an agent. Members that are None are taken from the scope."""

    scope: Scope
    agent: str | None
    principal: Principal | None = None
    body: bytes | None = None
    """None if the body is still to be received."""
    version: str | None = None


class _Asked(Struct):
    """Facts about a request, collected while it is read; needed to answer a request that turns out to be invalid."""

    id: Id = None
    dialect: Dialect = _NEW
    streaming: bool = False
    keep_alive: KeepAlive | None = None
    """Set while the agent works, because some clients give up when the connection is silent."""


def _only_rpc(error: ParleyError) -> Response | None:
    return None


class JsonRpc:
    def __init__(
        self,
        operations: Operations,
        max_body: int = MAX_BODY,
        refusal: Callable[[ParleyError], Response | None] = _only_rpc,
        keep_alive: Callable[[Send], KeepAlive] = KeepAlive,
    ) -> None:
        """`refusal` returns the response for errors that are not answered in JSON-RPC; the specification has none."""
        self._operations = operations
        self._max_body = max_body
        self._refusal = refusal
        self._keep_alive = keep_alive

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self.serve(RpcCall(scope, scope["path_params"]["slug"]), receive, send)

    async def serve(self, given: RpcCall, receive: Receive, send: Send) -> None:
        """Read a request, perform it and write the response. All of it is in one function, because each event of each
        stream would pass through every further layer."""
        asked = _Asked()
        try:
            body = given.body
            if body is None:
                body = await read_json(receive, self._max_body)
            elif len(body) > self._max_body:
                raise PayloadTooLarge(f"The request exceeds the limit of {self._max_body} bytes.", limit=self._max_body)
            operation, call, params = self._read(asked, given, body, send)
            if asked.streaming:
                stream = await open_stream(self._operations, asked.dialect, operation, call, params)
                # The stream may be open for long: keep nothing of the request that opened it.
                del body, call, params
                wrap = (b'{"jsonrpc":"2.0","id":%b,"result":' % encode(asked.id), b"}")
                return await write_stream(receive, send, stream, asked.dialect, wrap, partial(_failure, asked.id))
            work = perform(self._operations, asked.dialect, operation, call, params)
            result = await (while_connected(receive, work) if is_poll(params) else work)
            reply = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(asked.id), encode(result))
        except ParleyError as error:
            self._operations.refused(error)
            return await self._refuse(asked, given.scope, send, error)
        except BaseException:
            if asked.keep_alive is not None:
                asked.keep_alive.stop()
            raise
        if asked.keep_alive is not None:
            return await asked.keep_alive.answer(200, reply)
        return await answer(send, 200, reply)

    def _read(self, asked: _Asked, given: RpcCall, body: bytes, send: Send) -> tuple[Operation, A2ACall, Any]:
        if not is_json(given.scope):
            raise ContentNotSupported("The Content-Type of a JSON-RPC request must be application/json.")
        check_text(body)
        request = _parse(body, asked)
        asked.dialect, operation = _method(request, given.version or version_of(given.scope))
        asked.streaming = operation in STREAMING
        if operation in _LONG:
            asked.keep_alive = self._keep_alive(send)
        taken = asked.keep_alive and asked.keep_alive.start
        call = call_of(given.scope, given.agent, given.principal, taken)
        params = _params(asked.dialect, operation, request)
        if is_poll(params):
            asked.keep_alive = self._keep_alive(send)
        if request.id is UNSET:
            raise InvalidRequest("`id` is required: A2A has no notifications.")
        return operation, call, params

    async def _refuse(self, asked: _Asked, scope: Scope, send: Send, error: ParleyError) -> None:
        waited = asked.keep_alive
        if (waited is None or not waited.begun) and (other := self._refusal(error)) is not None:
            if waited is not None:
                waited.stop()
            return await answer(send, other.status, other.content, [*other.headers])
        reply = _failure(asked.id, error)
        if asked.streaming and asked.dialect is _OLD:
            # A 0.3 client reads only events in response to a streaming method.
            return await answer(send, 200, b"data: %b\n\n" % reply, media=EVENTS)
        unread = isinstance(error, PayloadTooLarge) and asked.id is None
        status = 413 if unread else _STATUSES.get(error.code, 200)
        headers = refusal_headers(error, scope)
        if waited is not None:
            return await waited.answer(status, reply, headers)
        return await answer(send, status, reply, headers)


def _parse(body: bytes, asked: _Asked) -> RpcRequest:
    try:
        request = parse(body)
    except InvalidRequest:
        asked.id = id_of(body)
        raise
    asked.id = None if request.id is UNSET else request.id
    return request


def _method(request: RpcRequest, version: str) -> tuple[Dialect, Operation]:
    """Find a method by name; refuse a method of 0.3 to a client that asks for 1.x, and the other way round."""
    found = METHODS.get(request.method)
    if found is None:
        raise UnknownMethod(f"There is no method {request.method[:80]!r}.")
    dialect, operation = found
    if dialect.version == version:
        return found
    if dialect is _NEW and version == _NEWEST.version:
        return _NEWEST, operation
    if dialect is _OLD:
        raise UnknownMethod(f"A2A {version} has no method {request.method}: use {_MODERN[operation]}.")
    raise VersionNotSupported(f"The method {request.method} requires A2A 1.0: send the header A2A-Version: 1.0.")


def _params(dialect: Dialect, operation: Operation, request: RpcRequest) -> object:
    if request.params is UNSET:
        if operation in ("card", "list"):
            return read(dialect.params[operation], _EMPTY)
        raise Invalid("`params` is required.", field="params")
    return read(dialect.params[operation], request.params)


def _failure(id_: Id, error: ParleyError) -> bytes:
    fault = fault_of(error)
    return msgspec.json.encode(
        {
            "jsonrpc": "2.0",
            "id": id_,
            "error": {"code": fault.rpc, "message": error.message, "data": details_of(error, fault)},
        }
    )
