"""Routes of the proxy, `/workspaces/{id}/a2a`: A2A calls of a node through this server. Missing members of a request
are added first."""

import time
import uuid
from functools import partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace
from starlette.types import Message, Receive, Send

from parley.errors import CallQueued, InvalidCaller, InvalidJson
from parley.faces.a2a.card import Cards, card_version
from parley.faces.a2a.jsonrpc import METHODS, JsonRpc, RpcCall
from parley.faces.a2a.messages import A2ACall, Ask
from parley.faces.a2a.operations import ACCEPTED, Operations
from parley.faces.a2a.routing import CARD_PATHS
from parley.faces.a2a.streams import A2AStream
from parley.faces.registry.face import NODE, Caller, Callers, CallFace, call_refusal_of, id_of
from parley.http.face import Operation, Request, Response, Streamed, operation
from parley.http.requests import asked_version, check_text
from parley.http.sse import KEEP_ALIVE_S, KeepAlive
from parley.ids import RunId
from parley.nodes.proxy import CallReport, Proxying, WaitingCall
from parley.nodes.rules import ActivityStatus, RegisteredNode, node_of, slug_of
from parley.nodes.service import Nodes
from parley.push.service import Push
from parley.runs.log import Outcome
from parley.runs.requests import Send as SendRequest
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Forwarded
from parley.runs.rules.content import Message as InputMessage
from parley.runs.rules.view import View
from parley.runs.service import Exchange

MAX_NOTED = 64 * 1024
"""Largest response that is searched for the id of a task."""
MAX_ID = 200
REACH_S = KEEP_ALIVE_S - 0.5
"""Seconds after which a stream starts even if it is still unknown whether the node can be reached."""
_AT = "/workspaces/{id}/a2a"
_OURS = ("webhook:", "system:", "test:", "channel:")
"""Prefixes of caller ids that are reserved for this server."""


class ProxyCall(msgspec.Struct, frozen=True):
    body: bytes
    method: str
    ids: dict[str, str]


class ProxyFace(CallFace):
    def __init__(
        self, nodes: Nodes, callers: Callers, proxying: Proxying, rpc: JsonRpc, cards: Cards, max_body: int
    ) -> None:
        super().__init__(callers)
        self.max_body = max_body
        self._cards = cards
        self._nodes = nodes
        self._proxying = proxying
        self._rpc = rpc

    async def authenticate(self, request: Request[Caller], operation: Operation) -> Caller:
        if operation.more == "named":
            id_of(request)
            if (request.header(NODE) or "").lower().startswith(_OURS):
                raise InvalidCaller("invalid caller ID")
        return await super().authenticate(request, operation)

    @operation("POST", _AT, permission="send", more="named")
    async def call(self, request: Request[Caller]) -> Streamed:
        called = completed(await request.body(self.max_body))
        node = await self._proxying.target(request.caller.node, id_of(request))
        return partial(self._forward, request, called, node)

    @operation("GET", _AT + CARD_PATHS[1])
    @operation("GET", _AT + CARD_PATHS[0])
    async def card(self, request: Request[Caller]) -> Response:
        """Return the card that the node registered, with the proxy's address and this server's signature."""
        node = await self._proxying.target(request.caller.node, id_of(request))
        card = msgspec.json.decode((await self._nodes.known(node.id, card=True)).card or b"{}", type=dict[str, Any])
        version = card_version(asked_version(request.scope))
        url = f"{self._cards.base_url}/workspaces/{node.id}/a2a"
        return Response(200, await self._cards.passed_on({**_named(node), **card}, url, version))

    async def _forward(
        self, request: Request[Caller], called: ProxyCall, node: RegisteredNode, receive: Receive, send: Send
    ) -> None:
        began, response, caller = time.monotonic(), _Response(send), request.caller
        principal = caller.principal or Principal("node", caller.node.id if caller.node else "")
        version = version_of(request, called.method)
        await self._rpc.serve(
            RpcCall(request.scope, slug_of(node.id), principal, called.body, version), receive, response
        )
        report = CallReport(
            called.method,
            response.outcome,
            int((time.monotonic() - began) * 1000),
            {"bytes": len(called.body), **called.ids},
            {"bytes": response.size, **response.ids},
        )
        await self._proxying.note(node, caller.node, report)


def version_of(request: Request[Any], method: str) -> str | None:
    """Return the A2A version of a method's name if the request names no version; else None."""
    found = METHODS.get(method)
    return None if found is None or request.header(b"a2a-version") is not None else found[0].version


def _named(node: RegisteredNode) -> dict[str, Any]:
    return {"name": node.name, **({"description": node.role} if node.role else {})}


class ProxiedNodes:
    """Makes nodes available as agents of A2A; their runs are stored in the log of this server."""

    def __init__(self, exchange: Exchange, push: Push, proxying: Proxying, timeout_s: float) -> None:
        self._exchange = exchange
        self._push = push
        self._proxying = proxying
        self._timeout_s = timeout_s

    def find(self, slug: str) -> Agent | None:
        driver = self._exchange.driver(slug) if node_of(slug) else None
        return driver.agent if driver else None

    def message(self, ask: Ask) -> InputMessage:
        """Return the message with the members of the request that the agent receives unchanged."""
        forwarded = Forwarded(ask.metadata, ask.output_modes, ask.context)
        return ask.message if forwarded == Forwarded() else replace(ask.message, forwarded=forwarded)

    async def accept(self, send: SendRequest, ask: Ask) -> Outcome:
        try:
            return await self._proxying.begin(send)
        except CallQueued as queued:
            if ask.hook is not None:
                waiting = await self._exchange.commands.state(RunId(str(queued.details["queue_id"])))
                await self._push.attach(waiting, ask.hook, ACCEPTED, replayed=True)
            raise

    async def settle(self, outcome: Outcome, call: A2ACall) -> View:
        waiting = WaitingCall(KEEP_ALIVE_S, call.taken or _ignore)
        return await self._proxying.settled(outcome, self._timeout_s, waiting)

    async def open(self, stream: A2AStream, outcome: Outcome) -> A2AStream:
        try:
            await self._proxying.reached(outcome, REACH_S)
        except BaseException:
            await stream.close()
            raise
        return stream


def _ignore() -> None:
    return None


def proxy_rpc(operations: Operations, max_body: int) -> JsonRpc:
    """Return the JSON-RPC binding of the proxy, with the contract's responses to errors of calls. Nothing is sent
    before the node has accepted the request: until then the status may become 502 or 504. The body limit is doubled
    because members may have been added to the request."""
    return JsonRpc(operations, max_body * 2, call_refusal_of, partial(KeepAlive, held=True))


class _Identified(msgspec.Struct):
    id: Any = None


class _Result(_Identified):
    """A task of A2A 0.3, or a result of 1.0 that contains a task; a message has no id."""

    task: _Identified | None = None


class _RpcResponse(msgspec.Struct):
    result: _Result


class _Response:
    """Forwards a response, and records its status, its size and the id of its task."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._status = 200
        self._stream = False
        self._body = b""
        self.size = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._stream = dict(message["headers"]).get(b"content-type", b"").startswith(b"text/event-stream")
        else:
            body = message.get("body", b"")
            self.size += len(body)
            if not self._stream and len(self._body) <= MAX_NOTED:
                self._body += body
        await self._send(message)

    @property
    def outcome(self) -> ActivityStatus:
        return "timeout" if self._status == 504 else "error" if self._status >= 400 else "ok"

    @property
    def ids(self) -> dict[str, str]:
        try:
            result = msgspec.json.decode(self._body, type=_RpcResponse).result
        except (msgspec.MsgspecError, RecursionError):
            return {}
        return _ids(task_id=(result.task or result).id)


def completed(body: bytes) -> ProxyCall:
    """Complete a request for A2A: add the JSON-RPC envelope with an id, and the id of the message, if missing."""
    check_text(body)
    try:
        decoded: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidJson("invalid JSON") from None
    if not isinstance(decoded, dict):
        raise InvalidJson("invalid JSON: expected an object")
    request: dict[str, Any] = decoded  # pyright: ignore[reportUnknownVariableType]
    changed = "jsonrpc" not in request
    if changed:
        request = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), **request}
    params = request.get("params")
    message = params.get("message") if isinstance(params, dict) else None  # pyright: ignore
    if isinstance(message, dict) and not message.get("messageId") and not message.get("message_id"):  # pyright: ignore
        message["messageId"] = str(uuid.uuid4())
        changed = True
    method = request.get("method")
    return ProxyCall(
        msgspec.json.encode(request) if changed else body,
        method if isinstance(method, str) else "",
        _request_ids(request),
    )


def _request_ids(request: dict[str, Any]) -> dict[str, str]:
    """Return the ids in a request. Nothing else of it is logged, because the rest may contain credentials."""
    about = _object(request.get("params"))
    message = _object(about.get("message"))
    task = about.get("taskId") or about.get("id") or message.get("taskId") or message.get("task_id")
    return _ids(id=request.get("id"), message_id=message.get("messageId") or message.get("message_id"), task_id=task)


def _object(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _ids(**given: object) -> dict[str, str]:
    return {name: str(id_)[:MAX_ID] for name, id_ in given.items() if isinstance(id_, str | int) and id_ != ""}
