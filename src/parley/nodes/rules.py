"""Nodes: registered servers with agents. The registry contract (004) calls them workspaces, and so do its wire
format and its events."""

import re
from enum import StrEnum
from typing import Annotated, Literal, get_args

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.json import decode
from msgspec.structs import asdict, replace

from parley.errors import Invalid

MAX_NAME = 255
MAX_ROLE = 1000
MAX_WORD = 100
MAX_DEPTH = 32
MAX_HOPS = 5
MAX_SPEND = 10**12
WEDGED = "wedged"
PLATFORM = "platform"
"""The caller of a node when it is not another node: this server, on behalf of an outside caller."""
_SLUG = "node:"
DEGRADED_AT = 0.5
RECOVERED_BELOW = 0.1

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029{}\[\]|>*&!]")
"""Characters with a special meaning in a line of YAML, into which templates put these values."""

Name = Annotated[str, Meta(min_length=1)]
Tier = Annotated[int, Meta(ge=0, le=100)]
Slots = Annotated[int, Meta(ge=1, le=1000)]
Cents = Annotated[int, Meta(ge=0)]
ActivityType = Literal["a2a_send", "a2a_receive", "task_update", "agent_log", "error", "delegation"]
ACTIVITY_TYPES: tuple[str, ...] = get_args(ActivityType)
ActivityStatus = Literal["ok", "error", "timeout"]


class NodeStatus(StrEnum):
    PROVISIONING = "provisioning"
    ONLINE = "online"
    OFFLINE = "offline"
    DEGRADED = "degraded"
    FAILED = "failed"
    REMOVED = "removed"
    PAUSED = "paused"
    HIBERNATED = "hibernated"


REACHABLE = frozenset((NodeStatus.ONLINE, NodeStatus.DEGRADED))
"""States of nodes that can be called, and that become offline after too long a silence."""


class NodeEventKind(StrEnum):
    """Events of the contract that this server publishes; `WORKSPACE_UPDATED` is an addition."""

    PROVISIONING = "WORKSPACE_PROVISIONING"
    ONLINE = "WORKSPACE_ONLINE"
    OFFLINE = "WORKSPACE_OFFLINE"
    DEGRADED = "WORKSPACE_DEGRADED"
    PAUSED = "WORKSPACE_PAUSED"
    HIBERNATED = "WORKSPACE_HIBERNATED"
    FAILED = "WORKSPACE_PROVISION_FAILED"
    REMOVED = "WORKSPACE_REMOVED"
    MOVED = "WORKSPACE_MOVED"
    UPDATED = "WORKSPACE_UPDATED"
    HEARTBEAT = "WORKSPACE_HEARTBEAT"
    CARD = "AGENT_CARD_UPDATED"
    TASK = "TASK_UPDATED"
    ACTIVITY = "ACTIVITY_LOGGED"
    DELEGATION_SENT = "DELEGATION_SENT"
    DELEGATION_STATUS = "DELEGATION_STATUS"
    DELEGATION_COMPLETE = "DELEGATION_COMPLETE"
    DELEGATION_FAILED = "DELEGATION_FAILED"


BECAME: dict[NodeStatus, str] = {
    NodeStatus.PROVISIONING: NodeEventKind.PROVISIONING,
    NodeStatus.ONLINE: NodeEventKind.ONLINE,
    NodeStatus.OFFLINE: NodeEventKind.OFFLINE,
    NodeStatus.DEGRADED: NodeEventKind.DEGRADED,
    NodeStatus.PAUSED: NodeEventKind.PAUSED,
    NodeStatus.HIBERNATED: NodeEventKind.HIBERNATED,
    NodeStatus.FAILED: NodeEventKind.FAILED,
    NodeStatus.REMOVED: NodeEventKind.REMOVED,
}


AHEAD_MS = 60_000
"""A heartbeat that is this far in the future came from a wrong clock; any other heartbeat counts as newer."""


class Heartbeat(Struct, frozen=True):
    """A node's last report about itself; `at` is 0 if there was none yet."""

    at: int = 0
    error_rate: float = 0.0
    sample_error: str = ""
    active_tasks: int = 0
    uptime_seconds: int = 0
    current_task: str = ""
    monthly_spend: int = 0
    """Cents."""
    runtime_state: str = ""
    metadata: bytes = b""
    """`runtime_metadata` as it was received, JSON."""


class NodeToken(Struct, frozen=True):
    """The stored part of a token: a digest to recognise it, and a prefix to name it."""

    prefix: str
    digest: bytes
    created_at: int


class RegisteredNode(Struct, frozen=True):
    id: str
    name: str
    role: str = ""
    tier: int = 1
    parent_id: str | None = None
    status: NodeStatus = NodeStatus.PROVISIONING
    url: str = ""
    """URL for other nodes, as the node reports it."""
    host_url: str = ""
    """URL for outside callers, as the operator sets it."""
    runtime: str = ""
    model: str = ""
    external: bool = False
    x: float = 0.0
    y: float = 0.0
    max_concurrent_tasks: int = 1
    budget_limit: int | None = None
    forwarded_to: str | None = None
    generation: int = 1
    """Changes when the node is moved or removed, which makes older pair tokens invalid."""
    version: int = 0
    tokens: tuple[NodeToken, ...] = ()
    admission: bytes = b""
    """Digest of the token that allows its first registration; empty once used."""
    created_at: int = 0
    updated_at: int = 0
    removed_at: int | None = None
    beat: Heartbeat = Heartbeat()
    card: bytes = b""
    """Its agent's card, JSON. Also empty if the card was not requested from the store."""

    @property
    def removed(self) -> bool:
        return self.status is NodeStatus.REMOVED

    @property
    def internal_url(self) -> str:
        """URL for other nodes."""
        return self.url or self.host_url

    @property
    def external_url(self) -> str:
        """URL for callers that are not nodes."""
        return self.host_url or self.url


class NewNode(Struct, frozen=True):
    name: Name
    role: str = ""
    tier: Tier = 1
    parent_id: str | None = None
    runtime: str = ""
    model: str = ""
    url: str = ""
    external: bool = False
    max_concurrent_tasks: Slots = 1
    budget_limit: Cents | None = None


class NodePatch(Struct, frozen=True, rename={"host_url": "url"}):
    """Changes to a node; unset fields stay. In requests `host_url` is called `url`, as everywhere."""

    name: Name | UnsetType = UNSET
    role: str | UnsetType = UNSET
    tier: Tier | UnsetType = UNSET
    parent_id: str | UnsetType | None = UNSET
    runtime: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    host_url: str | UnsetType = UNSET
    x: float | UnsetType = UNSET
    y: float | UnsetType = UNSET
    max_concurrent_tasks: Slots | UnsetType = UNSET
    budget_limit: Cents | UnsetType | None = UNSET
    status: NodeStatus | UnsetType = UNSET

    def given(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not UNSET}


class NodeActivity(Struct, frozen=True):
    """An action by a node or with it. Bodies are visible only to the node and its operators."""

    activity_type: ActivityType
    source_id: str | None = None
    target_id: str | None = None
    method: str | None = None
    summary: str | None = None
    duration_ms: int | None = None
    status: ActivityStatus = "ok"
    error_detail: str | None = None
    request_body: Raw | UnsetType = UNSET
    response_body: Raw | UnsetType = UNSET
    tool_trace: Raw | UnsetType = UNSET


class NodeEvent(Struct, frozen=True):
    """An event of a node. `seq` counts over all nodes of a store; 0 for an event that is not stored (yet)."""

    name: str
    node: str
    at: int
    payload: bytes = b"{}"
    """JSON, visible to all callers that may reach the node."""
    kind: str = ""
    """Type of an activity."""
    private: bytes = b""
    """JSON, visible only to the node itself and its operators."""
    seq: int = 0


class NodeChange(Struct, frozen=True):
    """One atomic change of one node: from version `expected` (0: does not exist yet) to `node.version`."""

    node: RegisteredNode
    expected: int
    events: tuple[NodeEvent, ...] = ()
    card: bytes | None = None
    """Set if the card changes."""
    guards: tuple[tuple[str, int], ...] = ()
    """Nodes that must still have these versions, because the decision depends on them."""


def judged(changes: list[NodeChange], versions: dict[str, int]) -> list[bool]:
    """Return which of the changes, applied in order, still match the stored versions."""
    verdicts: list[bool] = []
    for change in changes:
        fits = versions.get(change.node.id, 0) == change.expected
        fits = fits and all(versions.get(id_) == version for id_, version in change.guards)
        if fits:
            versions[change.node.id] = change.node.version
        verdicts.append(fits)
    return verdicts


def check_id(text: str) -> str:
    """Return a UUID in the form that stores use."""
    lowered = text.lower()
    if _ID.fullmatch(lowered) is None:
        raise Invalid("invalid workspace id", field="id")
    return lowered


def check_words(**words: str | None) -> None:
    """Check names, roles and similar texts: length, a single line, no special characters of YAML."""
    limits = {"name": MAX_NAME, "role": MAX_ROLE}
    for field, text in words.items():
        if text is None:
            continue
        most = limits.get(field, MAX_WORD)
        if len(text) > most:
            raise Invalid(f"{field} must be at most {most} characters", field=field)
        if _SPECIAL.search(text) is not None:
            raise Invalid(f"{field} contains characters that are not allowed", field=field)


def folded(before: Heartbeat, said: Heartbeat) -> Heartbeat:
    """Merge a heartbeat into the one before. Spending that is not reported has not changed."""
    spend = min(max(said.monthly_spend, 0), MAX_SPEND) or before.monthly_spend
    return replace(said, at=max(before.at, said.at), monthly_spend=spend)


def steps(status: NodeStatus, beat: Heartbeat) -> tuple[NodeStatus, ...]:
    """Return the status changes at a heartbeat: none, one, or two (online and then degraded)."""
    passed: list[NodeStatus] = []
    if status in (NodeStatus.PROVISIONING, NodeStatus.OFFLINE):
        passed.append(status := NodeStatus.ONLINE)
    if status is NodeStatus.ONLINE and (beat.error_rate >= DEGRADED_AT or beat.runtime_state == WEDGED):
        passed.append(NodeStatus.DEGRADED)
    elif status is NodeStatus.DEGRADED and beat.error_rate < RECOVERED_BELOW and beat.runtime_state == "":
        passed.append(NodeStatus.ONLINE)
    return tuple(passed)


def changed(node: RegisteredNode, now: int, **fields: object) -> RegisteredNode:
    """Return the next version of a node."""
    return replace(node, version=node.version + 1, updated_at=now, **fields)


def pair_generation(caller: RegisteredNode | None, target: RegisteredNode) -> str:
    """Return the generation of a pair. It changes when one of the two is moved or removed; the platform (None) never
    is."""
    return f"{caller.generation if caller else 0}.{target.generation}"


class _Moved(Struct, frozen=True):
    previous_parent_id: str | None = None


def moved_away(event: NodeEvent, caller: RegisteredNode) -> bool:
    """Return whether the event is the move of a node that the caller could talk to before."""
    if event.name != NodeEventKind.MOVED:
        return False
    before = decode(event.payload, type=_Moved).previous_parent_id
    return before in (caller.parent_id, caller.id) or event.node == caller.parent_id


def slug_of(id_: str) -> str:
    """Return the slug of a node as an agent; no defined agent can have such a slug."""
    return _SLUG + id_


def node_of(slug: str) -> str | None:
    """Return the node that an agent's slug stands for; None for any other agent."""
    id_ = slug.removeprefix(_SLUG)
    return id_ if slug.startswith(_SLUG) and _ID.fullmatch(id_) else None
