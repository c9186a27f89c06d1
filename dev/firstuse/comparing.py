"""Compares the output of commands with the README.

Only values that change each time may differ; they are recognised by their form: task ids, pairing codes, times and
durations. An id in the README stands for the id that was printed in its place, also later. A line that says that a task
is queued is ignored: an agent that has just ended another task may be busy for a moment.
"""

import re
from collections.abc import Sequence

from dev.firstuse.readme import REST

_KINDS = {
    "id": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "code": r"\b[0-9A-Z]{4}(?:-[0-9A-Z]{4}){3}\b",
    "time": r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d{4})?",
    "clock": r"\b\d\d:\d\d UTC",
    "took": r"\b\d+(?:\.\d+)? ?(?:ms|s|min)\b",
}
_CHANGING = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in _KINDS.items()))
_KEPT = ("id", "code")
_PASSING = re.compile(r"submitted: Waiting for its turn: number \d+ in the queue\.")


class Difference(Exception):
    """A difference from the README."""


class Names:
    """The actual ids and codes for those in the README."""

    def __init__(self) -> None:
        self._now: Known = {}

    def filled(self, line: str) -> str:
        for shown, now in self._now.items():
            line = line.replace(shown, now)
        return line

    def compare(self, shown: Sequence[str], seen: Sequence[str]) -> None:
        """All of what was seen, in order."""
        seen = _lasting(seen)
        found = _matched(shown, seen, self._now)
        if found is None or found[0] != len(seen):
            raise Difference(_told(shown, seen))
        self._now = found[1]

    def begins(self, shown: Sequence[str], seen: Sequence[str]) -> bool:
        """True if the output starts with what the README shows, whatever follows."""
        found = _matched(shown, _lasting(seen), self._now)
        self._now = found[1] if found else self._now
        return found is not None


Known = dict[str, str]


def _lasting(seen: Sequence[str]) -> Sequence[str]:
    return [line for line in seen if not _PASSING.fullmatch(line.rstrip())]


def _matched(shown: Sequence[str], seen: Sequence[str], known: Known) -> tuple[int, Known] | None:
    """Number of output lines that match the README, and the ids known then; None if they differ."""
    if not shown:
        return 0, known
    if shown[0] != REST:
        now = _same(shown[0], seen[0], known) if seen else None
        found = None if now is None else _matched(shown[1:], seen[1:], now)
        return None if found is None else (found[0] + 1, found[1])
    if len(shown) == 1:
        return len(seen), known
    for skipped in range(len(seen) + 1):
        if (found := _matched(shown[1:], seen[skipped:], known)) is not None:
            return found[0] + skipped, found[1]
    return None


def _same(shown: str, seen: str, known: Known) -> Known | None:
    """Compare a line with the README: the ids known then, or None if it differs."""
    theirs, ours = list(_CHANGING.finditer(shown)), list(_CHANGING.finditer(seen))
    if [one.lastgroup for one in theirs] != [one.lastgroup for one in ours]:
        return None
    if _CHANGING.sub("\0", shown).rstrip() != _CHANGING.sub("\0", seen).rstrip():
        return None
    now = dict(known)
    for a, b in zip(theirs, ours, strict=True):
        if a.lastgroup in _KEPT and now.setdefault(a[0], b[0]) != b[0]:
            return None
    return now


def _told(shown: Sequence[str], seen: Sequence[str]) -> str:
    theirs = "\n".join(f"    {line}" for line in shown) or "    (nothing)"
    ours = "\n".join(f"    {line}" for line in seen) or "    (nothing)"
    return f"the README shows\n{theirs}\n  but this is what happens\n{ours}"
