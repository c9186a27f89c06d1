"""Our errors in the words of contract 002."""

from typing import NamedTuple

from parley.core.actions import STATUSES, Code
from parley.core.documents import Kind
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
    StepNotFound,
    Stopping,
    StoreUnavailable,
    ToolNotFound,
    Unauthenticated,
    UnknownAction,
    UnknownMode,
    Unsupported,
)
from parley.faces.http import Headers, retry_headers
from parley.faces.modes.words import Details, Fault
from parley.telemetry import tell

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
    "execution": "executionId", "orchestration": "orchestrationId", "step": "stepId", "reason": "reason",
    "state": "state", "retry_after": "retryAfter",
}  # fmt: skip
"""What is told of an error's details, and how it is called on this wire."""


class Refusal(NamedTuple):
    status: int
    fault: Fault


def refusal_of(error: Exception) -> Refusal:
    """The answer to an error; a defect is told to the operator, and the client learns only that there was one."""
    code = code_of(error) if isinstance(error, ParleyError) else None
    if code is None or not isinstance(error, ParleyError):
        tell("http.crashed", path="/api/agent2agent", error=error)
        return refused("INTERNAL_ERROR", "Internal error.")
    details = {_NAMES[name]: one for name, one in error.details.items() if name in _NAMES}
    return refused(code, error.message, details)


def refused(code: Code, message: str, details: Details | None = None) -> Refusal:
    return Refusal(STATUSES[code], Fault(code, message, details or {}))


def headers_of(error: Exception) -> Headers:
    """What HTTP asks of some refusals."""
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", str(error.details["allow"]).encode())]
    return retry_headers(error) if isinstance(error, ParleyError) else []


def code_of(error: ParleyError) -> Code | None:
    """None for what the contract has no word for: a defect."""
    if isinstance(error, DocumentNotFound):
        kind: object = error.details.get("kind")
        return _NO_DOCUMENT["deliverable" if kind == "deliverable" else "plan"]
    if type(error) is Invalid and "field" in error.details:
        return "MISSING_REQUIRED_PARAM"
    return next((code for type_, code in _CODES if isinstance(error, type_)), None)
