"""OpenAPI document of the calls of runtimes."""

from collections.abc import Iterable

from parley.faces.pairing.face import PairedFace, RuntimeFace, TaskRunFace
from parley.faces.pairing.messages import RuntimeRefusal
from parley.http.face import Operation, Request, Response, operation
from parley.http.openapi import Json, OpenApi, Parameter

DOCUMENT = "/agent-runtimes/openapi.json"

_INSTANCE = Parameter(
    "X-Runtime-Instance",
    "header",
    {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    "Name of the process that calls. Tasks that it pulls belong to it: another process with the same token cannot "
    "report on them, renew their leases or release them. Send this header with every call, or never.",
)


def _parameters(row: Operation) -> Iterable[Parameter]:
    return () if row.open else (_INSTANCE,)


def _refusals(row: Operation) -> Iterable[int]:
    of_input = () if row.open and row.body is None else (400,)
    return (401, 503, *of_input, *row.refusals)


API = OpenApi(
    title="Runtimes of agents behind NAT",
    about="A runtime attaches once with a pairing code. From then on it pulls tasks, reports on the tasks "
    "that it holds, and renews their leases. The runtime makes all calls; the server never calls it. "
    "Unknown members are ignored, and null means the same as omitting a member.",
    credential="runtimeToken",
    scheme={
        "type": "apiKey",
        "in": "header",
        "name": "X-Runtime-Token",
        "description": "The token that attach returned; also accepted as Authorization: Bearer.",
    },
    statuses={
        200: "Done, or already done by an earlier call.",
        201: "The file was written.",
        400: "The body or a header is invalid: invalid_input, invalid_json, invalid_artifact.",
        401: "The token or the pairing code is missing or invalid: unauthenticated, runtime_revoked, "
        "invalid_pairing_token.",
        403: "The runtime works for another agent: permission_denied.",
        404: "The runtime has no such task, or its agent no longer exists: run_not_found, agent_not_found.",
        409: "The runtime does not hold the task, or the turn has already ended: lease_lost, task_run_ended.",
        413: "The body or the file is too large: payload_too_large.",
        429: "Too many wrong codes; retry after the time in Retry-After: rate_limited.",
        503: "The store does not answer, or the server is stopping; retry: store_unavailable, stopping.",
    },
    refusal=RuntimeRefusal,
    refusals=_refusals,
    parameters=_parameters,
)


def document(version: str) -> Json:
    return API.document((*RuntimeFace.operations(), *TaskRunFace.operations()), version)


class RuntimeDocument(PairedFace[None]):
    """Serves the document without credentials: it describes the calls and contains nothing about this server."""

    def __init__(self, version: str) -> None:
        self._document = document(version)

    @operation("GET", DOCUMENT, open=True)
    async def openapi(self, request: Request[None]) -> Response:
        return Response(200, self._document)
