import asyncio

import pytest

from parley.errors import Invalid, NameTaken, NotFound, StoreUnavailable, Unauthenticated
from parley.records import Record, Records
from parley.runs.rules.access import Principal
from parley.security.keys import ApiKeys
from parley.stores.records import MemoryRecords


class Watched(MemoryRecords):
    """Counts what it is asked, and can refuse to write."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0
        self.puts: list[Record] = []
        self.broken = False

    async def get(self, kind: str, scope: str, id_: str) -> Record | None:
        self.gets += 1
        await asyncio.sleep(0)
        return await super().get(kind, scope, id_)

    async def put(self, record: Record) -> None:
        if self.broken:
            raise StoreUnavailable("Broken.")
        self.puts.append(record)
        await super().put(record)


class Now:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def records() -> Watched:
    return Watched()


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def keys(records: Watched, now: Now) -> ApiKeys:
    return ApiKeys(records, now, life_s=0.05)


async def test_a_key_stands_for_a_service(keys: ApiKeys) -> None:
    key, token = await keys.create("ci", ["read"], ["echo"])
    assert token.startswith(f"parley_{key.id}_")
    assert await keys.principal_for(token) == Principal("service", "ci", frozenset({"read"}), frozenset({"echo"}))
    _, other = await keys.create("plain")
    assert await keys.principal_for(other) == Principal("service", "plain")


async def test_only_the_hash_of_a_token_is_kept(keys: ApiKeys, records: Watched) -> None:
    _, token = await keys.create("ci")
    await keys.principal_for(token)
    kept = b"".join(record.body for record in records.puts)
    assert token.encode() not in kept
    assert token.split("_", 2)[2].encode() not in kept


async def test_a_wrong_token_is_refused_without_repeating_it(keys: ApiKeys) -> None:
    _, token = await keys.create("ci")
    wrong = [
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token + "x",
        token[:30],
        "parley_",
        "parley_x_y",
        token.upper(),
    ]
    for one in wrong:
        with pytest.raises(Unauthenticated) as raised:
            await keys.principal_for(one)
        assert one not in raised.value.message or one == "parley_"


async def test_a_busy_key_costs_one_query(keys: ApiKeys, records: Watched) -> None:
    _, token = await keys.create("ci")
    records.gets = 0
    await asyncio.gather(*(keys.principal_for(token) for _ in range(50)))
    for _ in range(50):
        await keys.principal_for(token)
    assert records.gets == 1


async def test_a_caller_who_leaves_does_not_take_the_lookup_with_it(keys: ApiKeys) -> None:
    _, token = await keys.create("ci")
    first = asyncio.create_task(keys.principal_for(token))
    second = asyncio.create_task(keys.principal_for(token))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).name == "ci"


async def test_a_revoked_key_is_refused_here_at_once_and_elsewhere_soon(keys: ApiKeys, records: Records) -> None:
    key, token = await keys.create("ci")
    elsewhere = ApiKeys(records, life_s=0.05)
    await elsewhere.principal_for(token)
    await keys.revoke(key.id)
    with pytest.raises(Unauthenticated):
        await keys.principal_for(token)
    await asyncio.sleep(0.06)
    with pytest.raises(Unauthenticated):
        await elsewhere.principal_for(token)
    assert await keys.list() == []
    with pytest.raises(NotFound):
        await keys.revoke(key.id)


async def test_a_use_that_is_noted_late_does_not_bring_a_key_back(keys: ApiKeys, records: Records) -> None:
    key, token = await keys.create("ci")
    await keys.revoke("ci")
    await keys._note_use(key.id, 10**15)
    with pytest.raises(Unauthenticated):
        await ApiKeys(records).principal_for(token)
    assert await keys.list() == []


async def test_names_of_live_keys_are_unique(keys: ApiKeys, now: Now) -> None:
    await keys.create("ci", expires_at=now.ms + 1000)
    with pytest.raises(NameTaken):
        await keys.create("ci")
    assert len(await keys.list()) == 1
    now.ms += 2000
    await keys.create("ci")
    await keys.revoke("ci")
    await keys.create("ci")


async def test_of_rivals_for_a_name_one_wins(keys: ApiKeys) -> None:
    results = await asyncio.gather(*(keys.create("ci") for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, NameTaken) for result in results) == 4
    assert len(await keys.list()) == 1


async def test_an_expired_key_is_refused(keys: ApiKeys, now: Now) -> None:
    _, token = await keys.create("ci", expires_at=now.ms + 10)
    await keys.principal_for(token)
    now.ms += 20
    await asyncio.sleep(0.02)
    with pytest.raises(Unauthenticated):
        await keys.principal_for(token)
    with pytest.raises(Invalid):
        await keys.create("late", expires_at=now.ms)


async def test_the_last_use_is_noted_once_a_minute(keys: ApiKeys, records: Watched, now: Now) -> None:
    _, token = await keys.create("ci")
    assert (await keys.list())[0].last_used_at is None
    for _ in range(3):
        await keys.principal_for(token)
        await asyncio.sleep(0.06)
    assert (await keys.list())[0].last_used_at == now.ms
    assert len([record for record in records.puts if record.kind == "api_key.use"]) == 1
    now.ms += 61_000
    await keys.principal_for(token)
    assert (await keys.list())[0].last_used_at == now.ms


async def test_a_store_that_takes_no_notes_locks_nobody_out(keys: ApiKeys, records: Watched) -> None:
    _, token = await keys.create("ci")
    records.broken = True
    assert (await keys.principal_for(token)).name == "ci"


@pytest.mark.parametrize(
    ("name", "scopes", "agents", "field"),
    [
        ("", ["read"], [], "name"),
        ("Upper", ["read"], [], "name"),
        ("a" * 64, ["read"], [], "name"),
        ("a", [], [], "scopes"),
        ("a", ["read", "write"], [], "scopes"),
        ("a", ["read"], ["No Slug"], "agents"),
    ],
)
async def test_a_wrong_key_is_explained(
    keys: ApiKeys, name: str, scopes: list[str], agents: list[str], field: str
) -> None:
    with pytest.raises(Invalid) as raised:
        await keys.create(name, scopes, agents)
    assert raised.value.details["field"] == field


async def test_many_keys_are_listed_in_the_order_of_their_names(keys: ApiKeys) -> None:
    for number in range(7):
        await keys.create(f"key-{number}")
    assert [key.name for key in await keys.list()] == [f"key-{number}" for number in range(7)]
