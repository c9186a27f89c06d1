"""OpenAPI document of the runtime control plane (003)."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from parley.faces.control.messages import Refusal
from parley.faces.control.streams import DEFAULT_TAIL_MS, MAX_TAIL_MS
from parley.http.face import Operation
from parley.http.openapi import Json, OpenApi, Parameter

MAX_KEY = 255

Span = Literal["runtime.ingest", "runtime.persist", "runtime.stream", "runtime.tool"]
Owner = Literal["none", "user", "user or guest"]


class Traits(Struct, frozen=True):
    """Properties of an operation that are specific to this face."""

    span: Span | None = None
    """Name of the trace span; None if the exchange opens one itself."""
    owner: Owner = "none"
    """Kind of principal that the headers must name as the owner of the run."""


THREAD = Parameter("thread_id", "query", {"type": "string", "minLength": 1}, "Thread of the run.", required=True)
CURSOR = Parameter(
    "cursor", "query", {"type": "integer", "minimum": 0}, "Resume after the event with this number; 0 is the start."
)
LAST_EVENT = Parameter(
    "Last-Event-ID",
    "header",
    {"type": "integer", "minimum": 0},
    "Same as `cursor`; if both are given, they must match.",
)
TAIL = Parameter(
    "tail_ms",
    "query",
    {"type": "integer", "minimum": 1, "default": DEFAULT_TAIL_MS},
    f"Time in milliseconds to keep the stream open for new events; at most {MAX_TAIL_MS}, larger values are reduced.",
)
KEY = Parameter(
    "Idempotency-Key",
    "header",
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY},
    "Identifies the run on a retry if the request has no `run_id`.",
)

_USER: Json = {"type": "integer"}
_OWNERS: dict[Owner, list[Parameter]] = {
    "user": [Parameter("x-oa-user-id", "header", _USER, "User that the request acts for.", required=True)],
    "user or guest": [
        Parameter("x-oa-user-id", "header", _USER, "User that the request acts for; send this or x-oa-guest-scope."),
        Parameter(
            "x-oa-guest-scope",
            "header",
            {"type": "string"},
            "Guest that the request acts for; ignored when x-oa-user-id is sent.",
        ),
    ],
    "none": [],
}


def _parameters(row: Operation) -> Iterable[Parameter]:
    return (*_OWNERS[row.more.owner], *row.parameters)


def _refusals(row: Operation) -> Iterable[int]:
    """Return the error statuses of an operation. Every request is signed, and its claims can be used only once, so
    every operation can answer 401, 403 and 503."""
    of_body = () if row.body is None else (400, 413)
    return (401, 403, 500, 503, *of_body, *row.refusals)


API = OpenApi(
    title="Runtime contract",
    about="Signed control plane of runs. The contract changes only by additions.",
    credential="runtimeSignature",
    scheme={
        "type": "apiKey",
        "in": "header",
        "name": "X-OA-RUNTIME-SIGNATURE",
        "description": "v1.<claims>.<HMAC-SHA256>, valid for one request.",
    },
    statuses={
        200: "Done, or already done by an earlier request.",
        202: "Accepted for the first time and stored.",
        400: "The request does not conform to the contract.",
        401: "The signature or the principal is missing or invalid.",
        403: "The claims do not match the request, or the run does not belong to the principal.",
        404: "The thread has no such run, or there is no such agent.",
        409: "The id already exists with other content.",
        410: "The cursor is older than the stored events.",
        413: "The body exceeds the size limit of this server.",
        422: "The manifest or the request of the tool is not valid.",
        500: "Internal error.",
        503: "The store does not answer; nothing of the request was stored.",
    },
    refusal=Refusal,
    refusals=_refusals,
    parameters=_parameters,
)
