"""Parley's errors in A2A: JSON-RPC code, HTTP status, canonical status and reason of each (A2A 1.0.1 §5.4).

Codes that A2A does not define are outside the range that JSON-RPC reserves.
"""

from msgspec import Struct

from parley.errors import (
    AgentNotFound,
    Conflict,
    ContentNotSupported,
    ExtensionRequired,
    Forbidden,
    GenerationMismatch,
    HookNotFound,
    Invalid,
    InvalidJson,
    IssuerUnavailable,
    MediaTypeNotSupported,
    MethodNotAllowed,
    NestedTooDeep,
    NoExtendedCard,
    NotCancelable,
    ParleyError,
    PayloadTooLarge,
    PushNotSupported,
    RateLimited,
    RunEnded,
    RunNotFound,
    StaleCursor,
    Stopping,
    StoreUnavailable,
    Unauthenticated,
    UnknownMethod,
    Unsupported,
    VersionNotSupported,
)
from parley.http.jsonrpc import InvalidRequest

_A2A = "a2a-protocol.org"
_OURS = "parley"


class A2AFault(Struct, frozen=True):
    rpc: int
    http: int
    status: str
    reason: str | None = None
    """Reason that A2A defines; None if A2A defines none, then Parley's error code is sent in Parley's domain."""


_PRECONDITION = "FAILED_PRECONDITION"
_ARGUMENT = "INVALID_ARGUMENT"
_FAULTS: list[tuple[type[ParleyError], A2AFault]] = [
    (RunNotFound, A2AFault(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")),
    (HookNotFound, A2AFault(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")),
    (AgentNotFound, A2AFault(-31404, 404, "NOT_FOUND")),
    (NotCancelable, A2AFault(-32002, 400, _PRECONDITION, "TASK_NOT_CANCELABLE")),
    (RunEnded, A2AFault(-32004, 400, _PRECONDITION, "UNSUPPORTED_OPERATION")),
    (PushNotSupported, A2AFault(-32003, 400, _PRECONDITION, "PUSH_NOTIFICATION_NOT_SUPPORTED")),
    (NoExtendedCard, A2AFault(-32007, 400, _PRECONDITION, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")),
    (Unsupported, A2AFault(-32004, 400, _PRECONDITION, "UNSUPPORTED_OPERATION")),
    (ContentNotSupported, A2AFault(-32005, 400, _ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED")),
    (MediaTypeNotSupported, A2AFault(-32005, 415, _ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED")),
    (ExtensionRequired, A2AFault(-32008, 400, _PRECONDITION, "EXTENSION_SUPPORT_REQUIRED")),
    (VersionNotSupported, A2AFault(-32009, 400, _PRECONDITION, "VERSION_NOT_SUPPORTED")),
    (InvalidJson, A2AFault(-32700, 400, _ARGUMENT)),
    (InvalidRequest, A2AFault(-32600, 400, _ARGUMENT)),
    (NestedTooDeep, A2AFault(-32600, 400, _ARGUMENT)),
    (MethodNotAllowed, A2AFault(-32601, 405, "UNIMPLEMENTED")),
    (UnknownMethod, A2AFault(-32601, 404, "UNIMPLEMENTED")),
    (PayloadTooLarge, A2AFault(-32602, 413, _ARGUMENT)),
    (Unauthenticated, A2AFault(-31401, 401, "UNAUTHENTICATED")),
    (Forbidden, A2AFault(-31403, 403, "PERMISSION_DENIED")),
    (StoreUnavailable, A2AFault(-32603, 503, "UNAVAILABLE")),
    (IssuerUnavailable, A2AFault(-32603, 503, "UNAVAILABLE")),
    (Stopping, A2AFault(-32603, 503, "UNAVAILABLE")),
    (RateLimited, A2AFault(-31429, 429, "RESOURCE_EXHAUSTED")),
    (StaleCursor, A2AFault(-32602, 410, "OUT_OF_RANGE")),
    (GenerationMismatch, A2AFault(-32010, 409, "ABORTED", "TASK_GENERATION_MISMATCH")),
    (Conflict, A2AFault(-32602, 409, "ABORTED")),
    (Invalid, A2AFault(-32602, 400, _ARGUMENT)),
]
_INTERNAL = A2AFault(-32603, 500, "INTERNAL")


def fault_of(error: ParleyError) -> A2AFault:
    return next((fault for kind, fault in _FAULTS if isinstance(error, kind)), _INTERNAL)


def details_of(error: ParleyError, fault: A2AFault) -> list[dict[str, object]]:
    metadata = {
        name: str(value)
        for name, value in error.details.items()
        if isinstance(value, str | int | float) and name != "field"
    }
    info: dict[str, object] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": fault.reason or error.code.upper(),
        "domain": _A2A if fault.reason else _OURS,
        "metadata": metadata,
    }
    field = error.details.get("field")
    if field is None:
        return [info]
    violation = {"field": field, "description": error.message}
    return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}]
