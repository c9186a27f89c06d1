"""Groups: named sets of principals, from the field of a key or a claim of the issuer, for roles, limits and reports."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from parley.cache import BoundedCache
from parley.clock import Clock, now_ms
from parley.errors import Invalid, ParleyError
from parley.records import Record, Records
from parley.runs.rules.access import ROLES, Principal, Role, Scope
from parley.telemetry import tell

MAX_GROUPS = 200
"""Groups of one principal. Of more in a token, those that the settings name are kept first."""
MAX_NAME = 128
MAX_READ = 10_000
"""Principals that are read to answer about groups."""
NOTE_MS = 60_000

MEMBER = "group.member"
_NO_GROUPS: frozenset[str] = frozenset()
_decode = msgspec.msgpack.Decoder(list[str]).decode


class GroupRules(Struct, frozen=True):
    """The claim that names a user's groups, the role of each group that has one, and the role of all other users."""

    claim: str = "groups"
    roles: Mapping[str, Role] = {}
    default: Role | None = "user"

    def scopes(self, groups: frozenset[str]) -> frozenset[Scope]:
        """Return the scopes of the highest role that one of the groups has."""
        held: set[Role] = {self.roles[group] for group in groups if group in self.roles}
        found = next((scopes for role, scopes in ROLES.items() if role in held), None)
        return found or (ROLES[self.default] if self.default else frozenset())


DEFAULT_GROUPS = GroupRules()


def group_names(names: Iterable[str]) -> frozenset[str]:
    """Check the groups that an administrator gives a key."""
    given = frozenset(names)
    if len(given) > MAX_GROUPS:
        raise Invalid(f"A key can be in at most {MAX_GROUPS} groups.", field="groups")
    if wrong := sorted(name for name in given if not _is_name(name)):
        raise Invalid(
            f"{wrong[0][:MAX_NAME]!r} is not a group's name: it must have 1 to {MAX_NAME} printable characters, "
            "and no space at either end.",
            field="groups",
        )
    return given


def claimed_groups(claims: Mapping[str, Any], rules: GroupRules) -> frozenset[str]:
    """Return the groups that a checked token names. A claim inside another one is named with dots."""
    value: object = claims.get(rules.claim)
    if value is None and "." in rules.claim:
        value = claims
        for step in rules.claim.split("."):
            value = cast(Mapping[str, object], value).get(step) if isinstance(value, dict) else None
    named = [value] if isinstance(value, str) else cast(list[object], value) if isinstance(value, list) else []
    found = {name for name in named if isinstance(name, str) and _is_name(name)}
    return frozenset(sorted(found, key=lambda name: (name not in rules.roles, name))[:MAX_GROUPS])


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip()


class GroupMembers:
    """Stores which groups the users of the issuer were in when they were seen last. Keys store their own groups."""

    def __init__(self, records: Records, clock: Clock = now_ms) -> None:
        self._records = records
        self._clock = clock
        self._noted: BoundedCache[str, tuple[frozenset[str], int] | None] = BoundedCache(lambda: None)

    async def note(self, principal: Principal) -> None:
        """Store the groups of a principal: when they have changed, and otherwise once a minute. Principals that never
        were in a group are not stored."""
        name, now = str(principal), self._clock()
        known = self._noted.get(name)
        if known is not None and known[0] == principal.groups and (now - known[1] < NOTE_MS or not principal.groups):
            return
        try:
            if principal.groups or (known and known[0]) or await self._records.get(MEMBER, "", name) is not None:
                await self._records.put(Record(MEMBER, "", name, msgspec.msgpack.encode(sorted(principal.groups)), now))
        except ParleyError as error:
            tell("group.not_noted", error=error)
            return
        self._noted.put(name, (principal.groups, now))

    async def forget(self, principal: str) -> None:
        """Delete what is stored about the groups of a user, until its next token is seen."""
        await self._records.delete(MEMBER, "", principal)


class GroupMember(Struct, frozen=True):
    principal: str
    groups: frozenset[str]
    seen_at: int | None


class Memberships(Struct, frozen=True):
    members: list[GroupMember]
    complete: bool
    """False if there are more principals than are read."""


class GroupedKey(Protocol):
    """An API key, as far as groups need it."""

    @property
    def principal(self) -> Principal: ...
    @property
    def last_used_at(self) -> int | None: ...


class KeyList(Protocol):
    """API keys, as far as groups need them."""

    async def list(self) -> Iterable[GroupedKey]: ...


class Groups:
    """Finds groups and their members, for reports."""

    def __init__(self, keys: KeyList, records: Records, rules: GroupRules = DEFAULT_GROUPS) -> None:
        self._keys = keys
        self._records = records
        self.rules = rules

    async def memberships(self) -> Memberships:
        """Return all principals that are in a group: keys, and users of the issuer as they were seen last."""
        keys = [(key.principal, key.last_used_at) for key in await self._keys.list()]
        found = [GroupMember(str(one), one.groups, used) for one, used in keys if one.groups]
        after = ""
        for _ in range(0, MAX_READ, 500):
            page = await self._records.list(MEMBER, "", ("", after), 500)
            seen = [GroupMember(one.id, frozenset(_decode(one.body)), one.at) for one in page]
            found += [one for one in seen if one.groups]
            if len(page) < 500:
                return Memberships(found, complete=True)
            after = page[-1].id
        return Memberships(found, complete=False)

    async def forget(self, principal: str) -> None:
        """Delete what is stored about the groups of a user, until its next token is seen."""
        await GroupMembers(self._records).forget(principal)

    async def members(self, group: str) -> Memberships:
        every = await self.memberships()
        return Memberships([one for one in every.members if group in one.groups], every.complete)
