"""Page of the nodes: a live tree with their states, an access check, and their activity."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from parley.console.layout import GraphLayout, layered
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, PageStream
from parley.errors import Invalid
from parley.http.requests import header
from parley.http.sse import KEEP_ALIVE_S, Chunk, frame
from parley.nodes.rules import BECAME, NodeEvent, NodeEventKind, RegisteredNode
from parley.nodes.store import EventQuery, NodeQuery
from parley.runs.rules.access import Relation

MOST = 200
"""Nodes on one page: a larger graph would not be readable."""
RECENT = 20

RULES: dict[Relation | None, str] = {
    "self": "Every node may call itself.",
    "siblings": "They have the same parent: siblings may call each other.",
    "roots": "Neither has a parent: nodes at the top may call each other.",
    "parent": "It is the caller's parent: a node may call its parent.",
    "child": "It is a child of the caller: a node may call its children.",
    "line": "One is above the other: with node_ancestors any two of one line may call each other.",
    None: "They are neither parent and child nor siblings: nodes talk within their family only.",
}
_STATUS = {name: status.value for status, name in BECAME.items()}
_QUIET = frozenset((NodeEventKind.HEARTBEAT.value,))
_ANOTHER_TREE = frozenset(
    map(str, (NodeEventKind.MOVED, NodeEventKind.UPDATED, NodeEventKind.REMOVED, NodeEventKind.PROVISIONING))
)


class Told(Struct, frozen=True):
    """Fields of an event's payload that name the two nodes of an activity."""

    source_id: str | None = None
    target_id: str | None = None
    activity_type: str = ""
    summary: str | None = None
    status: str = ""


class TopologyItem(Struct, frozen=True):
    """One line of the activity list, with the names of its nodes."""

    event: NodeEvent
    told: Told
    source: str
    target: str

    @property
    def words(self) -> str:
        about = self.told.activity_type or self.event.name.removeprefix("WORKSPACE_")
        return about.replace("_", " ").lower()


class TopologyPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk
        self._nodes = desk.beside.nodes

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/topology", self.show, "admin"),
            Page("GET", "/topology/tree", self.tree, "admin"),
            Page("GET", "/topology/access", self.access, "admin"),
            Page("GET", "/topology/events", self.events, "admin"),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        nodes, after = await self._page(visit)
        last = await self._nodes.feed.head()
        newest = await self._nodes.store.events(EventQuery(newest=True, limit=RECENT))
        items = [await self._item(event) for event in newest if event.name not in _QUIET]
        return visit.page(
            "topology.html",
            title="Topology",
            nodes=nodes,
            graph=drawn(nodes),
            last=last,
            items=items,
            next=after,
            first=not visit.query.get("after"),
            one=None,
            two=None,
            rule="",
            allowed=None,
        )

    async def tree(self, visit: PageRequest) -> PageReply:
        nodes, _ = await self._page(visit)
        return visit.fragment("_tree.html", nodes=nodes, graph=drawn(nodes))

    async def access(self, visit: PageRequest) -> PageReply:
        """Show if one node may call another, and by which rule."""
        caller, target = visit.query.get("caller", ""), visit.query.get("target", "")
        one, two = await self._nodes.get(caller), await self._nodes.get(target)
        found = await self._nodes.hierarchy.relation(one, two)
        told: dict[str, Any] = {"one": one, "two": two, "rule": RULES[found], "allowed": found is not None}
        if visit.wants_fragment:
            return visit.fragment("_access.html", **told)
        return visit.page("access.html", title="Check access", crumbs=[("Topology", "/topology")], **told)

    async def events(self, visit: PageRequest) -> PageStream:
        cursor = header(visit.scope, b"last-event-id") or visit.query.get("after", "")
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
            raise Invalid('"after" must be an event number.', field="after")
        steps = await self._nodes.feed.follow(int(cursor) if cursor else None, KEEP_ALIVE_S)
        return PageStream(self._frames(visit, steps))

    async def _frames(
        self, visit: PageRequest, steps: AsyncGenerator[list[NodeEvent], None]
    ) -> AsyncGenerator[Chunk, None]:
        async with aclosing(steps):
            async for events in steps:
                frames = [await self._frame(visit, event) for event in events]
                yield b"".join(frames), False

    async def _frame(self, visit: PageRequest, event: NodeEvent) -> bytes:
        item = await self._item(event)
        told: dict[str, object] = {"node": event.node, "status": _STATUS.get(event.name, "")}
        if event.name in _ANOTHER_TREE:
            told["anew"] = True
        if event.name not in _QUIET:
            told["line"] = visit.piece("_happened.html", item=item)
        source, target = item.told.source_id or event.node, item.told.target_id
        if target and target != source:
            told["between"] = [source, target]
        data = msgspec.json.encode(told)
        return frame(event.seq, data) if event.seq else b"data: %b\n\n" % data

    async def _item(self, event: NodeEvent) -> TopologyItem:
        try:
            told = msgspec.json.decode(event.payload, type=Told)
        except msgspec.MsgspecError:
            told = Told()
        source = told.source_id or event.node
        names = {node.id: node.name for node in await self._nodes.store.get([source, told.target_id or source])}
        return TopologyItem(
            event, told, names.get(source, source), names.get(told.target_id or "", told.target_id or "")
        )

    async def _page(self, visit: PageRequest) -> tuple[list[RegisteredNode], str]:
        found = await self._nodes.store.find(NodeQuery(after=visit.query.get("after", ""), limit=MOST + 1))
        shown = found[:MOST]
        return shown, shown[-1].id if len(found) > MOST else ""


def drawn(nodes: list[RegisteredNode]) -> GraphLayout:
    order = sorted(nodes, key=lambda node: node.name.lower())
    return layered([node.id for node in order], [(node.parent_id, node.id) for node in order if node.parent_id])
