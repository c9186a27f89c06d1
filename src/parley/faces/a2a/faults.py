"""How our errors look on A2A's wires: the JSON-RPC code, the HTTP status, the reason in ErrorInfo."""

from msgspec import Struct

from parley.errors import (
    Invalid,
    InvalidJson,
    NotCancelable,
    ParleyError,
    PayloadTooLarge,
    RunEnded,
    RunNotFound,
    StoreUnavailable,
    UnknownMethod,
    Unsupported,
    VersionNotSupported,
)

_A2A = "a2a-protocol.org"
_OURS = "parley"


class Fault(Struct, frozen=True):
    rpc: int
    http: int
    reason: str | None = None
    """A2A's own name for it; None when A2A has none, then our code is told in our domain."""


_FAULTS: list[tuple[type[ParleyError], Fault]] = [
    (RunNotFound, Fault(-32001, 404, "TASK_NOT_FOUND")),
    (NotCancelable, Fault(-32002, 400, "TASK_NOT_CANCELABLE")),
    (RunEnded, Fault(-32004, 400, "UNSUPPORTED_OPERATION")),
    (Unsupported, Fault(-32004, 400, "UNSUPPORTED_OPERATION")),
    (VersionNotSupported, Fault(-32009, 400, "VERSION_NOT_SUPPORTED")),
    (InvalidJson, Fault(-32700, 400)),
    (UnknownMethod, Fault(-32601, 404)),
    (PayloadTooLarge, Fault(-32602, 413)),
    (StoreUnavailable, Fault(-32603, 503)),
    (Invalid, Fault(-32602, 400)),
]
_CONFLICT = Fault(-32602, 409)
_INTERNAL = Fault(-32603, 500)


class InvalidRequest(Invalid):
    """Not a JSON-RPC request."""

    code = "invalid_request"


def fault_of(error: ParleyError) -> Fault:
    if isinstance(error, InvalidRequest):
        return Fault(-32600, 400)
    for kind, fault in _FAULTS:
        if isinstance(error, kind):
            return fault
    return _INTERNAL if error.code == "internal" else _CONFLICT


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
