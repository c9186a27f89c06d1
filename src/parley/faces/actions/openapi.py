"""OpenAPI document of the actions (002), made from the table of actions and the operations of the face."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from parley.faces.actions.messages import Envelope, StreamEvent, TaskStreamEvent
from parley.faces.actions.params import NewConversation, RequestMetadata
from parley.faces.actions.results import DESCRIBED, Answered, ConversationBegun, Waiting
from parley.faces.actions.table import COMMON, STATUSES, Action, Code
from parley.http.face import Operation
from parley.http.openapi import Json, described
from parley.ids import MAX_LENGTH, PATTERN
from parley.runs.rules.transcript import MessageMetadata

_OPEN = (RequestMetadata.__name__, MessageMetadata.__name__)
"""Types to which clients and agents may add members."""
_SECURITY: list[Json] = [{"bearer": []}, {"apiKey": []}, {}]
_SCHEMES: Json = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_ID: Json = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH, "pattern": f"^{PATTERN}$"}
_OF_READS: tuple[Code, ...] = (
    "UNAUTHORIZED", "FORBIDDEN", "TASK_NOT_FOUND", "DATABASE_ERROR", "INTERNAL_ERROR", "UNAVAILABLE",
)  # fmt: skip
_DESCRIPTIONS = {
    200: "Done. If the task waits for an answer, its status is still running and `result` holds the question.",
    201: "The conversation was created.",
    202: "Accepted and stored; the work continues in the background, as `Prefer: respond-async` asked.",
}
_KEY: Json = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "description": "A repeated request with the same key returns the same task. Keys are kept for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}  # fmt: skip
_PREFER: Json = {
    "name": "Prefer", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "`respond-async`: do not wait for the agent. Other preferences are ignored.",
}  # fmt: skip
_LAST_EVENT: Json = {
    "name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0},
    "description": "Resume after the event with this number.",
}  # fmt: skip


def document(actions: Sequence[Action], operations: Sequence[Operation], version: str) -> Json:
    """Return the document of the given actions and operations."""
    requests = {(action.mode, action.name): request_type(action) for action in actions}
    results = [action.result for action in actions]
    own = (NewConversation, ConversationBegun, Answered, Waiting, Envelope, StreamEvent)
    refs, schemas = described([*requests.values(), *results, *own, *DESCRIBED])
    (events,), more = msgspec.json.schema_components([TaskStreamEvent], ref_template="#/components/schemas/{name}")
    schemas |= {name: schema for name, schema in more.items() if name not in schemas}
    schemas["TaskStreamEvent"] = events
    answered = [*results, ConversationBegun, Answered, Waiting]
    schemas["Envelope"]["properties"]["result"] = {"anyOf": [*_each(refs, answered), {"type": "null"}]}
    for name in _OPEN:
        schemas[name]["additionalProperties"] = {}
    schemas["TaskRequest"] = {"anyOf": _each(refs, requests.values())}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Plans, deliverables and conversations",
            "version": version,
            "description": "A request names a mode and an action; every response is the envelope of a task.",
        },
        "security": _SECURITY,
        "paths": _paths(operations, _described(actions, refs)),
        "components": {"schemas": schemas, "securitySchemes": _SCHEMES},
        "x-actions": [_row(action, requests) for action in actions],
    }


def request_type(action: Action) -> type[Struct]:
    """Return the type of the body of a request for an action: its parameters, mode and action."""
    name = "".join(word.capitalize() for word in (action.mode, *action.name.split("_")))
    fields = [("mode", Literal[action.mode]), ("action", Literal[action.name])]
    return msgspec.defstruct(f"{name}Request", fields, bases=(action.params,), frozen=True, kw_only=True)


def _row(action: Action, requests: dict[tuple[str, str], type[Struct]]) -> Json:
    return {
        "mode": action.mode,
        "action": action.name,
        "capability": action.capability,
        "llm": action.model,
        "request": requests[action.mode, action.name].__name__,
        "result": action.result.__name__,
        "nullable": action.absent or action.model or action.result.__name__ == "VersionMade",
        "errors": [*COMMON, *(code for code in action.errors if code not in COMMON)],
    }


def _paths(operations: Sequence[Operation], described_by: dict[str, Json]) -> Json:
    rows = {row.name: row for row in operations}
    assert rows.keys() == described_by.keys()
    return {
        rows[name].template: {
            rows[name].method.lower(): {"operationId": name, "summary": rows[name].summary, **members}
        }
        for name, members in described_by.items()
    }


def _described(actions: Sequence[Action], refs: dict[type, Json]) -> dict[str, Json]:
    """Return parameters, bodies and responses by operation name, in the order of the document."""
    codes: set[Code] = {*COMMON, "UNAVAILABLE", *(code for action in actions for code in action.errors)}
    body_codes: tuple[Code, ...] = (
        "INVALID_REQUEST",
        "MISSING_REQUIRED_PARAM",
        "AGENT_NOT_FOUND",
        "PAYLOAD_TOO_LARGE",
        "UNSUPPORTED_MEDIA_TYPE",
        *_OF_READS,
    )
    envelope = refs[Envelope]
    stream = _content(
        "Server-sent events; the `data` of each is a TaskStreamEvent.", "text/event-stream", refs[StreamEvent]
    )
    this = _content("This document.", "application/json", {"type": "object"})
    return {
        "performAction": {
            "parameters": [_in_path("conversationId"), _KEY, _PREFER],
            "requestBody": _body({"$ref": "#/components/schemas/TaskRequest"}),
            "responses": _answers(envelope, (200, 202), codes),
        },
        "beginConversation": {
            "parameters": [],
            "requestBody": _body(refs[NewConversation]),
            "responses": _answers(envelope, (200, 201), body_codes),
        },
        "readTask": {
            "parameters": [_in_path("taskId")],
            "responses": _answers(envelope, (200,), _OF_READS),
        },
        "followTask": {
            "parameters": [_in_path("taskId"), _LAST_EVENT],
            "responses": {**stream, **_answers(envelope, (), (*_OF_READS, "INVALID_REQUEST", "STALE_CURSOR"))},
        },
        "openapi": {
            "parameters": [],
            "responses": {**this, **_answers(envelope, (), ("UNAUTHORIZED", "INTERNAL_ERROR", "UNAVAILABLE"))},
        },
    }


def _content(description: str, media_type: str, schema: Json) -> Json:
    return {"200": {"description": description, "content": {media_type: {"schema": schema}}}}


def _each(refs: dict[type, Json], types: Iterable[type]) -> list[Json]:
    """Return the reference of each type once, in order."""
    return [refs[type_] for type_ in dict.fromkeys(types)]


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _ID}


def _body(schema: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _answers(envelope: Json, good: Iterable[int], codes: Iterable[Code]) -> Json:
    """Describe the responses by status: the envelope and its possible error codes."""
    refused: dict[int, list[Code]] = {}
    for code in codes:
        refused.setdefault(STATUSES[code], []).append(code)
    described_by = {status: _DESCRIPTIONS[status] for status in good} | {
        status: f"{', '.join(sorted(set(names)))}." for status, names in refused.items()
    }
    content = {"application/json": {"schema": envelope}}
    return {str(status): {"description": words, "content": content} for status, words in sorted(described_by.items())}
