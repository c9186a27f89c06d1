"""JSON Schema as TypeScript: each form has its type, and a form without one is an error and not `any`."""

from pathlib import Path
from typing import Any

import pytest

from sdk.node import Node
from sdk.package import HOME
from sdk.shapes import NotExpressible, declaration, declarations, type_of
from tests.faces.control.snapshot import kept

Schema = dict[str, Any] | bool

PLAN = {"$ref": "#/components/schemas/Plan"}
TEXT = {"type": "string"}
FORMS: list[tuple[Schema, str]] = [
    ({"type": "string", "minLength": 1, "format": "date-time"}, "string"),
    ({"type": "integer", "minimum": 0}, "number"),
    ({"type": "number"}, "number"),
    ({"type": "boolean", "default": False}, "boolean"),
    ({"type": "null"}, "null"),
    ({}, "unknown"),
    ({"description": "Anything."}, "unknown"),
    (True, "unknown"),
    (False, "never"),
    (PLAN, "Plan"),
    ({"const": "paused"}, '"paused"'),
    ({"type": "boolean", "const": True}, "true"),
    ({"enum": ["user", "assistant"]}, '"user" | "assistant"'),
    ({"enum": [1, None]}, "1 | null"),
    ({"type": ["string", "null"]}, "string | null"),
    ({"anyOf": [PLAN, {"type": "null"}]}, "Plan | null"),
    ({"anyOf": [TEXT, {"type": "string", "minLength": 1}, {"type": "null"}]}, "string | null"),
    ({"anyOf": [{}, {"type": "null"}]}, "unknown"),
    ({"oneOf": [PLAN, TEXT], "discriminator": {"propertyName": "kind"}}, "Plan | string"),
    ({"allOf": [PLAN, {"anyOf": [PLAN, TEXT]}]}, "Plan & (Plan | string)"),
    ({"type": "array", "items": PLAN}, "Plan[]"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
    ({"type": "array"}, "unknown[]"),
    ({"type": "array", "prefixItems": [TEXT, PLAN], "items": False}, "[string, Plan]"),
    ({"type": "array", "prefixItems": [TEXT], "items": {"type": "integer"}}, "[string, ...number[]]"),
    ({"type": "object"}, "Record<string, unknown>"),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, "Record<string, number>"),
    ({"type": "object", "additionalProperties": False}, "Record<string, never>"),
    (
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
        "{\n  a?: string;\n} & Record<string, string>",
    ),
]


@pytest.mark.parametrize(("schema", "expected"), FORMS, ids=[expected for _, expected in FORMS])
def test_every_form_has_its_type(schema: Schema, expected: str) -> None:
    assert type_of(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"not": TEXT},
        {"type": "text"},
        {"$ref": "other.json#/Plan"},
        {"type": "object", "patternProperties": {"a": TEXT}},
        {"anyOf": [PLAN], "properties": {"a": TEXT}},
    ],
    ids=str,
)
def test_what_has_no_type_is_not_guessed(schema: Schema) -> None:
    with pytest.raises(NotExpressible):
        type_of(schema)


def test_an_object_becomes_an_interface_with_its_descriptions() -> None:
    schema = {
        "type": "object", "description": "A plan.\nOne per conversation.", "required": ["id", "of-type"],
        "properties": {
            "id": {"type": "string", "description": "Stays */ the same."},
            "of-type": {"type": "object", "properties": {"deep": {"type": "boolean", "deprecated": True}}},
            "title": TEXT,
        },
    }  # fmt: skip
    assert declaration("Plan", schema) == (
        "/**\n * A plan.\n * One per conversation.\n */\n"
        "export interface Plan {\n"
        "  /** Stays *\\/ the same. */\n"
        "  id: string;\n"
        '  "of-type": {\n    /** @deprecated */\n    deep?: boolean;\n  };\n'
        "  title?: string;\n"
        "}\n"
    )


def test_a_long_union_has_a_line_for_each() -> None:
    codes = [f"CODE_NUMBER_{number}" for number in range(12)]
    lines = declaration("Code", {"enum": codes}).splitlines()
    assert lines == ["export type Code =", *(f'  | "{code}"' for code in codes[:-1]), f'  | "{codes[-1]}";']
    member = declaration("Fault", {"type": "object", "properties": {"code": {"enum": codes}}}).splitlines()
    assert member[1:4] == ["  code?:", f'    | "{codes[0]}"', f'    | "{codes[1]}"']


@pytest.mark.slow
def test_the_compiler_takes_the_types_of_a_whole_contract(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "types.ts"
    file.write_text(declarations(kept()["components"]["schemas"]))
    node.run(
        node.program,
        HOME / "node_modules" / "typescript" / "bin" / "tsc",
        "--strict",
        "--noEmit",
        "--ignoreConfig",
        file,
    )
