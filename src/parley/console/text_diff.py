"""Differences between two texts: by line, and within changed lines by word."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

MOST_LINES = 2000
"""A longer changed section is shown as removed and added as a whole: comparing its lines would take too long."""
LONG_LINE = 1000
MOST_PAIRS = 1_000_000
"""Limit of the pairs of equal words compared per difference. Further lines are shown as removed and added: texts that
repeat few words would take minutes."""
CONTEXT = 3
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")

Kind = Literal["same", "gone", "come", "gap"]


class DiffPiece(Struct, frozen=True):
    text: str
    changed: bool = False


class DiffLine(Struct, frozen=True):
    """One line; `before` and `after` are its line numbers, 0 if it has none. A gap stands for `skipped` equal lines."""

    kind: Kind
    before: int = 0
    after: int = 0
    pieces: tuple[DiffPiece, ...] = ()
    skipped: int = 0


def difference(old: str, new: str, context: int = CONTEXT) -> list[DiffLine]:
    """The lines of a difference; empty for equal texts. Equal lines far from a change are left out."""
    one, two = old.splitlines(), new.splitlines()
    if one == two:
        return []
    return list(_with_gaps(list(_lines(one, two)), context))


def counted(lines: list[DiffLine]) -> tuple[int, int]:
    """The number of added lines and of removed lines."""
    return sum(line.kind == "come" for line in lines), sum(line.kind == "gone" for line in lines)


def _lines(one: list[str], two: list[str]) -> Iterator[DiffLine]:
    start = _common(one, two)
    end = _common(one[start:][::-1], two[start:][::-1])
    yield from (_same(number, number, one[number]) for number in range(start))
    words = _Words()
    middle, other = one[start : len(one) - end], two[start : len(two) - end]
    for tag, i1, i2, j1, j2 in _steps(middle, other):
        if tag == "equal":
            for offset in range(i2 - i1):
                yield _same(start + i1 + offset, start + j1 + offset, middle[i1 + offset])
        else:
            yield from _changed(words, middle[i1:i2], other[j1:j2], start + i1, start + j1)
    for offset in range(end):
        yield _same(len(one) - end + offset, len(two) - end + offset, one[len(one) - end + offset])


def _steps(one: list[str], two: list[str]) -> list[tuple[str, int, int, int, int]]:
    if len(one) > MOST_LINES or len(two) > MOST_LINES:
        return [("replace", 0, len(one), 0, len(two))]
    return list(SequenceMatcher(None, one, two).get_opcodes())


def _changed(words: "_Words", gone: list[str], come: list[str], i: int, j: int) -> Iterator[DiffLine]:
    pairs = [words.compared(old, new) for old, new in zip(gone, come, strict=True)] if len(gone) == len(come) else []
    for offset, text in enumerate(gone):
        yield DiffLine("gone", i + offset + 1, 0, pairs[offset][0] if pairs else (DiffPiece(text),))
    for offset, text in enumerate(come):
        yield DiffLine("come", 0, j + offset + 1, pairs[offset][1] if pairs else (DiffPiece(text),))


class _Words:
    """Compares changed lines word by word, until the limit of compared pairs is reached."""

    def __init__(self) -> None:
        self._left = MOST_PAIRS

    def compared(self, old: str, new: str) -> tuple[tuple[DiffPiece, ...], tuple[DiffPiece, ...]]:
        if len(old) <= LONG_LINE and len(new) <= LONG_LINE and self._left > 0:
            one, two = _WORDS.findall(old), _WORDS.findall(new)
            known = Counter(two)
            self._left -= sum(count * known[word] for word, count in Counter(one).items())
            if self._left > 0:
                return _pieces(old, new, one, two)
        return (DiffPiece(old),), (DiffPiece(new),)


def _pieces(old: str, new: str, one: list[str], two: list[str]) -> tuple[tuple[DiffPiece, ...], tuple[DiffPiece, ...]]:
    """Both lines in pieces, or each as one piece if they have too little in common."""
    matcher = SequenceMatcher(None, one, two, autojunk=False)
    if matcher.ratio() < 0.4:
        return (DiffPiece(old),), (DiffPiece(new),)
    gone, come = list[DiffPiece](), list[DiffPiece]()
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if i2 > i1:
            gone.append(DiffPiece("".join(one[i1:i2]), tag != "equal"))
        if j2 > j1:
            come.append(DiffPiece("".join(two[j1:j2]), tag != "equal"))
    return tuple(gone), tuple(come)


def _with_gaps(lines: list[DiffLine], context: int) -> Iterator[DiffLine]:
    near = set[int]()
    for place, line in enumerate(lines):
        if line.kind != "same":
            near.update(range(place - context, place + context + 1))
    skipped = 0
    for place, line in enumerate(lines):
        if place not in near:
            skipped += 1
            continue
        if skipped:
            yield DiffLine("gap", skipped=skipped)
        skipped = 0
        yield line
    if skipped:
        yield DiffLine("gap", skipped=skipped)


def _same(i: int, j: int, text: str) -> DiffLine:
    return DiffLine("same", i + 1, j + 1, (DiffPiece(text),))


def _common(one: list[str], two: list[str]) -> int:
    count = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        count += 1
    return count
