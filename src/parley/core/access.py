"""Who asks, and what exists for them."""

from typing import Literal

import msgspec
from msgspec import Struct

from parley.core.agents import Agent
from parley.errors import Forbidden

PrincipalKind = Literal["local", "user", "guest", "node", "runtime", "service", "admin"]
Scope = Literal["read", "send", "admin"]
"""`read` tasks, `send` messages and cancel, `admin`: see everything and look after the server."""

USER_SCOPES: frozenset[Scope] = frozenset(("read", "send"))
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "send", "admin"))


class Principal(Struct, frozen=True):
    """The one on whose behalf something happens; `str()` is its stable name in the log."""

    kind: PrincipalKind
    name: str = ""
    scopes: frozenset[Scope] = USER_SCOPES
    agents: frozenset[str] = frozenset()
    """The only agents it may speak to; empty means any that it may see."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    @staticmethod
    def parse(text: str) -> "Principal":
        kind, _, name = text.partition(":")
        return msgspec.convert({"kind": kind, "name": name}, Principal)


LOCAL = Principal("local", scopes=ALL_SCOPES)


def demand(principal: Principal, scope: Scope) -> None:
    """Refuse a principal without a scope; it is told which one is missing."""
    if not principal.may(scope):
        raise Forbidden(f"This needs the scope {scope}.", scope=scope)


def may_see(principal: Principal, owner: str) -> bool:
    """What a principal may not see does not exist for it."""
    return principal.may("admin") or str(principal) == owner


def may_use(principal: Principal | None, agent: Agent) -> bool:
    """Whether an agent exists for a principal; None is somebody without credentials, who may only read its card."""
    if principal is None:
        return agent.visibility == "public"
    if principal.may("admin"):
        return True
    if principal.agents and agent.slug not in principal.agents:
        return False
    return agent.visibility != "private" or str(principal) in agent.allow
