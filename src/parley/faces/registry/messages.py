"""Requests and responses of nodes. Unknown fields in requests are ignored."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from parley.clock import iso
from parley.json_values import readable
from parley.nodes.delegations import PREVIEW, Delegated
from parley.nodes.rules import Heartbeat, NodeEvent, NodeEventKind, RegisteredNode
from parley.runs.rules.state import WAITING

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0, le=1)]
Line = Annotated[str, Meta(max_length=2000)]
Named = Annotated[str, Meta(min_length=1, max_length=128)]
Words = Annotated[str, Meta(min_length=1)]


class RegisterIn(Struct, frozen=True):
    id: str
    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    agent_card: dict[str, Raw]
    name: str | None = None


class NodeHeartbeatIn(Struct, frozen=True):
    workspace_id: str
    error_rate: Rate = 0.0
    sample_error: Line = ""
    active_tasks: Count = 0
    uptime_seconds: Annotated[float, Meta(ge=0)] = 0
    current_task: Line = ""
    monthly_spend: int = 0
    runtime_state: Annotated[str, Meta(max_length=100)] = ""
    runtime_metadata: dict[str, Raw] | None = None

    def beat(self, at: int, metadata: bytes) -> Heartbeat:
        return Heartbeat(
            at,
            self.error_rate,
            self.sample_error,
            self.active_tasks,
            int(self.uptime_seconds),
            self.current_task,
            self.monthly_spend,
            self.runtime_state,
            metadata,
        )


class CardIn(Struct, frozen=True):
    workspace_id: str
    agent_card: dict[str, Raw]


class AccessIn(Struct, frozen=True):
    caller_id: str
    target_id: str


class TokenIn(Struct, frozen=True):
    token: Annotated[str, Meta(min_length=1)]


class DelegateIn(Struct, frozen=True):
    target_id: str
    task: Words
    idempotency_key: str | None = None


class RecordIn(Struct, frozen=True):
    target_id: str
    task: Words
    delegation_id: Named | None = None


class UpdateIn(Struct, frozen=True):
    status: Literal["completed", "failed"]
    response_preview: str = ""
    error: str = ""


# Nodes and their events in the format of the registry and proxy (004).

_decode = msgspec.json.Decoder(dict[str, Raw]).decode


def event_view(event: NodeEvent) -> dict[str, object]:
    return {
        "event": event.name,
        "workspace_id": event.node,
        "timestamp": iso(event.at),
        "payload": Raw(event.payload),
    }


def peer_view(node: RegisteredNode, *, internal: bool) -> dict[str, object]:
    """Render a node for callers that may call it. Nodes get the internal address, other callers the external one."""
    url = node.internal_url if internal else node.external_url
    return {
        "id": node.id,
        "name": node.name,
        "role": node.role,
        "tier": node.tier,
        "status": node.status.value,
        "agent_card": Raw(node.card) if node.card else None,
        "url": url,
        "parent_id": node.parent_id,
        "active_tasks": node.beat.active_tasks,
    }


def node_view(node: RegisteredNode) -> dict[str, object]:
    """Render all data of a node, for the node itself and its operators."""
    beat = node.beat
    return {
        **peer_view(node, internal=False),
        "internal_url": node.internal_url,
        "forwarded_to": node.forwarded_to,
        "runtime": node.runtime,
        "model": node.model,
        "external": node.external,
        "x": node.x,
        "y": node.y,
        "max_concurrent_tasks": node.max_concurrent_tasks,
        "budget_limit": node.budget_limit,
        "monthly_spend": beat.monthly_spend,
        "last_heartbeat_at": iso(beat.at) if beat.at else None,
        "last_error_rate": beat.error_rate,
        "last_sample_error": beat.sample_error,
        "uptime_seconds": beat.uptime_seconds,
        "current_task": beat.current_task,
        "runtime_state": beat.runtime_state,
        "runtime_metadata": Raw(beat.metadata) if beat.metadata else None,
        "created_at": iso(node.created_at),
        "updated_at": iso(node.updated_at),
        "removed_at": iso(node.removed_at) if node.removed_at is not None else None,
    }


def activity_view(event: NodeEvent) -> dict[str, object]:
    """Render an activity with its bodies, for the node itself and its operators."""
    assert event.name == NodeEventKind.ACTIVITY
    return {
        "id": event.seq,
        "workspace_id": event.node,
        "created_at": iso(event.at),
        **_members(event.payload),
        **_members(event.private),
    }


def _members(body: bytes) -> dict[str, Raw]:
    return _decode(readable(body)) if body else {}


def delegation_view(one: Delegated) -> dict[str, object]:
    waits = one.run.state in WAITING and not one.delegation.id
    return {
        "delegation_id": one.id,
        "source_id": one.delegation.source,
        "target_id": one.delegation.target,
        "status": one.status,
        "summary": one.delegation.task[:PREVIEW],
        "response_preview": one.response[:PREVIEW],
        "error_code": one.code or None,
        "task_id": one.run.id,
        "input_required": waits,
        "created_at": iso(one.run.created_at),
        "updated_at": iso(one.run.updated_at),
    }
