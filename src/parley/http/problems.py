"""HTTP responses for Parley's errors, in the format that A2A's REST binding also uses (google.rpc.Status)."""

import re
from typing import NamedTuple

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
from parley.http.requests import Headers, answer, retry_headers

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
    """Send the response for an error. An error without one is a defect or a wrong setting, and is raised again."""
    status, content = problem_of(error)
    await answer(send, status, content, [*(headers or ()), *retry_headers(error)])


def problem_of(error: ParleyError) -> tuple[int, dict[str, object]]:
    """Return the HTTP status and the body for an error; raise an error that has none."""
    code, status = status_of(error)
    return code, {"error": _body(error, code, status)}


def status_of(error: ParleyError) -> tuple[int, str]:
    """Return the HTTP status of an error and its canonical name; raise an error that has none."""
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


# msgspec's validation errors, reworded for clients. The invalid value itself is not repeated.

_PLACE = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_SENTENCES = [
    (re.compile(r"Object missing required field `(\w+)`"), "is required"),
    (re.compile(r"Expected `array` of length >= (\d+)"), "must have at least {} entries"),
    (re.compile(r"Expected `array` of length <= (\d+)"), "must have at most {} entries"),
    (re.compile(r"Expected `\w+` of length >= 1"), "is required"),
    (re.compile(r"Expected `\w+` of length >= (\d+)"), "must have at least {} characters"),
    (re.compile(r"Expected `\w+` of length <= (\d+)"), "must have at most {} characters"),
    (re.compile(r"Expected `(?:int|float)` >= ([\d.]+)"), "must be at least {}"),
    (re.compile(r"Expected `(?:int|float)` <= ([\d.]+)"), "must be at most {}"),
    (re.compile(r"Expected `str` matching regex .*"), "must not contain control characters"),
    (re.compile(r"Expected `str.*, got .*"), "must be a string"),
    (re.compile(r"Expected `object.*, got .*"), "must be an object"),
    (re.compile(r"Expected `array.*, got .*"), "must be an array"),
    (re.compile(r"Expected `bool.*, got .*"), "must be true or false"),
    (re.compile(r"Expected `int.*, got .*"), "must be a whole number"),
    (re.compile(r"Expected `float.*, got .*"), "must be a number"),
    (re.compile(r"Invalid enum value .*", re.DOTALL), "is not one of the allowed values"),
]


class Flaw(NamedTuple):
    """An error in a request: its place (empty for the request as a whole) and a sentence about it."""

    place: str
    sentence: str


def flaw_of(message: str) -> Flaw:
    found = _PLACE.fullmatch(message)
    words, place = (found[1], found[2] or "") if found else (message, "")
    for pattern, sentence in _SENTENCES:
        if match := pattern.fullmatch(words):
            groups = match.groups()
            if sentence == "is required" and groups:
                place = f"{place}.{groups[0]}" if place else groups[0]
            return Flaw(place, sentence.format(*groups))
    return Flaw(place, "is invalid")
