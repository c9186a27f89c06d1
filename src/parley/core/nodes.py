"""Nodes: registered places where agents live. Contract 004 calls them workspaces, and so do its wire and its events."""

import re
from enum import StrEnum
from typing import Annotated, Literal, get_args

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
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
"""Who calls a node when no other node does: this server, on behalf of somebody outside."""
_SLUG = "node:"
DEGRADED_AT = 0.5
RECOVERED_BELOW = 0.1

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029{}\[\]|>*&!]")
"""What would mean something else in a line of YAML, where templates put these words."""

Name = Annotated[str, Meta(min_length=1)]
Tier = Annotated[int, Meta(ge=0, le=100)]
Slots = Annotated[int, Meta(ge=1, le=1000)]
Cents = Annotated[int, Meta(ge=0)]
ActivityType = Literal["a2a_send", "a2a_receive", "task_update", "agent_log", "error", "delegation"]
ACTIVITY_TYPES: tuple[str, ...] = get_args(ActivityType)
ActivityStatus = Literal["ok", "error", "timeout"]


class Status(StrEnum):
    PROVISIONING = "provisioning"
    ONLINE = "online"
    OFFLINE = "offline"
    DEGRADED = "degraded"
    FAILED = "failed"
    REMOVED = "removed"
    PAUSED = "paused"
    HIBERNATED = "hibernated"


REACHABLE = frozenset((Status.ONLINE, Status.DEGRADED))
"""Those that can be called, and that are offline once they are silent for too long."""


class Happened(StrEnum):
    """The events of the contract that are ours to tell; `WORKSPACE_UPDATED` is an addition."""

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


BECAME: dict[Status, str] = {
    Status.PROVISIONING: Happened.PROVISIONING,
    Status.ONLINE: Happened.ONLINE,
    Status.OFFLINE: Happened.OFFLINE,
    Status.DEGRADED: Happened.DEGRADED,
    Status.PAUSED: Happened.PAUSED,
    Status.HIBERNATED: Happened.HIBERNATED,
    Status.FAILED: Happened.FAILED,
    Status.REMOVED: Happened.REMOVED,
}


AHEAD_MS = 60_000
"""A heartbeat that is so much later than now was told by a wrong clock: any other is newer."""


class Beat(Struct, frozen=True):
    """What a node last said of itself; `at` is 0 for one that has said nothing yet."""

    at: int = 0
    error_rate: float = 0.0
    sample_error: str = ""
    active_tasks: int = 0
    uptime_seconds: int = 0
    current_task: str = ""
    monthly_spend: int = 0
    """In cents."""
    runtime_state: str = ""
    metadata: bytes = b""
    """`runtime_metadata` as it came, JSON."""


class NodeToken(Struct, frozen=True):
    """What is kept of a token: enough to know it again, and a few letters to name it by."""

    prefix: str
    digest: bytes
    created_at: int


class Node(Struct, frozen=True):
    id: str
    name: str
    role: str = ""
    tier: int = 1
    parent_id: str | None = None
    status: Status = Status.PROVISIONING
    url: str = ""
    """Where it says that it can be reached by other nodes."""
    host_url: str = ""
    """Where its operator says that it can be reached from outside."""
    runtime: str = ""
    model: str = ""
    external: bool = False
    x: float = 0.0
    y: float = 0.0
    max_concurrent_tasks: int = 1
    budget_limit: int | None = None
    forwarded_to: str | None = None
    generation: int = 1
    """Changes when it is moved or removed: pair tokens of before do not count any more."""
    version: int = 0
    tokens: tuple[NodeToken, ...] = ()
    admission: bytes = b""
    """Digest of the token that admits it to its first registration; empty once used."""
    created_at: int = 0
    updated_at: int = 0
    removed_at: int | None = None
    beat: Beat = Beat()
    card: bytes = b""
    """Its agent's card, JSON. Empty also where nobody asked the store for it."""

    @property
    def removed(self) -> bool:
        return self.status is Status.REMOVED

    @property
    def internal_url(self) -> str:
        """For other nodes."""
        return self.url or self.host_url

    @property
    def external_url(self) -> str:
        """For those who are none."""
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


class Patch(Struct, frozen=True, rename={"host_url": "url"}):
    """What is to change of a node; what is unset stays. Outside, `host_url` is called `url`, as everywhere."""

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
    status: Status | UnsetType = UNSET

    def given(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not UNSET}


class Activity(Struct, frozen=True):
    """Something that a node did, or that was done with it. Bodies are seen by the node and its operators only."""

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
    """Something that happened to a node. `seq` runs over all nodes of a store; 0 for what is not stored (yet)."""

    name: str
    node: str
    at: int
    payload: bytes = b"{}"
    """JSON, for everybody who may reach the node."""
    kind: str = ""
    """The type of an activity."""
    private: bytes = b""
    """JSON, for the node itself and its operators."""
    seq: int = 0


class NodeChange(Struct, frozen=True):
    """One atomic step of one node: from version `expected` (0: there is none yet) to `node.version`."""

    node: Node
    expected: int
    events: tuple[NodeEvent, ...] = ()
    card: bytes | None = None
    """Set where the card changes."""
    guards: tuple[tuple[str, int], ...] = ()
    """Nodes that must still have these versions: what was decided depends on them."""


def judged(changes: list[NodeChange], versions: dict[str, int]) -> list[bool]:
    """Which of some changes, one after another, still fit the versions that are stored."""
    verdicts: list[bool] = []
    for change in changes:
        fits = versions.get(change.node.id, 0) == change.expected
        fits = fits and all(versions.get(id_) == version for id_, version in change.guards)
        if fits:
            versions[change.node.id] = change.node.version
        verdicts.append(fits)
    return verdicts


def check_id(text: str) -> str:
    """A UUID, as stores know it."""
    lowered = text.lower()
    if _ID.fullmatch(lowered) is None:
        raise Invalid("invalid workspace id", field="id")
    return lowered


def check_words(**words: str | None) -> None:
    """Names, roles and the like: not too long, on one line, nothing that YAML would read."""
    limits = {"name": MAX_NAME, "role": MAX_ROLE}
    for field, text in words.items():
        if text is None:
            continue
        most = limits.get(field, MAX_WORD)
        if len(text) > most:
            raise Invalid(f"{field} must be at most {most} characters", field=field)
        if _SPECIAL.search(text) is not None:
            raise Invalid(f"{field} contains characters that are not allowed", field=field)


def folded(before: Beat, said: Beat) -> Beat:
    """A heartbeat after another. Spending that is not told has not changed."""
    spend = min(max(said.monthly_spend, 0), MAX_SPEND) or before.monthly_spend
    return replace(said, at=max(before.at, said.at), monthly_spend=spend)


def steps(status: Status, beat: Beat) -> tuple[Status, ...]:
    """What a heartbeat makes of a status: nothing, one step, or back online and degraded at once."""
    passed: list[Status] = []
    if status in (Status.PROVISIONING, Status.OFFLINE):
        passed.append(status := Status.ONLINE)
    if status is Status.ONLINE and (beat.error_rate >= DEGRADED_AT or beat.runtime_state == WEDGED):
        passed.append(Status.DEGRADED)
    elif status is Status.DEGRADED and beat.error_rate < RECOVERED_BELOW and beat.runtime_state == "":
        passed.append(Status.ONLINE)
    return tuple(passed)


def changed(node: Node, now: int, **fields: object) -> Node:
    """The next version of a node."""
    return replace(node, version=node.version + 1, updated_at=now, **fields)


def pair_generation(caller: Node | None, target: Node) -> str:
    """Differs once one of the two was moved or removed; the platform (None) never is."""
    return f"{caller.generation if caller else 0}.{target.generation}"


def slug_of(id_: str) -> str:
    """A node as an agent: no agent that somebody defines can be called so."""
    return _SLUG + id_


def node_of(slug: str) -> str | None:
    """The node that an agent's slug stands for; None for any other agent."""
    id_ = slug.removeprefix(_SLUG)
    return id_ if slug.startswith(_SLUG) and _ID.fullmatch(id_) else None
