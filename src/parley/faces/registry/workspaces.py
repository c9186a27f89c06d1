"""Routes of nodes, `/workspaces`: operators create, list, change, watch and remove them, and nodes delegate tasks to
each other."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import msgspec
from starlette.types import Receive, Send

from parley.audit.service import record
from parley.clock import Clock, iso, now_ms
from parley.errors import Invalid, InvalidCursor, NotFound
from parley.faces.registry.face import MAX_PAGE, Caller, Callers, CallFace, NodeFace, id_of, number_of, page_headers
from parley.faces.registry.messages import (
    DelegateIn,
    RecordIn,
    UpdateIn,
    activity_view,
    delegation_view,
    event_view,
    node_view,
    peer_view,
)
from parley.http.face import Request, Response, Streamed, operation
from parley.http.sse import KEEP_ALIVE_S, Chunk, frame, write
from parley.nodes.delegations import Delegations
from parley.nodes.rules import ACTIVITY_TYPES, NewNode, NodeActivity, NodeEvent, NodePatch, check_id
from parley.nodes.service import Nodes
from parley.nodes.store import NodeQuery
from parley.nodes.tokens import digest, new_token
from parley.security.netguard import Guard, check_places

MAX_ACTIVITIES = 500
DEFAULT_ACTIVITIES = 100
MAX_ACTIVITY = 1024 * 1024
_TYPES = f"activity_type must be one of {', '.join(ACTIVITY_TYPES)}"


class NodeStreams(NodeFace):
    """Streams the events of nodes: numbered, resumable, and only of nodes that the caller may see."""

    def __init__(self, nodes: Nodes, callers: Callers) -> None:
        super().__init__(callers)
        self._nodes = nodes

    @operation("GET", "/workspaces/events/stream", more="member")
    async def all(self, request: Request[Caller]) -> Streamed:
        return await self._stream(request, None)

    @operation("GET", "/workspaces/{id}/events/stream", more="member")
    async def one(self, request: Request[Caller]) -> Streamed:
        id_ = id_of(request)
        await self._nodes.check_visible(request.caller.node, id_)
        await self._nodes.get(id_)
        return await self._stream(request, id_)

    async def _stream(self, request: Request[Caller], id_: str | None) -> Streamed:
        events = await self._nodes.follow(request.caller.node, id_, _cursor(request), KEEP_ALIVE_S)
        return partial(_write, events)


class Workspaces(NodeFace):
    def __init__(self, nodes: Nodes, callers: Callers, guard: Guard, clock: Clock = now_ms) -> None:
        super().__init__(callers)
        self._nodes = nodes
        self._guard = guard
        self._clock = clock

    @operation("POST", "/workspaces", permission="admin", body=NewNode)
    async def create(self, request: Request[Caller], new: NewNode) -> Response:
        """Create a node; return it with a registration token. Its first registration needs the token if the server
        requires credentials."""
        if new.url:
            await check_places(self._guard, new.url)
        token, _ = new_token(self._clock())
        node = await self._nodes.create(new, digest(token))
        await record("node.created", "node", node.id)
        return Response(201, {**node_view(node), "registration_token": token})

    @operation("GET", "/workspaces", permission="admin")
    async def list(self, request: Request[Caller]) -> Response:
        query = request.query
        parent, limit = query.get("parent_id"), number_of(query, "limit", MAX_PAGE, MAX_PAGE) or MAX_PAGE
        found = await self._nodes.store.find(
            NodeQuery(
                parent=check_id(parent) if parent else None,
                words=query.get("q", ""),
                cards=True,
                limit=limit,
                removed=query.get("removed") == "true",
                after=query.get("after", ""),
            )
        )
        return Response(200, [node_view(node) for node in found], page_headers([node.id for node in found], limit))

    @operation("GET", "/workspaces/{id}")
    async def show(self, request: Request[Caller]) -> Response:
        """Return a node. To a node that may not call it, it answers 404."""
        id_, caller = id_of(request), request.caller
        await self._nodes.check_visible(caller.node, id_)
        node = await self._nodes.current(id_)
        shown = node_view(node) if caller.owns(id_) else peer_view(node, internal=caller.node is not None)
        return Response(200, shown)

    @operation("PATCH", "/workspaces/{id}", permission="admin", body=NodePatch)
    async def patch(self, request: Request[Caller], patch: NodePatch) -> Response:
        id_ = id_of(request)
        if isinstance(patch.host_url, str) and patch.host_url:
            await check_places(self._guard, patch.host_url)
        await self._nodes.patch(id_, patch)
        await record("node.changed", "node", id_)
        return Response(200, node_view(await self._nodes.current(id_)))

    @operation("DELETE", "/workspaces/{id}", permission="admin")
    async def remove(self, request: Request[Caller]) -> Response:
        query = request.query
        cascade = query.get("cascade") == "true"
        gone = await self._nodes.remove(id_of(request), forwarded_to=query.get("forwarded_to"), cascade=cascade)
        for node in gone:
            await record("node.removed", "node", node.id)
        return Response(200, {"status": "removed", "removed": [node.id for node in gone]})

    @operation("GET", "/workspaces/{id}/hierarchy", more="owner")
    async def hierarchy(self, request: Request[Caller]) -> Response:
        above, node, children = await self._nodes.family(id_of(request))
        ids = [one.id for one in (*above, *children)] if request.caller.node is not None else []
        reachable = await self._nodes.hierarchy.reachable(node.id, ids) if ids else ()
        shown = {
            "ancestors": [peer_view(one, internal=one.id in reachable) for one in above],
            "children": [peer_view(one, internal=one.id in reachable) for one in children],
        }
        return Response(200, {**node_view(node), **shown})

    @operation("GET", "/workspaces/{id}/tokens", more="owner")
    async def tokens(self, request: Request[Caller]) -> Response:
        node = await self._nodes.get(id_of(request))
        return Response(200, [{"prefix": one.prefix, "created_at": iso(one.created_at)} for one in node.tokens])

    @operation("POST", "/workspaces/{id}/tokens", permission="admin")
    async def issue(self, request: Request[Caller]) -> Response:
        """Issue an additional token, which an operator passes on; existing tokens stay valid."""
        token, stored = new_token(self._clock())
        await self._nodes.add_token(id_of(request), stored)
        await record("node.token_created", "node", id_of(request))
        return Response(201, {"auth_token": token, "prefix": stored.prefix})

    @operation("DELETE", "/workspaces/{id}/tokens/{prefix}", more="owner")
    @operation("DELETE", "/workspaces/{id}/tokens", more="owner")
    async def revoke(self, request: Request[Caller]) -> Response:
        prefix = request.path.get("prefix")
        revoked = await self._nodes.revoke_tokens(id_of(request), prefix)
        if prefix is not None and not revoked:
            raise NotFound("token not found")
        node = request.caller.node
        await record("node.tokens_revoked", "node", id_of(request), actor=node and f"node:{node.id}")
        return Response(200, {"status": "revoked", "revoked": revoked})

    @operation("GET", "/workspaces/{id}/activity", more="owner")
    async def activity(self, request: Request[Caller]) -> Response:
        """List activities, newest first; for the next page, send the last id as `before`."""
        id_, query = id_of(request), request.query
        kind = query.get("type")
        if kind is not None and kind not in ACTIVITY_TYPES:
            raise Invalid(_TYPES, field="type")
        limit = number_of(query, "limit", DEFAULT_ACTIVITIES, MAX_ACTIVITIES) or DEFAULT_ACTIVITIES
        await self._nodes.get(id_)
        found = await self._nodes.activities(id_, kind, number_of(query, "before"), limit)
        return Response(200, [activity_view(event) for event in found])

    @operation("POST", "/workspaces/{id}/activity", more="owner", body=NodeActivity, limit=MAX_ACTIVITY)
    async def report(self, request: Request[Caller], activity: NodeActivity) -> Response:
        await self._nodes.log(id_of(request), activity)
        return Response(201, {"status": "logged"})


_encode = msgspec.json.Encoder().encode


async def _write(events: AsyncGenerator[list[NodeEvent], None], receive: Receive, send: Send) -> None:
    async with aclosing(_chunks(events)) as chunks:
        await write(receive, send, chunks, lambda chunk: chunk)


async def _chunks(steps: AsyncGenerator[list[NodeEvent], None]) -> AsyncGenerator[Chunk, None]:
    async with aclosing(steps):
        async for events in steps:
            yield b"".join(map(_frame, events)), False
    yield b"", True


def _frame(event: NodeEvent) -> bytes:
    data = _encode(event_view(event))
    return frame(event.seq, data) if event.seq else b"data: %b\n\n" % data


def _cursor(request: Request[Caller]) -> int | None:
    text = request.header(b"last-event-id")
    if text is None:
        text = request.query.get("after")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidCursor("Last-Event-ID must be an integer >= 0")
    return int(text)


_DELEGATIONS = "/workspaces/{id}/delegations"
_DELEGATION = f"{_DELEGATIONS}/{{delegation}}"


class DelegationFace(CallFace):
    """Operations on delegations, for the node itself and for administrators."""

    max_body = 1024 * 1024

    def __init__(self, delegations: Delegations, callers: Callers) -> None:
        super().__init__(callers)
        self._delegations = delegations

    @operation("POST", "/workspaces/{id}/delegate", more="owner", body=DelegateIn)
    async def delegate(self, request: Request[Caller], given: DelegateIn) -> Response:
        target, key = check_id(given.target_id), given.idempotency_key
        found, hit = await self._delegations.delegate(id_of(request), target, given.task, key)
        shown = {"delegation_id": found.id, "status": "delegated", "target_id": found.delegation.target}
        if not hit:
            return Response(202, shown)
        return Response(200, {**shown, "status": found.status, "idempotent_hit": True})

    @operation("GET", _DELEGATIONS, more="owner")
    async def newest(self, request: Request[Caller]) -> Response:
        return Response(200, [delegation_view(one) for one in await self._delegations.newest(id_of(request))])

    @operation("POST", f"{_DELEGATIONS}/record", more="owner", body=RecordIn)
    async def record(self, request: Request[Caller], given: RecordIn) -> Response:
        target = check_id(given.target_id)
        found = await self._delegations.record(id_of(request), target, given.task, given.delegation_id)
        return Response(201, {"delegation_id": found.id, "status": found.status, "target_id": found.delegation.target})

    @operation("GET", _DELEGATION, more="owner")
    async def get(self, request: Request[Caller]) -> Response:
        found = await self._delegations.get(id_of(request), request.path["delegation"])
        return Response(200, {**delegation_view(found), "task": found.delegation.task, "response": found.response})

    @operation("POST", f"{_DELEGATION}/update", more="owner", body=UpdateIn)
    async def update(self, request: Request[Caller], given: UpdateIn) -> Response:
        response = given.error if given.status == "failed" else given.response_preview
        place = id_of(request), request.path["delegation"]
        return Response(200, delegation_view(await self._delegations.update(*place, given.status, response)))

    @operation("POST", f"{_DELEGATION}/cancel", more="owner")
    async def cancel(self, request: Request[Caller]) -> Response:
        found = await self._delegations.cancel(id_of(request), request.path["delegation"])
        return Response(200, delegation_view(found))
