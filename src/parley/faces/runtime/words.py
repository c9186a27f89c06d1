"""What is said on the wire of the runtime contract: requests in snake_case, answers in camelCase, as it has them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from parley.core.runs import Run, State
from parley.ids import MAX_LENGTH, PATTERN

NAME = r"^[^\x00-\x1f\x7f]+$(?!\n)"
"""Ids are shown in headers and kept in columns: no control characters. (`$` alone allows a line break at the end.)"""

Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
Id = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": MAX_LENGTH, "pattern": f"^{PATTERN}$"})]
"""What the engine makes a run or a conversation of; it is the engine that refuses others."""
Object = dict[str, Any]
Timestamp = Annotated[str, Meta(description="RFC 3339 time with an offset, such as 2026-02-19T18:00:00Z")]
"""Text on the wire; the engine refuses text that is not a time."""

Status = Literal["created", "running", "canceling", "canceled", "succeeded", "failed"]
Code = Literal[
    "unauthorized",
    "forbidden",
    "invalid_request",
    "not_found",
    "conflict",
    "stale_cursor",
    "internal_error",
    "rate_limited",
]


class NewRun(Struct, frozen=True):
    """`run_id` names the run, so that asking again finds it; else one is made."""

    thread_id: Id
    run_id: Id | None = None
    agent: Name | None = None


class NewFrame(Struct, frozen=True):
    thread_id: Name
    frame_id: Name
    type: Name
    payload: Object
    occurred_at: Timestamp | None = None


class CancelAsk(Struct, frozen=True):
    thread_id: Name
    reason: Annotated[str, Meta(max_length=2000)] | None = None


class DeliveryEvent(Struct, frozen=True):
    event_id: Annotated[str, Meta(min_length=2, max_length=256, pattern=NAME)]
    provider: Annotated[str, Meta(min_length=2, max_length=64, pattern=NAME)]
    delivery_state: Literal["delivered", "bounced", "complained", "unsubscribed"]
    payload: Object
    message_id: str | None = None
    integration_id: str | None = None
    recipient: str | None = None
    occurred_at: Timestamp | None = None
    reason: str | None = None


class Health(Struct, frozen=True):
    status: Literal["ok"]
    service: Literal["openagents-runtime"]
    version: str


class RunAccepted(Struct, frozen=True, rename="camel"):
    run_id: str
    thread_id: str
    agent: str
    status: Status
    latest_seq: int
    idempotent_replay: bool


class Snapshot(Struct, frozen=True, rename="camel"):
    run_id: str
    thread_id: str
    status: Status
    latest_seq: int
    updated_at: str


class FrameAccepted(Struct, frozen=True, rename="camel"):
    run_id: str
    frame_id: str
    status: Literal["accepted"]
    idempotent_replay: bool


class CancelAccepted(Struct, frozen=True, rename="camel"):
    run_id: str
    status: Status
    cancel_requested: bool
    idempotent_replay: bool


class DeliveryAccepted(Struct, frozen=True, rename="camel"):
    event_id: str
    status: Literal["accepted"]
    idempotent_replay: bool


class StreamEvent(Struct, frozen=True):
    """One event of a stream: `id` is its number in the run, `data` is JSON, or `[DONE]` when nothing follows."""

    event: Literal["message"]
    id: Annotated[str, Meta(pattern="^[0-9]+$")]
    data: str


class Fault(Struct, frozen=True, omit_defaults=True):
    code: Code
    message: str
    details: list[Any] = []


class Refusal(Struct, frozen=True):
    error: Fault


_ENDED: dict[State, Status] = {
    State.COMPLETED: "succeeded",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.CANCELED: "canceled",
}


def status_of(run: Run) -> Status:
    if run.ended:
        return _ENDED[run.state]
    if run.cancel_requested:
        return "canceling"
    return "running" if run.epoch else "created"
