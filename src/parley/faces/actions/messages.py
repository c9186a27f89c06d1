"""Messages of the actions (002): requests for actions, the envelope of a task, the events of its stream, and errors."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.types import Scope

from parley.clock import iso
from parley.documents.rules import Kind
from parley.errors import (
    AgentNotFound,
    CannotPlan,
    Conflict,
    ConversationNotFound,
    DocumentNotFound,
    DocumentVersionNotFound,
    ExecutionNotFound,
    ExportFailed,
    Forbidden,
    Invalid,
    InvalidJson,
    IssuerUnavailable,
    MediaTypeNotSupported,
    MethodNotAllowed,
    NotCapable,
    NotFound,
    OrchestrationNotFound,
    ParamInvalid,
    ParleyError,
    PayloadTooLarge,
    PlanningFailed,
    RateLimited,
    RunNotFound,
    StaleCursor,
    StaleVersion,
    StepNotFound,
    Stopping,
    StoreUnavailable,
    ToolNotFound,
    Unauthenticated,
    UnknownAction,
    UnknownMode,
    Unsupported,
)
from parley.faces.actions.params import Params
from parley.faces.actions.results import Time
from parley.faces.actions.table import ACTIONS, BY_NAME, MODES, STATUSES, Action, Code, Row
from parley.http.problems import flaw_of
from parley.http.requests import check_text, header, is_json
from parley.runs.rules.state import Run, State
from parley.telemetry import tell

PREFIX = "/api/agent2agent"

T = TypeVar("T")

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
    """Facts about how a task was done: its duration, and the model if one was used."""

    execution_time_ms: int
    llm_model: str | None = None
    tokens_used: int | None = None


class Envelope(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Body of every response. `result` is present when there is one, and it can be null."""

    task_id: str
    conversation_id: str
    status: Status
    started_at: Time
    result: Any | UnsetType = UNSET
    error: Fault | UnsetType = UNSET
    completed_at: Time | UnsetType = UNSET
    metadata: About | UnsetType = UNSET


class StatusEvent(Struct, frozen=True, rename="camel", omit_defaults=True, tag="status"):
    """Status of the task, and the agent's progress message."""

    task_id: str
    status: Status
    message: str | UnsetType = UNSET


class TextEvent(Struct, frozen=True, rename="camel", tag="text"):
    """A piece of the answer. Append it to the pieces before it; with `reset`, replace them."""

    task_id: str
    text: str
    reset: bool = False


class QuestionEvent(Struct, frozen=True, rename="camel", tag="question"):
    """The task waits for an answer (`input`) or for credentials (`auth`)."""

    task_id: str
    question: str
    needs: Literal["input", "auth"]


class TaskEvent(Struct, frozen=True, tag="task"):
    """Last event of the stream: the final envelope of the task."""

    task: Envelope


TaskStreamEvent = StatusEvent | TextEvent | QuestionEvent | TaskEvent


class StreamEvent(Struct, frozen=True):
    """One event of a stream: `id` is its number in the task's log, `data` is JSON: a TaskStreamEvent."""

    id: Annotated[str, Meta(pattern="^[0-9]+$")]
    data: str


encode = msgspec.json.Encoder().encode


def status_of(run: Run) -> Status:
    return _STATUSES[run.state]


def started_at(run: Run) -> int:
    """Return the time of the request: work that is done at once is recorded only at its end."""
    asked_at = run.assignment.asked_at if run.assignment is not None else 0
    return min(asked_at, run.created_at) if asked_at else run.created_at


def envelope_of(run: Run, **members: Any) -> Envelope:
    """Return the envelope of a run, without members that need a lookup."""
    return Envelope(
        run.id,
        run.conversation,
        status_of(run),
        iso(started_at(run)),
        completed_at=iso(run.status_at) if run.ended else UNSET,
        **members,
    )


# Errors with the contract's codes.

_CODES: list[tuple[type[ParleyError], Code]] = [
    (UnknownMode, "INVALID_MODE"),
    (UnknownAction, "INVALID_ACTION"),
    (ParamInvalid, "MISSING_REQUIRED_PARAM"),
    (NotCapable, "CAPABILITY_NOT_FOUND"),
    (DocumentVersionNotFound, "VERSION_NOT_FOUND"),
    (ConversationNotFound, "CONVERSATION_NOT_FOUND"),
    (AgentNotFound, "AGENT_NOT_FOUND"),
    (RunNotFound, "TASK_NOT_FOUND"),
    (ToolNotFound, "TOOL_NOT_FOUND"),
    (ExecutionNotFound, "EXECUTION_NOT_FOUND"),
    (OrchestrationNotFound, "ORCHESTRATION_NOT_FOUND"),
    (StepNotFound, "STEP_NOT_FOUND"),
    (PlanningFailed, "LLM_EXECUTION_FAILED"),
    (CannotPlan, "CAPABILITY_NOT_FOUND"),
    (NotFound, "NOT_FOUND"),
    (Unauthenticated, "UNAUTHORIZED"),
    (Forbidden, "FORBIDDEN"),
    (StoreUnavailable, "DATABASE_ERROR"),
    (StaleCursor, "STALE_CURSOR"),
    (PayloadTooLarge, "PAYLOAD_TOO_LARGE"),
    (MediaTypeNotSupported, "UNSUPPORTED_MEDIA_TYPE"),
    (MethodNotAllowed, "METHOD_NOT_ALLOWED"),
    (InvalidJson, "INVALID_REQUEST"),
    (StaleVersion, "STALE_VERSION"),
    (Conflict, "INVALID_STATE"),
    (Unsupported, "INVALID_STATE"),
    (ExportFailed, "INVALID_STATE"),
    (Invalid, "INVALID_REQUEST"),
    (RateLimited, "RATE_LIMITED"),
    (IssuerUnavailable, "UNAVAILABLE"),
    (Stopping, "UNAVAILABLE"),
]
_NO_DOCUMENT: dict[Kind, Code] = {"plan": "PLAN_NOT_FOUND", "deliverable": "DELIVERABLE_NOT_FOUND"}
_NAMES = {
    "field": "field", "conversation": "conversationId", "version": "versionId", "scope": "scope", "floor": "floor",
    "cursor": "cursor", "limit": "limit", "supportedModes": "supportedModes", "supportedActions": "supportedActions",
    "agentSlug": "agentSlug", "requestedCapability": "requestedCapability",
    "availableCapabilities": "availableCapabilities", "tool": "toolName", "tools": "tools",
    "available": "availableTools",
    "execution": "executionId", "orchestration": "orchestrationId", "step": "stepId", "reason": "reason",
    "state": "state", "retry_after": "retryAfter", "current": "currentVersionId",
}  # fmt: skip
"""Details of errors that are sent to callers, with their names on this wire."""


class Refusal(NamedTuple):
    status: int
    fault: Fault


def refusal_of(error: Exception) -> Refusal:
    """Return the response to an error. A defect is logged; the client only gets "Internal error."."""
    code = code_of(error) if isinstance(error, ParleyError) else None
    if code is None or not isinstance(error, ParleyError):
        tell("http.crashed", path=PREFIX, error=error)
        return refused("INTERNAL_ERROR", "Internal error.")
    details = {_NAMES[name]: one for name, one in error.details.items() if name in _NAMES}
    return refused(code, error.message, details)


def refused(code: Code, message: str, details: Details | None = None) -> Refusal:
    return Refusal(STATUSES[code], Fault(code, message, details or {}))


def code_of(error: ParleyError) -> Code | None:
    """Return the contract's code of an error; None for a defect, which has no code."""
    if isinstance(error, DocumentNotFound):
        kind: object = error.details.get("kind")
        return _NO_DOCUMENT["deliverable" if kind == "deliverable" else "plan"]
    if type(error) is Invalid and "field" in error.details:
        return "MISSING_REQUIRED_PARAM"
    return next((code for type_, code in _CODES if isinstance(error, type_)), None)


# Requests for actions. Errors are checked in the order that docs/documents.md states.


class _Head(Struct):
    mode: Any = None
    action: Any = None


_head = msgspec.json.Decoder(_Head).decode
_PARAMS: dict[Row, Callable[[bytes], Params]] = {
    (action.mode, action.name): msgspec.json.Decoder(action.params).decode for action in ACTIONS
}
_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def check_media(scope: Scope, body: bytes) -> None:
    if not is_json(scope):
        raise MediaTypeNotSupported("The request must be application/json.")
    check_text(body)


def action_of(scope: Scope, body: bytes, offered: Callable[[Action], bool]) -> Action:
    """Return the action that a body names."""
    check_media(scope, body)
    try:
        head = _head(body)
    except _NOT_JSON:
        raise InvalidJson("The request must be a JSON object.") from None
    if not isinstance(head.mode, str) or head.mode not in MODES:
        raise UnknownMode(f"mode is unknown; supported modes: {', '.join(MODES)}.", supportedModes=MODES)
    action = BY_NAME.get((head.mode, head.action)) if isinstance(head.action, str) else None
    if action is None or not offered(action):
        known = [one.name for one in ACTIONS if one.mode == head.mode and offered(one)]
        listed = f"supported actions: {', '.join(known)}" if known else "this server supports none of its actions"
        raise UnknownAction(f"The mode {head.mode} has no such action; {listed}.", supportedActions=known)
    return action


def params_of(action: Action, body: bytes) -> Params:
    """Decode and check the parameters of an action."""
    params = decoded(_PARAMS[action.mode, action.name], body)
    params.check()
    return params


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        place, sentence = flaw_of(str(error))
        raise ParamInvalid(f"{place or 'request'} {sentence}", field=place) from None
    except _NOT_JSON:
        raise InvalidJson("The request must be a JSON object.") from None


def key_of(scope: Scope) -> str | None:
    """Return the `Idempotency-Key` header, if there is one."""
    key = header(scope, b"idempotency-key")
    if key is not None and not (1 <= len(key) <= 255 and key.isprintable()):
        raise ParamInvalid("Idempotency-Key must have 1 to 255 printable characters.", field="Idempotency-Key")
    return key


def wants_async(scope: Scope) -> bool:
    """Return True for `Prefer: respond-async` (RFC 7240)."""
    prefer = header(scope, b"prefer")
    if prefer is None:
        return False
    wishes = (wish.partition(";")[0].strip().lower() for wish in prefer.split(","))
    return "respond-async" in wishes
