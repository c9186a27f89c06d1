"""Checks of JSON values against a JSON Schema, with a limit on the work of one check.

The supported keywords are those that pydantic and msgspec generate for data classes. A schema with another keyword that
could refuse a value is not accepted, because ignoring the keyword would accept wrong values.

The check is not left to the `jsonschema` package: its work has no limit, so that a small schema and a small value could
block the event loop for minutes (nested `$ref`, `pattern`).
"""

import operator
from collections.abc import Callable, Iterable, Sized
from functools import lru_cache
from typing import NoReturn, cast
from urllib.parse import unquote

import msgspec
from pydantic_core import SchemaError, SchemaValidator, ValidationError

from parley.errors import Invalid
from parley.json_values import Fields, Json, fields_of, is_deeper

MAX_SCHEMA_BYTES = 32 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_PATTERN = 256
MAX_STEPS = 10_000
"""Number of comparisons of a value with a schema in one check; enough for a form with thousands of fields."""
_MAX_NESTING = 100
_ANNOTATIONS = frozenset((
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "discriminator",
    "contentMediaType", "contentEncoding", "$schema", "$comment", "$id",
))  # fmt: skip
"""Keywords that refuse no value. `format` is one of them, as the standard has it."""


class Mismatch(Exception):
    """The value does not match the schema: `reason`, at the place `at` in the value (a JSON pointer)."""

    def __init__(self, at: str, reason: str) -> None:
        super().__init__(f"{at}: {reason}")
        self.at = at
        self.reason = reason


def check_schema(schema: Json) -> None:
    """Raise Invalid for a schema that is too large, or that cannot be checked here."""
    body = msgspec.json.encode(schema)
    if len(body) > MAX_SCHEMA_BYTES:
        raise Invalid(
            f"A schema may have at most {MAX_SCHEMA_BYTES >> 10} KiB of JSON; this one has {len(body)} bytes."
        )
    if is_deeper(body, MAX_SCHEMA_DEPTH):
        raise Invalid(f"A schema may be nested at most {MAX_SCHEMA_DEPTH} levels deep.")
    _check(schema, fields_of(schema))


def check_value(schema: Json, value: Json) -> None:
    """Raise Mismatch for a value that does not match a schema, which `check_schema` has accepted."""
    _Walk(fields_of(schema)).check(schema, value, "", 0)


class _Walk:
    """One check of a value; counts its steps."""

    def __init__(self, root: Fields) -> None:
        self.root = root
        self._left = MAX_STEPS

    def check(self, schema: Json, value: Json, at: str, depth: int) -> None:
        self.spend(1, at, depth)
        if schema is False:
            raise Mismatch(at, "is not allowed")
        for keyword, argument in fields_of(schema).items():
            if keyword in _LIMITS:
                _LIMITS[keyword].check(argument, value, at)
            elif keyword in _RULES:
                _RULES[keyword](self, fields_of(schema), value, at, depth + 1)

    def spend(self, steps: int, at: str, depth: int = 0) -> None:
        self._left -= steps
        if self._left < 0 or depth > _MAX_NESTING:
            raise Mismatch(at, "takes too long to check against the schema")

    def fits(self, schema: Json, value: Json, at: str, depth: int) -> Mismatch | None:
        """Return the reason why a value does not match; None if it does."""
        try:
            self.check(schema, value, at, depth)
        except Mismatch as mismatch:
            # The traceback holds the frames that hold the exception: thousands of such cycles would be garbage.
            return mismatch.with_traceback(None)
        return None


# Keywords that compare one value with one number or text.


class _Limit(msgspec.Struct, frozen=True):
    kinds: tuple[type, ...]
    holds: Callable[..., bool]
    reason: str

    def check(self, limit: Json, value: Json, at: str) -> None:
        if isinstance(value, self.kinds) and not isinstance(value, bool) and not self.holds(value, limit):
            raise Mismatch(at, self.reason.format(limit))


def _is_multiple(value: float, step: float) -> bool:
    try:
        return value % step == 0 if isinstance(value, int) and isinstance(step, int) else (value / step).is_integer()
    except OverflowError:
        return False


def _matches(text: str, pattern: str) -> bool:
    try:
        _compiled(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


# Why pydantic_core: its regular expressions run in time proportional to the text. Those of `re` can run for years.
@lru_cache(256)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator({"type": "str", "pattern": pattern}, {"regex_engine": "rust-regex"})


def _is_long(value: Sized, limit: int) -> bool:
    return len(value) >= limit


def _is_short(value: Sized, limit: int) -> bool:
    return len(value) <= limit


_NUMBERS = (int, float)
_LIMITS = {
    "minimum": _Limit(_NUMBERS, operator.ge, "must be {} or more"),
    "maximum": _Limit(_NUMBERS, operator.le, "must be {} or less"),
    "exclusiveMinimum": _Limit(_NUMBERS, operator.gt, "must be more than {}"),
    "exclusiveMaximum": _Limit(_NUMBERS, operator.lt, "must be less than {}"),
    "multipleOf": _Limit(_NUMBERS, _is_multiple, "must be a multiple of {}"),
    "minLength": _Limit((str,), _is_long, "must have {} characters or more"),
    "maxLength": _Limit((str,), _is_short, "must have {} characters or fewer"),
    "pattern": _Limit((str,), _matches, "must match the pattern {}"),
    "minItems": _Limit((list,), _is_long, "must have {} items or more"),
    "maxItems": _Limit((list,), _is_short, "must have {} items or fewer"),
    "minProperties": _Limit((dict,), _is_long, "must have {} members or more"),
    "maxProperties": _Limit((dict,), _is_short, "must have {} members or fewer"),
}


# All other keywords.

_TYPES: dict[str, tuple[str, Callable[[Json], bool]]] = {
    "object": ("a JSON object", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("a text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "number": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "integer": ("an integer", lambda value: _is_integer(value)),
}


def _is_integer(value: Json) -> bool:
    return value.is_integer() if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)


def _type(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    names = [str(name) for name in _list(schema["type"])]
    if not any(_TYPES[name][1](value) for name in names):
        raise Mismatch(at, f"must be {' or '.join(_TYPES[name][0] for name in names)}")


def _enum(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    allowed = _list(schema["enum"])
    walk.spend(len(allowed), at)
    if _key(value) not in map(_key, allowed):
        raise Mismatch(at, f"must be one of {_shown(allowed)}")


def _const(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    if _key(value) != _key(schema["const"]):
        raise Mismatch(at, f"must be {_shown([schema['const']])}")


def _required(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    for name in map(str, _list(schema["required"])) if isinstance(value, dict) else ():
        walk.spend(1, at)
        if name not in cast(Fields, value):
            raise Mismatch(_below(at, name), "is required")


def _properties(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    for name, one in fields_of(schema["properties"]).items() if isinstance(value, dict) else ():
        if name in cast(Fields, value):
            walk.check(one, cast(Fields, value)[name], _below(at, name), depth)


def _additional(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    known = fields_of(schema.get("properties"))
    for name, one in value.items() if isinstance(value, dict) else ():
        if name not in known:
            walk.check(schema["additionalProperties"], one, _below(at, name), depth)


def _prefix_items(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    for number, (one, item) in enumerate(zip(_list(schema["prefixItems"]), _items_of(value), strict=False)):
        walk.check(one, item, _below(at, number), depth)


def _items(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    first = len(_list(schema.get("prefixItems", [])))
    for number, item in enumerate(_items_of(value)[first:], first):
        walk.check(schema["items"], item, _below(at, number), depth)


def _unique(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    items = _items_of(value) if schema["uniqueItems"] else []
    if len(set(map(_key, items))) < len(items):
        raise Mismatch(at, "must not have equal items")


def _all_of(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    for one in _list(schema["allOf"]):
        walk.check(one, value, at, depth)


def _any_of(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    found: list[Mismatch] = []
    for one in _list(schema["anyOf"]):
        if (mismatch := walk.fits(one, value, at, depth)) is None:
            return
        if fields_of(one).get("type") != "null":
            found.append(mismatch)
    # An optional value has one form apart from null: its reason says more.
    raise found[0] if len(found) == 1 else Mismatch(at, "has none of the allowed forms")


def _one_of(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    fitting = [one for one in _list(schema["oneOf"]) if walk.fits(one, value, at, depth) is None]
    if len(fitting) != 1:
        raise Mismatch(at, "has more than one of the allowed forms" if fitting else "has none of the allowed forms")


def _ref(walk: _Walk, schema: Fields, value: Json, at: str, depth: int) -> None:
    walk.check(resolved(walk.root, str(schema["$ref"])), value, at, depth)


_RULES: dict[str, Callable[[_Walk, Fields, Json, str, int], None]] = {
    "type": _type, "enum": _enum, "const": _const, "required": _required, "properties": _properties,
    "additionalProperties": _additional, "prefixItems": _prefix_items, "items": _items, "uniqueItems": _unique,
    "allOf": _all_of, "anyOf": _any_of, "oneOf": _one_of, "$ref": _ref,
}  # fmt: skip


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else [value]


def _items_of(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _below(at: str, name: str | int) -> str:
    return f"{at}/{str(name).replace('~', '~0').replace('/', '~1')}"


def _shown(values: Iterable[Json]) -> str:
    text = ", ".join(msgspec.json.encode(value).decode() for value in values)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _key(value: Json) -> object:
    """Return a key that is equal for equal JSON values: 1 equals 1.0, and neither equals true."""
    match value:
        case list():
            return ("list", *map(_key, value))
        case dict():
            return ("object", frozenset((name, _key(one)) for name, one in value.items()))
        case bool() | None | str():
            return (type(value).__name__, value)
        case _:
            return ("number", value)


def resolved(root: Fields, ref: str) -> Json:
    """Return the part of the schema that a reference names."""
    found: Json = root
    for step in unquote(ref.removeprefix("#")).split("/")[1:]:
        found = fields_of(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found


# Checks of the schema itself.


def _check(schema: Json, root: Fields) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        _refuse("Each part of a schema must be an object, true or false.")
    for keyword, argument in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword not in _ARGUMENTS:
            _refuse(f"The keyword {keyword!r} is not supported in the schema of a question.")
        if not _ARGUMENTS[keyword](argument, root):
            _refuse(f"The keyword {keyword!r} of the schema has an invalid or unsupported value.")


def _refuse(reason: str) -> NoReturn:
    raise Invalid(reason, field="schema")


def _one(argument: Json, root: Fields) -> bool:
    _check(argument, root)
    return True


def _each(argument: Json, root: Fields) -> bool:
    return isinstance(argument, list) and bool(argument) and all(_one(one, root) for one in argument)


def _named(argument: Json, root: Fields) -> bool:
    return isinstance(argument, dict) and all(_one(one, root) for one in argument.values())


def _is_number(argument: Json, root: Fields) -> bool:
    return _TYPES["number"][1](argument)


def _is_count(argument: Json, root: Fields) -> bool:
    return _is_integer(argument) and cast(float, argument) >= 0


def _is_step(argument: Json, root: Fields) -> bool:
    return _is_number(argument, root) and cast(float, argument) > 0


def _is_pattern(argument: Json, root: Fields) -> bool:
    if not isinstance(argument, str) or len(argument) > MAX_PATTERN:
        return False
    try:
        _compiled(argument)
    except SchemaError:
        return False
    return True


def _is_type(argument: Json, root: Fields) -> bool:
    return bool(names := _list(argument)) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_ref(argument: Json, root: Fields) -> bool:
    local = isinstance(argument, str) and (argument == "#" or argument.startswith("#/"))
    return local and isinstance(resolved(root, cast(str, argument)), dict | bool)


def _is_strings(argument: Json, root: Fields) -> bool:
    return isinstance(argument, list) and all(isinstance(one, str) for one in argument)


_ARGUMENTS: dict[str, Callable[[Json, Fields], bool]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("items", "additionalProperties"), _one),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _each),
    **dict.fromkeys(("properties", "$defs", "definitions"), _named),
    "multipleOf": _is_step,
    "pattern": _is_pattern,
    "type": _is_type,
    "enum": lambda argument, root: isinstance(argument, list) and bool(argument),
    "const": lambda argument, root: True,
    "required": _is_strings,
    "uniqueItems": lambda argument, root: isinstance(argument, bool),
    "$ref": _is_ref,
}
