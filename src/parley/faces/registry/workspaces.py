"""`/workspaces`: nodes as their operators see them: made, placed, watched and removed."""

from msgspec.structs import replace
from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.clock import Clock, iso, now_ms
from parley.core.nodes import ACTIVITY_TYPES, Activity, NewNode, Node, Patch, check_id
from parley.engine.nodes import Nodes
from parley.engine.ports.nodes import NodeQuery
from parley.errors import Invalid, NodeNotFound, NotFound
from parley.faces.registry.callers import Callers, by_principal, owner_of
from parley.faces.registry.serving import (
    MAX_PAGE,
    Reply,
    body_of,
    id_of,
    number_of,
    page_headers,
    query_of,
    route,
)
from parley.faces.registry.showing import activity_view, node_view, peer_view
from parley.security.netguard import Guard, check_places
from parley.security.nodes import digest, new_token

MAX_ACTIVITIES = 500
DEFAULT_ACTIVITIES = 100
MAX_ACTIVITY = 1024 * 1024


class WorkspaceCalls:
    def __init__(self, nodes: Nodes, callers: Callers, guard: Guard, clock: Clock = now_ms) -> None:
        self._nodes = nodes
        self._callers = callers
        self._guard = guard
        self._clock = clock

    def routes(self) -> list[Route]:
        return [
            route("POST", "/workspaces", self.create),
            route("GET", "/workspaces", self.list),
            route("GET", "/workspaces/{id}", self.show),
            route("PATCH", "/workspaces/{id}", self.patch),
            route("DELETE", "/workspaces/{id}", self.remove),
            route("GET", "/workspaces/{id}/hierarchy", self.hierarchy),
            route("GET", "/workspaces/{id}/tokens", self.tokens),
            route("POST", "/workspaces/{id}/tokens", self.issue),
            route("DELETE", "/workspaces/{id}/tokens", self.revoke),
            route("DELETE", "/workspaces/{id}/tokens/{prefix}", self.revoke),
            route("GET", "/workspaces/{id}/activity", self.activity),
            route("POST", "/workspaces/{id}/activity", self.report),
        ]

    async def create(self, scope: Scope, receive: Receive) -> Reply:
        """With the token that lets it register the first time, where that needs one."""
        by_principal(scope, "admin")
        asked = await body_of(receive, NewNode)
        if asked.url:
            await check_places(self._guard, asked.url)
        token, _ = new_token(self._clock())
        node = await self._nodes.create(asked, digest(token))
        return Reply(201, {**node_view(node), "registration_token": token})

    async def list(self, scope: Scope, receive: Receive) -> Reply:
        by_principal(scope, "admin")
        query = query_of(scope)
        parent, limit = query.get("parent_id"), number_of(query, "limit", MAX_PAGE, MAX_PAGE) or MAX_PAGE
        found = await self._nodes.store.find(
            NodeQuery(
                parent=check_id(parent) if parent else None, words=query.get("q", ""), cards=True, limit=limit,
                removed=query.get("removed") == "true", after=query.get("after", ""),
            )
        )  # fmt: skip
        return Reply(200, [node_view(node) for node in found], page_headers([node.id for node in found], limit))

    async def show(self, scope: Scope, receive: Receive) -> Reply:
        """What another node may not talk to does not exist for it."""
        id_ = id_of(scope)
        caller = await self._callers.asking(scope, id_)
        if caller.node is not None and not await self._nodes.check_access(caller.node.id, id_):
            raise NodeNotFound("workspace not found")
        node = await self._current(id_)
        return Reply(200, node_view(node) if caller.owns(id_) else peer_view(node, internal=caller.node is not None))

    async def patch(self, scope: Scope, receive: Receive) -> Reply:
        id_ = id_of(scope)
        by_principal(scope, "admin")
        asked = await body_of(receive, Patch)
        if isinstance(asked.host_url, str) and asked.host_url:
            await check_places(self._guard, asked.host_url)
        await self._nodes.patch(id_, asked)
        return Reply(200, node_view(await self._current(id_)))

    async def _current(self, id_: str) -> Node:
        """The node with its card and its latest heartbeat."""
        node = await self._nodes.get(id_, card=True)
        return replace(node, beat=self._nodes.liveness.noted(node))

    async def remove(self, scope: Scope, receive: Receive) -> Reply:
        id_, query = id_of(scope), query_of(scope)
        by_principal(scope, "admin")
        cascade = query.get("cascade") == "true"
        gone = await self._nodes.remove(id_, forwarded_to=query.get("forwarded_to"), cascade=cascade)
        return Reply(200, {"status": "removed", "removed": [node.id for node in gone]})

    async def hierarchy(self, scope: Scope, receive: Receive) -> Reply:
        id_ = id_of(scope)
        caller = await self._callers.asking(scope, id_)
        owner_of(caller, id_)
        above, node, children = await self._nodes.family(id_)
        ids = [one.id for one in (*above, *children)] if caller.node is not None else []
        reachable = await self._nodes.hierarchy.reachable(id_, ids) if ids else ()
        shown = {
            "ancestors": [peer_view(one, internal=one.id in reachable) for one in above],
            "children": [peer_view(one, internal=one.id in reachable) for one in children],
        }
        return Reply(200, {**node_view(node), **shown})

    async def tokens(self, scope: Scope, receive: Receive) -> Reply:
        id_ = id_of(scope)
        owner_of(await self._callers.asking(scope, id_), id_)
        node = await self._nodes.get(id_)
        return Reply(200, [{"prefix": one.prefix, "created_at": iso(one.created_at)} for one in node.tokens])

    async def issue(self, scope: Scope, receive: Receive) -> Reply:
        """One more token, for an operator to hand over; the others stay good."""
        id_ = id_of(scope)
        by_principal(scope, "admin")
        token, kept = new_token(self._clock())
        await self._nodes.add_token(id_, kept)
        return Reply(201, {"auth_token": token, "prefix": kept.prefix})

    async def revoke(self, scope: Scope, receive: Receive) -> Reply:
        id_ = id_of(scope)
        owner_of(await self._callers.asking(scope, id_), id_)
        prefix = scope["path_params"].get("prefix")
        gone = await self._nodes.revoke_tokens(id_, prefix)
        if prefix is not None and not gone:
            raise NotFound("token not found")
        return Reply(200, {"status": "revoked", "revoked": gone})

    async def activity(self, scope: Scope, receive: Receive) -> Reply:
        """The newest first; go on with `before` and the last id."""
        id_, query = id_of(scope), query_of(scope)
        owner_of(await self._callers.asking(scope, id_), id_)
        kind = query.get("type")
        if kind is not None and kind not in ACTIVITY_TYPES:
            raise Invalid(_TYPES, field="type")
        limit = number_of(query, "limit", DEFAULT_ACTIVITIES, MAX_ACTIVITIES) or DEFAULT_ACTIVITIES
        await self._nodes.get(id_)
        found = await self._nodes.activities(id_, kind, number_of(query, "before"), limit)
        return Reply(200, [activity_view(event) for event in found])

    async def report(self, scope: Scope, receive: Receive) -> Reply:
        id_ = id_of(scope)
        owner_of(await self._callers.asking(scope, id_), id_)
        await self._nodes.log(id_, await body_of(receive, Activity, MAX_ACTIVITY))
        return Reply(201, {"status": "logged"})


_TYPES = f"activity_type must be one of {', '.join(ACTIVITY_TYPES)}"
