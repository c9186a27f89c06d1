"""Rules that all operations of nodes share: authentication, error format, paging of lists.

A caller is a node, identified by its id and its token, or a principal as in every face."""

from typing import Any, ClassVar, Literal, TypeVar

from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.types import Scope

from parley.errors import (
    CallQueued,
    Forbidden,
    Invalid,
    NodeNotFound,
    NodeNotRoutable,
    NodeOverBudget,
    NodeRemoved,
    NodeTimedOut,
    NodeUnavailable,
    NodeUnreachable,
    OutboundRefused,
    ParleyError,
    Unauthenticated,
)
from parley.faces.registry.messages import event_view
from parley.http.face import Face, Operation, Proof, Request, Response, decoded
from parley.http.problems import status_of
from parley.http.requests import Headers, header, retry_headers
from parley.nodes.rules import NodeEvent, RegisteredNode, check_id
from parley.nodes.service import Nodes
from parley.nodes.tokens import admits, check_token
from parley.runs.rules.access import Principal, demand
from parley.runs.rules.access import Scope as Permission
from parley.security.credentials import Auth, bearer
from parley.telemetry import tell

NODE = b"x-workspace-id"
MAX_BODY = 256 * 1024
MAX_PAGE = 1000

C = TypeVar("C")
T = TypeVar("T")
Audience = Literal["owner", "self", "member", "named"]
"""Callers of an operation, besides principals with its permission. `owner`: the node in the path, and administrators;
`self`: that node, and principals with the permission to read; `member`: every node, and administrators; `named`: a node
that names itself in `X-Workspace-ID`. Without audience and permission: every node, and principals with the permission
to read."""


class Caller(Struct, frozen=True):
    """Caller of an operation: exactly one of principal and node is set."""

    principal: Principal | None = None
    node: RegisteredNode | None = None

    @property
    def admin(self) -> bool:
        return self.principal is not None and self.principal.may("admin")

    def owns(self, node: str) -> bool:
        """Return True if the caller may see all data of a node."""
        return self.admin or (self.node is not None and self.node.id == node)


class Callers:
    def __init__(self, nodes: Nodes, auth: Auth) -> None:
        self._nodes = nodes
        self._auth: Auth = auth

    async def node(self, scope: Scope, id_: str) -> RegisteredNode:
        """Return the node with this id after checking its token. A node without tokens is accepted if the server
        requires no credentials, or if the caller is an administrator."""
        found = await self._nodes.store.get([id_])
        node = found[0] if found else None
        if node is not None and not node.removed and not node.tokens and self._trusted(scope):
            return node
        check_token(node, token_of(scope))
        assert node is not None
        return node

    async def asking(self, scope: Scope, own: str | None = None) -> Caller:
        """Return the caller of a request. `own` is the node that the request is about: its token is accepted without
        `X-Workspace-ID`."""
        if (claimed := header(scope, NODE)) is not None:
            return Caller(node=await self.node(scope, check_id(claimed)))
        principal: Principal | None = scope["principal"]
        if principal is not None:
            demand(principal, "read")
            return Caller(principal)
        if own is None:
            raise Unauthenticated("credentials are required, or X-Workspace-ID and a workspace auth token")
        return Caller(node=await self.node(scope, own))

    async def named(self, scope: Scope, permission: Permission) -> Caller:
        """Return the node that names itself in `X-Workspace-ID`, or else the principal."""
        claimed = header(scope, NODE)
        if claimed is None:
            return Caller(by_principal(scope, permission))
        return Caller(node=await self.node(scope, check_id(claimed)))

    async def check_registering(self, scope: Scope, id_: str) -> None:
        """Raise unless a request may register a node: with one of its tokens, or, while it has none, with its
        registration token."""
        found = await self._nodes.store.get([id_])
        node = found[0] if found else None
        if node is not None and node.tokens:
            await self.node(scope, id_)
        elif node is not None and node.removed:
            check_token(node, "removed")
        elif not (self._trusted(scope) or (node is not None and admits(node, token_of(scope)))):
            check_token(node, token_of(scope))

    def _trusted(self, scope: Scope) -> bool:
        principal: Principal | None = scope["principal"]
        return self._auth == "none" or (principal is not None and principal.may("admin"))


def by_principal(scope: Scope, permission: Permission) -> Principal:
    """Return the principal of an operation that nodes may not call; raise if it lacks the permission."""
    principal: Principal | None = scope["principal"]
    if principal is None:
        raise Unauthenticated("credentials are required")
    demand(principal, permission)
    return principal


def check_owner(caller: Caller, node: str) -> None:
    if not caller.owns(node):
        raise Forbidden("the auth token of this workspace or the scope admin is required")


def token_of(scope: Scope) -> str | None:
    authorization = header(scope, b"authorization")
    return None if authorization is None else bearer(authorization)


class PlainFace(Face[C]):
    """Face with the contract's error format, `{"error": "text"}`."""

    proof: ClassVar[Proof] = "node"
    max_body = MAX_BODY

    def decode(self, body: bytes, type_: type[T]) -> T:
        return decoded(body, type_, malformed="invalid request body")

    def refuse(self, request: Request[C], error: ParleyError) -> Response:
        return refusal_of(error)


class NodeFace(PlainFace[Caller]):
    """Face whose operations name their audience in the table (`more`); the node that they are about is in the path."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def authenticate(self, request: Request[Caller], operation: Operation) -> Caller:
        scope, id_ = request.scope, id_of(request) if "id" in request.path else None
        audience: Audience | None = operation.more
        if audience == "named":
            return await self._callers.named(scope, operation.permission or "read")
        if operation.permission is not None:
            return Caller(by_principal(scope, operation.permission))
        caller = await self._callers.asking(scope, id_)
        if id_ is not None and (audience == "owner" or (audience == "self" and caller.node is not None)):
            check_owner(caller, id_)
        if audience == "member" and caller.node is None and not caller.admin:
            raise Forbidden("a workspace auth token or the scope admin is required")
        return caller


class CallFace(NodeFace):
    """Face whose operations call another node; errors of such calls have statuses of their own."""

    def refuse(self, request: Request[Caller], error: ParleyError) -> Response:
        return call_refusal_of(error) or refusal_of(error)


def id_of(request: Request[Any]) -> str:
    """Return the id of the node in the path."""
    return check_id(request.path["id"])


def number_of(query: QueryParams, name: str, default: int | None = None, most: int | None = None) -> int | None:
    """Return a positive whole number from the query, limited to `most`."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
        raise Invalid(f"{name} must be a positive integer", field=name)
    return int(text) if most is None else min(int(text), most)


def page_headers(ids: list[str], limit: int) -> Headers:
    """Return the header with the place where the next page starts. Lists are plain arrays, so it is a header."""
    return [(b"x-next-after", ids[-1].encode())] if len(ids) == limit else []


def refusal_of(error: ParleyError) -> Response:
    status, more = _status(error)
    if status == 401:
        tell("auth.refused", code=error.code)
    return Response(status, {"error": error.message, **more}, retry_headers(error))


def _status(error: ParleyError) -> tuple[int, dict[str, object]]:
    details = error.details
    if isinstance(error, NodeRemoved):
        last = details.get("last_event")
        return 410, {"last_event": event_view(last) if isinstance(last, NodeEvent) else None}
    if isinstance(error, NodeUnavailable):
        return 503, {"status": details.get("status")}
    if isinstance(error, OutboundRefused):
        return 400, {}
    return status_of(error)[0], {"children": children} if (children := details.get("children")) else {}


_CALL_STATUSES: list[tuple[type[ParleyError], int]] = [
    (CallQueued, 202), (NodeOverBudget, 402), (NodeUnavailable, 503), (NodeNotRoutable, 502), (NodeUnreachable, 502),
    (NodeTimedOut, 504), (NodeNotFound, 404), (NodeRemoved, 404),
]  # fmt: skip
_SHOWN = ("status", "waking", "restarting", "queue_id", "queue_depth", "task_id")


def call_refusal_of(error: ParleyError) -> Response | None:
    """Return the response to an error of a call through the proxy; None for an error that JSON-RPC can express."""
    status = next((status for kind, status in _CALL_STATUSES if isinstance(error, kind)), None)
    if status is None:
        return None
    more = {name: error.details[name] for name in _SHOWN if name in error.details}
    if isinstance(error, CallQueued):
        return Response(status, {"queued": True, **more, "message": error.message})
    return Response(status, {"error": error.message, **more}, retry_headers(error))
