"""What happens to nodes, as server-sent events: numbered, resumable, and only of those that the caller may reach."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.core.nodes import Happened, Node, NodeEvent
from parley.engine.nodes import Nodes
from parley.errors import Forbidden, InvalidCursor, NodeNotFound, ParleyError
from parley.faces.http import Endpoint, header
from parley.faces.registry.callers import Caller, Callers
from parley.faces.registry.serving import id_of, query_of, refuse
from parley.faces.registry.showing import event_view
from parley.faces.sse import KEEP_ALIVE_S, frame, write

_encode = msgspec.json.Encoder().encode


class Moved(msgspec.Struct, frozen=True):
    previous_parent_id: str | None = None


class StreamCalls:
    def __init__(self, nodes: Nodes, callers: Callers) -> None:
        self._nodes = nodes
        self._callers = callers

    def routes(self) -> list[Route]:
        return [
            Route("/workspaces/events/stream", Endpoint(self.all), methods=["GET"]),
            Route("/workspaces/{id}/events/stream", Endpoint(self.one), methods=["GET"]),
        ]

    async def all(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._stream(scope, receive, send, None)

    async def one(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            node = id_of(scope)
        except ParleyError as error:
            return await refuse(send, error)
        return await self._stream(scope, receive, send, node)

    async def _stream(self, scope: Scope, receive: Receive, send: Send, node: str | None) -> None:
        try:
            caller = await self._callers.asking(scope, node)
            await self._check(caller, node)
            events = await self._nodes.feed.follow(_cursor(scope), KEEP_ALIVE_S)
        except ParleyError as error:
            return await refuse(send, error)
        async with aclosing(events), aclosing(self._seen(caller, node, events)) as steps:
            return await write(receive, send, steps, lambda data: (data or b"", data is None))

    async def _check(self, caller: Caller, node: str | None) -> None:
        if caller.node is None and not caller.admin:
            raise Forbidden("this needs a workspace auth token, or the scope admin")
        if node is None:
            return
        if caller.node is not None and not await self._nodes.check_access(caller.node.id, node):
            raise NodeNotFound("workspace not found")
        await self._nodes.get(node)

    async def _seen(
        self, caller: Caller, node: str | None, steps: AsyncGenerator[list[NodeEvent], None]
    ) -> AsyncGenerator[bytes | None, None]:
        """The frames for one caller; empty for silence, None once its token does not count any more."""
        async for events in steps:
            about = [event for event in events if node in (None, event.node)]
            if about and caller.node is not None:
                now = await self._still(caller.node)
                if now is None:
                    yield None
                    return
                about = await self._reachable(now, about)
            yield b"".join(map(_frame, about))

    async def _still(self, asked: Node) -> Node | None:
        """The caller as it is now, unless it was removed or its tokens were revoked."""
        found = await self._nodes.store.get([asked.id])
        if not found or found[0].removed or (asked.tokens and not set(asked.tokens) & set(found[0].tokens)):
            return None
        return found[0]

    async def _reachable(self, caller: Node, events: list[NodeEvent]) -> list[NodeEvent]:
        """Now, or until just now: whoever could talk to a node learns that it has gone away."""
        reached = await self._nodes.hierarchy.reachable(caller.id, {event.node for event in events}, gone=True)
        return [one for one in events if one.node in reached or _left(one, caller)]


def _left(event: NodeEvent, caller: Node) -> bool:
    if event.name != Happened.MOVED:
        return False
    before = msgspec.json.decode(event.payload, type=Moved).previous_parent_id
    return before in (caller.parent_id, caller.id) or event.node == caller.parent_id


def _frame(event: NodeEvent) -> bytes:
    data = _encode(event_view(event))
    return frame(event.seq, data) if event.seq else b"data: %b\n\n" % data


def _cursor(scope: Scope) -> int | None:
    text = header(scope, b"last-event-id")
    if text is None:
        text = query_of(scope).get("after")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidCursor("Last-Event-ID must be an integer >= 0")
    return int(text)
