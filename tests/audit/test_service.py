import asyncio
from collections.abc import Sequence

import pytest

from parley.audit import service
from parley.audit.rules import MAX_TEXT, AuditAct, AuditQuery
from parley.audit.service import DAY_MS, AuditLog, enter, note, record
from parley.errors import StoreUnavailable
from parley.stores.audit import MemoryAudit

OLDEST = AuditQuery(oldest=True, limit=100_000)


class Watched(MemoryAudit):
    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.broken = False

    async def append(self, acts: Sequence[AuditAct]) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise StoreUnavailable("Broken.")
        self.batches.append(len(acts))
        await super().append(acts)


class Now:
    ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def store() -> Watched:
    return Watched()


async def test_acts_are_written_in_batches_and_in_order(store: Watched) -> None:
    log = AuditLog(store)
    for number in range(450):
        log.note(log.act("run.canceled", target=str(number)))
    await log.record(log.act("key.created", target="last"))
    assert store.batches == [200, 200, 51]
    entries = await log.read(OLDEST)
    assert [one.target for one in entries] == [*map(str, range(450)), "last"]
    assert (await log.verify()).checked == 451


async def test_an_act_that_cannot_be_written_is_refused_and_a_noted_one_is_kept(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    log = AuditLog(store)
    store.broken = True
    log.note(log.act("run.canceled", target="1"))
    with pytest.raises(StoreUnavailable):
        await log.record(log.act("key.created", target="2"))
    log.note(log.act("run.canceled", target="3"))
    store.broken = False
    await log.flush()
    assert [one.target for one in await log.read(OLDEST)] == ["1", "3"]


async def test_of_too_many_acts_the_number_is_kept(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_WAITING", 10)
    log = AuditLog(store)
    for number in range(25):
        log.note(log.act("run.canceled", target=str(number)))
    await log.flush()
    last = (await log.read(AuditQuery()))[0]
    assert (last.action, last.count, last.seq) == ("audit.dropped", 15, 11)


async def test_equal_refusals_make_two_entries(store: Watched) -> None:
    log = AuditLog(store, repeat_s=0.05)
    for _ in range(100):
        log.refused(log.act("request.refused", "user:ann", result="refused", code="permission_denied", target="GET /x"))
    log.refused(log.act("request.refused", "user:bob", result="refused", code="permission_denied", target="GET /x"))
    await asyncio.sleep(0.1)
    await log.flush()
    assert [(one.actor, one.count) for one in await log.read(OLDEST)] == [
        ("user:ann", 1),
        ("user:bob", 1),
        ("user:ann", 99),
    ]


async def test_a_flood_of_different_refusals_is_bounded(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_REPEATED", 5)
    log = AuditLog(store)
    for number in range(100):
        log.refused(log.act("request.refused", f"user:{number}", result="refused", code="unauthenticated"))
    await log.close()
    entries = await store.read(OLDEST)
    assert [(one.actor, one.count) for one in entries[5:]] == [("", 1), ("", 94)]


async def test_closing_writes_what_waits(store: Watched) -> None:
    log = AuditLog(store)
    log.note(log.act("run.canceled"))
    await log.close()
    assert len(await store.read(OLDEST)) == 1
    log.note(log.act("run.canceled"))
    with pytest.raises(StoreUnavailable):
        await log.record(log.act("run.canceled"))


async def test_old_entries_are_deleted_and_that_is_recorded(store: Watched) -> None:
    now = Now()
    log = AuditLog(store, now, keep_ms=DAY_MS)
    for _ in range(1500):
        log.note(log.act("run.canceled"))
    await log.flush()
    assert await log.trim() == 0
    now.ms += DAY_MS + 1
    assert await log.trim() == 1500
    entries = await log.read(OLDEST)
    assert [(one.action, one.count, one.seq) for one in entries] == [("audit.trimmed", 1500, 1501)]
    assert (await log.verify()).floor.seq == 1500


async def test_long_texts_are_cut(store: Watched) -> None:
    log = AuditLog(store)
    await log.record(log.act("key.created", "a" * 1000, target="b\0" * 1000))
    entry = (await log.read(OLDEST))[0]
    assert (len(entry.actor or ""), entry.target) == (MAX_TEXT, "b" * MAX_TEXT)


async def test_services_note_acts_of_the_current_request(store: Watched) -> None:
    log = AuditLog(store)
    note("run.canceled", "user:ann")
    enter(log, ("10.0.0.1", 1), "user:bob")
    note("run.canceled", "user:ann", "task", "1")
    await record("key.created", "key", "ci")
    assert [(one.actor, one.address, one.target) for one in await log.read(OLDEST)] == [
        ("user:ann", "10.0.0.1", "1"),
        ("user:bob", "10.0.0.1", "ci"),
    ]
