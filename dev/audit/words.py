"""Value types of the audit: installed packages and findings."""

import re
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path
from typing import cast

from msgspec import Struct

OURS = frozenset(("parley-a2a", "parley-edge"))
"""Our own packages: they are on no index, so no advisory can list them."""


class Package(Struct, frozen=True):
    name: str
    version: str
    metadata: Message

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Finding(Struct, frozen=True, order=True):
    package: str
    problem: str

    def __str__(self) -> str:
        return f"{self.package}: {self.problem}"


def plain(name: str) -> str:
    """A package name normalised as on package indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(place: Path) -> Iterator[Package]:
    for one in distributions(path=[str(place)]):
        metadata = cast("Message", one.metadata)
        yield Package(plain(str(metadata["Name"])), one.version, metadata)
