"""The JSON-RPC binding of A2A: 1.0 and 0.3 on one address, told apart by the method's name."""

from functools import partial

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
from parley.faces.a2a.dialect import STREAMING, Dialect, Operation, encode, read
from parley.faces.a2a.faults import details_of, fault_of
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.serving import call_of, open_stream, perform, refusal_headers, version_of, write_stream
from parley.faces.a2a.streaming import Stream
from parley.faces.a2a.v03 import V03
from parley.faces.a2a.v1 import V1
from parley.faces.http import MAX_BODY, Headers, answer, check_text, is_json, read_json
from parley.faces.patience import Patience
from parley.faces.rpc import Id, InvalidRequest, Request, id_of, parse
from parley.faces.sse import EVENTS

_EMPTY = b"{}"
_STATUSES: dict[str, int] = {
    "unauthenticated": 401, "agent_not_found": 404, "permission_denied": 403,
    "rate_limited": 429, "too_many_unfinished": 429, "stopping": 503,
}  # fmt: skip
"""Where the HTTP status says more than 200."""

_NEW, _OLD = V1(), V03()
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
"""What may wait for an agent."""
_MODERN = {operation: name for name, (dialect, operation) in METHODS.items() if dialect is _NEW}


class _Asked(Struct):
    """What is known of a request so far, for whoever has to answer when it turns out to be wrong."""

    id: Id = None
    dialect: Dialect = _NEW
    streaming: bool = False
    patience: Patience | None = None
    """Kept while the agent works, for a client that gives up on silence."""


class JsonRpc:
    def __init__(self, operations: Operations, max_body: int = MAX_BODY) -> None:
        self._operations = operations
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _Asked()
        status, headers = 200, list[tuple[bytes, bytes]]()
        try:
            result = await self._perform(asked, scope, receive, send)
            if isinstance(result, Stream):
                wrap = (b'{"jsonrpc":"2.0","id":%b,"result":' % encode(asked.id), b"}")
                failed = partial(_failure, asked.id)
                return await write_stream(receive, send, result, asked.dialect, wrap, failed)
            reply = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(asked.id), encode(result))
        except ParleyError as error:
            self._operations.refused(error)
            begun = asked.patience is not None and asked.patience.begun
            if not begun and (other := self.answer_of(error)) is not None:
                if asked.patience is not None:
                    asked.patience.stop()
                return await answer(send, *other)
            reply = _failure(asked.id, error)
            if asked.streaming and asked.dialect is _OLD:
                # A client of 0.3 reads nothing but events here.
                return await answer(send, 200, b"data: %b\n\n" % reply, media=EVENTS)
            unread = isinstance(error, PayloadTooLarge) and asked.id is None
            status = 413 if unread else _STATUSES.get(error.code, 200)
            headers = refusal_headers(error, scope)
        except BaseException:
            if asked.patience is not None:
                asked.patience.stop()
            raise
        if asked.patience is not None:
            return await asked.patience.answer(status, reply, headers)
        return await answer(send, status, reply, headers)

    def answer_of(self, error: ParleyError) -> tuple[int, object, Headers] | None:
        """What is answered in another way than JSON-RPC's: nothing, by the specification."""
        return None

    def _patience(self, send: Send) -> Patience:
        return Patience(send)

    async def _perform(self, asked: _Asked, scope: Scope, receive: Receive, send: Send) -> object:
        body = await read_json(receive, self._max_body)
        if not is_json(scope):
            raise ContentNotSupported("A JSON-RPC request is application/json.")
        check_text(body)
        request = _parse(body, asked)
        asked.dialect, operation = _method(request, version_of(scope))
        asked.streaming = operation in STREAMING
        call = call_of(scope, scope["path_params"]["slug"])
        params = _params(asked.dialect, operation, request)
        if request.id is UNSET:
            raise InvalidRequest("A request needs an `id`: A2A has no notifications.")
        if asked.streaming:
            return await open_stream(self._operations, asked.dialect, operation, call, params)
        if operation in _LONG:
            asked.patience = self._patience(send)
        return await perform(self._operations, asked.dialect, operation, call, params)


def _parse(body: bytes, asked: _Asked) -> Request:
    try:
        request = parse(body)
    except InvalidRequest:
        asked.id = id_of(body)
        raise
    asked.id = None if request.id is UNSET else request.id
    return request


def _method(request: Request, version: str) -> tuple[Dialect, Operation]:
    """By name; a method of one generation is not served to a client that asks for the other."""
    found = METHODS.get(request.method)
    if found is None:
        raise UnknownMethod(f"There is no method {request.method[:80]!r}.")
    dialect, operation = found
    if dialect.version == version:
        return found
    if version == "1.0":
        raise UnknownMethod(f"In A2A 1.0 the method {request.method} is called {_MODERN[operation]}.")
    raise VersionNotSupported(f"{request.method} is a method of A2A 1.0: send the header A2A-Version: 1.0.")


def _params(dialect: Dialect, operation: Operation, request: Request) -> object:
    if request.params is UNSET:
        if operation in ("card", "list"):
            return read(dialect.params[operation], _EMPTY)
        raise Invalid("`params` is missing.", field="params")
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
