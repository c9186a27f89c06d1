"""Our errors as plain HTTP answers, in the shape that A2A's REST binding uses too (google.rpc.Status)."""

from starlette.types import Send

from parley.errors import (
    Conflict,
    CookieTooLarge,
    Forbidden,
    Invalid,
    IssuerUnavailable,
    NameTaken,
    NotFound,
    ParleyError,
    PayloadTooLarge,
    RateLimited,
    Stopping,
    StoreUnavailable,
    Unauthenticated,
)
from parley.faces.http import Headers, answer, retry_headers

_STATUSES: list[tuple[type[ParleyError], int, str]] = [
    (Unauthenticated, 401, "UNAUTHENTICATED"),
    (Forbidden, 403, "PERMISSION_DENIED"),
    (NotFound, 404, "NOT_FOUND"),
    (NameTaken, 409, "ALREADY_EXISTS"),
    (Conflict, 409, "ABORTED"),
    (PayloadTooLarge, 413, "INVALID_ARGUMENT"),
    (CookieTooLarge, 431, "INVALID_ARGUMENT"),
    (Invalid, 400, "INVALID_ARGUMENT"),
    (RateLimited, 429, "RESOURCE_EXHAUSTED"),
    (StoreUnavailable, 503, "UNAVAILABLE"),
    (IssuerUnavailable, 503, "UNAVAILABLE"),
    (Stopping, 503, "UNAVAILABLE"),
]


async def refuse(send: Send, error: ParleyError, headers: Headers | None = None) -> None:
    """Answer with an error that has an answer; any other is a defect or a wrong setting, and is raised again."""
    code, status = status_of(error)
    await answer(send, code, {"error": _body(error, code, status)}, [*(headers or ()), *retry_headers(error)])


def status_of(error: ParleyError) -> tuple[int, str]:
    """The HTTP status of an error, and its canonical name; raises one that has none."""
    for kind, code, status in _STATUSES:
        if isinstance(error, kind):
            return code, status
    raise error


def _body(error: ParleyError, code: int, status: str) -> dict[str, object]:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.code.upper(),
        "domain": "parley",
        "metadata": {name: str(value) for name, value in error.details.items() if name != "field"},
    }
    details: list[object] = [info]
    if field := error.details.get("field"):
        violation = {"field": field, "description": error.message}
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]})
    return {"code": code, "status": status, "message": error.message, "details": details}
