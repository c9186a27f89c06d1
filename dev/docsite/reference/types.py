"""Types of msgspec structs and of JSON Schema as text."""

import ast
import inspect
import textwrap
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, UnsetType

from dev.docsite.reference.writing import code

_WORDS = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    Raw: "JSON",
    bytes: "bytes",
    object: "JSON",
}


def written(annotation: Any) -> str:
    """A type in words; a struct by its name, which links to its own table."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__supertype__"):
        return written(annotation.__supertype__)
    if origin is Annotated:
        return written(arguments[0])
    if origin is Literal:
        return ", ".join(code(str(word)) for word in arguments)
    if origin in (Union, UnionType):
        return " or ".join(written(one) for one in arguments if one not in (NoneType, UnsetType))
    if origin in (list, tuple, frozenset):
        return f"list of {written(arguments[0])}"
    if origin is dict:
        return f"table of {written(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return _WORDS[annotation]


def structs(annotation: Any) -> list[type[Struct]]:
    """The structs that a type is made of, as they come."""
    if hasattr(annotation, "__supertype__"):
        return []
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return [annotation]
    return [found for part in get_args(annotation) for found in structs(part)]


def said(struct: type[Struct]) -> dict[str, str]:
    """The string below each field, if there is one."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = str(getattr(getattr(below, "value", None), "value", ""))
    return found


def required(field: msgspec.structs.FieldInfo) -> bool:
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT


def of_schema(schema: dict[str, Any]) -> str:
    """A type of JSON Schema in words."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for many in ("anyOf", "oneOf"):
        if many in schema:
            return " or ".join(of_schema(one) for one in schema[many] if one.get("type") != "null")
    if "enum" in schema:
        return ", ".join(code(str(word)) for word in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]).lower() if isinstance(schema["const"], bool) else str(schema["const"]))
    return _of_kind(schema) + _limits(schema)


def _of_kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "JSON")
    if kind == "array":
        inner = schema.get("items")
        return f"list of {of_schema(inner)}" if inner else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"table of {of_schema(schema['additionalProperties']) or 'JSON'}"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return words.get(str(kind), str(kind))


def _limits(schema: dict[str, Any]) -> str:
    names = {"minimum": "from", "maximum": "to", "minItems": "at least", "maxItems": "at most", "maxLength": "up to"}
    words = [f"{names[name]} {schema[name]:,}" for name in names if name in schema and abs(schema[name]) < 2**53 - 1]
    return f" ({' '.join(words)})" if words else ""
