"""Nodes that find each other: registration, the hierarchy, discovery, and access rules (the registry contract, 004)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from parley.clock import Clock, now_ms
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
from parley.nodes.feed import NodeFeed
from parley.nodes.hierarchy import PAGE, Hierarchy
from parley.nodes.liveness import Changes, Liveness
from parley.nodes.rules import (
    BECAME,
    PLATFORM,
    REACHABLE,
    Heartbeat,
    NewNode,
    NodeActivity,
    NodeChange,
    NodeEvent,
    NodeEventKind,
    NodePatch,
    NodeStatus,
    NodeToken,
    RegisteredNode,
    changed,
    check_id,
    check_words,
    folded,
    moved_away,
    pair_generation,
    steps,
)
from parley.nodes.store import EventQuery, NodeQuery, NodeStore, UrlCache
from parley.nodes.tokens import PairClaims
from parley.runs.listeners import Listeners

MAX_TRIES = 8

_json = msgspec.json.Encoder().encode

Step = Callable[[RegisteredNode], Awaitable[NodeChange | None]]
"""Decides the change of a node as it is now; None for no change."""


class FoundNode(Struct, frozen=True):
    """A discovered node and its URL; `moved` if it replaces a removed one."""

    node: RegisteredNode
    url: str
    moved: bool = False


_PRIVATE = ("error_detail", "request_body", "response_body", "tool_trace")

BeatListener = Callable[[RegisteredNode, Heartbeat], None]
"""Called for every accepted heartbeat; must not block."""


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
        beats: Listeners[BeatListener] | None = None,
    ) -> None:
        self.hierarchy = Hierarchy(store, ancestors=ancestors)
        self.store = store
        self.urls = urls
        self.feed = feed
        self.liveness = liveness
        self._changes = changes
        self._clock = clock
        self.beats = beats or Listeners[BeatListener]()

    async def create(self, new: NewNode, admission: bytes = b"") -> RegisteredNode:
        check_words(name=new.name, role=new.role, runtime=new.runtime, model=new.model)
        parent = await self.hierarchy.parent(new.parent_id)
        now = self._clock()
        node = RegisteredNode(
            new_id(),
            new.name,
            new.role,
            new.tier,
            parent and parent.id,
            host_url=new.url,
            runtime=new.runtime,
            model=new.model,
            external=new.external,
            max_concurrent_tasks=new.max_concurrent_tasks,
            budget_limit=new.budget_limit,
            version=1,
            admission=admission,
            created_at=now,
            updated_at=now,
        )
        event = self._event(NodeEventKind.PROVISIONING, node, name=node.name, parent_id=node.parent_id)
        guards = () if parent is None else ((parent.id, parent.version),)
        if not await self._changes.apply(NodeChange(node, 0, (event,), guards=guards)):
            raise VersionConflict("The parent has changed since it was read; try again.")
        return node

    async def known(self, id_: str, *, card: bool = False) -> RegisteredNode:
        """Return a node, also one that was removed; raise NodeNotFound if there is none."""
        found = await self.store.get([check_id(id_)], cards=card)
        if not found:
            raise NodeNotFound("workspace not found")
        return found[0]

    async def get(self, id_: str, *, card: bool = False) -> RegisteredNode:
        node = await self.known(id_, card=card)
        if node.removed:
            raise NodeRemoved("workspace removed", last_event=await self.last_event(node.id))
        return node

    async def current(self, id_: str) -> RegisteredNode:
        """Return a node with its card and its latest heartbeat."""
        node = await self.get(id_, card=True)
        return replace(node, beat=self.liveness.noted(node))

    async def last_event(self, id_: str) -> NodeEvent | None:
        newest = await self.store.events(EventQuery(node=id_, newest=True, limit=1))
        return newest[0] if newest else None

    async def patch(self, id_: str, patch: NodePatch) -> RegisteredNode:
        """Change a node: rename it, place it on the canvas, move it below another parent, pause it."""
        given = patch.given()
        if isinstance(patch.parent_id, str):
            given["parent_id"] = check_id(patch.parent_id)
        check_words(**{name: value for name, value in given.items() if isinstance(value, str) and name in _WORDS})
        if isinstance(patch.status, NodeStatus) and patch.status not in _SETTABLE:
            raise Invalid(f"status can only be set to {', '.join(sorted(_SETTABLE))}", field="status")

        async def step(node: RegisteredNode) -> NodeChange | None:
            return await self._patched(node, given)

        node = await self._change(id_, step)
        if "host_url" in given:
            await self.urls.put(node, changed=True)
        return node

    async def move(self, id_: str, parent_id: str | None) -> RegisteredNode:
        return await self.patch(id_, NodePatch(parent_id=parent_id))

    async def _patched(self, node: RegisteredNode, given: dict[str, object]) -> NodeChange | None:
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
            events.append(self._event(NodeEventKind.MOVED, node, parent_id=to, previous_parent_id=node.parent_id))
        if shown := {name: value for name, value in fields.items() if name in _SHOWN}:
            events.append(self._event(NodeEventKind.UPDATED, node, **shown))
        if isinstance(status := fields.get("status"), NodeStatus):
            events.append(self._event(BECAME[status], node))
        return NodeChange(changed(node, self._clock(), **fields), node.version, tuple(events), guards=guards)

    async def remove(
        self, id_: str, *, forwarded_to: str | None = None, cascade: bool = False
    ) -> Sequence[RegisteredNode]:
        """Remove a node, and with `cascade` all nodes below it. Its tokens become invalid, and so do its pair
        tokens."""
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

        async def step(node: RegisteredNode) -> NodeChange | None:
            now = self._clock()
            gone = changed(
                node,
                now,
                status=NodeStatus.REMOVED,
                removed_at=now,
                forwarded_to=to,
                tokens=(),
                admission=b"",
                generation=node.generation + 1,
            )
            return NodeChange(gone, node.version, (self._event(NodeEventKind.REMOVED, node, forwarded_to=to),))

        return step

    async def family(self, id_: str) -> tuple[Sequence[RegisteredNode], RegisteredNode, Sequence[RegisteredNode]]:
        """Return the nodes above a node, nearest first; the node; its children."""
        node = await self.get(id_)
        return await self.hierarchy.line(node, node.parent_id), node, await self.hierarchy.children(node.id)

    async def register(
        self, id_: str, url: str, card: bytes, token: NodeToken | None = None, *, name: str | None = None
    ) -> tuple[RegisteredNode, bool]:
        """Register a node at a URL. Return it, and whether `token` was stored, which happens only if the node had none.
        `name` creates a node that does not exist yet; without it such a node is not found."""
        found = await self.store.get([check_id(id_)])
        if not found and name is not None:
            check_words(name=name)
            now = self._clock()
            born = RegisteredNode(check_id(id_), name, version=1, created_at=now, updated_at=now)
            await self._changes.apply(NodeChange(born, 0, (self._event(NodeEventKind.PROVISIONING, born, name=name),)))
        issued = False

        async def step(node: RegisteredNode) -> NodeChange | None:
            nonlocal issued
            issued = token is not None and not node.tokens
            now = self._clock()
            beat = folded(self.liveness.noted(node), Heartbeat(now))
            tokens = (token,) if issued and token is not None else node.tokens
            here = changed(node, now, status=NodeStatus.ONLINE, url=url, tokens=tokens, admission=b"", beat=beat)
            event = self._event(NodeEventKind.ONLINE, node, name=node.name, url=here.external_url)
            return NodeChange(here, node.version, (event,), card)

        node = await self._change(id_, step)
        await self.urls.put(node, changed=True)
        return node, issued

    async def add_token(self, id_: str, token: NodeToken) -> RegisteredNode:
        async def step(node: RegisteredNode) -> NodeChange | None:
            return NodeChange(changed(node, self._clock(), tokens=(*node.tokens, token)), node.version)

        return await self._change(id_, step)

    async def revoke_tokens(self, id_: str, prefix: str | None = None) -> int:
        """Revoke all tokens, or the one with this prefix, and return their number. Earlier pair tokens become invalid
        too."""
        gone = 0

        async def step(node: RegisteredNode) -> NodeChange | None:
            nonlocal gone
            kept = tuple(one for one in node.tokens if prefix is not None and one.prefix != prefix)
            gone = len(node.tokens) - len(kept)
            if not gone:
                return None
            return NodeChange(changed(node, self._clock(), tokens=kept, generation=node.generation + 1), node.version)

        await self._change(id_, step)
        return gone

    async def heartbeat(self, node: RegisteredNode, said: Heartbeat) -> RegisteredNode:
        """Process a heartbeat. It is durable at once only if it changes something that others see."""
        before = self.liveness.noted(node)
        beat = folded(before, said)
        if steps(node.status, beat) or before.current_task != beat.current_task:
            node = await self._change(node.id, self._beating(before, beat))
        self.liveness.note(node.id, beat)
        if self.feed.followed:
            self.feed.say(self._event(NodeEventKind.HEARTBEAT, node, **heartbeat_view(beat)))
        for listener in self.beats:
            listener(node, beat)
        return node

    def _beating(self, before: Heartbeat, beat: Heartbeat) -> Step:
        async def step(node: RegisteredNode) -> NodeChange | None:
            passed = steps(node.status, beat)
            events = [self._event(BECAME[status], node, **_why(status, beat)) for status in passed]
            if before.current_task != beat.current_task:
                task = {"current_task": beat.current_task, "active_tasks": beat.active_tasks}
                events.append(self._event(NodeEventKind.TASK, node, **task))
            status = passed[-1] if passed else node.status
            return NodeChange(changed(node, self._clock(), status=status, beat=beat), node.version, tuple(events))

        return step

    async def update_card(self, id_: str, card: bytes) -> RegisteredNode:
        async def step(node: RegisteredNode) -> NodeChange | None:
            event = self._event(NodeEventKind.CARD, node, agent_card=msgspec.Raw(card))
            return NodeChange(changed(node, self._clock()), node.version, (event,), card)

        return await self._change(id_, step)

    async def discover(self, caller: RegisteredNode | None, target: str) -> FoundNode:
        """Return a node and its URL: for another node that may talk to it, or (None) for an outside caller."""
        node = await self.known(target)
        successor = await self.hierarchy.successor(node) if node.removed else node
        if caller is not None and not await self.hierarchy.allows(caller, successor or node):
            raise AccessDenied("not authorized to discover this workspace")
        if successor is None:
            raise NodeRemoved("workspace removed", last_event=await self.last_event(node.id))
        url = await self.url_of(successor, internal=caller is not None)
        return FoundNode(successor, url, moved=successor.id != node.id)

    async def url_of(self, node: RegisteredNode, *, internal: bool) -> str:
        """Return the URL of a node that can be called; from the cache first, as the contract says."""
        if node.status in REACHABLE:
            if (cached := await self.urls.get(node, internal=internal)) is not None:
                return cached
            if url := node.internal_url if internal else node.external_url:
                await self.urls.put(node, changed=False)
                return url
        raise NodeUnavailable("workspace not available", status=node.status.value)

    async def peers(self, id_: str, words: str = "", after: str = "", limit: int = 1000) -> Sequence[RegisteredNode]:
        """Return siblings (or the other roots), children and the parent."""
        node = await self.get(id_)
        return await self.store.find(NodeQuery(node, words=words, cards=True, after=after, limit=limit))

    async def check_access(self, caller: str, target: str) -> bool:
        """Return whether one node may talk to another; False also if that cannot be determined."""
        try:
            return target in await self.hierarchy.reachable(caller, [target])
        except (ParleyError, LookupError):
            return False

    async def check_visible(self, caller: RegisteredNode | None, id_: str) -> None:
        """Raise NodeNotFound if the caller is a node that may not talk to this one."""
        if caller is not None and not await self.check_access(caller.id, id_):
            raise NodeNotFound("workspace not found")

    async def counts(self, claims: PairClaims) -> bool:
        """Return whether a pair token is valid: both nodes exist, neither was moved, and they may talk to each
        other."""
        found = {node.id: node for node in await self.store.get([claims.sub, claims.aud]) if not node.removed}
        caller, target = found.get(claims.sub), found.get(claims.aud)
        if target is None or (caller is None and claims.sub != PLATFORM):
            return False
        try:
            allowed = caller is None or await self.hierarchy.allows(caller, target)
        except ParleyError:
            return False
        return allowed and claims.gen == pair_generation(caller, target)

    async def follow(
        self, caller: RegisteredNode | None, id_: str | None, after: int | None, silence_s: float
    ) -> AsyncGenerator[list[NodeEvent], None]:
        """Follow the events of one node or of all; a caller that is a node gets only those of nodes it may talk to.
        Yields an empty list after `silence_s` seconds without events; ends when the caller's token is no longer
        valid."""
        return self._visible_events(caller, id_, await self.feed.follow(after, silence_s))

    async def _visible_events(
        self, caller: RegisteredNode | None, id_: str | None, feed: AsyncGenerator[list[NodeEvent], None]
    ) -> AsyncGenerator[list[NodeEvent], None]:
        async with aclosing(feed):
            async for events in feed:
                about = [event for event in events if id_ in (None, event.node)]
                if about and caller is not None:
                    now = await self._unrevoked(caller)
                    if now is None:
                        return
                    about = await self._reachable(now, about)
                yield about

    async def _unrevoked(self, caller: RegisteredNode) -> RegisteredNode | None:
        """Return the caller as it is now; None if it was removed or its tokens were revoked."""
        found = await self.store.get([caller.id])
        if not found or found[0].removed or (caller.tokens and not set(caller.tokens) & set(found[0].tokens)):
            return None
        return found[0]

    async def _reachable(self, caller: RegisteredNode, events: list[NodeEvent]) -> list[NodeEvent]:
        """Keep the events that the caller may see, now or until just now: it must learn that a node it could talk to is
        gone."""
        reached = await self.hierarchy.reachable(caller.id, {event.node for event in events}, gone=True)
        return [one for one in events if one.node in reached or moved_away(one, caller)]

    async def log(self, id_: str, activity: NodeActivity) -> NodeEvent:
        """Log an activity of a node, and publish it to followers without the bodies."""
        node = await self.get(id_)
        fields = {name: value for name, value in asdict(activity).items() if value is not None and value is not UNSET}
        private = {name: value for name, value in fields.items() if name in _PRIVATE}
        shown = {name: value for name, value in fields.items() if name not in _PRIVATE}
        event = NodeEvent(
            NodeEventKind.ACTIVITY, node.id, self._clock(), _json(shown), activity.activity_type, _json(private)
        )
        await self.tell(event)
        return event

    async def tell(self, event: NodeEvent) -> None:
        """Store an event that does not change its node."""

        async def step(node: RegisteredNode) -> NodeChange | None:
            return NodeChange(node, node.version, (event,))

        await self._change(event.node, step)

    async def activities(
        self, id_: str, kind: str | None = None, before: int | None = None, limit: int = 100
    ) -> Sequence[NodeEvent]:
        """Return the activities of a node, newest first."""
        return await self.store.events(
            EventQuery(node=id_, name=NodeEventKind.ACTIVITY, kind=kind, newest=True, before=before, limit=limit)
        )

    async def _change(self, id_: str, step: Step) -> RegisteredNode:
        """Decide on the stored node and write; decide again if another change was first."""
        for _ in range(MAX_TRIES):
            node = await self.get(id_)
            change = await step(node)
            if change is None:
                return node
            if await self._changes.apply(change):
                return change.node
        raise Conflict("Other requests are changing the workspace at the same time; try again.")

    def _event(self, name: str, node: RegisteredNode, /, **payload: object) -> NodeEvent:
        return NodeEvent(name, node.id, self._clock(), _json(payload))


_WORDS = ("name", "role", "runtime", "model")
_SHOWN = ("name", "role", "tier", "runtime", "model", "host_url", "x", "y", "max_concurrent_tasks", "budget_limit")
_SETTABLE = frozenset((NodeStatus.PAUSED, NodeStatus.HIBERNATED, NodeStatus.PROVISIONING, NodeStatus.FAILED))


def heartbeat_view(beat: Heartbeat) -> dict[str, object]:
    return {
        "error_rate": beat.error_rate,
        "active_tasks": beat.active_tasks,
        "uptime_seconds": beat.uptime_seconds,
        "current_task": beat.current_task,
        "sample_error": beat.sample_error,
    }


def _why(status: NodeStatus, beat: Heartbeat) -> dict[str, object]:
    if status is not NodeStatus.DEGRADED:
        return {}
    return {"error_rate": beat.error_rate, "sample_error": beat.sample_error, "runtime_state": beat.runtime_state}
