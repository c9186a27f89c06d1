"""Examples of the contracts as values: JSON and TypeScript literals, with the few words that a test must replace."""

import json
from typing import Any

from tests.contracts.shapes import Name, Node, Shape, literal, problems_of

Json = dict[str, Any]


def substituted(text: str, replaced: dict[str, str]) -> str:
    """The example with ids, times, hosts or paths of the test in place of its own. Each of them has to be there, so
    that no substitution outlives its example."""
    for old, new in replaced.items():
        assert old in text, f"{old!r} is not in the example"
        text = text.replace(old, new)
    return text


def from_json(text: str, replaced: dict[str, str] | None = None) -> Any:
    return json.loads(substituted(text, replaced or {}))


def from_typescript(text: str, replaced: dict[str, str] | None = None) -> Any:
    return literal(Shape.parse(substituted(text, replaced or {})).node)


def assert_like(example: Any, answer: Any) -> None:
    """Every member of the example is in the answer, with a value of the same type."""
    assert (found := list(problems_of(_as_shape(example), answer))) == [], (found, answer)


def assert_contains(example: Any, answer: Any, at: str = "$") -> None:
    """Every value of the example is in the answer, as it stands there; the answer may say more."""
    if isinstance(example, dict):
        assert isinstance(answer, dict), at
        for name, value in example.items():
            assert name in answer, f"{at}.{name} is missing"
            assert_contains(value, answer[name], f"{at}.{name}")
    else:
        assert answer == example, at


def _as_shape(example: Any) -> Node:
    match example:
        case dict():
            return {name: (_as_shape(value), False) for name, value in example.items()}
        case list():
            return [_as_shape(one) for one in example]
        case bool():
            return Name("boolean")
        case int() | float():
            return Name("number")
        case str():
            return Name("string")
        case _:
            return Name("any")
