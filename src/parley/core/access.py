"""Who asks, and what exists for them."""

from typing import Literal

import msgspec
from msgspec import Struct

PrincipalKind = Literal["local", "user", "guest", "node", "runtime", "service", "admin"]


class Principal(Struct, frozen=True):
    """The one on whose behalf something happens; `str()` is its stable name in the log."""

    kind: PrincipalKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @staticmethod
    def parse(text: str) -> "Principal":
        kind, _, name = text.partition(":")
        return msgspec.convert({"kind": kind, "name": name}, Principal)


LOCAL = Principal("local")


def may_see(principal: Principal, owner: str) -> bool:
    """What a principal may not see does not exist for it."""
    return principal.kind == "admin" or str(principal) == owner
