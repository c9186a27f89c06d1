"""Records are stored within a second, and the caller does not wait for it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from parley import telemetry
from parley.documents.action_log import ActionLog
from parley.documents.rules import DocumentChange
from parley.errors import StoreUnavailable
from parley.ids import new_id
from parley.runs.retention import Retention
from parley.runs.store import LogStore
from parley.stores.documents import MemoryLibrary
from parley.testing.processes import until


def operation(at: int = 1) -> DocumentChange:
    return DocumentChange(new_id(), "user:ann", "talk", "writer", "plan", "read", "", "", at, at)


class Flaky(MemoryLibrary):
    """Refuses as long as it is told to."""

    down = False
    batches = 0

    async def note(self, operations: Sequence[DocumentChange]) -> None:
        if self.down:
            raise StoreUnavailable("The database does not answer.")
        self.batches += 1
        await super().note(operations)


async def test_what_is_noted_is_kept(store: LogStore) -> None:
    ledger = ActionLog(store.library, flush_s=0.01)
    noted = [operation() for _ in range(2500)]
    for one in noted:
        ledger.note(one)
    assert await ledger.find(noted[0].id) == noted[0]
    await ledger.close()
    for one in (noted[0], noted[1200], noted[-1]):
        assert await store.library.operation(one.id) == one
    await store.library.note(noted[:3])
    assert await ledger.find("unknown") is None


async def test_many_are_written_together() -> None:
    library = Flaky()
    ledger = ActionLog(library, flush_s=0.01)
    for _ in range(500):
        ledger.note(operation())
    await until(lambda: library.batches > 0)
    assert library.batches == 1
    await ledger.close()


async def test_a_store_that_is_away_is_told_of_and_tried_again() -> None:
    library, told = Flaky(), list[tuple[str, dict[str, Any]]]()
    detach = telemetry.attach(lambda name, fields: told.append((name, fields)))
    library.down = True
    ledger, one = ActionLog(library, flush_s=0.01), operation()
    ledger.note(one)
    await until(lambda: len(told) > 1)
    assert told[0] == ("ledger.failed", {"operations": 1, "code": "store_unavailable"})
    library.down = False
    await until(lambda: library.batches > 0)
    detach()
    assert await library.operation(one.id) == one
    await ledger.close()


async def test_memory_is_bounded_while_the_store_is_away() -> None:
    library, told = Flaky(), list[tuple[str, dict[str, Any]]]()
    detach = telemetry.attach(lambda name, fields: told.append((name, fields)))
    library.down = True
    ledger = ActionLog(library, flush_s=0.01, most=10)
    noted = [operation() for _ in range(15)]
    for one in noted:
        ledger.note(one)
    library.down = False
    await ledger.close()
    detach()
    assert ("ledger.dropped", {"operations": 5}) in told
    assert [await library.operation(one.id) is not None for one in noted] == [False] * 5 + [True] * 10


async def test_closing_a_ledger_whose_store_is_away_ends() -> None:
    library = Flaky()
    library.down = True
    ledger = ActionLog(library, flush_s=0.01)
    ledger.note(operation())
    async with asyncio.timeout(5):
        await ledger.close()


async def test_old_operations_are_forgotten_with_old_runs(store: LogStore) -> None:
    old, new = [operation(at=1_000) for _ in range(1500)], operation(at=90_000)
    await store.library.note([*old, new])
    await Retention(store, keep_ms=50_000, clock=lambda: 100_000).tick()
    assert await store.library.operation(old[0].id) is None
    assert await store.library.operation(old[-1].id) is None
    assert await store.library.operation(new.id) == new
