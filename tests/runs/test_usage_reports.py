"""Usage of all runs: sums by day, principal, agent and model."""

import pytest

from parley.runs.rules.content import text_part
from parley.runs.rules.events import Completed, Failed, Progress, Started
from parley.runs.rules.state import Run
from parley.runs.rules.usage import ModelTotals, Usage
from parley.runs.store import Listing
from parley.runs.usage_reports import UsageReports
from parley.stores.memory import MemoryStore
from parley.testing.logs import LogWriter, put
from parley.testing.waiting import until

DAY = 24 * 3600 * 1000
NOW = 5 * DAY + DAY // 2


class CountingStore(MemoryStore):
    """Counts the rows that listings have read."""

    rows = 0

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        found = await super().list_runs(listing)
        self.rows += len(found[0])
        return found


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def spent(tokens: int, model: str = "m") -> Progress:
    return Progress((), usage=Usage(model, tokens, 1, cost=0.5))


async def begin(store: MemoryStore, at: int, principal: str = "b") -> LogWriter:
    log = LogWriter(principal=principal, at=at)
    await put(store, log.start())
    await put(store, log.append(Started(1, "r"), spent(10), spent(5, "other"), Progress((text_part("x"),))))
    return log


async def end(store: MemoryStore, log: LogWriter) -> None:
    await put(store, log.append(Completed()))


async def complete(reports: UsageReports) -> bool:
    return (await reports.report(Listing())).complete


async def test_usage_is_added_up_by_day_principal_agent_and_model(store: CountingStore) -> None:
    for at, principal, ends in ((DAY, "user:1", Completed()), (DAY, "user:1", Failed("x", "y")), (3 * DAY, "b", None)):
        log = await begin(store, at, principal)
        if ends is not None:
            await put(store, log.append(ends))
    reports = UsageReports(store, lambda: NOW)
    report = await reports.report(Listing())
    assert (report.runs, report.failed, report.complete) == (3, 1, True)
    found = {(cell.day, cell.principal, cell.model): (cell.totals, cell.runs) for cell in report.cells}
    assert found["1970-01-02", "user:1", "m"] == (ModelTotals(20, 2, 0, 1.0), 2)
    assert found["1970-01-04", "b", "other"] == (ModelTotals(5, 1, 0, 0.5), 1)
    assert (await reports.report(Listing(created_from=2 * DAY))).runs == 1
    assert (await reports.report(Listing("user:1", created_before=2 * DAY))).runs == 2
    assert (await reports.report(Listing("nobody"))).runs == 0


async def test_ended_runs_of_earlier_days_are_read_once(store: CountingStore) -> None:
    for number in range(300):
        await end(store, await begin(store, DAY + number))
    reports = UsageReports(store, lambda: NOW)
    first = await reports.report(Listing())
    store.rows = 0
    again = await reports.report(Listing())
    assert again == first
    assert store.rows < 10


async def test_a_run_that_ends_and_one_that_begins_are_in_the_next_report(store: CountingStore) -> None:
    waiting = await begin(store, DAY)
    reports = UsageReports(store, lambda: NOW)
    assert (await reports.report(Listing())).runs == 1
    await put(store, waiting.append(spent(100)))
    await end(store, waiting)
    await begin(store, NOW - 1)
    for _ in range(2):
        report = await reports.report(Listing())
        assert report.runs == 2
        assert sum(cell.totals.input_tokens for cell in report.cells if cell.model == "m") == 120


async def test_a_long_period_is_added_up_in_the_background(store: CountingStore) -> None:
    for number in range(900):
        await end(store, await begin(store, DAY + number))
    reports = UsageReports(store, lambda: NOW, most=400)
    first = await reports.report(Listing())
    assert not first.complete
    assert first.runs == 400
    await until(lambda: complete(reports))
    assert (await reports.report(Listing())).runs == 900
    await reports.close()


async def test_a_whole_report_waits_for_all_runs(store: CountingStore) -> None:
    for number in range(700):
        await begin(store, DAY + number)
    reports = UsageReports(store, lambda: NOW, most=400)
    assert (await reports.complete(Listing())).runs == 700
