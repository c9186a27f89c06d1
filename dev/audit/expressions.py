"""SPDX licence expressions: parse them and check which licences must be accepted."""

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\s*(\(|\)|[^\s()]+)")


class Unreadable(Exception):
    """Not a valid SPDX expression."""


def allows(expression: str, allowed: frozenset[str]) -> bool:
    """True if an expression is allowed: one alternative of an OR is enough, all parts of an AND are needed."""
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
