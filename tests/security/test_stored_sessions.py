"""Stored sessions: their ends, and what the database holds of them."""

import asyncio

import pytest

from parley.errors import NotFound, SessionEnded
from parley.records import Records
from parley.runs.rules.access import Principal
from parley.security.sessions import NOTE_USE_MS, SESSION, StoredSessions
from parley.stores.records import MemoryRecords

ANN = Principal("user", "ann", groups=frozenset(("staff",)))
HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def records() -> Records:
    return MemoryRecords()


@pytest.fixture
def sessions(records: Records, clock: Clock) -> StoredSessions:
    return StoredSessions(records, 12 * 3600, 2 * 3600, clock)


async def test_a_session_ends_when_it_is_not_used(sessions: StoredSessions, clock: Clock) -> None:
    token = await sessions.begin(ANN, "https://issuer")
    for _ in range(3):
        clock.now += HOUR_MS
        assert (await sessions.check(token)).principal == "user:ann"
    clock.now += 2 * HOUR_MS
    with pytest.raises(SessionEnded):
        await sessions.check(token)
    assert await sessions.list() == []


async def test_a_session_ends_however_much_it_is_used(sessions: StoredSessions, records: Records, clock: Clock) -> None:
    token = await sessions.begin(ANN)
    for _ in range(11):
        clock.now += HOUR_MS
        await sessions.check(token)
    await sessions.clean()
    assert len(await records.list(SESSION)) == 1
    clock.now += HOUR_MS
    with pytest.raises(SessionEnded):
        await sessions.check(token)
    await sessions.clean()
    assert await records.list(SESSION) == []


async def test_a_use_that_is_noted_late_does_not_bring_a_revoked_session_back(
    sessions: StoredSessions, records: Records, clock: Clock
) -> None:
    token = await sessions.begin(ANN)
    clock.now += NOTE_USE_MS
    await asyncio.gather(sessions.check(token), sessions.revoke("user:ann"), return_exceptions=True)
    assert await records.list(SESSION) == []
    with pytest.raises(SessionEnded):
        await sessions.check(token)
    with pytest.raises(NotFound):
        await sessions.revoke("user:ann")


async def test_the_database_holds_no_token(sessions: StoredSessions, records: Records) -> None:
    token = await sessions.begin(ANN, "https://issuer", id_token=b"sealed")
    id_, _, secret = token.partition(".")
    (kept,) = await records.list(SESSION)
    assert kept.id == id_
    assert secret.encode() not in kept.body
    for wrong in ("", id_, f"{id_}.", f"{id_}.{'A' * 43}", f"{'0' * 16}.{secret}", token + "x", f"{id_}.\0"):
        with pytest.raises(SessionEnded):
            await sessions.check(wrong)
    assert (await sessions.end(token)) is not None
    assert (await sessions.end(token)) is None


async def test_sessions_of_one_principal_are_revoked_together(sessions: StoredSessions) -> None:
    first, second, other = [await sessions.begin(one) for one in (ANN, ANN, Principal("user", "bob"))]
    assert len(await sessions.revoke("user:ann")) == 2
    for ended in (first, second):
        with pytest.raises(SessionEnded):
            await sessions.check(ended)
    assert (await sessions.check(other)).principal == "user:bob"


async def test_replicas_share_sessions_and_each_has_its_own_limit(
    sessions: StoredSessions, records: Records, clock: Clock
) -> None:
    token = await sessions.begin(ANN)
    second = StoredSessions(records, 12 * 3600, None, clock)
    clock.now += 3 * HOUR_MS
    assert (await second.check(token)).method == "credential"
