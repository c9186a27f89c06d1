"""Delegations: what one node hands to another by way of us (contract 004). Each is a run, and read from it."""

from typing import Literal

import msgspec
from msgspec import Struct

from parley.core.documents import Assignment
from parley.core.nodes import slug_of
from parley.core.runs import WAITING, Run, State
from parley.ids import ConversationId

MODE = "delegate"
RECORDED = "recorded"
"""The agent of delegations that a node carried out by itself and only tells us of: nobody works on them here."""
PREVIEW = 200
RESTING = frozenset(("remote_unreachable", "node_unavailable"))
"""How a delegation fails that is worth one more try: nobody was there, and nothing was sent."""

DelegationStatus = Literal["pending", "queued", "dispatched", "received", "in_progress", "completed", "failed"]


class Delegation(Struct, frozen=True):
    """Who handed what to whom; kept with the run as what it was made for."""

    source: str
    target: str
    task: str
    id: str = ""
    """As the source calls one that it only told us of."""


def assignment_of(delegation: Delegation, *, recorded: bool = False) -> Assignment:
    about = msgspec.json.encode(delegation).decode()
    return Assignment(MODE, "record" if recorded else "send", metadata=about)


def delegation_of(run: Run) -> Delegation | None:
    """What was handed over with a run; None for one that is no delegation."""
    if run.assignment is None or run.assignment.mode != MODE:
        return None
    return msgspec.json.decode(run.assignment.metadata, type=Delegation)


def agent_of(delegation: Delegation, *, recorded: bool) -> str:
    return RECORDED if recorded else slug_of(delegation.target)


def conversation_of(source: str) -> ConversationId:
    """All delegations of a node, so that they can be listed; targets learn nothing of it."""
    return ConversationId(f"delegations:{source}")


def status_of(run: Run, *, crowded: bool = False) -> DelegationStatus:
    """`crowded`: the target has no room at the moment. A contract without a canceled one calls it failed."""
    match run.state:
        case State.COMPLETED:
            return "completed"
        case State.FAILED | State.REJECTED | State.CANCELED:
            return "failed"
        case State.SUBMITTED if run.notes.get("task") is None:
            return "queued" if crowded else "pending"
        case _ if run.agent == RECORDED:
            return "dispatched"
        case _ if not run.notes.get("task"):
            return "dispatched"
        case _:
            heard = run.answering or run.state in WAITING or run.status_at > run.started_at or run.epoch > 1
            return "in_progress" if heard else "received"
