"""JSON values, their canonical form (RFC 8785) and their hash."""

import hashlib
import re
from itertools import accumulate
from typing import TypeAlias, cast

import rfc8785

from parley.errors import Invalid, NestedTooDeep

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Fields: TypeAlias = dict[str, Json]

MAX_CANONICAL_DEPTH = 64
_SAFE = 2**53 - 1
"""The largest integer that every JSON parser reads exactly. Larger integers are converted to a double, because
parsers differ about them."""


def canonical_json(value: object, what: str = "value") -> bytes:
    """Serialize a value as RFC 8785 defines it. Raise Invalid when the value has no canonical form."""
    try:
        return rfc8785.dumps(cast("dict[str, str]", value))
    except rfc8785.CanonicalizationError as error:
        raise Invalid(f"The {what} has no canonical form: {error}") from None


def stable_hash(value: Json) -> str:
    """Return the SHA-256 of the canonical form in hex. Objects that differ only in the order of members are equal."""
    return hashlib.sha256(canonical_json(_safe(value, 1))).hexdigest()


def fields_of(value: Json) -> Fields:
    """Return the members of a JSON object; empty for any other value."""
    return value if isinstance(value, dict) else {}


def text_of(value: Json) -> str:
    """Return a string without surrounding white space; empty for any other value."""
    return value.strip() if isinstance(value, str) else ""


def whole(value: Json) -> int | None:
    """Return an integer; None for any other value, booleans included."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _safe(value: Json, depth: int) -> Json:
    if depth > MAX_CANONICAL_DEPTH:
        raise Invalid(f"The value is nested deeper than {MAX_CANONICAL_DEPTH} levels.")
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
        raise Invalid("A number is too large to be written as JSON.") from None


# Nesting depth of JSON: a linear check that does not recurse, and a shortened form of values that are deeper.
#
# Parsers and encoders recurse once per level, and fail at a depth that depends on their caller. If one part of the
# server accepted a value that another part cannot parse, every list that contains the value would fail.

MAX_DEPTH = 100
"""Maximum number of levels in a request body, and in a value that an agent yields."""
MAX_STORED_DEPTH = MAX_DEPTH + 20
"""Maximum number of levels in stored JSON: a value, plus the objects and lists around it."""
MARK = b'"(nested too deeply)"'
"""Replaces the omitted parts of values that were stored before the limit existed."""

_CHUNK = 16 * 1024
_KEPT = b'"[]{}'
_OTHERS = bytes(code for code in range(256) if code not in _KEPT)
_STEP = [0] * 256
_STEP[ord("[")] = _STEP[ord("{")] = 1
_STEP[ord("]")] = _STEP[ord("}")] = -1
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def is_deeper(body: bytes, most: int) -> bool:
    """Return whether JSON has more than `most` levels. Exact for JSON; for other input it only ends in linear time."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    depth, in_text, start = 0, False, 0
    while start < len(body):
        end = _after_escape(body, start + _CHUNK)
        # In chunks, so that other threads can run between them: no other thread runs during a call into C.
        marks = _brackets_and_quotes(body[start:end])
        pieces = (b'"' + marks if in_text else marks).split(b'"')
        in_text = len(pieces) % 2 == 0
        levels = list(accumulate(map(_STEP.__getitem__, b"".join(pieces[::2])), initial=depth))
        if max(levels) > most:
            return True
        depth, start = levels[-1], end
    return False


def check_depth(body: bytes, most: int = MAX_DEPTH) -> None:
    """Raise NestedTooDeep for JSON of more than `most` levels."""
    if is_deeper(body, most):
        raise too_deep()


def too_deep() -> NestedTooDeep:
    return NestedTooDeep(f"JSON may be nested at most {MAX_DEPTH} levels deep.", limit=MAX_DEPTH)


def readable(body: bytes, most: int = MAX_STORED_DEPTH) -> bytes:
    """Return stored JSON with MARK in place of every object and list below the deepest allowed level."""
    return _shortened(body, most) if is_deeper(body, most) else body


def _shortened(body: bytes, most: int) -> bytes:
    kept: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(body):
        step = _STEP[body[token.start()]]
        if step > 0 and depth == most:
            kept += body[start : token.start()], MARK
        depth += step
        if step < 0 and depth == most:
            start = token.end()
    kept.append(body[start:])
    return b"".join(kept)


def _after_escape(body: bytes, end: int) -> int:
    """Return an end for a chunk, at or just after `end`, that does not split an escape sequence."""
    first = end
    while 0 < first <= len(body) and body[first - 1] == ord("\\"):
        first -= 1
    return min(end + (end - first) % 2, len(body))


def _brackets_and_quotes(piece: bytes) -> bytes:
    """Return the brackets of a chunk and the quotes that begin or end a string, in order."""
    # Remove pairs of backslashes first: a backslash that is left escapes the next character. Two quotes with nothing
    # between them can be dropped: they begin and end an empty string.
    unescaped = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    return unescaped.translate(None, _OTHERS).replace(b'""', b"")
