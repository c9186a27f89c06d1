"""A node spoken to through this server: who asks is found out, what is asked is completed, and then it is A2A."""

import time
import uuid
from typing import Any, cast

import msgspec
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from parley.core.access import Principal
from parley.core.nodes import Activity, Node, check_id, slug_of
from parley.engine.nodes import Nodes
from parley.engine.proxying import Proxying
from parley.errors import InvalidCaller, InvalidJson, ParleyError
from parley.faces.a2a.card import Cards
from parley.faces.a2a.discovery import CARD_PATHS
from parley.faces.a2a.jsonrpc import METHODS, JsonRpc
from parley.faces.http import Endpoint, Headers, asked_version, check_text, header, read_json
from parley.faces.patience import Patience
from parley.faces.proxy.faults import answer_of
from parley.faces.proxy.operations import KEEP_ALIVE
from parley.faces.proxy.serving import refused, route
from parley.faces.registry.callers import NODE, Callers, by_principal
from parley.faces.registry.serving import Reply, id_of
from parley.telemetry import tell

_OURS = ("webhook:", "system:", "test:", "channel:")
"""Callers that only this server itself could be."""


class ProxyRpc(JsonRpc):
    """A2A, but for what this contract says in its own words."""

    def answer_of(self, error: ParleyError) -> tuple[int, object, Headers] | None:
        return answer_of(error)

    def _patience(self, send: Send) -> Patience:
        """Held until the node has taken the request: before that, the answer may be 502 or 504."""
        patience = Patience(send, held=True)
        KEEP_ALIVE.set(patience.start)
        return patience


class Asked(msgspec.Struct, frozen=True):
    body: bytes
    method: str
    ids: dict[str, str]


class _Identified(msgspec.Struct):
    id: Any = None


class _Result(_Identified):
    """A task of A2A 0.3, or a result of 1.0 that holds one; a message has no id."""

    task: _Identified | None = None


class _Response(msgspec.Struct):
    result: _Result


class Proxy:
    def __init__(
        self, nodes: Nodes, callers: Callers, proxying: Proxying, rpc: JsonRpc, cards: Cards, max_body: int
    ) -> None:  # fmt: skip
        self._cards = cards
        self._nodes = nodes
        self._callers = callers
        self._proxying = proxying
        self._rpc = rpc
        self._max_body = max_body

    def routes(self) -> list[Route]:
        at = "/workspaces/{id}/a2a"
        return [
            Route(at, Endpoint(self.call), methods=["POST"]),
            *(route("GET", at + path, self.card) for path in CARD_PATHS),
        ]

    async def card(self, scope: Scope, receive: Receive) -> Reply:
        """As the node registered it, but to be spoken to here, and signed by us."""
        target = id_of(scope)
        asking = await self._callers.asking(scope, target)
        node = await self._proxying.target(asking.node, target)
        told = msgspec.json.decode((await self._nodes.known(node.id, card=True)).card or b"{}", type=dict[str, Any])
        version = "1.0" if asked_version(scope) == "1.0" else "0.3"
        url = f"{self._cards.base_url}/workspaces/{node.id}/a2a"
        return Reply(200, await self._cards.passed_on({**_named(node), **told}, url, version))

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            target = id_of(scope)
            caller, principal = await self._caller(scope, target)
            asked = completed(await read_json(receive, self._max_body))
            node = await self._proxying.target(caller, target)
        except ParleyError as error:
            return await refused(send, error)
        began, seen = time.monotonic(), _Seen(send)
        await self._rpc(_addressed(scope, node, principal, asked), _read(asked.body, receive), seen)
        duration_ms = int((time.monotonic() - began) * 1000)
        return await self._note(node, caller, asked, seen, duration_ms)

    async def _caller(self, scope: Scope, target: str) -> tuple[Node | None, Principal]:
        """The node that asks, by its token; or, without a name, somebody with credentials of ours."""
        claimed = header(scope, NODE)
        if claimed is None:
            return None, by_principal(scope, "send")
        if claimed.lower().startswith(_OURS):
            raise InvalidCaller("invalid caller ID")
        node = await self._callers.node(scope, check_id(claimed))
        return node, Principal("node", node.id)

    async def _note(
        self, node: Node, caller: Node | None, asked: Asked, seen: "_Seen", duration_ms: int
    ) -> None:  # fmt: skip
        activity = Activity(
            "a2a_receive", caller.id if caller else None, node.id, asked.method[:100] or None,
            duration_ms=duration_ms, status=seen.outcome, request_body=_raw({"bytes": len(asked.body), **asked.ids}),
            response_body=_raw({"bytes": seen.size, **seen.ids}),
        )  # fmt: skip
        try:
            await self._nodes.log(node.id, activity)
        except ParleyError as error:
            tell("activity.not_kept", node=node.id, code=error.code)


def _named(node: Node) -> dict[str, Any]:
    return {"name": node.name, **({"description": node.role} if node.role else {})}


MAX_NOTED = 64 * 1024
"""The largest response that is looked through for the id of a task."""
MAX_ID = 200


class _Seen:
    """How a call was answered: its status, its size, and the id of its task."""

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
    def outcome(self) -> Any:
        return "timeout" if self._status == 504 else "error" if self._status >= 400 else "ok"

    @property
    def ids(self) -> dict[str, str]:
        try:
            result = msgspec.json.decode(self._body, type=_Response).result
        except (msgspec.MsgspecError, RecursionError):
            return {}
        return _ids(task_id=(result.task or result).id)


def completed(body: bytes) -> Asked:
    """A request as A2A wants it: in an envelope, with an id, and its message with one too."""
    check_text(body)
    try:
        request: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidJson("invalid JSON") from None
    if not isinstance(request, dict):
        raise InvalidJson("invalid JSON: expected an object")
    asked: dict[str, Any] = request  # pyright: ignore[reportUnknownVariableType]
    changed = "jsonrpc" not in asked
    if changed:
        asked = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), **asked}
    params = asked.get("params")
    message = params.get("message") if isinstance(params, dict) else None  # pyright: ignore
    if isinstance(message, dict) and not message.get("messageId") and not message.get("message_id"):  # pyright: ignore
        message["messageId"] = str(uuid.uuid4())
        changed = True
    method = asked.get("method")
    return Asked(
        msgspec.json.encode(asked) if changed else body, method if isinstance(method, str) else "", _request_ids(asked)
    )


def _request_ids(asked: dict[str, Any]) -> dict[str, str]:
    """The ids in a request; nothing else of it is noted, because the rest may hold credentials."""
    about = _object(asked.get("params"))
    message = _object(about.get("message"))
    task = about.get("taskId") or about.get("id") or message.get("taskId") or message.get("task_id")
    return _ids(id=asked.get("id"), message_id=message.get("messageId") or message.get("message_id"), task_id=task)


def _object(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _ids(**given: object) -> dict[str, str]:
    return {name: str(id_)[:MAX_ID] for name, id_ in given.items() if isinstance(id_, str | int) and id_ != ""}


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _addressed(scope: Scope, node: Node, principal: Principal, asked: Asked) -> Scope:
    """The same request at the node's own address among agents. The name of a method says which generation it is of."""
    headers = list(scope["headers"])
    found = METHODS.get(asked.method)
    if found is not None and header(scope, b"a2a-version") is None:
        headers.append((b"a2a-version", found[0].version.encode()))
    path = {"slug": slug_of(node.id), "rest": ""}
    fresh = {name: value for name, value in scope.items() if name != "parley.headers"}
    return {**fresh, "headers": headers, "principal": principal, "path_params": path}


def _read(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed
