"""`[[agent]]` tables of a TOML file. tomllib tells no lines, so the text is looked through for them."""

import re
import tomllib
from typing import Any, TypeVar, cast

from parley.definitions.documents import Document, Route, fault

T = TypeVar("T")

_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]=]+?)\s*\]\]?\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([A-Za-z0-9_\-.\"' ]+?)\s*=\s*(.*?)\s*")
_NUMBER = re.compile(r"([+-]?[0-9][0-9._]*|true|false)\s*(?:#.*)?")
_FENCE = re.compile(r'"""|' + r"'''")


def parse_toml(file: str, text: str) -> list[Document]:
    """The agents of a file, one document each."""
    tables = _tables(file, text)
    lines, texts = _look_through(text)
    return [
        Document(file, table, _of(number, lines), _of(number, texts)) for number, table in enumerate(tables)
    ]  # fmt: skip


def _tables(file: str, text: str) -> list[Any]:
    try:
        found: Any = tomllib.loads(text).get("agent", [])
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT_LINE.search(message)
        line = int(at[1]) if at and at[1] else text.count("\n") + 1
        raise fault(file, _AT_LINE.sub("", message), line) from None
    except (RecursionError, ValueError) as error:
        raise fault(file, f"cannot be read: {type(error).__name__}", 1) from None
    if not isinstance(found, list):
        raise fault(file, "write [[agent]], one table for each agent", _line_of(text, "agent"), "agent")
    return cast(list[Any], found)


def _line_of(text: str, word: str) -> int:
    return next((number for number, line in enumerate(text.splitlines(), 1) if word in line), 1)


def _of(number: int, marks: dict[Route, T]) -> dict[Route, T]:
    return {route[1:]: mark for route, mark in marks.items() if route[0] == number}


def _look_through(text: str) -> tuple[dict[Route, int], dict[Route, str]]:
    lines: dict[Route, int] = {}
    texts: dict[Route, str] = {}
    tables = _Tables()
    quoted = False
    for number, line in enumerate(text.splitlines(), 1):
        fences = len(_FENCE.findall(line))
        if not quoted:
            route, written = tables.see(line)
            if route is not None:
                lines.setdefault(route, number)
                if written is not None:
                    texts[route] = written
        quoted ^= fences % 2 == 1
    return lines, texts


class _Tables:
    """Knows in which table a line is, from the headers seen so far."""

    def __init__(self) -> None:
        self._here: Route | None = None
        self._counts: dict[Route, int] = {}

    def see(self, line: str) -> tuple[Route | None, str | None]:
        """The route that a line opens or sets, and the number that it sets it to, as written."""
        if header := _HEADER.fullmatch(line):
            self._here = self._enter(_names(header[2]), many=header[1] == "[[")
            return self._here, None
        entry = _ENTRY.fullmatch(line)
        if entry is None or self._here is None:
            return None, None
        number = _NUMBER.fullmatch(entry[2])
        return (*self._here, *_names(entry[1])), number[1] if number else None

    def _enter(self, names: list[str], *, many: bool) -> Route | None:
        if names[0] != "agent":
            return None
        route: Route = ()
        for place, name in enumerate(names):
            route = (*route, name)
            if many and place == len(names) - 1:
                self._counts[route] = self._counts.get(route, -1) + 1
            if route in self._counts:
                route = (*route, self._counts[route])
        return route[1:]


def _names(dotted: str) -> list[str]:
    return [name.strip().strip("\"'") for name in dotted.split(".")]
