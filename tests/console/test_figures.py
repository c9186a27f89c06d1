"""Figures of an agent from its runs."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from parley.console.figures import COLUMNS, figures_of, latest_figures
from parley.ids import ConversationId
from parley.runs.rules.events import Canceled, Completed, Failed, Started, Submitted
from parley.runs.rules.state import Run, State
from parley.runs.rules.usage import ModelTotals
from parley.runs.store import Listing
from parley.stores.memory import MemoryStore
from parley.testing.logs import LogWriter, put


def runs(*given: tuple[int, str, int], **more: Any) -> list[Run]:
    """Runs by creation, state and time worked; the newest first."""
    log = LogWriter()
    run = log.append(Submitted("a", ConversationId("c"), "local"), Started(1, "r"), Completed()).run
    made = [
        replace(run, created_at=at, state=State(state), spent_ms=spent, turns=1, **more) for at, state, spent in given
    ]
    return sorted(made, key=lambda one: -one.created_at)


def test_nothing_comes_of_nothing() -> None:
    assert figures_of([]).success is None
    assert figures_of([]).columns == ()


def test_runs_are_counted_by_their_end_and_time() -> None:
    found = figures_of(
        runs((0, "completed", 100), (500, "failed", 300), (999, "completed", 200), (999, "canceled", 50)), more=True
    )
    assert (found.runs, found.completed, found.failed, found.more) == (4, 2, 1, True)
    assert round(found.success or 0) == 67
    assert (found.since, found.until) == (0, 999)
    assert [column.runs for column in found.columns if column.runs] == [1, 1, 2]
    assert len(found.columns) == COLUMNS
    assert found.median == 150
    assert found.columns[-1].tokens == 0


def test_one_run_is_its_own_median_and_usage_is_added() -> None:
    found = figures_of(runs((5, "completed", 70), usage={"m": ModelTotals(10, 5, cost=0.5)}))
    assert (found.median, found.p95, found.tokens, found.cost) == (70, 70, 15, 0.5)


def test_only_the_newest_runs_are_read() -> None:
    with ThreadPoolExecutor() as thread:  # The browser of other tests has a loop in this one.
        thread.submit(asyncio.run, _newest_are_read()).result()


async def _newest_are_read() -> None:
    store = MemoryStore()
    for number in range(12):
        log = LogWriter(at=1000 * number)
        end = Failed("broken", "x") if number < 6 else Completed() if number % 2 else Canceled()
        await put(store, log.append(Submitted("a", ConversationId("c"), "local"), Started(1, "r"), end))
    found = await latest_figures(store, Listing(agent="a"), 8)
    assert (found.runs, found.completed, found.failed, found.more) == (8, 3, 2, True)
    assert found.codes == (("broken", 2),)
    assert not (await latest_figures(store, Listing(agent="a"), 12)).more
