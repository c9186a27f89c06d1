"""Usage of all runs: sums by day, principal, agent and model."""

from parley.runs.listing import usage_report
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Completed, Failed, Progress, Started
from parley.runs.rules.usage import ModelTotals, Usage
from parley.runs.store import Listing
from parley.stores.memory import MemoryStore
from parley.testing.logs import LogWriter, put

DAY = 24 * 3600 * 1000


def spent(tokens: int, model: str = "m") -> Progress:
    return Progress((), usage=Usage(model, tokens, 1, cost=0.5))


async def test_usage_is_added_up_by_day_principal_agent_and_model() -> None:
    store = MemoryStore()
    for at, principal, end in ((DAY, "user:1", Completed()), (DAY, "user:1", Failed("x", "y")), (3 * DAY, "b", None)):
        log = LogWriter(principal=principal, at=at)
        await put(store, log.start())
        await put(store, log.append(Started(1, "r"), spent(10), spent(5, "other"), Progress((text_part("x"),))))
        if end is not None:
            await put(store, log.append(end))
    report = await usage_report(store, Listing())
    assert (report.runs, report.failed, report.after) == (3, 1, None)
    found = {(cell.day, cell.principal, cell.model): (cell.totals, cell.runs) for cell in report.cells}
    assert found["1970-01-02", "user:1", "m"] == (ModelTotals(20, 2, 0, 1.0), 2)
    assert found["1970-01-04", "b", "other"] == (ModelTotals(5, 1, 0, 0.5), 1)
    assert (await usage_report(store, Listing(created_from=2 * DAY))).runs == 1
    assert (await usage_report(store, Listing("user:1", created_before=2 * DAY))).runs == 2
