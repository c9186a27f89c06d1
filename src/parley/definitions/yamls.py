"""YAML, as far as definitions need it: plain values, no tags, and no surprises."""

from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from parley.definitions.documents import MAX_DEPTH, MAX_NODES, Document, Route, fault, shown
from parley.errors import ConfigurationError

_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(_TAG + name for name in ("str", "null", "bool", "int", "float", "timestamp", "value", "seq", "map"))
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def parse_yaml(file: str, text: str) -> tuple[Document, list[ConfigurationError]]:
    """The one document of a file, and what is wrong with its form; raises when there is no sense in reading on."""
    node = _compose(file, text)
    if node is None:
        raise fault(file, "the file is empty", 1)
    reader = _Reader(file)
    value = reader.plain(node, ())
    return Document(file, value, reader.lines, reader.texts), reader.faults


def _compose(file: str, text: str) -> Node | None:
    try:
        return cast(Node | None, yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise fault(file, error.problem or error.context or "cannot be read", mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise fault(file, "holds a character that YAML does not allow", line) from None
    except RecursionError:
        raise fault(file, "is nested too deeply", 1) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise fault(file, f"cannot be read: {error}", 1) from None


class _Reader:
    """Turns nodes into values. Aliases are followed, and count every time: a small file cannot become a large value."""

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
            raise fault(self._file, "holds too many values, or nests them too deeply", self.lines[route])
        if node.tag not in _PLAIN:
            self._wrong(node, route, f"the tag {node.tag.replace(_TAG, '!!')} is not read here")
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
                what = "<< is not read here; write the fields out" if key.value == "<<" else "a field's name is text"
                self._wrong(key, route, what)
            elif key.value in found:
                self._wrong(key, (*route, key.value), f"is there twice, first in line {self.line((*route, key.value))}")
            else:
                self.lines[(*route, key.value)] = key.start_mark.line + 1
                found[key.value] = self.plain(child, (*route, key.value))
        return found

    def line(self, route: Route) -> int:
        return self.lines[route]

    def _scalar(self, node: ScalarNode, route: Route) -> Any:
        text: str = node.value
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            self._wrong(node, route, "holds half of a character")
            return ""
        value = _value(node.tag.removeprefix(_TAG), text)
        if node.style is None and value is not None and not isinstance(value, str):
            self.texts[route] = text
        return value

    def _wrong(self, node: Node, route: Route, message: str) -> None:
        self.faults.append(fault(self._file, message, node.start_mark.line + 1, shown(route)))


def _value(kind: str, text: str) -> Any:
    """What a scalar stands for. What cannot be told stays text, and is refused where text is not wanted."""
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
