"""How deep JSON may be nested: a linear check that does not recurse, and a shortened form of what is deeper.

Parsers and encoders recurse once per level, and fail at a depth that depends on who calls them. A value that one place
takes and another cannot read again would make every list that holds it fail.
"""

import re
from itertools import accumulate

from parley.errors import NestedTooDeep

MAX_DEPTH = 100
"""Levels of a request's body, and of a value that an agent yields."""
MAX_STORED_DEPTH = MAX_DEPTH + 20
"""Levels of what is stored: a value, and the objects and lists that hold it."""
MARK = b'"(nested too deeply)"'
"""Stands for what is left out of a value that was stored before there was a limit."""

_CHUNK = 16 * 1024
_KEPT = b'"[]{}'
_OTHERS = bytes(code for code in range(256) if code not in _KEPT)
_STEP = [0] * 256
_STEP[ord("[")] = _STEP[ord("{")] = 1
_STEP[ord("]")] = _STEP[ord("}")] = -1
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def is_deeper(body: bytes, most: int) -> bool:
    """Tell whether JSON has more than `most` levels. Exact for JSON; for anything else it only ends in linear time."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    depth, in_text, start = 0, False, 0
    while start < len(body):
        end = _after_escape(body, start + _CHUNK)
        # In pieces: between them other threads may run, which none may during a call into C.
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
    """Return stored JSON with MARK in place of every object and list below the deepest level that is read."""
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
    """Return where a piece that should end at `end` may end without parting an escape."""
    first = end
    while 0 < first <= len(body) and body[first - 1] == ord("\\"):
        first -= 1
    return min(end + (end - first) % 2, len(body))


def _brackets_and_quotes(piece: bytes) -> bytes:
    """Return the brackets of a piece and the quotes that begin or end a text, in order."""
    # Backslashes in pairs first: what is left of one escapes what follows it. Two quotes with nothing between them
    # begin and end nothing.
    unescaped = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    return unescaped.translate(None, _OTHERS).replace(b'""', b"")
