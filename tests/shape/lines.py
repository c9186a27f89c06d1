"""Runs of equal lines in a tree of code: the same lines one after the other in two places."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    file: Path
    number: int
    text: str


class Pair(NamedTuple):
    """Two places, and how many lines they share."""

    first: Line
    second: Line
    length: int

    def __str__(self) -> str:
        places = (f"{one.file}:{one.number}" for one in (self.first, self.second))
        return f"{self.length} lines: {' and '.join(places)}"


def code_lines(file: Path) -> list[Line]:
    """Lines that count: no blank lines, comments or imports; white space is one space."""
    text = file.read_text("utf-8")
    imported = _imports(text) if file.suffix == ".py" else set[int]()
    comment = ("#",) if file.suffix == ".py" else ("//", "--", "<!--")
    plain = ((number, " ".join(line.split())) for number, line in enumerate(text.splitlines(), 1))
    return [
        Line(file, number, line)
        for number, line in plain
        if line and not line.startswith(comment) and number not in imported
    ]


def _imports(text: str) -> set[int]:
    """Also those of several lines."""
    return {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def equal_runs(files: Iterable[Path], least: int) -> list[Pair]:
    """Every pair of places that share at least so many lines, each as long as it goes."""
    tree = [lines for file in sorted(files) if (lines := code_lines(file))]
    windows: defaultdict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for file, lines in enumerate(tree):
        texts = [line.text for line in lines]
        for start in range(len(texts) - least + 1):
            windows[tuple(texts[start : start + least])].append((file, start))
    return list(_longest(tree, windows.values(), least))


def _longest(tree: list[list[Line]], same: Iterable[list[tuple[int, int]]], least: int) -> Iterator[Pair]:
    starts = {(one, other) for places in same for one in places for other in places if one < other}
    for one, other in sorted(starts):
        before = ((one[0], one[1] - 1), (other[0], other[1] - 1))
        if before in starts:
            continue  # within a longer run
        length = least
        while ((one[0], one[1] + length - least + 1), (other[0], other[1] + length - least + 1)) in starts:
            length += 1
        if one[0] == other[0] and other[1] - one[1] < length:
            length = other[1] - one[1]  # a run that overlaps itself is shorter than it looks
        if length >= least:
            yield Pair(tree[one[0]][one[1]], tree[other[0]][other[1]], length)
