"""The JSON-RPC binding of A2A 1.0."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from starlette.types import Receive, Scope, Send

from parley.errors import (
    AgentNotFound,
    Invalid,
    InvalidJson,
    ParleyError,
    PayloadTooLarge,
    UnknownMethod,
    VersionNotSupported,
)
from parley.faces import sse
from parley.faces.a2a import codec
from parley.faces.a2a.faults import InvalidRequest, details_of, fault_of
from parley.faces.a2a.operations import Call, Frame, Operations, Stream
from parley.faces.http import MAX_BODY, answer, check_text, header, read_body
from parley.telemetry import tell

Id = str | int | float | None


class Request(Struct, frozen=True):
    jsonrpc: str
    method: str
    id: Id | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


_PARAMS: dict[str, type[Struct]] = {
    "SendMessage": codec.SendParams,
    "SendStreamingMessage": codec.SendParams,
    "GetTask": codec.TaskParams,
    "CancelTask": codec.CancelParams,
    "SubscribeToTask": codec.TaskParams,
}
_request = msgspec.json.Decoder(Request)
_params = {method: msgspec.json.Decoder(kind) for method, kind in _PARAMS.items()}


class JsonRpc:
    def __init__(self, operations: Operations, max_body: int = MAX_BODY) -> None:
        self._operations = operations
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id_: Id = None
        status = 200
        try:
            body = await read_body(receive, self._max_body)
            request = _parse(body)
            id_ = None if request.id is UNSET else request.id
            call = self._call(scope)
            _check_version(scope)
            if request.method in ("SendStreamingMessage", "SubscribeToTask"):
                stream = await self._open(call, request)
                return await self._stream(receive, send, stream, _encoded_id(id_))
            result = await self._result(call, request)
            reply = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encoded_id(id_), codec.encode(result))
        except ParleyError as error:
            if isinstance(error, AgentNotFound):
                status = 404
            elif isinstance(error, PayloadTooLarge) and id_ is None:
                status = 413
            reply = _failure(id_, error)
        return await answer(send, status, reply)

    def _call(self, scope: Scope) -> Call:
        slug = scope.get("path_params", {}).get("slug")
        return Call(slug, scope["principal"], header(scope, b"idempotency-key"), header(scope, b"last-event-id"))

    async def _result(self, call: Call, request: Request) -> object:
        params = _decode(request)
        match params:
            case codec.SendParams():
                return await self._operations.send(call, params)
            case codec.CancelParams():
                return await self._operations.cancel(call, params)
            case codec.TaskParams():
                return await self._operations.get(call, params)
            case _:
                raise UnknownMethod(f"There is no method {request.method!r}.")

    async def _open(self, call: Call, request: Request) -> Stream:
        """Everything that can be refused is refused here, before the stream begins."""
        params = _decode(request)
        if isinstance(params, codec.SendParams):
            return await self._operations.stream(call, params)
        assert isinstance(params, codec.TaskParams)
        return await self._operations.subscribe(call, params)

    async def _stream(self, receive: Receive, send: Send, stream: Stream, id_: bytes) -> None:
        try:
            async with aclosing(_written(stream, id_)) as written:
                await sse.write(receive, send, written)
        finally:
            await stream.close()


async def _written(stream: Stream, id_: bytes) -> AsyncGenerator[sse.Chunk, None]:
    """Each frame as a whole JSON-RPC response. An error in mid-stream is the last frame, and has no id."""
    try:
        async for step in stream:
            yield b"".join([_frame(frame, id_) for frame in step.frames]), step.last
    except ParleyError as error:
        tell("stream.broken", code=error.code)
        yield b"data: %b\n\n" % _failure(msgspec.json.decode(id_), error), True


def _frame(frame: Frame, id_: bytes) -> bytes:
    return sse.frame(frame.seq, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_, codec.encode(frame.content)))


def _parse(body: bytes) -> Request:
    check_text(body)
    try:
        request = _request.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Not a JSON-RPC request: {error}") from None
    except msgspec.DecodeError as error:
        raise InvalidJson(f"The request is not JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("Not a JSON-RPC request: nested too deep.") from None
    if request.jsonrpc != "2.0":
        raise InvalidRequest('`jsonrpc` must be "2.0".')
    if request.id is UNSET:
        raise InvalidRequest("A request needs an `id`.")
    return request


def _decode(request: Request) -> Struct:
    decoder = _params.get(request.method)
    if decoder is None:
        raise UnknownMethod(f"There is no method {request.method!r}.")
    if request.params is UNSET:
        raise Invalid("`params` is missing.", field="params")
    try:
        return decoder.decode(request.params)
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid params: {error}", field="params") from None
    except RecursionError:
        raise Invalid("Invalid params: nested too deep.", field="params") from None


def _check_version(scope: Scope) -> None:
    """A 1.0 method needs `A2A-Version: 1.0`; without it the request counts as 0.3."""
    version = header(scope, b"a2a-version")
    if version is None:
        version = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("A2A-Version", [""])[0]
    if version != "1.0":
        raise VersionNotSupported(f"A2A-Version is {version or 'missing'!r}; this method is served in version 1.0.")


def _encoded_id(id_: Id) -> bytes:
    return msgspec.json.encode(id_)


def _failure(id_: Id, error: ParleyError) -> bytes:
    fault = fault_of(error)
    return msgspec.json.encode(
        {
            "jsonrpc": "2.0",
            "id": id_,
            "error": {"code": fault.rpc, "message": error.message, "data": details_of(error, fault)},
        }
    )
