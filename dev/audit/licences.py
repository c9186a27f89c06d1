"""Licences of packages, compared with the accepted ones."""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from dev.audit.expressions import Unreadable, allows
from dev.audit.words import Finding, Package

RULES = Path(__file__).with_name("licences.toml")
_CLASSIFIER = "License :: "


class Exempted(Struct, frozen=True, forbid_unknown_fields=True):
    """A package accepted under another licence, with the reason."""

    licence: str
    reason: str


class Rules(Struct, frozen=True, forbid_unknown_fields=True):
    allowed: frozenset[str]
    names: dict[str, str]
    """Licence names that packages use instead of SPDX expressions, with the SPDX expression of each."""
    exceptions: dict[str, Exempted] = {}


def rules(path: Path = RULES) -> Rules:
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Rules)


def judged(packages: Iterable[Package], given: Rules) -> list[Finding]:
    return sorted(finding for package in packages for finding in _judged(package, given))


def licence_of(package: Package, given: Rules) -> str:
    """The licence as an SPDX expression; as written if it is unknown; empty if there is none."""
    if expression := package.metadata["License-Expression"]:
        return str(expression)
    written = str(package.metadata["License"] or "").strip()
    if written in given.names or written in given.allowed:
        return given.names.get(written, written)
    classified = [
        one.removeprefix(_CLASSIFIER)
        for one in package.metadata.get_all("Classifier") or ()
        if one.startswith(_CLASSIFIER)
    ]
    # Several licences may be a choice or all apply: that is unknown, so all must be accepted.
    meant = [given.names.get(one, one) for one in classified]
    return " AND ".join(f"({one})" for one in meant) or written.partition("\n")[0][:100]


def _judged(package: Package, given: Rules) -> Iterator[Finding]:
    licence = licence_of(package, given)
    exempted = given.exceptions.get(package.name)
    if exempted is not None:
        if exempted.licence != licence:
            yield Finding(str(package), f"is excepted for {exempted.licence!r}, and has {licence!r} now.")
        return
    if not licence:
        yield Finding(str(package), "does not say on which terms it may be used.")
        return
    try:
        allowed = allows(licence, given.allowed)
    except Unreadable:
        yield Finding(str(package), f"has a licence that cannot be read: {licence!r}.")
        return
    if not allowed:
        yield Finding(str(package), f"has a licence that is not allowed: {licence}.")
