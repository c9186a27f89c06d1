"""How our errors look on A2A's wires: the JSON-RPC code, the HTTP status, the canonical status, the reason.

A2A 1.0.1 §5.4; codes that A2A does not have lie outside the range that JSON-RPC reserves.
"""

from msgspec import Struct

from parley.errors import (
    AgentNotFound,
    Conflict,
    ContentNotSupported,
    ExtensionRequired,
    Forbidden,
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
from parley.faces.rpc import InvalidRequest

_A2A = "a2a-protocol.org"
_OURS = "parley"


class Fault(Struct, frozen=True):
    rpc: int
    http: int
    status: str
    reason: str | None = None
    """A2A's own name for it; None when A2A has none, then our code is told in our domain."""


_PRECONDITION = "FAILED_PRECONDITION"
_ARGUMENT = "INVALID_ARGUMENT"
_FAULTS: list[tuple[type[ParleyError], Fault]] = [
    (RunNotFound, Fault(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")),
    (HookNotFound, Fault(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")),
    (AgentNotFound, Fault(-31404, 404, "NOT_FOUND")),
    (NotCancelable, Fault(-32002, 400, _PRECONDITION, "TASK_NOT_CANCELABLE")),
    (RunEnded, Fault(-32004, 400, _PRECONDITION, "UNSUPPORTED_OPERATION")),
    (PushNotSupported, Fault(-32003, 400, _PRECONDITION, "PUSH_NOTIFICATION_NOT_SUPPORTED")),
    (NoExtendedCard, Fault(-32007, 400, _PRECONDITION, "EXTENDED_AGENT_CARD_NOT_CONFIGURED")),
    (Unsupported, Fault(-32004, 400, _PRECONDITION, "UNSUPPORTED_OPERATION")),
    (ContentNotSupported, Fault(-32005, 400, _ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED")),
    (MediaTypeNotSupported, Fault(-32005, 415, _ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED")),
    (ExtensionRequired, Fault(-32008, 400, _PRECONDITION, "EXTENSION_SUPPORT_REQUIRED")),
    (VersionNotSupported, Fault(-32009, 400, _PRECONDITION, "VERSION_NOT_SUPPORTED")),
    (InvalidJson, Fault(-32700, 400, _ARGUMENT)),
    (InvalidRequest, Fault(-32600, 400, _ARGUMENT)),
    (NestedTooDeep, Fault(-32600, 400, _ARGUMENT)),
    (MethodNotAllowed, Fault(-32601, 405, "UNIMPLEMENTED")),
    (UnknownMethod, Fault(-32601, 404, "UNIMPLEMENTED")),
    (PayloadTooLarge, Fault(-32602, 413, _ARGUMENT)),
    (Unauthenticated, Fault(-31401, 401, "UNAUTHENTICATED")),
    (Forbidden, Fault(-31403, 403, "PERMISSION_DENIED")),
    (StoreUnavailable, Fault(-32603, 503, "UNAVAILABLE")),
    (IssuerUnavailable, Fault(-32603, 503, "UNAVAILABLE")),
    (Stopping, Fault(-32603, 503, "UNAVAILABLE")),
    (RateLimited, Fault(-31429, 429, "RESOURCE_EXHAUSTED")),
    (StaleCursor, Fault(-32602, 410, "OUT_OF_RANGE")),
    (Conflict, Fault(-32602, 409, "ABORTED")),
    (Invalid, Fault(-32602, 400, _ARGUMENT)),
]
_INTERNAL = Fault(-32603, 500, "INTERNAL")


def fault_of(error: ParleyError) -> Fault:
    return next((fault for kind, fault in _FAULTS if isinstance(error, kind)), _INTERNAL)


def details_of(error: ParleyError, fault: Fault) -> list[dict[str, object]]:
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
