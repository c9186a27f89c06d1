"""What is said on the wire of contract 002: the envelope of a task, and the events of its stream."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from parley.clock import iso
from parley.core.actions import Code
from parley.core.runs import Run, State

PREFIX = "/api/agent2agent"

Status = Literal["pending", "running", "completed", "failed"]
Details = dict[str, Any]

_STATUSES: dict[State, Status] = {
    State.SUBMITTED: "pending",
    State.WORKING: "running",
    State.INPUT_REQUIRED: "running",
    State.AUTH_REQUIRED: "running",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "failed",
    State.REJECTED: "failed",
}


class Fault(Struct, frozen=True, omit_defaults=True):
    code: Code
    message: str
    details: Details = {}


class About(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of how a task was done."""

    execution_time_ms: int
    llm_model: str | None = None
    tokens_used: int | None = None


class Envelope(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Every answer. `result` is there when there is one; it can be null."""

    task_id: str
    conversation_id: str
    status: Status
    started_at: str
    result: Any | UnsetType = UNSET
    error: Fault | UnsetType = UNSET
    completed_at: str | UnsetType = UNSET
    metadata: About | UnsetType = UNSET


class StatusEvent(Struct, frozen=True, rename="camel", omit_defaults=True, tag="status"):
    """The task's status, and what the agent says it is doing."""

    task_id: str
    status: Status
    message: str | UnsetType = UNSET


class TextEvent(Struct, frozen=True, rename="camel", tag="text"):
    """A piece of the answer, to be put behind the pieces before it; `reset`: to be put in their place."""

    task_id: str
    text: str
    reset: bool = False


class QuestionEvent(Struct, frozen=True, rename="camel", tag="question"):
    """The task waits for somebody."""

    task_id: str
    question: str
    needs: Literal["input", "auth"]


class TaskEvent(Struct, frozen=True, tag="task"):
    """The last event: the task as it ended."""

    task: Envelope


TaskStreamEvent = StatusEvent | TextEvent | QuestionEvent | TaskEvent


class StreamEvent(Struct, frozen=True):
    """One event of a stream: `id` is its number in the task's log, `data` is JSON: a TaskStreamEvent."""

    id: Annotated[str, Meta(pattern="^[0-9]+$")]
    data: str


encode = msgspec.json.Encoder().encode


def status_of(run: Run) -> Status:
    return _STATUSES[run.state]


def envelope_of(run: Run, **members: Any) -> Envelope:
    """A run's envelope without what has to be looked up."""
    return Envelope(
        run.id, run.conversation, status_of(run), iso(run.created_at),
        completed_at=iso(run.status_at) if run.ended else UNSET, **members,
    )  # fmt: skip
