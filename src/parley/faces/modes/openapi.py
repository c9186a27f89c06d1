"""Contract 002 as an OpenAPI document, made from the table of actions."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from parley.core.actions import COMMON, STATUSES, Action, Code
from parley.core.params import NewConversation
from parley.core.results import Answered, ConversationBegun, Waiting
from parley.faces.modes.face import BEGIN, DOCUMENT, STREAM, TASK, TASKS
from parley.faces.modes.words import PREFIX, Envelope, StreamEvent, TaskStreamEvent
from parley.faces.openapi import Json, described
from parley.ids import MAX_LENGTH, PATTERN

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
    200: "Done; or, where a run waits for somebody, still running: `result` holds its question.",
    201: "The conversation was begun.",
    202: "Accepted, durably; `Prefer: respond-async` was heeded.",
}
_KEY: Json = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "description": "The same key with the same request is the same task; kept for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}  # fmt: skip
_PREFER: Json = {
    "name": "Prefer", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "`respond-async`: do not wait for the agent. Other preferences are passed over.",
}  # fmt: skip
_LAST_EVENT: Json = {
    "name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0},
    "description": "Go on after the event of this number.",
}  # fmt: skip


def document(actions: Sequence[Action], version: str) -> Json:
    """Of the actions that are offered."""
    requests = {(action.mode, action.name): request_type(action) for action in actions}
    results = [action.result for action in actions]
    types = [*requests.values(), *results, NewConversation, ConversationBegun, Answered, Waiting, Envelope, StreamEvent]
    refs, schemas = described(types)
    (events,), more = msgspec.json.schema_components([TaskStreamEvent], ref_template="#/components/schemas/{name}")
    schemas |= {name: schema for name, schema in more.items() if name not in schemas}
    schemas["TaskStreamEvent"] = events
    answered = [*results, ConversationBegun, Answered, Waiting]
    schemas["Envelope"]["properties"]["result"] = {"anyOf": [*_each(refs, answered), {"type": "null"}]}
    schemas["TaskRequest"] = {"anyOf": _each(refs, requests.values())}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Plans, deliverables and conversations", "version": version,
            "description": "One endpoint, a mode and an action; every answer is the envelope of a task.",
        },
        "security": _SECURITY,
        "paths": _paths(actions, refs),
        "components": {"schemas": schemas, "securitySchemes": _SCHEMES},
        "x-actions": [_row(action, requests) for action in actions],
    }  # fmt: skip


def request_type(action: Action) -> type[Struct]:
    """The body of a request for an action: its parameters, and the two words that choose it."""
    name = "".join(word.capitalize() for word in (action.mode, *action.name.split("_")))
    fields = [("mode", Literal[action.mode]), ("action", Literal[action.name])]
    return msgspec.defstruct(f"{name}Request", fields, bases=(action.params,), frozen=True, kw_only=True)


def _row(action: Action, requests: dict[tuple[str, str], type[Struct]]) -> Json:
    return {
        "mode": action.mode, "action": action.name, "capability": action.capability, "llm": action.model,
        "request": requests[action.mode, action.name].__name__, "result": action.result.__name__,
        "nullable": action.absent or action.model or action.result.__name__ == "VersionMade",
        "errors": [*COMMON, *(code for code in action.errors if code not in COMMON)],
    }  # fmt: skip


def _paths(actions: Sequence[Action], refs: dict[type, Json]) -> Json:
    codes: set[Code] = {*COMMON, "UNAVAILABLE", *(code for action in actions for code in action.errors)}
    body_codes: tuple[Code, ...] = (
        "INVALID_REQUEST", "MISSING_REQUIRED_PARAM", "AGENT_NOT_FOUND", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
        *_OF_READS,
    )  # fmt: skip
    envelope = refs[Envelope]
    followed = _content(
        "Server-sent events; the `data` of each is a TaskStreamEvent.", "text/event-stream", refs[StreamEvent]
    )
    told = _content("This document.", "application/json", {"type": "object"})
    return {
        PREFIX + TASKS: _post(
            "performAction", "Do an action in a conversation.", _answers(envelope, (200, 202), codes),
            [_in_path("conversationId"), _KEY, _PREFER], {"$ref": "#/components/schemas/TaskRequest"},
        ),
        PREFIX + BEGIN: _post(
            "beginConversation", "Begin a conversation, or find the one of that id.",
            _answers(envelope, (200, 201), body_codes), [], refs[NewConversation],
        ),
        PREFIX + TASK: _get(
            "readTask", "What has become of a task.", _answers(envelope, (200,), _OF_READS), [_in_path("taskId")]
        ),
        PREFIX + STREAM: _get(
            "followTask", "What happens to a task, from any event on; its last event is its envelope.",
            {**followed, **_answers(envelope, (), (*_OF_READS, "INVALID_REQUEST", "STALE_CURSOR"))},
            [_in_path("taskId"), _LAST_EVENT],
        ),
        PREFIX + DOCUMENT: _get(
            "openapi", "This document.",
            {**told, **_answers(envelope, (), ("UNAUTHORIZED", "INTERNAL_ERROR", "UNAVAILABLE"))}, [],
        ),
    }  # fmt: skip


def _get(name: str, summary: str, responses: Json, parameters: list[Json]) -> Json:
    return {"get": {"operationId": name, "summary": summary, "parameters": parameters, "responses": responses}}


def _post(name: str, summary: str, responses: Json, parameters: list[Json], body: Json) -> Json:
    said = {"operationId": name, "summary": summary, "parameters": parameters}
    return {"post": {**said, "requestBody": _body(body), "responses": responses}}


def _content(description: str, media_type: str, schema: Json) -> Json:
    return {"200": {"description": description, "content": {media_type: {"schema": schema}}}}


def _each(refs: dict[type, Json], types: Iterable[type]) -> list[Json]:
    """Each once, in order."""
    return [refs[type_] for type_ in dict.fromkeys(types)]


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _ID}


def _body(schema: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _answers(envelope: Json, good: Iterable[int], codes: Iterable[Code]) -> Json:
    """By status: the envelope, and which codes it can have then."""
    refused: dict[int, list[Code]] = {}
    for code in codes:
        refused.setdefault(STATUSES[code], []).append(code)
    described_by = {status: _DESCRIPTIONS[status] for status in good} | {
        status: f"{', '.join(sorted(set(names)))}." for status, names in refused.items()
    }
    content = {"application/json": {"schema": envelope}}
    return {str(status): {"description": words, "content": content} for status, words in sorted(described_by.items())}
