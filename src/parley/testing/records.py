"""Contract suites of record stores and of audit stores. Subclass one and give it a `records` or an `audit` fixture:

class TestMyRecords(RecordsContract):
    @pytest.fixture
    async def records(self):
        ...
"""

import asyncio

import pytest
from msgspec.structs import replace

from parley.audit.rules import AuditAct, AuditQuery, check
from parley.audit.service import AuditStore
from parley.errors import BrokenChain
from parley.records import Record, Records

__all__ = ["AuditContract", "RecordsContract"]


def record(
    id_: str, scope: str = "a", kind: str = "thing", due: int | None = None, body: bytes = b"\x00body"
) -> Record:
    return Record(kind, scope, id_, body, 1_700_000_000_000, due)


async def _filled(records: Records, *these: Record) -> None:
    for one in these:
        await records.put(one)


class RecordsContract:
    """Tests that every record store passes."""

    async def test_what_was_put_is_got_back(self, records: Records) -> None:
        one = record("x", due=5)
        await records.put(one)
        assert await records.get("thing", "a", "x") == one
        for elsewhere in (("other", "a", "x"), ("thing", "b", "x"), ("thing", "a", "y")):
            assert await records.get(*elsewhere) is None

    async def test_putting_again_replaces_all_of_it(self, records: Records) -> None:
        await records.put(record("x", due=5))
        later = Record("thing", "a", "x", b"", 2, None)
        await records.put(later)
        assert await records.get("thing", "a", "x") == later
        assert await records.due("thing", 100) == []

    async def test_adding_keeps_what_is_there(self, records: Records) -> None:
        assert await records.add(record("x", body=b"first"))
        assert not await records.add(record("x", body=b"second"))
        assert await records.add(record("x", scope="b"))
        found = await records.get("thing", "a", "x")
        assert found is not None
        assert found.body == b"first"

    async def test_of_rivals_who_add_exactly_one_wins(self, records: Records) -> None:
        rivals = [record("x", body=b"%d" % number) for number in range(8)]
        assert sum(await asyncio.gather(*(records.add(one) for one in rivals))) == 1

    async def test_a_list_is_in_order_and_goes_on_from_a_place(self, records: Records) -> None:
        ids = ["B", "a", "a-b", "a_b", "ab", "b", "ä"]
        await _filled(records, *(record(id_) for id_ in reversed(ids)), record("a", kind="other"))
        assert [one.id for one in await records.list("thing", "a")] == ids
        assert [one.id for one in await records.list("thing", "a", ("a", "a-b"), 2)] == ["a_b", "ab"]
        assert await records.list("thing", "a", ("a", "ä")) == []

    async def test_several_are_deleted_together(self, records: Records) -> None:
        await _filled(records, record("1"), record("2"), record("2", "b"), record("2", kind="other"), record("3"))
        await records.delete_all("thing", [("a", "1"), ("a", "2"), ("b", "1"), ("c", "3")])
        assert [(one.scope, one.id) for one in await records.list("thing")] == [("a", "3"), ("b", "2")]
        assert await records.get("other", "a", "2") is not None
        await records.delete_all("thing", [])
        assert len(await records.list("thing")) == 2

    async def test_a_list_of_all_scopes_is_ordered_by_scope_first(self, records: Records) -> None:
        await _filled(records, record("2", "b"), record("1", "b"), record("9", "a"), record("5", "c"))
        places = [("a", "9"), ("b", "1"), ("b", "2"), ("c", "5")]
        assert [(one.scope, one.id) for one in await records.list("thing")] == places
        assert [(one.scope, one.id) for one in await records.list("thing", None, ("b", "1"))] == places[2:]
        assert [one.id for one in await records.list("thing", "b")] == ["1", "2"]

    async def test_what_is_deleted_is_gone(self, records: Records) -> None:
        await _filled(records, record("x", due=1), record("y"))
        assert await records.delete("thing", "a", "x")
        assert not await records.delete("thing", "a", "x")
        assert await records.get("thing", "a", "x") is None
        assert await records.due("thing", 10) == []
        assert [one.id for one in await records.list("thing")] == ["y"]

    async def test_what_is_due_comes_in_the_order_of_its_time(self, records: Records) -> None:
        await _filled(records, record("a", due=30), record("b", due=10), record("c", due=20), record("d"))
        await records.put(record("z", kind="other", due=1))
        assert [one.id for one in await records.due("thing", 20)] == ["b", "c"]
        assert [one.id for one in await records.due("thing", 100, 2)] == ["b", "c"]
        assert await records.due("thing", 9) == []

    async def test_what_is_due_goes_on_from_a_moment(self, records: Records) -> None:
        await _filled(records, *(record(id_, scope, due=10) for scope in "ab" for id_ in "xy"), record("z", due=11))
        places: list[tuple[str, str]] = []
        after = (-1, "", "")
        while page := await records.due("thing", 20, 2, after):
            assert len(page) <= 2
            places += [(one.scope, one.id) for one in page]
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)
        assert places == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("a", "z")]

    async def test_only_what_is_still_as_it_was_is_swapped(self, records: Records) -> None:
        old, new = record("x", due=5, body=b"old"), Record("thing", "a", "x", b"new", 2, None)
        assert not await records.swap(old, new)
        await records.put(old)
        for other in (record("x", due=5, body=b"other"), record("x", due=6, body=b"old"), record("x", body=b"old")):
            assert not await records.swap(other, new)
        assert await records.swap(old, new)
        assert not await records.swap(old, new)
        assert await records.get("thing", "a", "x") == new
        assert await records.swap(new, old)
        assert await records.due("thing", 5) == [old]

    async def test_a_swap_cannot_bring_back_what_was_deleted(self, records: Records) -> None:
        await records.put(record("x"))
        await records.delete("thing", "a", "x")
        assert not await records.swap(record("x"), record("x", body=b"new"))
        assert await records.list("thing") == []

    async def test_of_rivals_who_swap_exactly_one_wins(self, records: Records) -> None:
        await records.put(record("x"))
        rivals = [record("x", body=b"%d" % number) for number in range(8)]
        assert sum(await asyncio.gather(*(records.swap(record("x"), one) for one in rivals))) == 1


OLDEST = AuditQuery(oldest=True, limit=1000)


def act(number: int, actor: str = "user:ann", person: str = "", **given: str) -> AuditAct:
    return AuditAct("key.created", 1_700_000_000_000 + number, actor=actor, address="10.0.0.1", person=person, **given)  # type: ignore[arg-type]


class AuditContract:
    """Tests that every audit store passes."""

    async def test_entries_are_numbered_and_chained(self, audit: AuditStore) -> None:
        await audit.append([act(0, kind="key", target="ci"), act(1, person="user:bob")])
        await audit.append([act(2, actor="")])
        entries = await audit.read(OLDEST)
        assert [entry.seq for entry in entries] == [1, 2, 3]
        assert check(await audit.floor(), entries).seq == 3
        first, second, third = entries
        assert (first.action, first.kind, first.target, first.actor) == ("key.created", "key", "ci", "user:ann")
        assert (first.address, first.person, second.person, third.actor) == ("10.0.0.1", "", "user:bob", "")

    async def test_writers_at_the_same_moment_make_one_chain(self, audit: AuditStore) -> None:
        await asyncio.gather(*(audit.append([act(number), act(number)]) for number in range(10)))
        assert check(await audit.floor(), await audit.read(OLDEST)).seq == 20

    async def test_every_change_breaks_the_chain(self, audit: AuditStore) -> None:
        await audit.append([act(number, person="user:bob") for number in range(3)])
        entries, floor = await audit.read(OLDEST), await audit.floor()
        changes = {
            "at": 5,
            "action": "key.revoked",
            "result": "refused",
            "code": "x",
            "kind": "x",
            "target": "x",
            "count": 2,
            "actor": "user:eve",
            "address": "10.0.0.2",
            "person": "user:eve",
            "hash": b"x" * 32,
        }
        for name, value in changes.items():
            with pytest.raises(BrokenChain) as raised:
                check(floor, [entries[0], replace(entries[1], **{name: value}), entries[2]])
            assert raised.value.details["seq"] in (2, 3)
        for wrong in (entries[1:], [entries[0], entries[2]]):
            with pytest.raises(BrokenChain):
                check(floor, wrong)

    async def test_a_person_is_erased_and_the_chain_holds(self, audit: AuditStore) -> None:
        await audit.append([act(0), act(1, actor="user:bob", person="user:ann"), act(2, actor="user:bob")])
        assert await audit.erase("user:ann") == 2
        assert await audit.erase("user:ann") == 0
        assert await audit.erase("") == 0
        entries = await audit.read(OLDEST)
        assert [(one.actor, one.address, one.person) for one in entries] == [
            (None, None, ""),
            ("user:bob", "10.0.0.1", None),
            ("user:bob", "10.0.0.1", ""),
        ]
        assert check(await audit.floor(), entries).seq == 3
        await audit.append([act(3)])
        assert check(await audit.floor(), await audit.read(OLDEST)).seq == 4

    async def test_old_entries_are_trimmed_and_the_chain_holds(self, audit: AuditStore) -> None:
        await audit.append([act(number) for number in range(6)])
        assert await audit.trim(act(0).at) == 0
        assert await audit.trim(act(4).at, 3) == 3
        assert await audit.trim(act(4).at, 3) == 1
        assert await audit.trim(act(4).at, 3) == 0
        assert [one.seq for one in await audit.read(OLDEST)] == [5, 6]
        assert check(await audit.floor(), await audit.read(OLDEST)).seq == 6
        assert await audit.trim(act(9).at) == 2
        await audit.append([act(9)])
        assert [one.seq for one in await audit.read(OLDEST)] == [7]
        assert check(await audit.floor(), await audit.read(OLDEST)).seq == 7

    async def test_entries_are_found_by_each_field(self, audit: AuditStore) -> None:
        acts = [act(0, target="a"), act(1, actor="user:bob", target="b"), replace(act(2, target="a"), result="refused")]
        await audit.append([*acts, replace(act(3), action="key.revoked")])

        async def found(**given: object) -> list[int]:
            return [one.seq for one in await audit.read(AuditQuery(**given))]  # type: ignore[arg-type]

        assert await found() == [4, 3, 2, 1]
        assert await found(actor="user:bob") == [2]
        assert await found(target="a") == [3, 1]
        assert await found(result="refused") == [3]
        assert await found(action="key.revoked") == [4]
        assert await found(since=act(1).at, until=act(3).at) == [3, 2]
        assert await found(actor="user:ann", target="a", limit=1) == [3]
        assert await found(after=3) == [2, 1]
        assert await found(after=2, oldest=True) == [3, 4]
        assert await found(actor="nobody") == []
