"""Nodes that find each other: the hierarchy, who is there, and who may talk to whom (contract 004)."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from parley.clock import Clock, now_ms
from parley.core.nodes import (
    BECAME,
    REACHABLE,
    Activity,
    Beat,
    Happened,
    NewNode,
    Node,
    NodeChange,
    NodeEvent,
    NodeToken,
    Patch,
    Status,
    changed,
    check_id,
    check_words,
    folded,
    steps,
)
from parley.engine.changes import Changes
from parley.engine.hierarchy import PAGE, Hierarchy
from parley.engine.liveness import Liveness
from parley.engine.nodefeed import NodeFeed
from parley.engine.ports.nodes import EventQuery, NodeQuery, NodeStore, UrlCache
from parley.errors import (
    AccessDenied,
    Conflict,
    Invalid,
    NodeHasChildren,
    NodeNotFound,
    NodeRemoved,
    NodeUnavailable,
    ParleyError,
    VersionConflict,
)
from parley.ids import new_id

MAX_TRIES = 8

_json = msgspec.json.Encoder().encode

Step = Callable[[Node], Awaitable[NodeChange | None]]
"""What is to become of a node as it is now; None for nothing."""


class Found(Struct, frozen=True):
    """A node that was discovered, and where it is; `moved` when it stands in for one that was removed."""

    node: Node
    url: str
    moved: bool = False


_PRIVATE = ("error_detail", "request_body", "response_body", "tool_trace")


class Nodes:
    def __init__(
        self,
        store: NodeStore,
        urls: UrlCache,
        feed: NodeFeed,
        *,
        changes: Changes,
        liveness: Liveness,
        clock: Clock = now_ms,
        ancestors: bool = False,
    ) -> None:
        self.hierarchy = Hierarchy(store, ancestors=ancestors)
        self.store = store
        self.urls = urls
        self.feed = feed
        self.liveness = liveness
        self._changes = changes
        self._clock = clock
        self.on_beat: Callable[[Node, Beat], None] | None = None
        """Called for every heartbeat that was taken; must not wait."""

    async def create(self, new: NewNode, admission: bytes = b"") -> Node:
        check_words(name=new.name, role=new.role, runtime=new.runtime, model=new.model)
        parent = await self.hierarchy.parent(new.parent_id)
        now = self._clock()
        node = Node(
            new_id(), new.name, new.role, new.tier, parent and parent.id, host_url=new.url, runtime=new.runtime,
            model=new.model, external=new.external, max_concurrent_tasks=new.max_concurrent_tasks,
            budget_limit=new.budget_limit, version=1, admission=admission, created_at=now, updated_at=now,
        )  # fmt: skip
        event = self._event(Happened.PROVISIONING, node, name=node.name, parent_id=node.parent_id)
        guards = () if parent is None else ((parent.id, parent.version),)
        if not await self._changes.apply(NodeChange(node, 0, (event,), guards=guards)):
            raise VersionConflict("The parent has changed in the meantime; try again.")
        return node

    async def known(self, id_: str, *, card: bool = False) -> Node:
        """Also one that was removed."""
        found = await self.store.get([check_id(id_)], cards=card)
        if not found:
            raise NodeNotFound("workspace not found")
        return found[0]

    async def get(self, id_: str, *, card: bool = False) -> Node:
        node = await self.known(id_, card=card)
        if node.removed:
            raise NodeRemoved("workspace removed", last_event=await self.last_event(node.id))
        return node

    async def last_event(self, id_: str) -> NodeEvent | None:
        newest = await self.store.events(EventQuery(node=id_, newest=True, limit=1))
        return newest[0] if newest else None

    async def patch(self, id_: str, patch: Patch) -> Node:
        """Rename it, place it, move it below another parent, let it rest."""
        given = patch.given()
        if isinstance(patch.parent_id, str):
            given["parent_id"] = check_id(patch.parent_id)
        check_words(**{name: value for name, value in given.items() if isinstance(value, str) and name in _WORDS})
        if isinstance(patch.status, Status) and patch.status not in _SETTABLE:
            raise Invalid(f"status can be set to {', '.join(sorted(_SETTABLE))}", field="status")

        async def step(node: Node) -> NodeChange | None:
            return await self._patched(node, given)

        node = await self._change(id_, step)
        if "host_url" in given:
            await self.urls.put(node, changed=True)
        return node

    async def move(self, id_: str, parent_id: str | None) -> Node:
        return await self.patch(id_, Patch(parent_id=parent_id))

    async def _patched(self, node: Node, given: dict[str, object]) -> NodeChange | None:
        fields = {name: value for name, value in given.items() if getattr(node, name) != value}
        if not fields:
            return None
        guards: tuple[tuple[str, int], ...] = ()
        events: list[NodeEvent] = []
        if "parent_id" in fields:
            line = await self.hierarchy.line(node, parent if isinstance(parent := given["parent_id"], str) else None)
            guards = tuple((one.id, one.version) for one in line)
            fields["generation"] = node.generation + 1
            to = line[0].id if line else None
            events.append(self._event(Happened.MOVED, node, parent_id=to, previous_parent_id=node.parent_id))
        if shown := {name: value for name, value in fields.items() if name in _SHOWN}:
            events.append(self._event(Happened.UPDATED, node, **shown))
        if isinstance(status := fields.get("status"), Status):
            events.append(self._event(BECAME[status], node))
        return NodeChange(changed(node, self._clock(), **fields), node.version, tuple(events), guards=guards)

    async def remove(self, id_: str, *, forwarded_to: str | None = None, cascade: bool = False) -> Sequence[Node]:
        """It, and with `cascade` everything below it; its tokens are void, and so are the pairs it was part of."""
        node = await self.get(id_)
        if forwarded_to is not None:
            await self.hierarchy.check_forward(node.id, check_id(forwarded_to))
        below = await self.hierarchy.below(node)
        if below and not cascade:
            raise NodeHasChildren("workspace has children", children=[one.id for one in below[:PAGE]])
        for one in (*reversed(below), node):
            await self._change(one.id, self._removing(forwarded_to if one.id == node.id else None))
            await self.urls.forget(one.id)
        return [node, *below]

    def _removing(self, forwarded_to: str | None) -> Step:
        to = forwarded_to and check_id(forwarded_to)

        async def step(node: Node) -> NodeChange | None:
            now = self._clock()
            gone = changed(
                node, now, status=Status.REMOVED, removed_at=now, forwarded_to=to, tokens=(), admission=b"",
                generation=node.generation + 1,
            )  # fmt: skip
            return NodeChange(gone, node.version, (self._event(Happened.REMOVED, node, forwarded_to=to),))

        return step

    async def family(self, id_: str) -> tuple[Sequence[Node], Node, Sequence[Node]]:
        """Those above a node, the nearest first; the node; its children."""
        node = await self.get(id_)
        return await self.hierarchy.line(node, node.parent_id), node, await self.hierarchy.children(node.id)

    async def register(
        self, id_: str, url: str, card: bytes, token: NodeToken | None = None, *, name: str | None = None
    ) -> tuple[Node, bool]:
        """It is there, at an address; whether `token` was taken, which is so when it had none. `name` is for one that
        nobody has created before; without it such a one is not found."""
        found = await self.store.get([check_id(id_)])
        if not found and name is not None:
            check_words(name=name)
            now = self._clock()
            born = Node(check_id(id_), name, version=1, created_at=now, updated_at=now)
            await self._changes.apply(NodeChange(born, 0, (self._event(Happened.PROVISIONING, born, name=name),)))
        issued = False

        async def step(node: Node) -> NodeChange | None:
            nonlocal issued
            issued = token is not None and not node.tokens
            now = self._clock()
            beat = folded(self.liveness.noted(node), Beat(now))
            tokens = (token,) if issued and token is not None else node.tokens
            here = changed(
                node, now, status=Status.ONLINE, url=url, tokens=tokens, admission=b"", beat=beat
            )  # fmt: skip
            event = self._event(Happened.ONLINE, node, name=node.name, url=here.external_url)
            return NodeChange(here, node.version, (event,), card)

        node = await self._change(id_, step)
        await self.urls.put(node, changed=True)
        return node, issued

    async def add_token(self, id_: str, token: NodeToken) -> Node:
        async def step(node: Node) -> NodeChange | None:
            return NodeChange(changed(node, self._clock(), tokens=(*node.tokens, token)), node.version)

        return await self._change(id_, step)

    async def revoke_tokens(self, id_: str, prefix: str | None = None) -> int:
        """All of them, or the one that begins so; how many there were. Pair tokens of before do not count any more."""
        gone = 0

        async def step(node: Node) -> NodeChange | None:
            nonlocal gone
            kept = tuple(one for one in node.tokens if prefix is not None and one.prefix != prefix)
            gone = len(node.tokens) - len(kept)
            if not gone:
                return None
            return NodeChange(
                changed(node, self._clock(), tokens=kept, generation=node.generation + 1), node.version
            )  # fmt: skip

        await self._change(id_, step)
        return gone

    async def heartbeat(self, node: Node, said: Beat) -> Node:
        """Durable at once only where it changes something that others see."""
        before = self.liveness.noted(node)
        beat = folded(before, said)
        if steps(node.status, beat) or before.current_task != beat.current_task:
            node = await self._change(node.id, self._beating(before, beat))
        self.liveness.note(node.id, beat)
        if self.feed.followed:
            self.feed.say(self._event(Happened.HEARTBEAT, node, **heartbeat_view(beat)))
        if self.on_beat is not None:
            self.on_beat(node, beat)
        return node

    def _beating(self, before: Beat, beat: Beat) -> Step:
        async def step(node: Node) -> NodeChange | None:
            passed = steps(node.status, beat)
            events = [self._event(BECAME[status], node, **_why(status, beat)) for status in passed]
            if before.current_task != beat.current_task:
                told = {"current_task": beat.current_task, "active_tasks": beat.active_tasks}
                events.append(self._event(Happened.TASK, node, **told))
            status = passed[-1] if passed else node.status
            return NodeChange(changed(node, self._clock(), status=status, beat=beat), node.version, tuple(events))

        return step

    async def update_card(self, id_: str, card: bytes) -> Node:
        async def step(node: Node) -> NodeChange | None:
            event = self._event(Happened.CARD, node, agent_card=msgspec.Raw(card))
            return NodeChange(changed(node, self._clock()), node.version, (event,), card)

        return await self._change(id_, step)

    async def discover(self, caller: Node | None, target: str) -> Found:
        """Where a node is: for another one, if it may talk to it, or (None) for somebody outside."""
        node = await self.known(target)
        successor = await self.hierarchy.successor(node) if node.removed else node
        if caller is not None and not await self.hierarchy.allows(caller, successor or node):
            raise AccessDenied("not authorized to discover this workspace")
        if successor is None:
            raise NodeRemoved("workspace removed", last_event=await self.last_event(node.id))
        url = await self.url_of(successor, internal=caller is not None)
        return Found(successor, url, moved=successor.id != node.id)

    async def url_of(self, node: Node, *, internal: bool) -> str:
        """Where a node that can be called is; the cache first, as the contract has it."""
        if node.status in REACHABLE:
            if (cached := await self.urls.get(node, internal=internal)) is not None:
                return cached
            if url := node.internal_url if internal else node.external_url:
                await self.urls.put(node, changed=False)
                return url
        raise NodeUnavailable("workspace not available", status=node.status.value)

    async def peers(self, id_: str, words: str = "", after: str = "", limit: int = 1000) -> Sequence[Node]:
        """Siblings (or the other roots), children and the parent."""
        node = await self.get(id_)
        return await self.store.find(NodeQuery(node, words=words, cards=True, after=after, limit=limit))

    async def check_access(self, caller: str, target: str) -> bool:
        """Nobody may talk to anybody while it cannot be found out."""
        try:
            return target in await self.hierarchy.reachable(caller, [target])
        except (ParleyError, LookupError):
            return False

    async def log(self, id_: str, activity: Activity) -> NodeEvent:
        """Note an activity of a node, and tell those who follow it; without the bodies."""
        node = await self.get(id_)
        fields = {name: value for name, value in asdict(activity).items() if value is not None and value is not UNSET}
        private = {name: value for name, value in fields.items() if name in _PRIVATE}
        shown = {name: value for name, value in fields.items() if name not in _PRIVATE}
        event = NodeEvent(
            Happened.ACTIVITY, node.id, self._clock(), _json(shown), activity.activity_type, _json(private)
        )  # fmt: skip
        await self.tell(event)
        return event

    async def tell(self, event: NodeEvent) -> None:
        """Store an event of a node that changes nothing of it."""

        async def step(node: Node) -> NodeChange | None:
            return NodeChange(node, node.version, (event,))

        await self._change(event.node, step)

    async def activities(
        self, id_: str, kind: str | None = None, before: int | None = None, limit: int = 100
    ) -> Sequence[NodeEvent]:
        """The newest first."""
        return await self.store.events(
            EventQuery(node=id_, name=Happened.ACTIVITY, kind=kind, newest=True, before=before, limit=limit)
        )

    async def _change(self, id_: str, step: Step) -> Node:
        """Decide on what is stored, and again when somebody else was first."""
        for _ in range(MAX_TRIES):
            node = await self.get(id_)
            change = await step(node)
            if change is None:
                return node
            if await self._changes.apply(change):
                return change.node
        raise Conflict("The workspace changes too often at the moment; try again.")

    def _event(self, name: str, node: Node, /, **payload: object) -> NodeEvent:
        return NodeEvent(name, node.id, self._clock(), _json(payload))


_WORDS = ("name", "role", "runtime", "model")
_SHOWN = ("name", "role", "tier", "runtime", "model", "host_url", "x", "y", "max_concurrent_tasks", "budget_limit")
_SETTABLE = frozenset((Status.PAUSED, Status.HIBERNATED, Status.PROVISIONING, Status.FAILED))


def heartbeat_view(beat: Beat) -> dict[str, object]:
    return {
        "error_rate": beat.error_rate, "active_tasks": beat.active_tasks, "uptime_seconds": beat.uptime_seconds,
        "current_task": beat.current_task, "sample_error": beat.sample_error,
    }  # fmt: skip


def _why(status: Status, beat: Beat) -> dict[str, object]:
    if status is not Status.DEGRADED:
        return {}
    return {"error_rate": beat.error_rate, "sample_error": beat.sample_error, "runtime_state": beat.runtime_state}
