"""Routes of the registry, `/registry`: nodes register, send heartbeats and discover each other."""

from urllib.parse import parse_qs

import msgspec

from parley.clock import Clock, iso, now_ms
from parley.errors import Invalid, Unauthenticated
from parley.faces.registry.face import (
    MAX_BODY,
    MAX_PAGE,
    Caller,
    Callers,
    NodeFace,
    PlainFace,
    check_owner,
    id_of,
    number_of,
    page_headers,
)
from parley.faces.registry.messages import AccessIn, CardIn, NodeHeartbeatIn, RegisterIn, TokenIn, peer_view
from parley.http.face import Operation, Request, Response, operation
from parley.http.requests import read_body
from parley.nodes.rules import MAX_NAME, check_id, check_words
from parley.nodes.service import Nodes
from parley.nodes.tokens import Pairs, new_token
from parley.security.netguard import Guard, check_places

_FORM = "application/x-www-form-urlencoded"
_encode = msgspec.json.Encoder().encode


class RegistrationFace(PlainFace[None]):
    """Operations whose body names the calling node: they are authenticated after the body was read."""

    def __init__(self, nodes: Nodes, callers: Callers, pairs: Pairs, guard: Guard, clock: Clock = now_ms) -> None:
        self._nodes = nodes
        self._callers = callers
        self._pairs = pairs
        self._guard = guard
        self._clock = clock

    async def authenticate(self, request: Request[None], operation: Operation) -> None:
        return None

    @operation("POST", "/registry/register", body=RegisterIn)
    async def register(self, request: Request[None], given: RegisterIn) -> Response:
        """Register a node. The response contains a token only if the node has none yet; it is never shown again."""
        id_ = check_id(given.id)
        await self._callers.check_registering(request.scope, id_)
        await check_places(self._guard, given.url)
        token, stored = new_token(self._clock())
        card = _encode(given.agent_card)
        _, issued = await self._nodes.register(id_, given.url, card, stored, name=_name(given))
        shown = {"status": "registered", "issuer": self._pairs.issuer}
        return Response(200, shown | ({"auth_token": token} if issued else {}))

    @operation("POST", "/registry/heartbeat", body=NodeHeartbeatIn)
    async def heartbeat(self, request: Request[None], given: NodeHeartbeatIn) -> Response:
        node = await self._callers.node(request.scope, check_id(given.workspace_id))
        metadata = b"" if given.runtime_metadata is None else _encode(given.runtime_metadata)
        await self._nodes.heartbeat(node, given.beat(self._clock(), metadata))
        return Response(200, {"status": "ok"})

    @operation("POST", "/registry/update-card", body=CardIn)
    async def update_card(self, request: Request[None], given: CardIn) -> Response:
        id_ = check_id(given.workspace_id)
        check_owner(await self._callers.asking(request.scope, id_), id_)
        await self._nodes.update_card(id_, _encode(given.agent_card))
        return Response(200, {"status": "updated"})

    @operation("POST", "/registry/check-access", body=AccessIn)
    async def check_access(self, request: Request[None], given: AccessIn) -> Response:
        """Return whether one node may call another. A node gets answers only about itself."""
        caller, target = check_id(given.caller_id), check_id(given.target_id)
        asking = (await self._callers.asking(request.scope, caller)).node
        concerned = asking is None or asking.id in (caller, target)
        return Response(200, {"allowed": concerned and await self._nodes.check_access(caller, target)})

    @operation("POST", "/registry/introspect")
    async def introspect(self, request: Request[None]) -> Response:
        """Introspect a pair token (RFC 7662). A node gets answers only about tokens issued for calls to it."""
        token = await self._token(request)
        asking = await self._callers.asking(request.scope)
        try:
            claims = await self._pairs.claims_of(token)
        except Unauthenticated:
            return Response(200, {"active": False})
        if not await self._nodes.counts(claims) or (asking.node is not None and asking.node.id != claims.aud):
            return Response(200, {"active": False})
        shown = {name: getattr(claims, name) for name in claims.__struct_fields__}
        return Response(200, {"active": True, "token_type": "Bearer", "client_id": claims.sub, **shown})

    async def _token(self, request: Request[None]) -> str:
        """Read the token from a form, as in RFC 7662, or from JSON."""
        if (request.header(b"content-type") or "").partition(";")[0].strip().lower() != _FORM:
            return self.decode(await request.body(MAX_BODY), TokenIn).token
        body = await read_body(request.receive, MAX_BODY)
        tokens = parse_qs(body.decode("latin-1")).get("token", [])
        if len(tokens) != 1:
            raise Invalid("token is required", field="token")
        return tokens[0]


class Directory(NodeFace):
    def __init__(self, nodes: Nodes, callers: Callers, pairs: Pairs) -> None:
        super().__init__(callers)
        self._nodes = nodes
        self._pairs = pairs

    @operation("GET", "/registry/discover/{id}", permission="read", more="named")
    async def discover(self, request: Request[Caller]) -> Response:
        """Return the address of a node: the internal one and a pair token for nodes, the external one for other
        callers."""
        caller = request.caller.node
        found = await self._nodes.discover(caller, id_of(request))
        shown: dict[str, object] = {"id": found.node.id, "url": found.url, "name": found.node.name}
        if caller is not None:
            token, expires_at = await self._pairs.issue(caller, found.node)
            shown |= {"token": token, "token_expires_at": iso(expires_at * 1000)}
        if not found.moved:
            return Response(200, shown)
        return Response(301, shown, [(b"location", f"/registry/discover/{found.node.id}".encode())])

    @operation("GET", "/registry/{id}/peers", more="self")
    async def peers(self, request: Request[Caller]) -> Response:
        query = request.query
        limit = number_of(query, "limit", MAX_PAGE, MAX_PAGE) or MAX_PAGE
        found = await self._nodes.peers(id_of(request), query.get("q", ""), query.get("after", ""), limit)
        shown = [peer_view(node, internal=request.caller.node is not None) for node in found]
        return Response(200, shown, page_headers([node.id for node in found], limit))


def _name(given: RegisterIn) -> str:
    """Return the name for a new node: the given name, or that of its card, or its id."""
    written = given.agent_card.get("name")
    for name in (given.name, _text(bytes(written)) if written is not None else None):
        if name and len(name) <= MAX_NAME:
            try:
                check_words(name=name)
            except Invalid:
                continue
            return name
    return check_id(given.id)


def _text(written: bytes) -> str | None:
    try:
        return msgspec.json.decode(written, type=str)
    except msgspec.MsgspecError:
        return None
