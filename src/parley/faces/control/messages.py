"""Messages of the runtime control plane (003): requests in snake_case, responses in camelCase, as in the contract."""

from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import Meta, Struct

from parley.errors import Invalid
from parley.http.problems import flaw_of
from parley.ids import MAX_LENGTH, PATTERN
from parley.runs.rules.state import Run, State

T = TypeVar("T")

NAME = r"^[^\x00-\x1f\x7f]+$(?!\n)"
"""Pattern of ids without control characters, because ids appear in headers and columns. (`$` alone would allow a line
break at the end.)"""

Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]
Id = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": MAX_LENGTH, "pattern": f"^{PATTERN}$"})]
"""Id of a run or a conversation. The schema describes it; the engine checks it."""
Object = dict[str, Any]
Timestamp = Annotated[str, Meta(description="RFC 3339 time with an offset, such as 2026-02-19T18:00:00Z")]
"""Time as text; the engine checks that it is a time."""

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
    """A new run. With `run_id`, a repeated request returns the same run; else the server makes an id."""

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


Mode = Literal["execute", "replay"]


class ToolsAsk(Struct, frozen=True):
    tool_pack: Name
    manifest: Object
    request: Object
    mode: Mode = "execute"
    policy: Object | None = None
    run_id: Name | None = None
    thread_id: Name | None = None
    user_id: int | str | None = None


class ToolsAnswer(Struct, frozen=True):
    """Result of a tool call. `data` is the outcome with its receipt; for a replay, the decision with its hashes."""

    data: Object


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


# Bodies as typed values; errors use the contract's messages.


def fields_in(body: bytes) -> Object | None:
    """Return the members of a body; None if it is not an object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any]) if body else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def body_of(fields: Object | None, type_: type[T]) -> T:
    """Convert the members of a body to a message."""
    if type_ is ToolsAsk:
        return cast("T", tools_ask(fields or {}))
    if fields is None:
        raise Invalid("request body must be a JSON object")
    try:
        return msgspec.convert(fields, type_)
    except msgspec.ValidationError as error:
        flaw = flaw_of(str(error))
        raise Invalid(f"{flaw.place or 'request'} {flaw.sentence}") from None


def tools_ask(fields: Object) -> ToolsAsk:
    """Convert members to a tool request; raise with all errors of its shape, not only the first."""
    if problems := _problems(fields):
        raise tools_refusal(problems)
    return ToolsAsk(
        fields["tool_pack"],
        fields["manifest"],
        fields["request"],
        fields.get("mode") or "execute",
        fields.get("policy"),
        fields.get("run_id"),
        fields.get("thread_id"),
        fields.get("user_id"),
    )


def tools_refusal(problems: list[str]) -> Invalid:
    return Invalid("invalid tool invocation request", problems=problems)


def _problems(fields: Object) -> list[str]:
    problems: list[str] = []
    if not isinstance(fields.get("tool_pack"), str) or not fields["tool_pack"]:
        problems.append("tool_pack is required")
    if fields.get("mode") not in (None, *get_args(Mode)):
        problems.append("mode must be execute or replay")
    problems += [f"{name} must be an object" for name in ("manifest", "request") if not _is_object(fields.get(name))]
    if fields.get("policy") is not None and not _is_object(fields["policy"]):
        problems.append("policy must be an object when provided")
    for name in ("run_id", "thread_id"):
        if not isinstance(fields.get(name), str | None):
            problems.append(f"{name} must be a string when provided")
    return problems


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
