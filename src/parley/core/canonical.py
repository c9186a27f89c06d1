"""JSON values, the one way to write each of them (RFC 8785), and their hash."""

import hashlib
from typing import TypeAlias, cast

import rfc8785

from parley.errors import Invalid

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Fields: TypeAlias = dict[str, Json]

MAX_DEPTH = 64
_SAFE = 2**53 - 1
"""Whole numbers beyond this are what a double makes of them: JSON's readers differ about the rest."""


def canonical_json(value: object, what: str = "value") -> bytes:
    """As RFC 8785 writes it; Invalid when it has no canonical form."""
    try:
        return rfc8785.dumps(cast("dict[str, str]", value))
    except rfc8785.CanonicalizationError as error:
        raise Invalid(f"The {what} has no canonical form: {error}") from None


def stable_hash(value: Json) -> str:
    """SHA-256 in hex of the canonical form: equal for equal values, whatever the order of their members."""
    return hashlib.sha256(canonical_json(_safe(value, 1))).hexdigest()


def fields_of(value: Json) -> Fields:
    """The members of an object; nothing else has any."""
    return value if isinstance(value, dict) else {}


def text_of(value: Json) -> str:
    """A text without the white space around it; whatever else it is, is no text."""
    return value.strip() if isinstance(value, str) else ""


def whole(value: Json) -> int | None:
    """A whole number; true and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _safe(value: Json, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise Invalid(f"The value is nested deeper than {MAX_DEPTH} levels.")
    match value:
        case dict():
            return {name: _safe(one, depth + 1) for name, one in value.items()}
        case list():
            return [_safe(one, depth + 1) for one in value]
        case bool():
            return value
        case int() if abs(value) > _SAFE:
            return _double(value)
        case _:
            return value


def _double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Invalid("A number is too large to be written.") from None
