"""`/registry`: nodes say that they are there, and find each other."""

from urllib.parse import parse_qs

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.clock import Clock, iso, now_ms
from parley.core.nodes import MAX_NAME, PLATFORM, Node, check_id, check_words, pair_generation
from parley.engine.nodes import Nodes
from parley.errors import Invalid, NodeNotFound, ParleyError, Unauthenticated
from parley.faces.http import header, read_body
from parley.faces.registry.callers import NODE, Callers, by_principal, owner_of
from parley.faces.registry.serving import (
    MAX_BODY,
    MAX_PAGE,
    Reply,
    body_of,
    id_of,
    number_of,
    page_headers,
    query_of,
    route,
)
from parley.faces.registry.showing import peer_view
from parley.faces.registry.words import AccessIn, CardIn, HeartbeatIn, RegisterIn, TokenIn
from parley.security.netguard import Guard, check_places
from parley.security.nodes import check_token, new_token
from parley.security.pairs import Pairs

_FORM = "application/x-www-form-urlencoded"
_encode = msgspec.json.Encoder().encode


class RegistryCalls:
    def __init__(self, nodes: Nodes, callers: Callers, pairs: Pairs, guard: Guard, clock: Clock = now_ms) -> None:
        self._nodes = nodes
        self._callers = callers
        self._pairs = pairs
        self._guard = guard
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            route("POST", "/registry/register", self.register),
            route("POST", "/registry/heartbeat", self.heartbeat),
            route("POST", "/registry/update-card", self.update_card),
            route("GET", "/registry/discover/{id}", self.discover),
            route("GET", "/registry/{id}/peers", self.peers),
            route("POST", "/registry/check-access", self.check_access),
            route("POST", "/registry/introspect", self.introspect),
        ]

    async def register(self, scope: Scope, receive: Receive) -> Reply:
        """The answer holds a token when the node has none: then, and never again."""
        asked = await body_of(receive, RegisterIn)
        id_ = check_id(asked.id)
        found = await self._nodes.store.get([id_])
        node = found[0] if found else None
        if node is not None and node.tokens:
            await self._callers.node(scope, id_)
        elif node is not None and node.removed:
            check_token(node, "removed")
        else:
            await self._callers.admitted(scope, node)
        await check_places(self._guard, asked.url)
        token, kept = new_token(self._clock())
        card = _encode(asked.agent_card)
        _, issued = await self._nodes.register(id_, asked.url, card, kept, name=_name(asked))
        return Reply(200, {"status": "registered", **({"auth_token": token} if issued else {})})

    async def heartbeat(self, scope: Scope, receive: Receive) -> Reply:
        said = await body_of(receive, HeartbeatIn)
        node = await self._callers.node(scope, check_id(said.workspace_id))
        metadata = b"" if said.runtime_metadata is None else _encode(said.runtime_metadata)
        await self._nodes.heartbeat(node, said.beat(self._clock(), metadata))
        return Reply(200, {"status": "ok"})

    async def update_card(self, scope: Scope, receive: Receive) -> Reply:
        said = await body_of(receive, CardIn)
        id_ = check_id(said.workspace_id)
        owner_of(await self._callers.asking(scope, id_), id_)
        await self._nodes.update_card(id_, _encode(said.agent_card))
        return Reply(200, {"status": "updated"})

    async def discover(self, scope: Scope, receive: Receive) -> Reply:
        """For a node the address among nodes, and a token for this pair; for others the address outside."""
        target, claimed = id_of(scope), header(scope, NODE)
        if claimed is None:
            by_principal(scope, "read")
        caller = None if claimed is None else await self._callers.node(scope, check_id(claimed))
        found = await self._nodes.discover(caller, target)
        shown: dict[str, object] = {"id": found.node.id, "url": found.url, "name": found.node.name}
        if caller is not None:
            token, expires_at = await self._pairs.issue(caller, found.node)
            shown |= {"token": token, "token_expires_at": iso(expires_at * 1000)}
        if not found.moved:
            return Reply(200, shown)
        return Reply(301, shown, [(b"location", f"/registry/discover/{found.node.id}".encode())])

    async def peers(self, scope: Scope, receive: Receive) -> Reply:
        id_, query = id_of(scope), query_of(scope)
        caller = await self._callers.asking(scope, id_)
        if caller.principal is None:
            owner_of(caller, id_)
        limit = number_of(query, "limit", MAX_PAGE, MAX_PAGE) or MAX_PAGE
        found = await self._nodes.peers(id_, query.get("q", ""), query.get("after", ""), limit)
        shown = [peer_view(node, internal=caller.node is not None) for node in found]
        return Reply(200, shown, page_headers([node.id for node in found], limit))

    async def check_access(self, scope: Scope, receive: Receive) -> Reply:
        """A node learns only of itself: who may talk to whom among others is none of its business."""
        asked = await body_of(receive, AccessIn)
        caller, target = check_id(asked.caller_id), check_id(asked.target_id)
        asking = (await self._callers.asking(scope, caller)).node
        concerned = asking is None or asking.id in (caller, target)
        return Reply(200, {"allowed": concerned and await self._nodes.check_access(caller, target)})

    async def introspect(self, scope: Scope, receive: Receive) -> Reply:
        """Whether a pair token still counts (RFC 7662); a node learns only of those for itself."""
        token = await _token_in(scope, receive)
        asking = await self._callers.asking(scope)
        try:
            claims = await self._pairs.claims_of(token)
            caller, target = await self._pair(claims.sub, claims.aud)
        except (Unauthenticated, NodeNotFound):
            return Reply(200, {"active": False})
        for_asker = asking.node is None or asking.node.id == target.id
        allowed = caller is None or await self._allows(caller, target)
        still = claims.gen == pair_generation(caller, target) and allowed
        if not (for_asker and still):
            return Reply(200, {"active": False})
        shown = {name: getattr(claims, name) for name in claims.__struct_fields__}
        return Reply(200, {"active": True, "token_type": "Bearer", "client_id": claims.sub, **shown})

    async def _pair(self, caller: str, target: str) -> tuple[Node | None, Node]:
        """Those of a token; None is the platform."""
        found = {node.id: node for node in await self._nodes.store.get([caller, target]) if not node.removed}
        if caller not in (*found, PLATFORM) or target not in found:
            raise NodeNotFound("workspace not found")
        return found.get(caller), found[target]

    async def _allows(self, caller: Node, target: Node) -> bool:
        try:
            return await self._nodes.hierarchy.allows(caller, target)
        except ParleyError:
            return False


def _name(asked: RegisterIn) -> str:
    """How a node is called that nobody has created: as it says, or as its card says, or by its id."""
    written = asked.agent_card.get("name")
    for name in (asked.name, _text(bytes(written)) if written is not None else None):
        if name and len(name) <= MAX_NAME:
            try:
                check_words(name=name)
            except Invalid:
                continue
            return name
    return check_id(asked.id)


def _text(written: bytes) -> str | None:
    try:
        return msgspec.json.decode(written, type=str)
    except msgspec.MsgspecError:
        return None


async def _token_in(scope: Scope, receive: Receive) -> str:
    """In a form, as RFC 7662 has it, or in JSON."""
    if (header(scope, b"content-type") or "").partition(";")[0].strip().lower() != _FORM:
        return (await body_of(receive, TokenIn)).token
    body = await read_body(receive, MAX_BODY)
    tokens = parse_qs(body.decode("latin-1")).get("token", [])
    if len(tokens) != 1:
        raise Invalid("token is required", field="token")
    return tokens[0]
