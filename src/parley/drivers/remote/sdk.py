"""Client of a remote agent over gRPC, by the official A2A client."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf import json_format
from google.protobuf.message import Message as Proto
from msgspec import UNSET
from msgspec.structs import replace

from parley.client.protobuf_v11 import generation_of, poll_request
from parley.drivers.remote.cards import CURRENT, NUMBERED, Offer
from parley.drivers.remote.http import unreadable
from parley.drivers.remote.options import RemoteOptions
from parley.drivers.remote.protos import heard, message_out, place_of, snapshot
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused, RemoteStep, RemoteTask
from parley.errors import ParleyError
from parley.runs.rules.content import Message
from parley.telemetry.trace import current, headers_for

_GONE = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "UNKNOWN"))
_KEYS = frozenset(("UNAUTHENTICATED", "PERMISSION_DENIED"))


class GrpcPeer:
    """Client for one remote agent over gRPC. Streams have no event numbers. The SDK knows no A2A 1.1: to it generations
    are unknown fields, and interceptors name the version."""

    def __init__(self, options: RemoteOptions, offer: Offer, headers: Mapping[str, str]) -> None:
        """`headers` carry credentials."""
        one = offer.interface
        card = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=offer.streams))
        version = CURRENT if offer.generations else one.version
        card.supported_interfaces.add(url=one.url, protocol_binding="GRPC", protocol_version=version, tenant=one.tenant)
        config = ClientConfig(
            streaming=True,
            supported_protocol_bindings=["GRPC"],
            grpc_channel_factory=_channel(options, numbered=offer.generations),
        )
        self._client: Client = ClientFactory(config).create(card)
        # A2A 0.3 over gRPC has no field for the tenant, but a Parley server reads it in the metadata.
        tenant = {"tenant": one.tenant} if one.tenant and options.bindings[:1] == ("GRPC",) else {}
        extensions = {"A2A-Extensions": offer.extensions} if offer.extensions else {}
        self._headers = {**headers, **tenant, **extensions}
        self.streams = offer.streams
        self.resumable = offer.resumable
        self.idempotent = offer.idempotent
        self.rejoins = offer.rejoins
        self._generations = offer.generations
        self._timeout_s = options.timeout_s

    def send(
        self, message: Message, task: str | None, context: str | None, key: str, *, hops: int
    ) -> AsyncGenerator[RemoteStep, None]:
        """Send a message. Yields the stream if the remote supports streaming, else its first answer."""
        request = pb.SendMessageRequest(message=message_out(message, task, context, hops))
        if (forwarded := message.forwarded) is not None:
            request.configuration.accepted_output_modes.extend(forwarded.output_modes)
            if forwarded.metadata is not UNSET:
                json_format.Parse(bytes(forwarded.metadata), request.metadata)
        if not self.streams:
            # A waiting task may look unchanged just after our answer, so in that case let the remote finish first.
            request.configuration.return_immediately = task is None
        return self._steps(self._client.send_message(request, context=self._context({"Idempotency-Key": key})))

    def subscribe(self, task: str, cursor: int | None) -> AsyncGenerator[RemoteStep, None]:
        after = {"Last-Event-ID": str(cursor)} if cursor is not None and self.resumable else {}
        events = self._client.subscribe(pb.SubscribeToTaskRequest(id=task), context=self._context(after))
        return self._steps(events)

    async def get(self, task: str, after: int = 0) -> RemoteTask:
        """Return a task. `after`: when it has a higher generation, or after a time that the remote sets."""
        polls = after > 0 and self._generations
        request = poll_request(task, after) if polls else pb.GetTaskRequest(id=task)
        context = self._context({}, self._timeout_s if polls else None)
        try:
            found = await self._client.get_task(request, context=context)
        except Exception as error:
            raise _translated(error) from error
        return self._numbered(snapshot(found), found)

    async def cancel(self, task: str) -> None:
        try:
            await self._client.cancel_task(pb.CancelTaskRequest(id=task), context=self._context({}))
        except Exception as error:
            raise _translated(error) from error

    def _context(self, headers: Mapping[str, str], timeout_s: float | None = None) -> ClientCallContext:
        given = {**headers_for(current()), **self._headers, **headers}
        return ClientCallContext(service_parameters=given, timeout=timeout_s)

    async def _steps(self, events: AsyncIterator[pb.StreamResponse]) -> AsyncGenerator[RemoteStep, None]:
        try:
            async with aclosing(cast(AsyncGenerator[pb.StreamResponse, None], events)):
                async for event in events:
                    yield self._step(event)
        except (ConnectionLost, RemoteRefused, GeneratorExit):
            raise
        except Exception as error:
            raise _translated(error) from error

    def _step(self, event: pb.StreamResponse) -> RemoteStep:
        found, kind = heard(event), event.WhichOneof("payload")
        if not self._generations or kind in (None, "message"):
            return RemoteStep(found, None, *place_of(event))
        shown: Proto = getattr(event, kind)
        if isinstance(found, RemoteTask):
            found = self._numbered(found, shown)
        return RemoteStep(found, None, *place_of(event), generation_of(shown))

    def _numbered(self, now: RemoteTask, found: Proto) -> RemoteTask:
        return replace(now, generation=generation_of(found)) if self._generations else now


def _channel(options: RemoteOptions, *, numbered: bool) -> Callable[[str], Any]:
    """Return a function that opens a channel. `numbered`: each call asks for A2A 1.1."""
    channels: Any = grpc.aio
    how: dict[str, Any] = {"interceptors": [_NumberedCalls(), _NumberedStreams()]} if numbered else {}
    if options.url.startswith("http:"):
        return partial(channels.insecure_channel, **how)
    credentials: Any = cast(Any, grpc).ssl_channel_credentials()
    return partial(channels.secure_channel, credentials=credentials, **how)


class _NumberedCalls(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(_of_1_1(client_call_details), request)


class _NumberedStreams(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(_of_1_1(client_call_details), request)


def _of_1_1(details: Any) -> Any:
    """Return the details of a call that asks for A2A 1.1; the SDK names its own version."""
    given = [(name, NUMBERED if name == "a2a-version" else value) for name, value in details.metadata]
    return details._replace(metadata=grpc.aio.Metadata(*given))


def _translated(error: Exception) -> Exception:
    """Translate an error of the SDK to ConnectionLost or RemoteRefused. The text contains nothing that was sent."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ParleyError):
        cause = cause.__cause__
    if isinstance(cause, ParleyError):
        return cause
    if isinstance(error, TaskNotFoundError):
        return RemoteRefused("not_found", "It does not know the task.")
    if isinstance(error, UnsupportedOperationError):
        return RemoteRefused("over", error.message)
    if rpc := _rpc_status(error):
        return (
            RemoteRefused("credentials", f"It refused our credentials ({rpc}).")
            if rpc in _KEYS
            else ConnectionLost(f"gRPC {rpc}", silent=rpc == "DEADLINE_EXCEEDED")
        )
    if isinstance(error, MethodNotFoundError | NotImplementedError):
        return RemoteRefused("unknown", "It does not support the operation.")
    if isinstance(error, A2AError):
        return RemoteRefused("other", error.message)
    return unreadable(error)


def _rpc_status(error: BaseException | None) -> str | None:
    """Return the status of a gRPC error if it concerns the connection or our credentials, not the request itself."""
    while error is not None:
        code = getattr(error, "code", None)
        name = getattr(cast(Any, code()), "name", None) if callable(code) else None
        if name in _GONE or name in _KEYS:
            return str(name)
        error = error.__cause__
    return None
