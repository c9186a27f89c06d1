from typing import Any

import msgspec
import pytest
from msgspec import Struct

from parley.errors import Invalid, StoreUnavailable
from parley.records import Record
from parley.runs.rules.access import ROLES, USER_SCOPES, Principal
from parley.security.groups import MAX_GROUPS, MEMBER, NOTE_MS, GroupMembers, GroupRules, Groups, claimed_groups
from parley.security.keys import ApiKeys
from parley.stores.records import MemoryRecords

RULES = GroupRules("groups", {"ops": "operator", "root": "admin", "look": "reader"})


class Counted(MemoryRecords):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.broken = False

    async def get(self, kind: str, scope: str, id_: str) -> Record | None:
        self.calls += 1
        return await super().get(kind, scope, id_)

    async def put(self, record: Record) -> None:
        if self.broken:
            raise StoreUnavailable("Broken.")
        self.calls += 1
        await super().put(record)


class Now:
    ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        ((), "user"),
        (("other",), "user"),
        (("look",), "reader"),
        (("look", "ops"), "operator"),
        (("ops", "root"), "admin"),
    ],
)
def test_the_highest_role_of_the_groups_counts(groups: tuple[str, ...], role: Any) -> None:
    assert RULES.scopes(frozenset(groups)) == ROLES[role]


def test_without_a_default_role_users_of_no_group_have_no_rights() -> None:
    assert GroupRules(default=None).scopes(frozenset({"a"})) == frozenset()


@pytest.mark.parametrize(
    ("claim", "claims", "groups"),
    [
        ("groups", {}, []),
        ("groups", {"groups": "one"}, ["one"]),
        ("groups", {"groups": ["b", "a", 5, "", " c", "x" * 200, "n\nl"]}, ["a", "b"]),
        ("groups", {"groups": {"a": 1}}, []),
        ("realm.roles", {"realm": {"roles": ["a"]}}, ["a"]),
        ("realm.roles", {"realm.roles": ["b"], "realm": {"roles": ["a"]}}, ["b"]),
        ("realm.roles", {"realm": ["a"]}, []),
    ],
)
def test_groups_are_read_from_a_claim(claim: str, claims: dict[str, Any], groups: list[str]) -> None:
    assert sorted(claimed_groups(claims, GroupRules(claim))) == groups


def test_of_too_many_groups_those_with_a_role_are_kept() -> None:
    found = claimed_groups({"groups": [f"a{number}" for number in range(500)] + ["root"]}, RULES)
    assert len(found) == MAX_GROUPS
    assert "root" in found


@pytest.mark.parametrize(("role", "scopes"), list(ROLES.items()))
async def test_a_key_has_a_role_and_groups(role: str, scopes: frozenset[str]) -> None:
    keys = ApiKeys(MemoryRecords())
    _, token = await keys.create("ci", role=role, groups=["build", "/teams/blue"])
    principal = await keys.principal_for(token)
    assert (principal.scopes, principal.role, principal.groups) == (scopes, role, {"build", "/teams/blue"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "boss"},
        {"role": "user", "scopes": ["read"]},
        {"role": "operator", "agents": ["echo"]},
        {"groups": [""]},
        {"groups": ["a" * 129]},
        {"groups": [f"g{number}" for number in range(MAX_GROUPS + 1)]},
    ],
)
async def test_a_wrong_role_or_group_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        await ApiKeys(MemoryRecords()).create("ci", **wrong)


class OlderKey(Struct, frozen=True):
    """A key as version 0.2 reads it."""

    id: str
    name: str
    scopes: frozenset[str]


async def test_an_older_replica_reads_the_key_of_an_operator_as_a_users() -> None:
    records = MemoryRecords()
    key, _ = await ApiKeys(records).create("ops", role="operator", groups=["on-call"])
    stored = await records.get("api_key", "", key.id)
    assert stored is not None
    assert msgspec.msgpack.decode(stored.body, type=OlderKey).scopes == USER_SCOPES


def user(*groups: str) -> Principal:
    return Principal("user", "ann", groups=frozenset(groups))


async def test_members_are_noted_when_their_groups_change_and_otherwise_once_a_minute() -> None:
    records, now = Counted(), Now()
    members = GroupMembers(records, now)
    for _ in range(3):
        await members.note(user("a"))
    assert records.calls == 1
    await members.note(user("a", "b"))
    assert records.calls == 2
    now.ms += NOTE_MS
    await members.note(user("a", "b"))
    assert records.calls == 3
    await members.note(user())
    assert (await Groups(ApiKeys(records), records).memberships()).members == []


async def test_users_without_groups_cost_one_read_and_are_not_stored() -> None:
    records, now = Counted(), Now()
    members = GroupMembers(records, now)
    for _ in range(3):
        await members.note(user())
        now.ms += NOTE_MS
    assert records.calls == 1
    assert await records.list(MEMBER) == []


async def test_another_process_learns_that_a_user_left_all_groups() -> None:
    records = Counted()
    await GroupMembers(records).note(user("a"))
    await GroupMembers(records).note(user())
    assert (await Groups(ApiKeys(records), records).members("a")).members == []


async def test_a_broken_store_does_not_refuse_users() -> None:
    records = Counted()
    records.broken = True
    await GroupMembers(records).note(user("a"))


async def test_members_are_keys_and_users() -> None:
    records = MemoryRecords()
    keys = ApiKeys(records)
    await keys.create("ci", groups=["a", "b"])
    await keys.create("other")
    await GroupMembers(records).note(user("a"))
    found = await Groups(keys, records).members("a")
    assert found.complete
    assert sorted(one.principal for one in found.members) == ["service:ci", "user:ann"]
