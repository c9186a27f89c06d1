"""The notation in which the actions contract writes its requests and answers: types of TypeScript, in loose form.

{ id, title?: string, status: 'a' | 'b', versions: [{ id }], tags: string[], ... } | null
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<text>'[^']*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark>\.\.\.|[{}\[\]():?|<>,;])",
    re.DOTALL,
)


class Name(Struct, frozen=True):
    """A type by its name; `...` stands for anything."""

    name: str


class Literal(Struct, frozen=True):
    value: Any


class Union(Struct, frozen=True):
    options: list["Node"]


class Many(Struct, frozen=True):
    """`string[]`."""

    item: "Node"


Node = Name | Literal | Union | Many | dict[str, tuple[Any, bool]] | list[Any]
"""An object is a dict of its members, each with whether it may be left out; `[…]` is a list."""

MEMBERS: dict[str, str] = {
    "versionNumber": "number", "isCurrent": "boolean", "metadata": "object", "executionTimeMs": "number",
    "totalSteps": "number", "completedSteps": "number", "limit": "number", "select": "any", "where": "object",
}  # fmt: skip
"""Types of members that the contract only names; the others are texts."""
LATER = ("completedAt",)
"""Members that are there once there is a value."""


class Shape:
    def __init__(self, node: Node) -> None:
        self.node = node

    @staticmethod
    def parse(text: str) -> "Shape":
        parser = _Parser(text)
        node = parser.union()
        assert parser.done, parser.rest
        return Shape(node)

    @property
    def required(self) -> set[str]:
        return {name for name, (_, optional) in self._members.items() if not optional}

    @property
    def names(self) -> set[str]:
        return set(self._members)

    @property
    def _members(self) -> dict[str, tuple[Any, bool]]:
        assert isinstance(self.node, dict)
        return self.node

    def check(self, value: Any) -> None:
        assert (found := list(problems_of(self.node, value))) == [], (found, value)


class _Parser:
    def __init__(self, text: str) -> None:
        found = [one for one in _TOKEN.finditer(text) if one.lastgroup is not None]
        assert "".join(_TOKEN.sub("", text).split()) == "", text
        self.rest = [(str(one.lastgroup), one.group()) for one in found]

    @property
    def done(self) -> bool:
        return not self.rest

    def _next_is(self, *marks: str) -> bool:
        return [word for _, word in self.rest[: len(marks)]] == list(marks)

    def _take(self, mark: str = "") -> tuple[str, str]:
        taken = self.rest.pop(0)
        assert mark in ("", taken[1]), (mark, taken)
        return taken

    def _skip(self, *marks: str) -> bool:
        if found := any(self._next_is(mark) for mark in marks):
            self._take()
        return found

    def union(self) -> Node:
        options = [self._postfixed()]
        while self._skip("|"):
            options.append(self._postfixed())
        return options[0] if len(options) == 1 else Union(options)

    def _postfixed(self) -> Node:
        node = self._primary()
        while self._next_is("[", "]"):
            self._take("[")
            self._take("]")
            node = Many(node)
        return node

    def _primary(self) -> Node:
        kind, word = self._take()
        match kind, word:
            case "mark", "{":
                return self._object()
            case "mark", "[":
                return self._list()
            case "mark", _:
                return Name(word)
            case "text", _:
                return Literal(word[1:-1])
            case "number", _:
                return Literal(float(word) if "." in word else int(word))
            case _, "Record":
                self._until(">")
                return Name("object")
            case _:
                return Literal({"true": True, "false": False, "null": None}[word]) if word in _WORDS else Name(word)

    def _until(self, mark: str) -> None:
        while self._take()[1] != mark:
            pass

    def _list(self) -> Node:
        items: list[Any] = []
        while not self._skip("]"):
            items.append(self.union())
            self._skip(",")
        return items

    def _object(self) -> Node:
        members: dict[str, tuple[Any, bool]] = {}
        while not self._skip("}"):
            if self._next_is("["):  # [key: string]: any
                self._until("]")
                self._take(":")
                self.union()
            elif not self._skip("..."):
                name = self._take()[1]
                optional = self._skip("?") or name in LATER
                members[name] = (self.union() if self._skip(":") else Name(MEMBERS.get(name, "string")), optional)
            self._skip(",", ";")
        return members


_WORDS = ("true", "false", "null")


def literal(node: Node) -> Any:
    """The value that is written there; members without one are left out of it."""
    match node:
        case Literal(value):
            return value
        case dict():
            return {name: literal(one) for name, (one, _) in node.items()}
        case list():
            return [literal(one) for one in node]
        case _:
            raise AssertionError(f"not a value: {node}")


def problems_of(node: Node, value: Any, at: str = "$") -> Iterator[str]:
    """Members that are missing or of another type; members beyond those of the contract are none. An object without
    members is one that "varies", which may also be null."""
    match node:
        case dict() if not node:
            pass
        case dict() if isinstance(value, dict):
            for name, (one, optional) in node.items():
                if name in value:
                    yield from problems_of(one, value[name], f"{at}.{name}")
                elif not optional:
                    yield f"{at}.{name} is missing"
        case list() | Many() if isinstance(value, list):
            options = node if isinstance(node, list) else [node.item]
            for number, one in enumerate(value):
                yield from problems_of(Union(options) if options else Name("any"), one, f"{at}[{number}]")
        case Union(options):
            found = [list(problems_of(one, value, at)) for one in options]
            yield from min(found, key=len)
        case _ if not _is(node, value):
            yield f"{at} is {value!r} and not {node}"
        case _:
            pass


def _is(node: Node, value: Any) -> bool:
    match node:
        case Literal(expected):
            return type(expected) is type(value) and expected == value
        case Name("string"):
            return isinstance(value, str)
        case Name("number"):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Name("boolean"):
            return isinstance(value, bool)
        case Name("object"):
            return isinstance(value, dict)
        case Name("any" | "..."):
            return True
        case _:
            return False
