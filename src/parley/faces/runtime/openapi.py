"""The contract as an OpenAPI document, made from the table of operations."""

from collections.abc import Iterable

from parley.faces.openapi import Json, described
from parley.faces.runtime.routes import PREFIX, Operation, Parameter, Stream
from parley.faces.runtime.words import Refusal

_SIGNATURE = "runtimeSignature"
_OWNERS = {
    "user": [("x-oa-user-id", "The user on whose behalf this is asked.", True)],
    "user or guest": [
        ("x-oa-user-id", "The user on whose behalf this is asked; this or x-oa-guest-scope.", False),
        ("x-oa-guest-scope", "The guest on whose behalf this is asked; ignored when there is a user.", False),
    ],
    "none": [],
}
_DESCRIPTIONS = {
    200: "As asked, or as it had been asked before.",
    202: "Accepted for the first time, durably.",
    400: "The request is not as the contract has it.",
    401: "The signature or the principal is missing or does not hold.",
    403: "The claims are others than the request's, or the run is not the principal's.",
    404: "There is no such run in this thread, or no such agent.",
    409: "The id is taken with other content.",
    410: "The cursor is older than what is kept.",
    413: "The body is larger than this server takes.",
    422: "The manifest or the request of the tool is not valid.",
    500: "Internal error.",
    503: "The store does not answer; nothing of the request was kept.",
}
_ANYWHERE = dict.fromkeys((401, 403, 500, 503), Refusal)
"""Every request is signed, and its claims are kept from being used twice."""
_OF_BODIES = dict.fromkeys((400, 413), Refusal)


def document(operations: Iterable[Operation], version: str) -> Json:
    operations = tuple(operations)
    refs, components = described(type_ for operation in operations for type_ in _types(operation))
    paths: Json = {}
    for operation in operations:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Runtime contract", "version": version,
            "description": "The signed control plane. Changes are by addition only.",
        },
        "security": [{_SIGNATURE: []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                _SIGNATURE: {
                    "type": "apiKey", "in": "header", "name": "X-OA-RUNTIME-SIGNATURE",
                    "description": "v1.<claims>.<HMAC-SHA256>, good for one request.",
                }
            },
        },
    }  # fmt: skip


def _types(operation: Operation) -> Iterable[type]:
    if operation.body is not None:
        yield operation.body
    for of in answers_of(operation).values():
        type_ = of.event if isinstance(of, Stream) else of
        if isinstance(type_, type) and type_ is not dict:
            yield type_


def answers_of(operation: Operation) -> dict[int, object]:
    """What the contract says of the operation, and what can become of any request."""
    of_body = {} if operation.body is None else _OF_BODIES
    return dict(sorted({**_ANYWHERE, **of_body, **operation.answers}.items()))


def _operation(operation: Operation, refs: dict[type, Json]) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_owner(operation), *(_parameter(one) for one in operation.parameters)],
        "responses": {str(status): _answer(status, of, refs) for status, of in answers_of(operation).items()},
    }
    if "{run_id}" in operation.path:
        described["parameters"].insert(0, {"name": "run_id", "in": "path", "required": True, **_TEXT})
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": refs[operation.body]}},
        }
    return described


_TEXT: Json = {"schema": {"type": "string", "minLength": 1}}


def _owner(operation: Operation) -> Iterable[Json]:
    for name, description, required in _OWNERS[operation.owner]:
        schema: Json = {"type": "integer" if name == "x-oa-user-id" else "string"}
        yield {"name": name, "in": "header", "required": required, "description": description, "schema": schema}


def _parameter(one: Parameter) -> Json:
    return {
        "name": one.name, "in": one.where, "required": one.required, "description": one.description,
        "schema": one.schema,
    }  # fmt: skip


def _answer(status: int, of: object, refs: dict[type, Json]) -> Json:
    """The schema of a stream is the one of each of its events."""
    match of:
        case Stream(event):
            content: Json = {"text/event-stream": {"schema": refs[event]}}
        case type() if of is not dict:
            content = {"application/json": {"schema": refs[of]}}
        case _:
            content = {"application/json": {"schema": {"type": "object"}}}
    return {"description": _DESCRIPTIONS[status], "content": content}
