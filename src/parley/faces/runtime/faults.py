"""Our errors as the contract's envelope."""

from typing import NamedTuple, cast

from starlette.types import Send

from parley.errors import (
    Conflict,
    Forbidden,
    Invalid,
    ManifestInvalid,
    MethodNotAllowed,
    NotFound,
    ParleyError,
    PayloadTooLarge,
    RateLimited,
    StaleCursor,
    Stopping,
    StoreUnavailable,
    ToolRequestInvalid,
    Unauthenticated,
)
from parley.faces.http import Headers, answer
from parley.faces.runtime.words import Code, Fault, Refusal
from parley.telemetry import tell


class Mapped(NamedTuple):
    status: int
    code: Code


_MAP: list[tuple[type[ParleyError], Mapped]] = [
    (Unauthenticated, Mapped(401, "unauthorized")),
    (Forbidden, Mapped(403, "forbidden")),
    (NotFound, Mapped(404, "not_found")),
    (MethodNotAllowed, Mapped(405, "invalid_request")),
    (Conflict, Mapped(409, "conflict")),
    (StaleCursor, Mapped(410, "stale_cursor")),
    (PayloadTooLarge, Mapped(413, "invalid_request")),
    (ManifestInvalid, Mapped(422, "invalid_request")),
    (ToolRequestInvalid, Mapped(422, "invalid_request")),
    (Invalid, Mapped(400, "invalid_request")),
    (RateLimited, Mapped(429, "rate_limited")),
    (Stopping, Mapped(503, "internal_error")),
    (StoreUnavailable, Mapped(503, "internal_error")),
]
_DEFECT = Refusal(Fault("internal_error", "internal error"))


async def refuse(send: Send, error: ParleyError, headers: Headers | None = None) -> None:
    mapped = mapped_of(error)
    if mapped is None:
        return await crashed(send, error)
    fault = Fault(mapped.code, error.message, _details(error))
    return await answer(send, mapped.status, Refusal(fault), headers)


def mapped_of(error: ParleyError) -> Mapped | None:
    """None for what the contract has no word for: a defect."""
    return next((mapped for kind, mapped in _MAP if isinstance(error, kind)), None)


async def crashed(send: Send, error: Exception) -> None:
    """A defect: told to the operator; the client learns only that there was one."""
    tell("http.crashed", path="/internal/v1", error=error)
    await answer(send, 500, _DEFECT)


def _details(error: ParleyError) -> list[object]:
    problems: object = error.details.get("problems")
    if isinstance(problems, list):
        return cast("list[object]", problems)
    shown = {name: error.details[name] for name in ("cursor", "floor") if name in error.details}
    return [shown] if shown else []
