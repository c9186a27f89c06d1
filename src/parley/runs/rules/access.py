"""Access rules: principals, their rights, and what is visible to them."""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.errors import Forbidden, ParleyError
from parley.nodes.rules import MAX_DEPTH
from parley.runs.rules.agents import Agent

PrincipalKind = Literal["local", "user", "guest", "node", "runtime", "service", "admin"]
Scope = Literal["read", "send", "operate", "admin"]
"""`read`: read tasks. `send`: send messages and cancel. `operate`: see and steer the tasks of all principals. `admin`:
all of it, and manage the server."""
Role = Literal["admin", "operator", "user", "reader"]

USER_SCOPES: frozenset[Scope] = frozenset(("read", "send"))
ALL_SCOPES: frozenset[Scope] = frozenset(("read", "send", "admin"))
"""Scopes that keys and tokens name. `operate` comes with the role operator only."""
ROLES: dict[Role, frozenset[Scope]] = {
    "admin": ALL_SCOPES,
    "operator": frozenset(("read", "send", "operate")),
    "user": USER_SCOPES,
    "reader": frozenset(("read",)),
}
"""Scopes of each role, the role with the most rights first."""
NO_AGENT = frozenset(("",))
"""Value of `Principal.agents` for no agent at all, since no agent has an empty slug."""


class Reach(Struct, frozen=True, omit_defaults=True):
    """Rights of a caller that do not follow from its name. A run's log stores them for the runs that it starts."""

    agents: tuple[str, ...] = ()
    """The only agents that the caller may use; empty means all that it may see."""
    admin: bool = False


class Principal(Struct, frozen=True):
    """The identity on whose behalf something happens; `str()` is its stable name in the log."""

    kind: PrincipalKind
    name: str = ""
    scopes: frozenset[Scope] = USER_SCOPES
    agents: frozenset[str] = frozenset()
    """The only agents that the principal may use; empty means all that it may see."""
    groups: frozenset[str] = frozenset()
    """Named sets of principals that this one belongs to, as its credential says."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    @property
    def role(self) -> Role | None:
        """The role with the most rights that the scopes contain; None if they contain none."""
        return next((role for role, scopes in ROLES.items() if all(map(self.may, scopes))), None)

    @property
    def reach(self) -> Reach | None:
        """The value that `parse` needs in addition to the name to restore the same rights; None if the name is
        enough."""
        if self.kind == "local":
            return None
        if self.may("admin"):
            return Reach(admin=True)
        return Reach(tuple(sorted(self.agents))) if self.agents else None

    @staticmethod
    def parse(text: str, reach: Reach | None = None) -> "Principal":
        """Return the principal with this name. The local user has all rights; others have those of `reach`, or a
        user's."""
        kind, _, name = text.partition(":")
        admin = kind == "local" or (reach is not None and reach.admin)
        rights = {"scopes": ALL_SCOPES if admin else USER_SCOPES, "agents": reach.agents if reach else ()}
        return msgspec.convert({"kind": kind, "name": name, **rights}, Principal)

    def narrowed(self, agents: tuple[str, ...]) -> "Principal":
        """Return the same principal, also limited to these agents; an empty list limits nothing."""
        if not agents:
            return self
        # Only callers without the admin scope are limited, so the admin scope is removed too.
        return replace(
            self, scopes=USER_SCOPES, agents=(self.agents or frozenset(agents)) & frozenset(agents) or NO_AGENT
        )


LOCAL = Principal("local", scopes=ALL_SCOPES)


def demand(principal: Principal, scope: Scope) -> None:
    """Raise Forbidden if a principal lacks a scope; the error names the scope."""
    if not principal.may(scope):
        raise Forbidden(f"This needs the scope {scope}.", scope=scope)


def may_see(principal: Principal, owner: str) -> bool:
    """Return whether a principal may see data of this owner. Other data does not exist for it."""
    return principal.may("operate") or str(principal) == owner


def may_use(principal: Principal | None, agent: Agent) -> bool:
    """Return whether an agent exists for a principal; None is a caller without credentials, who may only read the
    card."""
    if principal is None:
        return agent.visibility == "public"
    if principal.may("operate"):
        return True
    if principal.agents and agent.slug not in principal.agents:
        return False
    return agent.visibility != "private" or str(principal) in agent.allow


class Seat(Protocol):
    """The position of a node in the hierarchy."""

    @property
    def id(self) -> str: ...
    @property
    def parent_id(self) -> str | None: ...


Lookup = Callable[[str], Seat | None]
Relation = Literal["self", "siblings", "roots", "parent", "child", "line"]
"""The relation of the target to the caller."""


def can_communicate(lookup: Lookup, caller: str, target: str, *, ancestors: bool = False) -> bool:
    """Return whether one node may call another by the rule of the registry contract (004): itself, siblings, two
    roots, parent and child; with `ancestors` any two on one line.

    A node that cannot be found may call no other node.
    """
    return relation(lookup, caller, target, ancestors=ancestors) is not None


def relation(lookup: Lookup, caller: str, target: str, *, ancestors: bool = False) -> Relation | None:
    """Return the relation by which a caller may call a target; None if it may not."""
    try:
        one, other = lookup(caller), lookup(target)
        if one is None or other is None:
            return None
        if one.id == other.id:
            return "self"
        if other.id == one.parent_id:
            return "parent"
        if one.id == other.parent_id:
            return "child"
        if one.parent_id == other.parent_id:
            return "roots" if one.parent_id is None else "siblings"
        return "line" if ancestors and (_above(lookup, one, other) or _above(lookup, other, one)) else None
    except (LookupError, ParleyError):
        return None


def _above(lookup: Lookup, upper: Seat, lower: Seat) -> bool:
    seat: Seat | None = lower
    for _ in range(MAX_DEPTH):
        if seat is None or seat.parent_id is None:
            return False
        if seat.parent_id == upper.id:
            return True
        seat = lookup(seat.parent_id)
    return False
