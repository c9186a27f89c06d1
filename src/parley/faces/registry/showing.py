"""Nodes and what happened to them, as contract 004 writes them."""

import msgspec
from msgspec import Raw

from parley.clock import iso
from parley.core.nesting import readable
from parley.core.nodes import Happened, Node, NodeEvent

_decode = msgspec.json.Decoder(dict[str, Raw]).decode


def event_view(event: NodeEvent) -> dict[str, object]:
    return {
        "event": event.name, "workspace_id": event.node, "timestamp": iso(event.at), "payload": Raw(event.payload),
    }  # fmt: skip


def peer_view(node: Node, *, internal: bool) -> dict[str, object]:
    """What those see who may talk to it. The internal address is for nodes that may: others get the external one."""
    url = node.internal_url if internal else node.external_url
    return {
        "id": node.id, "name": node.name, "role": node.role, "tier": node.tier, "status": node.status.value,
        "agent_card": Raw(node.card) if node.card else None, "url": url, "parent_id": node.parent_id,
        "active_tasks": node.beat.active_tasks,
    }  # fmt: skip


def node_view(node: Node) -> dict[str, object]:
    """What the node itself sees, and its operators."""
    beat = node.beat
    return {
        **peer_view(node, internal=False), "internal_url": node.internal_url, "forwarded_to": node.forwarded_to,
        "runtime": node.runtime, "model": node.model, "external": node.external, "x": node.x, "y": node.y,
        "max_concurrent_tasks": node.max_concurrent_tasks, "budget_limit": node.budget_limit,
        "monthly_spend": beat.monthly_spend, "last_heartbeat_at": iso(beat.at) if beat.at else None,
        "last_error_rate": beat.error_rate, "last_sample_error": beat.sample_error,
        "uptime_seconds": beat.uptime_seconds, "current_task": beat.current_task,
        "runtime_state": beat.runtime_state, "runtime_metadata": Raw(beat.metadata) if beat.metadata else None,
        "created_at": iso(node.created_at), "updated_at": iso(node.updated_at),
        "removed_at": iso(node.removed_at) if node.removed_at is not None else None,
    }  # fmt: skip


def activity_view(event: NodeEvent) -> dict[str, object]:
    """With the bodies: for the node itself and its operators."""
    assert event.name == Happened.ACTIVITY
    return {
        "id": event.seq, "workspace_id": event.node, "created_at": iso(event.at), **_members(event.payload),
        **_members(event.private),
    }  # fmt: skip


def _members(body: bytes) -> dict[str, Raw]:
    return _decode(readable(body)) if body else {}
