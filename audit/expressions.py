"""SPDX's licence expressions: which of their licences one has to accept."""

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


class Unreadable(Exception):
    """No expression that SPDX knows."""


def allows(expression: str, allowed: frozenset[str]) -> bool:
    """Of alternatives one is enough, of what holds together all are needed."""
    tokens = _TOKEN.findall(expression)
    if not tokens:
        raise Unreadable(expression)
    rest = iter([*tokens, ""])
    verdict, left = _either(rest, next(rest), allowed)
    if left:
        raise Unreadable(expression)
    return verdict


def _either(rest: Iterator[str], token: str, allowed: frozenset[str]) -> tuple[bool, str]:
    verdict, token = _both(rest, token, allowed)
    while token.upper() == "OR":
        other, token = _both(rest, next(rest), allowed)
        verdict = verdict or other
    return verdict, token


def _both(rest: Iterator[str], token: str, allowed: frozenset[str]) -> tuple[bool, str]:
    verdict, token = _one(rest, token, allowed)
    while token.upper() == "AND":
        other, token = _one(rest, next(rest), allowed)
        verdict = verdict and other
    return verdict, token


def _one(rest: Iterator[str], token: str, allowed: frozenset[str]) -> tuple[bool, str]:
    if token == "(":
        verdict, end = _either(rest, next(rest), allowed)
        if end != ")":
            raise Unreadable(end)
        return verdict, next(rest)
    if not token or token == ")" or token.upper() in ("AND", "OR", "WITH"):
        raise Unreadable(token)
    following = next(rest)
    if following.upper() == "WITH":
        # An exception only ever allows more than the licence does.
        next(rest)
        following = next(rest)
    return token in allowed, following
