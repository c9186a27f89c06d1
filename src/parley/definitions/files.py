"""Parsers for definition files that keep the line of each value."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from msgspec import Struct
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parley.errors import ConfigurationError

MAX_BYTES = 256 * 1024
MAX_NODES = 10_000
MAX_DEPTH = 32

Route = tuple[str | int, ...]
"""Path to a value: keys of mappings and indexes of lists."""


class DefinitionFile(Struct, frozen=True):
    """One definition. The line of each value is kept, so that an error found later can be reported with its line."""

    file: str
    value: Any
    lines: dict[Route, int]
    texts: dict[Route, str]
    """Numbers and booleans as they were written, for fields that need text: `version: 1.0`."""

    def line(self, route: Route) -> int:
        """Return the line of a value, or of the nearest value that contains it."""
        while route and route not in self.lines:
            route = route[:-1]
        return self.lines.get(route, 1)

    def fault(
        self, route: Route, message: str, kind: type[ConfigurationError] = ConfigurationError
    ) -> ConfigurationError:
        return fault(self.file, message, self.line(route), shown(route), kind)


def fault(
    file: str,
    message: str,
    line: int | None = None,
    field: str | None = None,
    kind: type[ConfigurationError] = ConfigurationError,
) -> ConfigurationError:
    where = file if line is None else f"{file}:{line}"
    what = f"{field}: {message}" if field else message
    return kind(f"{where}: {what}", file=file, line=line, field=field)


def together(faults: Sequence[ConfigurationError]) -> ConfigurationError:
    """Join errors to one error with a line for each. Its details are those of the first error; its type is theirs if
    they all have the same type."""
    message = "\n".join(one.message for one in faults)
    kinds = {type(one) for one in faults}
    kind = kinds.pop() if len(kinds) == 1 else ConfigurationError
    return kind(message, **faults[0].details, faults=[one.details for one in faults])


def shown(route: Route) -> str:
    """Format a route for messages: `skills[0].name`."""
    text = ""
    for step in route:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_text(path: Path) -> str:
    """Read a text file of at most MAX_BYTES."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise fault(file, f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise fault(file, f"is larger than {MAX_BYTES // 1024} kB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise fault(file, "is not valid UTF-8 text", line) from None


# The subset of YAML that definitions need: plain values, no tags, no merge keys.

_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(_TAG + name for name in ("str", "null", "bool", "int", "float", "timestamp", "value", "seq", "map"))
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def parse_yaml(file: str, text: str) -> tuple[DefinitionFile, list[ConfigurationError]]:
    """Parse the one document of a file. Returns it with the errors in its form; raises if parsing cannot continue."""
    node = _compose(file, text)
    if node is None:
        raise fault(file, "the file is empty", 1)
    reader = _Reader(file)
    value = reader.plain(node, ())
    return DefinitionFile(file, value, reader.lines, reader.texts), reader.faults


def _compose(file: str, text: str) -> Node | None:
    try:
        return cast(Node | None, yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise fault(file, error.problem or error.context or "cannot be read", mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise fault(file, "contains a character that YAML does not allow", line) from None
    except RecursionError:
        raise fault(file, "is nested too deeply", 1) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise fault(file, f"cannot be read: {error}", 1) from None


class _Reader:
    """Converts nodes to values. An alias counts at each use, so that a small file cannot become a large value."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._nodes = 0
        self.lines: dict[Route, int] = {}
        self.texts: dict[Route, str] = {}
        self.faults: list[ConfigurationError] = []

    def plain(self, node: Node, route: Route) -> Any:
        self.lines.setdefault(route, node.start_mark.line + 1)
        self._nodes += 1
        if self._nodes > MAX_NODES or len(route) > MAX_DEPTH:
            raise fault(self._file, "contains too many values, or is nested too deeply", self.lines[route])
        if node.tag not in _PLAIN:
            self._wrong(node, route, f"the tag {node.tag.replace(_TAG, '!!')} is not supported; remove it")
            return None
        match node:
            case MappingNode():
                return self._mapping(node, route)
            case SequenceNode():
                return [self.plain(child, (*route, place)) for place, child in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, route)
            case _:
                return None

    def _mapping(self, node: MappingNode, route: Route) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, ScalarNode) or key.tag not in _PLAIN:
                what = "<< is not supported; write the fields out" if key.value == "<<" else "field names must be text"
                self._wrong(key, route, what)
            elif key.value in found:
                self._wrong(key, (*route, key.value), f"is set twice, first in line {self.line((*route, key.value))}")
            else:
                self.lines[(*route, key.value)] = key.start_mark.line + 1
                found[key.value] = self.plain(child, (*route, key.value))
        return found

    def line(self, route: Route) -> int:
        return self.lines[route]

    def _scalar(self, node: ScalarNode, route: Route) -> Any:
        text: str = node.value
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            self._wrong(node, route, "contains an incomplete character (a lone surrogate)")
            return ""
        value = _value(node.tag.removeprefix(_TAG), text)
        if node.style is None and value is not None and not isinstance(value, str):
            self.texts[route] = text
        return value

    def _wrong(self, node: Node, route: Route, message: str) -> None:
        self.faults.append(fault(self._file, message, node.start_mark.line + 1, shown(route)))


def _value(kind: str, text: str) -> Any:
    """Return the value of a scalar. A value that cannot be parsed stays text, and is refused by fields that are not
    text."""
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return _TRUTH.get(text.lower(), text)
            case "int":
                return int(text)
            case "float":
                return float(text)
            case _:
                return text
    except ValueError:
        return text


# `[[agent]]` tables of a TOML file. tomllib reports no lines, so the text is searched for them.

T = TypeVar("T")

_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]=]+?)\s*\]\]?\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([A-Za-z0-9_\-.\"' ]+?)\s*=\s*(.*?)\s*")
_NUMBER = re.compile(r"([+-]?[0-9][0-9._]*|true|false)\s*(?:#.*)?")
_FENCE = re.compile(r'"""|' + r"'''")


def parse_toml(file: str, text: str) -> list[DefinitionFile]:
    """Parse the agents of a file, each as one definition."""
    tables = _tables(file, text)
    lines, texts = _look_through(text)
    return [DefinitionFile(file, table, _of(number, lines), _of(number, texts)) for number, table in enumerate(tables)]


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
        raise fault(file, "use [[agent]], one table for each agent", _line_of(text, "agent"), "agent")
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
    """Tracks the table that the current line belongs to, from the headers seen so far."""

    def __init__(self) -> None:
        self._here: Route | None = None
        self._counts: dict[Route, int] = {}

    def see(self, line: str) -> tuple[Route | None, str | None]:
        """Return the route that a line opens or sets, and, if it sets a number, the number as written."""
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
