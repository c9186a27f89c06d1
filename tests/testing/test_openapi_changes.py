"""A contract may only grow: every way to take something away is found and named, and additions pass."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from parley.testing.openapi_changes import taken_away

Json = dict[str, Any]
Change = Callable[[Json], object]

DOCUMENT: Json = {
    "security": [{"signature": []}],
    "paths": {
        "/runs": {
            "get": {
                "operationId": "list",
                "parameters": [
                    {"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1, "default": 1}},
                    {"name": "order", "in": "query", "required": True, "schema": {"enum": ["up", "down"]}},
                ],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Page"}}}},
                    "404": {"description": "Not here."},
                },
            },
            "post": {
                "operationId": "create",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
                "responses": {"202": {"content": {"application/json": {"schema": {"type": "object"}}}}},
            },
        }
    },
    "components": {
        "schemas": {
            "New": {
                "type": "object",
                "required": ["thread"],
                "properties": {
                    "thread": {"type": "string", "maxLength": 255},
                    "agent": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "amount": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "payload": {"type": "object"},
                    "child": {"$ref": "#/components/schemas/New"},
                },
            },
            "Page": {
                "type": "object",
                "required": ["runs", "status"],
                "properties": {
                    "runs": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}},
                    "status": {"enum": ["full", "last"]},
                    "next": {"type": ["string", "null"]},
                },
            },
            "Run": {"type": "object", "properties": {"id": {"type": "string"}, "meta": {}}},
        }
    },
}


def document() -> Json:
    return copy.deepcopy(DOCUMENT)


def changed(change: Change) -> list[str]:
    after = document()
    change(after)
    return taken_away(document(), after)


def operation(document: Json, method: str) -> Json:
    return document["paths"]["/runs"][method]


def parameter(document: Json, number: int) -> Json:
    return operation(document, "get")["parameters"][number]


def properties(document: Json, name: str) -> Json:
    return document["components"]["schemas"][name]["properties"]


def required(document: Json, name: str) -> list[str]:
    return document["components"]["schemas"][name]["required"]


GET, POST = "GET /runs", "POST /runs"
TAKEN: list[tuple[Change, str]] = [
    (lambda d: d["paths"].clear(), "/runs is gone."),
    (lambda d: d["paths"]["/runs"].pop("post"), f"{POST} is gone."),
    (lambda d: d.update(security=[]), "The document asks for other credentials."),
    (lambda d: operation(d, "get").update(operationId="all"), f"{GET} has another operationId: all, and had list."),
    (lambda d: operation(d, "get")["responses"].pop("404"), f"{GET}: the response 404 is gone."),
    (lambda d: operation(d, "post")["responses"]["202"].pop("content"),
     f"{POST}: the response 202 of application/json is gone."),
    (lambda d: operation(d, "get")["parameters"].pop(0), f"{GET}: query parameter page is gone."),
    (lambda d: operation(d, "get")["parameters"].append(
        {"name": "key", "in": "header", "required": True, "schema": {}}),
     f"{GET}: header parameter key is required, and was not."),
    (lambda d: parameter(d, 0).update(required=True), f"{GET}: query parameter page is required, and was not."),
    (lambda d: parameter(d, 0).update(schema={"type": "integer", "minimum": 2, "default": 1}),
     f"{GET}: query parameter page has minimum 2, and had 1."),
    (lambda d: parameter(d, 0).update(schema={"type": "integer", "minimum": 1, "default": 2}),
     f"{GET}: query parameter page has default 2, and had 1."),
    (lambda d: parameter(d, 0).update(schema={"type": "boolean"}),
     f"{GET}: query parameter page no longer takes integer."),
    (lambda d: parameter(d, 1).update(schema={"enum": ["up"]}),
     f"{GET}: query parameter order no longer takes 'down'."),
    (lambda d: operation(d, "post")["requestBody"].update(required=True), f"{POST}: a body is required, and was not."),
    (lambda d: operation(d, "post").pop("requestBody"), f"{POST}: a body of application/json is gone."),
    (lambda d: operation(d, "get").update(requestBody={"required": True, "content": {}}),
     f"{GET}: a body is required, and was not."),
    (lambda d: required(d, "New").append("agent"), f"{POST}: body.agent is required, and was not."),
    (lambda d: properties(d, "New").pop("agent"), f"{POST}: body.agent is gone."),
    (lambda d: properties(d, "New").update(agent={"type": "string"}), f"{POST}: body.agent no longer takes null."),
    (lambda d: properties(d, "New").update(amount={"type": "integer"}), f"{POST}: body.amount no longer takes number."),
    (lambda d: properties(d, "New")["thread"].update(maxLength=100),
     f"{POST}: body.thread has maxLength 100, and had 255."),
    (lambda d: properties(d, "New")["thread"].update(minLength=1),
     f"{POST}: body.thread has minLength 1, and had none."),
    (lambda d: properties(d, "New")["thread"].update(pattern="^a"),
     f"{POST}: body.thread has pattern '^a', and had 'none'."),
    (lambda d: properties(d, "New")["thread"].update(enum=["a"]), f"{POST}: body.thread takes only 'a'."),
    (lambda d: properties(d, "New")["tags"].update(items={"type": "integer"}),
     f"{POST}: body.tags.[] no longer takes string."),
    (lambda d: properties(d, "New")["payload"].update(additionalProperties=False),
     f"{POST}: body.payload no longer takes other members."),
    (lambda d: properties(d, "New")["payload"].update(additionalProperties={"type": "string"}),
     f"{POST}: body.payload.* no longer takes anything."),
    (lambda d: properties(d, "New")["thread"].update({"not": {"const": ""}}), f"{POST}: body.thread has another not."),
    (lambda d: properties(d, "Run").pop("id"), f"{GET}: 200.runs.[].id is gone."),
    (lambda d: properties(d, "Run").update(id={"type": "integer"}), f"{GET}: 200.runs.[].id is no longer string."),
    (lambda d: properties(d, "Run").update(id={"type": ["string", "null"]}),
     f"{GET}: 200.runs.[].id can also be null."),
    (lambda d: properties(d, "Page").update(next={"type": "string"}), f"{GET}: 200.next is no longer null."),
    (lambda d: required(d, "Page").remove("runs"), f"{GET}: 200.runs may be missing, and was always there."),
    (lambda d: properties(d, "Page").update(status={"enum": ["last"]}), f"{GET}: 200.status is no longer 'full'."),
    (lambda d: properties(d, "Page").update(status={"type": "string"}),
     f"{GET}: 200.status can be anything, and was one of 'full', 'last'."),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), TAKEN, ids=[sentence for _, sentence in TAKEN])
def test_what_is_taken_away_is_named(change: Change, sentence: str) -> None:
    assert sentence in changed(change)


ADDED: list[Change] = [
    lambda d: d["paths"].update({"/health": {"get": {"responses": {}}}}),
    lambda d: d["paths"]["/runs"].update(delete={"responses": {}}),
    lambda d: d.update(info={"version": "2"}),
    lambda d: operation(d, "get")["responses"].update({"503": {}}),
    lambda d: operation(d, "get")["parameters"].append({"name": "key", "in": "header", "schema": {}}),
    lambda d: operation(d, "get").update(requestBody={"content": {}}),
    lambda d: parameter(d, 0).update(schema={"type": "integer", "default": 1}),
    lambda d: parameter(d, 1).update(required=False, schema={"enum": ["up", "down", "any"]}),
    lambda d: parameter(d, 1).update(schema={"type": "string"}),
    lambda d: properties(d, "New").update(trace={"type": "string"}),
    lambda d: required(d, "New").clear(),
    lambda d: properties(d, "New")["thread"].update(maxLength=300),
    lambda d: properties(d, "New").update(thread={"type": ["string", "null"]}),
    lambda d: properties(d, "New").update(tags={"type": "array"}),
    lambda d: properties(d, "New")["amount"].update(default=0),
    lambda d: properties(d, "Run").update(state={"type": "string"}),
    lambda d: properties(d, "Run").update(meta={"type": "object"}),
    lambda d: required(d, "Page").append("next"),
    lambda d: properties(d, "Page").update(status={"enum": ["full", "last", "first"]}),
]


@pytest.mark.parametrize("change", ADDED)
def test_what_is_added_passes(change: Change) -> None:
    assert changed(change) == []


def test_an_integer_may_become_any_number_where_it_is_sent() -> None:
    before = document()
    properties(before, "New")["amount"] = {"type": "integer"}
    assert taken_away(before, document()) == []


def test_a_schema_that_was_written_in_place_may_be_named() -> None:
    after = document()
    after["components"]["schemas"]["Order"] = {"enum": ["up", "down"]}
    parameter(after, 1)["schema"] = {"$ref": "#/components/schemas/Order"}
    assert taken_away(document(), after) == []
