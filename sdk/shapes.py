"""JSON Schema as TypeScript: the components of an OpenAPI document, as interfaces and types."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

Schema = Mapping[str, Any]

WIDTH = 120
_COMPONENT = "#/components/schemas/"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_SHAPES = frozenset({"$ref", "const", "enum", "anyOf", "oneOf", "allOf", "properties", "items"})
_KNOWN = _SHAPES | {"type", "required", "additionalProperties", "prefixItems"}
_SAYS_NOTHING = frozenset({
    "title", "description", "default", "examples", "example", "deprecated", "format", "pattern", "minLength",
    "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
    "uniqueItems", "minProperties", "maxProperties", "discriminator", "contentEncoding", "contentMediaType",
    "readOnly", "writeOnly",
})  # fmt: skip
"""Keywords that narrow values in a way that the type does not show."""


class NotExpressible(ValueError):
    """A schema that this has no type for; guessing would hide it from everybody who uses the types."""


def declarations(schemas: Mapping[str, Schema]) -> str:
    return "\n".join(declaration(name, schema) for name, schema in sorted(schemas.items()))


def declaration(name: str, schema: Schema) -> str:
    """Objects become interfaces, which show by name in messages and can be extended; all else a type."""
    _check_name(name)
    if _is_interface(schema):
        return f"{_comment(schema, '')}export interface {name} {_object(schema, '')}\n"
    return _comment(schema, "") + _assigned(f"export type {name} =", schema, "")


def _assigned(head: str, schema: Schema | bool, indent: str) -> str:
    """A name with its type; a union that is too long for a line has one for each of its members."""
    line = f"{head} {type_of(schema, indent)};\n"
    several = [] if isinstance(schema, bool) or len(line) <= WIDTH + 1 else _alternatives(schema, indent)
    return line if len(several) < 2 else head + "".join(f"\n{indent}  | {one}" for one in several) + ";\n"


def type_of(schema: Schema | bool, indent: str = "") -> str:
    if isinstance(schema, bool):
        return "unknown" if schema else "never"
    _check_keywords(schema)
    match schema:
        case {"$ref": str(ref)}:
            return component(ref)
        case {"const": value}:
            return json.dumps(value, ensure_ascii=False)
        case {"enum": _} | {"anyOf": _} | {"oneOf": _} | {"type": [*_]}:
            return " | ".join(_alternatives(schema, indent))
        case {"allOf": parts}:
            return " & ".join(_grouped(type_of(part, indent)) for part in parts)
        case {"type": "array"}:
            return _array(schema, indent)
        case {"type": "object"}:
            return _object(schema, indent)
        case {"type": str(kind)} if kind in _PLAIN:
            return _PLAIN[kind]
        case _ if set(schema) <= _SAYS_NOTHING:
            return "unknown"
        case _:
            raise NotExpressible(json.dumps(schema))


def component(ref: str) -> str:
    if not ref.startswith(_COMPONENT):
        raise NotExpressible(ref)
    return _check_name(ref.removeprefix(_COMPONENT))


def _alternatives(schema: Schema, indent: str = "") -> list[str]:
    match schema:
        case {"enum": [*values]}:
            found: Iterable[str] = (json.dumps(value, ensure_ascii=False) for value in values)
        case {"anyOf": [*parts]} | {"oneOf": [*parts]}:
            found = (type_of(part, indent) for part in parts)
        case {"type": [*kinds]}:
            found = (type_of({**schema, "type": kind}, indent) for kind in kinds)
        case _:
            found = ()
    several = list(dict.fromkeys(found))
    return ["unknown"] if "unknown" in several else several


def _array(schema: Schema, indent: str) -> str:
    items = schema.get("items", True)
    if "prefixItems" not in schema:
        return f"{_grouped(type_of(items, indent))}[]"
    fixed = [type_of(item, indent) for item in schema["prefixItems"]]
    rest = [] if items is False else [f"...{_grouped(type_of(items, indent))}[]"]
    return f"[{', '.join([*fixed, *rest])}]"


def _is_interface(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema and not _open_type(schema, "")


def _object(schema: Schema, indent: str) -> str:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    others = _open_type(schema, indent)
    if not properties:
        return f"Record<string, {others or ('unknown' if _is_open(schema) else 'never')}>"
    required = frozenset(schema.get("required", ()))
    lines = [_property(name, of, name in required, indent + "  ") for name, of in properties.items()]
    shape = "{\n" + "".join(lines) + indent + "}"
    return f"{shape} & Record<string, {others}>" if others else shape


def _property(name: str, schema: Schema | bool, required: bool, indent: str) -> str:
    shown = name if _NAME.fullmatch(name) else json.dumps(name)
    comment = _comment(schema, indent) if isinstance(schema, Mapping) else ""
    return comment + _assigned(f"{indent}{shown}{'' if required else '?'}:", schema, indent)


def _is_open(schema: Schema) -> bool:
    return schema.get("additionalProperties", True) is not False


def _open_type(schema: Schema, indent: str) -> str:
    """What further members are of, where the schema says it; that there may be some is said of every object."""
    others = schema.get("additionalProperties")
    return "" if others is None or isinstance(others, bool) else type_of(others, indent)


def _grouped(shape: str) -> str:
    return f"({shape})" if " | " in shape or " & " in shape else shape


def _comment(schema: Schema, indent: str) -> str:
    said = str(schema.get("description", "")).strip().replace("*/", "*\\/")
    if schema.get("deprecated"):
        said = f"{said}\n@deprecated".strip()
    if not said:
        return ""
    lines = [line.strip() for line in said.splitlines()]
    if len(lines) == 1:
        return f"{indent}/** {lines[0]} */\n"
    return f"{indent}/**\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


def _check_keywords(schema: Schema) -> None:
    unknown = set(schema) - _KNOWN - _SAYS_NOTHING
    if unknown or len(_SHAPES & set(schema)) > 1:
        raise NotExpressible(json.dumps(schema))


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise NotExpressible(f"{name!r} is not a name.")
    return name
