"""Adapter of the official A2A client: every binding and version of A2A in plain values. No other module uses the
client."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import msgspec
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.client.service_parameters import with_a2a_extensions
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf import json_format
from msgspec import UNSET

from parley.drivers.remote.bridge import MAX_BYTES, NUMBERS, Bridge, Numbers
from parley.drivers.remote.connections import OutboundConnections
from parley.drivers.remote.options import BINDINGS, Known, RemoteOptions, credentials
from parley.drivers.remote.protos import heard, message_out, place_of, snapshot
from parley.drivers.remote.translation import ConnectionLost, RemoteRefused, RemoteStep, RemoteTask
from parley.errors import ParleyError
from parley.runs.rules.agents import Skill
from parley.runs.rules.content import Message
from parley.telemetry.trace import current, headers_for

CONNECT_S = 5.0
CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
RESUMABLE = "urn:parley:extension:resumable-streams:1"
IDEMPOTENT = "urn:parley:extension:idempotency-key:1"
_TRANSIENT = frozenset((408, 425, 429, 502, 503, 504))
_GONE = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "UNKNOWN"))
_KEYS = frozenset(("UNAUTHENTICATED", "PERMISSION_DENIED"))
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class RemoteCard:
    """A fetched card, with the URL and ETag that are needed to check whether it has changed."""

    def __init__(self, proto: pb.AgentCard, url: str, etag: str | None) -> None:
        self.proto = proto
        self.url = url
        self.etag = etag

    @property
    def known(self) -> Known:
        card = self.proto
        skills = tuple(
            Skill(one.id, one.name, one.description, tuple(one.tags), tuple(one.examples)) for one in card.skills
        )
        return Known(card.description, skills, tuple(card.default_input_modes), tuple(card.default_output_modes))


class RemotePeer:
    """Client for one remote agent, over a binding that both sides support."""

    def __init__(
        self,
        options: RemoteOptions,
        card: RemoteCard,
        http: httpx.AsyncClient,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` carry credentials. Like those of the options, they are sent only to the host of the agent's URL."""
        chosen = _offered(options, card.proto, bound=headers is not None)
        declared = {extension.uri for extension in chosen.capabilities.extensions}
        config = ClientConfig(
            streaming=True,
            httpx_client=http,
            supported_protocol_bindings=list(options.bindings or _bindings()),
            use_client_preference=bool(options.bindings),
            grpc_channel_factory=_channel(options),
        )
        try:
            self._client: Client = ClientFactory(config).create(chosen)
        except ValueError:
            raise RemoteRefused("other", "The card offers no binding and version that this server may use.") from None
        self._headers = {**credentials(options), **(headers or {}), **_tenant(options, card.proto)}
        self.streams = chosen.capabilities.streaming
        self.resumable = RESUMABLE in declared
        self.idempotent = IDEMPOTENT in declared
        self.rejoins = self.resumable or (self.streams and _is_modern(chosen, config))
        """True if a stream can be resumed without a gap. In A2A 0.3 a new stream does not repeat what happened before
        it. A server of a2a-sdk 0.3 also stores each artifact chunk once more for every stream that joined later, so its
        task is only correct while no other stream has joined."""
        self._extensions = sorted(declared & {RESUMABLE, IDEMPOTENT})

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

    async def get(self, task: str) -> RemoteTask:
        try:
            return snapshot(await self._client.get_task(pb.GetTaskRequest(id=task), context=self._context({})))
        except Exception as error:
            raise _translated(error) from error

    async def cancel(self, task: str) -> None:
        try:
            await self._client.cancel_task(pb.CancelTaskRequest(id=task), context=self._context({}))
        except Exception as error:
            raise _translated(error) from error

    def _context(self, headers: Mapping[str, str]) -> ClientCallContext:
        parameters = {**headers_for(current()), **self._headers, **headers}
        with_a2a_extensions(self._extensions)(parameters)
        return ClientCallContext(service_parameters=parameters)

    async def _steps(self, events: AsyncIterator[pb.StreamResponse]) -> AsyncGenerator[RemoteStep, None]:
        numbers: Numbers = deque()
        NUMBERS.set(numbers)
        try:
            async with aclosing(cast(AsyncGenerator[pb.StreamResponse, None], events)):
                async for event in events:
                    yield RemoteStep(heard(event), numbers.popleft() if numbers else None, *place_of(event))
        except (ConnectionLost, RemoteRefused, GeneratorExit):
            raise
        except Exception as error:
            raise _translated(error) from error


def open_http(outside: OutboundConnections, options: RemoteOptions, most: int = MAX_BYTES) -> httpx.AsyncClient:
    timeout = httpx.Timeout(options.timeout_s, connect=CONNECT_S)
    headers = {"Accept-Encoding": "identity"}
    transport = Bridge(outside, options.url, most)
    return httpx.AsyncClient(transport=transport, timeout=timeout, headers=headers, trust_env=False)


async def fetch_card(options: RemoteOptions, http: httpx.AsyncClient, before: RemoteCard | None = None) -> RemoteCard:
    """Fetch the current card. Returns `before` if it has not changed."""
    base = options.url.rstrip("/")
    urls = [before.url] if before else [base] if base.endswith(".json") else [base + path for path in CARD_PATHS]
    reply: httpx.Response | None = None
    headers = {"A2A-Version": "1.0", **credentials(options)}
    if before and before.etag:
        headers["If-None-Match"] = before.etag
    for url in urls:
        try:
            reply = await http.get(url, headers=headers)
        except ParleyError:
            raise
        except Exception as error:
            raise _translated(error) from error
        if before and reply.status_code == 304:
            return before
        if reply.status_code != 404:
            break
    assert reply is not None
    return _card(reply)


def _card(reply: httpx.Response) -> RemoteCard:
    if reply.status_code in _TRANSIENT:
        raise ConnectionLost(f"HTTP {reply.status_code}", unsent=True)
    if reply.status_code in (401, 403):
        raise RemoteRefused("credentials", f"It refused our credentials (HTTP {reply.status_code}).")
    if reply.status_code != 200:
        raise RemoteRefused("other", f"There is no agent card at its URL (HTTP {reply.status_code}).")
    try:
        return RemoteCard(parse_agent_card(reply.json()), str(reply.url), reply.headers.get("etag"))
    except (ValueError, json_format.Error):
        raise RemoteRefused("other", "The document at the URL of its card is not an agent card.") from None


def _offered(options: RemoteOptions, card: pb.AgentCard, *, bound: bool = False) -> pb.AgentCard:
    """Return the card with only the interfaces that we may use: credentials are sent only to the host they are for."""
    offered = pb.AgentCard()
    offered.CopyFrom(card)
    del offered.supported_interfaces[:]
    for one in card.supported_interfaces:
        if options.version and not f"{one.protocol_version}.".startswith(f"{options.version}."):
            continue
        # The guard covers only HTTP, so gRPC may connect only to the host that the definition names.
        if (options.token_from or bound or one.protocol_binding == "GRPC") and not is_same_place(options.url, one.url):
            continue
        offered.supported_interfaces.append(one)
    return offered


def _is_modern(card: pb.AgentCard, config: ClientConfig) -> bool:
    """Tell whether the SDK will use A2A 1.x: it picks the newest version of the first binding that both support."""
    ours, offered = config.supported_protocol_bindings, [one.protocol_binding for one in card.supported_interfaces]
    first, others = (ours, offered) if config.use_client_preference else (offered, ours)
    taken = next((binding for binding in first if binding in others), None)
    return any(
        one.protocol_binding == taken and one.protocol_version.startswith("1.") for one in card.supported_interfaces
    )


def _tenant(options: RemoteOptions, card: pb.AgentCard) -> dict[str, str]:
    """Return the tenant as gRPC metadata: A2A 0.3 over gRPC has no field for it, but a Parley server reads it there."""
    tenants = [one.tenant for one in card.supported_interfaces if one.protocol_binding == "GRPC" and one.tenant]
    return {"tenant": tenants[0]} if tenants and options.bindings[:1] == ("GRPC",) else {}


def is_same_place(ours: str, theirs: str) -> bool:
    try:
        here, there = urlsplit(ours), urlsplit(theirs if "://" in theirs else f"grpc://{theirs}")
        if there.scheme == "grpc":
            return here.hostname == there.hostname
        return (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port)
    except ValueError:  # an invalid URL matches nothing
        return False


def _bindings() -> tuple[str, ...]:
    try:
        import grpc  # noqa: F401  # pyright: ignore
    except ImportError:
        return BINDINGS
    return (*BINDINGS, "GRPC")


def _channel(options: RemoteOptions) -> Any:
    try:
        import grpc.aio  # pyright: ignore
    except ImportError:
        return None
    channels: Any = grpc.aio  # pyright: ignore
    if options.url.startswith("http:"):
        return channels.insecure_channel
    credentials: Any = cast(Any, grpc).ssl_channel_credentials()
    return partial(channels.secure_channel, credentials=credentials)


def _translated(error: Exception) -> Exception:
    """Translate an error of the SDK to ConnectionLost or RemoteRefused. The text contains nothing that was sent."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ParleyError | httpx.TransportError | httpx.HTTPStatusError):
        cause = cause.__cause__
    if isinstance(cause, ParleyError):
        return cause
    if isinstance(error, TaskNotFoundError):
        return RemoteRefused("not_found", "It does not know the task.")
    if isinstance(error, UnsupportedOperationError):
        return RemoteRefused("over", error.message)
    if isinstance(cause, httpx.TransportError):
        unsent = isinstance(cause, _UNSENT)
        return ConnectionLost(type(cause).__name__, unsent=unsent, silent=isinstance(cause, httpx.TimeoutException))
    if isinstance(cause, httpx.HTTPStatusError):
        return _status_translated(cause.response)
    if rpc := _rpc_status(error):
        return (
            RemoteRefused("credentials", f"It refused our credentials ({rpc}).")
            if rpc in _KEYS
            else ConnectionLost(f"gRPC {rpc}")
        )
    if isinstance(error, MethodNotFoundError | NotImplementedError):
        return RemoteRefused("unknown", "It does not support the operation.")
    if isinstance(error, A2AError):
        return RemoteRefused("other", error.message)
    return RemoteRefused("other", f"Its answer is not valid A2A ({type(error).__name__}).")


def _rpc_status(error: BaseException | None) -> str | None:
    """Return the status of a gRPC error if it concerns the connection or our credentials, not the request itself."""
    while error is not None:
        code = getattr(error, "code", None)
        name = getattr(cast(Any, code()), "name", None) if callable(code) else None
        if name in _GONE or name in _KEYS:
            return str(name)
        error = error.__cause__
    return None


def _status_translated(reply: httpx.Response) -> Exception:
    status = reply.status_code
    if status in (401, 403):
        return RemoteRefused("credentials", f"It refused our credentials (HTTP {status}).")
    if status in _TRANSIENT:
        return ConnectionLost(f"HTTP {status}", unsent=status in (429, 503))
    try:
        words = msgspec.json.decode(reply.content, type=_Problem).error.message
    except (msgspec.MsgspecError, httpx.StreamError):
        words = f"HTTP {status}."
    return RemoteRefused("unknown" if status in (404, 405, 501) else "other", words)


class _Fault(msgspec.Struct):
    message: str


class _Problem(msgspec.Struct):
    error: _Fault


# Cards for agents whose card cannot be fetched, or whose card has no URL that works from here.


def written_card(text: bytes, url: str) -> RemoteCard | None:
    """Parse a card that was given as text. Returns None if it is not a card or has no URL."""
    try:
        proto = parse_agent_card(msgspec.json.decode(text))
    except (ValueError, TypeError, AttributeError, json_format.Error):
        return None
    return RemoteCard(proto, url, None) if proto.supported_interfaces else None


def plain_card(url: str) -> RemoteCard:
    """Return a minimal card for an agent of which only the URL is known: JSON-RPC of A2A 0.3."""
    return RemoteCard(
        parse_agent_card({"name": "", "url": url, "protocolVersion": "0.3.0", "capabilities": {}}), url, None
    )


def moved_card(card: RemoteCard, url: str) -> RemoteCard:
    """Return the card with the URL that the agent registered, if the card has only URLs of other hosts: a URL in the
    card of an agent in a container is often valid only inside that container."""
    if any(is_same_place(url, one.url) for one in card.proto.supported_interfaces):
        return card
    proto = pb.AgentCard()
    proto.CopyFrom(card.proto)
    rpc = [one for one in proto.supported_interfaces if one.protocol_binding == "JSONRPC"]
    del proto.supported_interfaces[:]
    for version in [one.protocol_version for one in rpc] or ["0.3"]:
        proto.supported_interfaces.add(url=url, protocol_binding="JSONRPC", protocol_version=version)
    return RemoteCard(proto, card.url, card.etag)
