"""Finds the names in a PromQL expression, with just enough of its grammar."""

import re
from typing import NamedTuple

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NUMBER = re.compile(r"\b\d[\w.]*")
_WORD = re.compile(r"[a-zA-Z_:][\w:]*(?!\w)(?!\s*\()")
_OPERATORS = frozenset(("and", "or", "unless", "offset", "bool"))


class Spoken(NamedTuple):
    metrics: set[str]
    labels: set[str]
    """Labels used in selectors and groupings."""
    wanted: list[tuple[str, str, str]]
    """Metric, label, and a value that it is asked to have."""


def spoken(expression: str) -> Spoken:
    found = Spoken(set(), set(), [])
    rest = _SELECTOR.sub(lambda one: _selected(one, found), expression)
    assert "{" not in rest, f"A selector without a metric in {expression}"
    for grouping in _GROUPING.findall(rest):
        found.labels.update(name.strip() for name in grouping.split(",") if name.strip())
    rest = _NUMBER.sub(" ", _RANGE.sub(" ", _GROUPING.sub(" ", _STRING.sub(" ", rest))))
    found.metrics.update(word for word in _WORD.findall(rest) if word not in _OPERATORS)
    _check_brackets(expression)
    return found


def _selected(selector: re.Match[str], found: Spoken) -> str:
    metric, matchers = selector.groups()
    rest = matchers
    while one := _MATCHER.match(rest):
        name, operator, value = one.groups()
        found.labels.add(name)
        if operator in ("=", "=~"):
            found.wanted.extend((metric, name, wanted) for wanted in value.split("|"))
        rest = rest[one.end() :].removeprefix(",")
    assert not rest.strip(), f"{matchers} cannot be read."
    return f" {metric} "


def _check_brackets(expression: str) -> None:
    open_: list[str] = []
    for sign in _STRING.sub("", expression):
        if sign in "([{":
            open_.append(sign)
        elif sign in ")]}":
            assert open_, f"Too many {sign} in {expression}"
            assert open_.pop() + sign in ("()", "[]", "{}"), expression
    assert not open_, f"{open_} is left open in {expression}"
