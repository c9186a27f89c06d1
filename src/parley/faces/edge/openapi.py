"""The calls of runtimes as an OpenAPI document, made from their table."""

import re
from collections.abc import Iterable

from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.faces.edge.operations import DOCUMENT, OPERATIONS, Operation
from parley.faces.edge.replies import RuntimeRefusal
from parley.faces.edge.serving import Reply, route
from parley.faces.openapi import Json, described

_TOKEN = "runtimeToken"
_SCHEMES: Json = {
    _TOKEN: {
        "type": "apiKey", "in": "header", "name": "X-Runtime-Token",
        "description": "The token that attach answered; also accepted as Authorization: Bearer.",
    }
}  # fmt: skip
_INSTANCE: Json = {
    "name": "X-Runtime-Instance", "in": "header", "required": False,
    "description": "The process that asks. What it pulls belongs to it: another process with the same token cannot "
    "report on it, renew it or hand it back. Send it with every call, or never.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
}  # fmt: skip
_DESCRIPTIONS = {
    200: "Done, or done before.",
    201: "The file was written.",
    400: "The body or a header is not as this document has it: invalid_input, invalid_json, invalid_artifact.",
    401: "The token or the pairing code does not hold: unauthenticated, runtime_revoked, invalid_pairing_token.",
    403: "The runtime works for another agent: permission_denied.",
    404: "There is no such task for this runtime, or its agent is gone: run_not_found, agent_not_found.",
    409: "The runtime does not hold the task, or the turn has ended otherwise: lease_lost, task_run_ended.",
    413: "The body or the file is too large: payload_too_large.",
    429: "Too many wrong codes; Retry-After says when to try again: rate_limited.",
    503: "The store does not answer, or the server stops; try again: store_unavailable, stopping.",
}
_ANYWHERE = (401, 503)


def document(version: str) -> Json:
    types = {type_ for one in OPERATIONS for type_ in (one.body, *one.answers.values()) if type_ is not None}
    refs, schemas = described({*types, RuntimeRefusal})
    paths: Json = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Runtimes of agents behind NAT", "version": version,
            "description": "A runtime attaches once with a pairing code. From then on it pulls tasks, reports on those "
            "that it holds, and renews their leases. It only ever asks; nothing calls it. "
            "Members that are not known are ignored, and null is as good as leaving out.",
        },
        "security": [{_TOKEN: []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": _SCHEMES},
    }  # fmt: skip


def document_route(version: str) -> Route:
    """Open to everyone: it says how to ask, and nothing about this server."""
    made = document(version)

    async def show(scope: Scope, receive: Receive) -> Reply:
        return 200, made

    return route("GET", DOCUMENT, show)


def _operation(operation: Operation, refs: dict[type, Json]) -> Json:
    said: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation.path), *([_INSTANCE] if operation.token else [])],
        "responses": dict(_responses(operation, refs)),
    }
    if not operation.token:
        said["security"] = []
    if operation.body is not None:
        said["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": refs[operation.body]}},
        }
    return said


def _path_parameters(path: str) -> Iterable[Json]:
    for name in re.findall(r"{(\w+)}", path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _responses(operation: Operation, refs: dict[type, Json]) -> Iterable[tuple[str, Json]]:
    of_input = (400,) if operation.body is not None or operation.token else ()
    refused = dict.fromkeys((*_ANYWHERE, *of_input, *operation.refusals), RuntimeRefusal)
    for status, type_ in sorted({**operation.answers, **refused}.items()):
        yield (
            str(status),
            {
                "description": _DESCRIPTIONS[status],
                "content": {"application/json": {"schema": refs[type_]}},
            },
        )
