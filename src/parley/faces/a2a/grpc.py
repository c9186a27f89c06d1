"""gRPC binding of A2A: the services of 1.x and 0.3 side by side, with the SDK's generated messages.

The dialects already read and write protobuf's JSON, so messages are converted to it: 1.0 as `V1`, 1.1 as `V11`, 0.3 as
`V03Rest`. 1.0 and 1.1 are one service; the metadata `a2a-version` selects the messages.
The agent is the request's `tenant`; 0.3 has no such field and uses the metadata `tenant`, or the default agent.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sized
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any

import grpc
import grpc.aio
import msgspec
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb2
from a2a.types import a2a_pb2 as pb2
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2
from msgspec import Raw, Struct
from msgspec.structs import replace

from parley.client.protobuf_v11 import message_type
from parley.errors import Invalid, ParleyError, Unauthenticated, VersionNotSupported
from parley.faces.a2a.calls import open_stream, perform, size_of
from parley.faces.a2a.dialect import STREAMING, Dialect, Operation, encode, read
from parley.faces.a2a.errors import details_of, fault_of
from parley.faces.a2a.messages import A2ACall, Shown
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.v03rest import V03Rest
from parley.faces.a2a.v1 import V1
from parley.faces.a2a.v11 import V11
from parley.http.requests import retry_headers
from parley.json_values import readable, too_deep
from parley.offload import LARGE, off_loop
from parley.runs.rules.access import Principal
from parley.runs.rules.content import check_count
from parley.telemetry import exporting, span, tell
from parley.telemetry.trace import NONE, enter, headers_for, trace_of

Identify = Callable[[str | None, str | None], Awaitable[Principal | None]]
"""Finds the principal by `authorization` and `x-api-key`."""
Json = dict[str, Any]
MAX_JSON_DEPTH = 36
"""Deepest nesting of a result. Protobuf parsers accept 100 nested messages; a JSON level in a Struct takes three."""
Context = Any


class Grpc:
    """Server of both services. `port` is the port on which it listens, once it has started."""

    def __init__(
        self,
        operations: Operations,
        identify: Identify,
        max_bytes: int,
        owner: Identify | None = None,
        *,
        shared: bool = False,
    ) -> None:
        """`owner` finds the owner of a call's credential where `identify` does not (`auth = "none"`). A `shared` port
        is one that other processes of this server listen on too."""
        options = [("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", int(shared))]
        self._server: Any = grpc.aio.server(options=options)
        caller = _Caller(operations, identify, owner)
        self._server.add_generic_rpc_handlers([_handler(service, caller) for service in SERVICES])
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port = self._server.add_insecure_port(place)
        except RuntimeError:
            raise Invalid(f"Cannot listen on {place} for gRPC. Set another grpc_port.", field="grpc_port") from None
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)


_NEWEST, _OLD_PYTHON = V11(), V03Rest(twice=True)
_ONCE = frozenset(("authorization", "x-api-key"))
"""Metadata that may appear only once: a proxy and this server might each read a different one."""


class Rpc(Struct, frozen=True):
    operation: Operation
    request: type[Message]
    reply: type[Message]
    named: str = ""
    """Param that the resource name of 0.3 becomes."""


class _Caller:
    """Handles calls: authenticates the caller, performs the operation, and returns its result or a gRPC error."""

    def __init__(self, operations: Operations, identify: Identify, owner: Identify | None) -> None:
        self._operations = operations
        self._identify = identify
        self._owner = owner

    async def answer(self, context: Context, dialect: Dialect, rpc: Rpc, request: bytes) -> Message:
        said = _metadata(context)
        await _trace(context, said)
        with span("face.grpc", operation=rpc.operation) if exporting() else nullcontext():
            return await self._answered(context, dialect, rpc, request, said)

    async def _answered(
        self, context: Context, dialect: Dialect, rpc: Rpc, request: bytes, said: dict[str, str]
    ) -> Message:
        try:
            call, params = await self._asked(context, dialect, rpc, request, said)
            result = await perform(self._operations, dialect, rpc.operation, call, params)
            # Only large results are encoded already.
            size = LARGE + 1 if isinstance(result, Raw) else 0
            return rpc.reply() if result is None else await off_loop(size, partial(_proto, result, rpc.reply))
        except ParleyError as error:
            return await _abort(context, error)
        except Exception as error:  # noqa: BLE001 - the last line of defence
            tell("grpc.crashed", operation=rpc.operation, error=error)
            return await context.abort(grpc.StatusCode.INTERNAL, "Internal error.")

    async def stream(
        self, context: Context, dialect: Dialect, rpc: Rpc, request: bytes
    ) -> AsyncGenerator[Message, None]:
        said = _metadata(context)
        await _trace(context, said)
        with span("face.grpc", operation=rpc.operation) if exporting() else nullcontext():
            async with aclosing(self._streamed(context, dialect, rpc, request, said)) as replies:
                async for reply in replies:
                    yield reply

    async def _streamed(
        self, context: Context, dialect: Dialect, rpc: Rpc, request: bytes, said: dict[str, str]
    ) -> AsyncGenerator[Message, None]:
        try:
            call, params = await self._asked(context, dialect, rpc, request, said)
            opened = await open_stream(self._operations, dialect, rpc.operation, call, params)
        except ParleyError as error:
            await _abort(context, error)
            return
        with span("runtime.stream") as streamed:
            try:
                async for step in opened.steps:
                    for index, frame in enumerate(step.frames, 1):
                        last = step.last and index == len(step.frames)
                        work = partial(_framed, dialect, frame.shown, last, rpc.reply)
                        shown = await off_loop(size_of(frame.shown), work)
                        if shown is not None:
                            yield shown
                    if step.last:
                        return
            except ParleyError as error:
                tell("stream.broken", code=error.code)
                streamed.outcome = "error"
                await _abort(context, error)
            finally:
                await opened.close()

    async def _asked(
        self, context: Context, dialect: Dialect, rpc: Rpc, request: bytes, said: dict[str, str]
    ) -> tuple[A2ACall, Any]:
        _check_version(said.get("a2a-version", ""), dialect)
        _check_once(context)
        shown = said.get("authorization"), said.get("x-api-key")
        principal = await self._identify(*shown)
        if principal is None:
            raise Unauthenticated("Credentials are required: send authorization: Bearer, or x-api-key.")
        spoken = said.get("a2a-extensions") or said.get("x-a2a-extensions") or ""
        call = A2ACall(
            said.get("tenant") or None,
            principal,
            said.get("idempotency-key"),
            said.get("last-event-id"),
            frozenset(uri.strip() for uri in spoken.split(",") if uri.strip()),
            partial(self._owner, *shown) if self._owner is not None else None,
        )
        given = _message(rpc.request, request)
        if rpc.named:
            given = _named(given, rpc.named)
        # Sorted, because protobuf keeps no order and a repeated message must encode to the same bytes.
        return call, read(dialect.params[rpc.operation], msgspec.json.encode(given, order="sorted"))


SERVICES: dict[str, tuple[Dialect, dict[str, Rpc]]] = {
    "lf.a2a.v1.A2AService": (
        V1(),
        {
            "SendMessage": Rpc("send", pb2.SendMessageRequest, pb2.SendMessageResponse),
            "SendStreamingMessage": Rpc("stream", pb2.SendMessageRequest, pb2.StreamResponse),
            "GetTask": Rpc("get", pb2.GetTaskRequest, pb2.Task),
            "ListTasks": Rpc("list", pb2.ListTasksRequest, pb2.ListTasksResponse),
            "CancelTask": Rpc("cancel", pb2.CancelTaskRequest, pb2.Task),
            "SubscribeToTask": Rpc("subscribe", pb2.SubscribeToTaskRequest, pb2.StreamResponse),
            "CreateTaskPushNotificationConfig": Rpc(
                "set_hook", pb2.TaskPushNotificationConfig, pb2.TaskPushNotificationConfig
            ),
            "GetTaskPushNotificationConfig": Rpc(
                "get_hook", pb2.GetTaskPushNotificationConfigRequest, pb2.TaskPushNotificationConfig
            ),
            "ListTaskPushNotificationConfigs": Rpc(
                "list_hooks",
                pb2.ListTaskPushNotificationConfigsRequest,
                pb2.ListTaskPushNotificationConfigsResponse,
            ),
            "DeleteTaskPushNotificationConfig": Rpc("delete_hook", pb2.DeleteTaskPushNotificationConfigRequest, Empty),
            "GetExtendedAgentCard": Rpc("card", pb2.GetExtendedAgentCardRequest, pb2.AgentCard),
        },
    ),
    "a2a.v1.A2AService": (
        V03Rest(),
        {
            "SendMessage": Rpc("send", old_pb2.SendMessageRequest, old_pb2.SendMessageResponse),
            "SendStreamingMessage": Rpc("stream", old_pb2.SendMessageRequest, old_pb2.StreamResponse),
            "GetTask": Rpc("get", old_pb2.GetTaskRequest, old_pb2.Task, "id"),
            "CancelTask": Rpc("cancel", old_pb2.CancelTaskRequest, old_pb2.Task, "id"),
            "TaskSubscription": Rpc("subscribe", old_pb2.TaskSubscriptionRequest, old_pb2.StreamResponse, "id"),
            "CreateTaskPushNotificationConfig": Rpc(
                "set_hook",
                old_pb2.CreateTaskPushNotificationConfigRequest,
                old_pb2.TaskPushNotificationConfig,
                "taskId",
            ),
            "GetTaskPushNotificationConfig": Rpc(
                "get_hook", old_pb2.GetTaskPushNotificationConfigRequest, old_pb2.TaskPushNotificationConfig, "taskId"
            ),
            "ListTaskPushNotificationConfig": Rpc(
                "list_hooks",
                old_pb2.ListTaskPushNotificationConfigRequest,
                old_pb2.ListTaskPushNotificationConfigResponse,
                "taskId",
            ),
            "DeleteTaskPushNotificationConfig": Rpc(
                "delete_hook", old_pb2.DeleteTaskPushNotificationConfigRequest, Empty, "taskId"
            ),
            "GetAgentCard": Rpc("card", old_pb2.GetAgentCardRequest, old_pb2.AgentCard),
        },
    ),
}


def _handler(service: str, caller: _Caller) -> Any:
    dialect, rpcs = SERVICES[service]
    return grpc.method_handlers_generic_handler(
        service, {name: _method(caller, dialect, rpc) for name, rpc in rpcs.items()}
    )


def _method(caller: _Caller, dialect: Dialect, rpc: Rpc) -> Any:
    """Return the handler of an RPC. grpc distinguishes a coroutine (one answer) from a generator (a stream)."""

    newest = _newest(rpc) if isinstance(dialect, V1) else rpc

    async def answer(request: bytes, context: Context) -> Message:
        spoken = _as_spoken(dialect, context)
        return await caller.answer(context, spoken, newest if spoken is _NEWEST else rpc, request)

    async def stream(request: bytes, context: Context) -> AsyncGenerator[Message, None]:
        spoken = _as_spoken(dialect, context)
        async for frame in caller.stream(context, spoken, newest if spoken is _NEWEST else rpc, request):
            yield frame

    # Without a deserializer, the request arrives as bytes: an unreadable one gets our error, not grpc's traceback.
    coded: Any = (None, _serialized)
    if rpc.operation in STREAMING:
        return grpc.unary_stream_rpc_method_handler(stream, *coded)
    return grpc.unary_unary_rpc_method_handler(answer, *coded)


def _serialized(reply: Message) -> bytes:
    return reply.SerializeToString()


def _newest(rpc: Rpc) -> Rpc:
    return replace(rpc, request=message_type(rpc.request), reply=message_type(rpc.reply))


def _message(kind: type[Message], request: bytes) -> Json:
    try:
        parsed = kind.FromString(request)
        check_count(_parts_of(parsed))
        return json_format.MessageToDict(parsed)
    except (DecodeError, RecursionError, json_format.Error) as error:
        if "MaxDepth" in str(error):
            raise too_deep() from None
        raise Invalid(f"The request is not a valid {kind.DESCRIPTOR.name}.", field="params") from None


def _parts_of(request: Any) -> Sized:
    """Return the parts of the message in a request of either service; empty for a request without a message."""
    names = request.DESCRIPTOR.fields_by_name
    if "request" in names:
        return request.request.content
    return request.message.parts if "message" in names else ()


def _framed(dialect: Dialect, shown: Shown, last: bool, kind: type[Message]) -> Message | None:
    written = dialect.frame(shown, last)
    return None if written is None else _proto(written, kind)


def _proto(result: object, kind: type[Message]) -> Message:
    given = msgspec.json.decode(readable(encode(result), MAX_JSON_DEPTH))
    if kind is old_pb2.AgentCard:
        # The protobuf schema of 0.3 names the security member differently than the JSON of 0.3.
        given["security"] = given.pop("securityRequirements", [])
    return json_format.ParseDict(given, kind(), ignore_unknown_fields=True)


def _named(given: Json, place: str) -> Json:
    """Split `tasks/T` and `tasks/T/pushNotificationConfigs/C` into ids."""
    steps = str(given.pop("name", "") or given.pop("parent", "")).split("/")
    if len(steps) not in (2, 4) or steps[0] != "tasks":
        return {**given, place: ""}
    more = {"id": steps[3]} if len(steps) == 4 else {}
    return {**given, place: steps[1], **more}


def _metadata(context: Context) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found.setdefault(name.lower(), value.strip())
    return found


def _check_once(context: Context) -> None:
    names = [name.lower() for name, _ in context.invocation_metadata() or ()]
    if twice := next((name for name in _ONCE if names.count(name) > 1), None):
        raise Unauthenticated(f"The metadata {twice} appears more than once.")


async def _trace(context: Context, said: dict[str, str]) -> None:
    """Enter the trace of a call and echo it; no id is made. A call is an asyncio task of its own, so the trace need not
    be reset."""
    trace = trace_of(said.get("traceparent", ""), said.get("tracestate", ""), said.get("x-request-id", ""))
    enter(trace)
    if trace is not NONE:
        await context.send_initial_metadata(tuple(headers_for(trace).items()))


def _as_spoken(dialect: Dialect, context: Context) -> Dialect:
    """Return the dialect of the client. Python clients of 0.3 send base64 text as bytes, over gRPC as over HTTP."""
    said = _metadata(context)
    if isinstance(dialect, V1) and _minor(said.get("a2a-version", "")) == _NEWEST.version:
        return _NEWEST
    if isinstance(dialect, V03Rest) and said.get("user-agent", "").startswith("grpc-python"):
        return _OLD_PYTHON
    return dialect


def _minor(version: str) -> str:
    """Return a version without its patch number."""
    return ".".join(version.split(".")[:2])


def _check_version(asked: str, dialect: Dialect) -> None:
    """Refuse a call of another version. A call without a version counts as 0.3 (§3.6.2), which the service of 1.0 does
    not serve. Its name already contains the version, but the specification makes no exception for gRPC, and the
    official clients (Python, Java, Go, JavaScript) send the metadata with every call."""
    if _minor(asked or "0.3") == dialect.version:
        return
    if asked:
        raise VersionNotSupported(f"This service does not support a2a-version {asked[:20]!r}; send {dialect.version}.")
    raise VersionNotSupported("This service requires A2A 1.0: send the metadata a2a-version: 1.0.")


async def _abort(context: Context, error: ParleyError) -> Any:
    fault = fault_of(error)
    code = grpc.StatusCode[fault.status]
    status = json_format.ParseDict(
        {"code": code.value[0], "message": error.message, "details": details_of(error, fault)}, status_pb2.Status()
    )
    waits = tuple((name.decode(), value.decode()) for name, value in retry_headers(error))
    details = (("grpc-status-details-bin", status.SerializeToString()), *waits)
    await context.abort(code, error.message, trailing_metadata=details)
