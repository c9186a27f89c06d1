"""Usage of all runs of a period, by day, principal, agent and model.

A report adds up the rows of runs. A run that has ended does not change any more, so sums of whole days and hours are
kept in memory; only the latest hour and runs that have not ended are read again. A long period that was not asked for
before is added up in the background, and its reports are incomplete until then.
"""

# Why: docs/decisions/runs.md#add-up-usage-from-the-rows-of-runs

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from parley.cache import ExpiringCache
from parley.clock import iso, now_ms
from parley.errors import ParleyError
from parley.ids import RunId
from parley.runs.listing import PAGE, newest
from parley.runs.rules.state import Run, State
from parley.runs.rules.usage import ModelTotals, plus
from parley.runs.store import Listing, Store

MOST_READ = 5_000
"""Rows that one report reads; more are read in the background."""
MOST_UNFINISHED = 200
"""Unfinished runs of a span whose sum is kept: these are read again for each report."""
KEPT_S = 3600.0
"""Time after which a sum is made anew: runs of it may have been erased."""
GIVE_WAY_S = 0.002
"""Pause after each page that is read in the background."""
SETTLES_MS = 5 * 60 * 1000
"""Time after the end of a span in which replicas whose clocks differ may still begin runs in it."""
_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS


class CellKey(NamedTuple):
    day: str
    principal: str
    agent: str
    model: str


class UsageCell(Struct, frozen=True):
    """Usage of one model by one agent for one principal on one day (UTC)."""

    day: str
    principal: str
    agent: str
    model: str
    totals: ModelTotals
    runs: int


class UsageReport(Struct, frozen=True):
    cells: list[UsageCell]
    runs: int
    failed: int
    complete: bool
    """False while older runs of the period are still being added up."""


class UsageSums(Struct):
    """Sums of some runs."""

    cells: dict[CellKey, tuple[ModelTotals, int]] = field(default_factory=dict[CellKey, tuple[ModelTotals, int]])
    runs: int = 0
    failed: int = 0

    def add(self, run: Run, day: str) -> None:
        self.runs += 1
        self.failed += run.state in (State.FAILED, State.REJECTED)
        for model, used in run.usage.items():
            self._count(CellKey(day, run.principal, run.agent, model), used, 1)

    def add_sums(self, more: "UsageSums") -> None:
        self.runs += more.runs
        self.failed += more.failed
        for key, (used, runs) in more.cells.items():
            self._count(key, used, runs)

    def report(self, *, complete: bool) -> UsageReport:
        cells = [UsageCell(*key, used, runs) for key, (used, runs) in self.cells.items()]
        return UsageReport(cells, self.runs, self.failed, complete)

    def _count(self, key: CellKey, used: ModelTotals, runs: int) -> None:
        before = self.cells.get(key)
        self.cells[key] = (plus(before[0], used), before[1] + runs) if before else (used, runs)


class UsageSpan(Struct):
    """The ended runs of an hour or a day added up, and the runs that have not ended."""

    day: str
    sums: UsageSums
    unfinished: list[RunId] = []
    earlier: int | None = None
    """Creation (ms) of the newest run before the span; None if there is none."""
    whole: bool = True


class UsageReports:
    def __init__(self, store: Store, now: Callable[[], int] = now_ms, most: int = MOST_READ) -> None:
        self._store = store
        self._most = most
        self._now = now
        self._spans: ExpiringCache[tuple[str | None, str | None, int, int], UsageSpan] = ExpiringCache(KEPT_S)
        self._filling: dict[Listing, asyncio.Task[None]] = {}

    async def report(self, listing: Listing) -> UsageReport:
        """Add up the runs of a principal, an agent and a period, the newest first. If that takes many reads, the rest
        is read in the background."""
        found = await self._added_up(listing, self._most)
        if not found.complete and listing not in self._filling:
            task = asyncio.get_running_loop().create_task(self._fill(listing))
            self._filling[listing] = task
            task.add_done_callback(lambda _: self._filling.pop(listing, None))
        return found

    async def complete(self, listing: Listing) -> UsageReport:
        """Add up all runs, however long that takes."""
        return await self._added_up(listing, None)

    async def close(self) -> None:
        tasks = list(self._filling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fill(self, listing: Listing) -> None:
        with suppress(ParleyError):  # the next report begins again
            await self._added_up(listing, None)

    async def _added_up(self, listing: Listing, most: int | None) -> UsageReport:
        sums, left, since = UsageSums(), most, listing.created_from or 0
        at = await self._newest_before(listing, listing.created_before)
        while at is not None and at >= since:
            begin, end = self._span_at(at, since, listing.created_before)
            key = (listing.principal, listing.agent, begin, end)
            span = self._spans.get(key)
            if span is None:
                span, unfinished = await self._read(listing, begin, end, left)
                left = None if left is None else left - span.sums.runs - len(unfinished)
                if span.whole and end <= self._now() - SETTLES_MS and len(unfinished) <= MOST_UNFINISHED:
                    self._spans.put(key, span)
            else:
                unfinished = await self._current(span)
            sums.add_sums(span.sums)
            for run in unfinished:
                sums.add(run, span.day)
            if not span.whole:
                return sums.report(complete=False)
            at = span.earlier
        return sums.report(complete=True)

    def _span_at(self, at: int, since: int, before: int | None) -> tuple[int, int]:
        """Return the hour of a time today, or the day of an earlier one, within the period."""
        now = self._now()
        length = _HOUR_MS if at >= now - now % _DAY_MS else _DAY_MS
        begin = at - at % length
        return max(begin, since), begin + length if before is None else min(begin + length, before)

    async def _newest_before(self, listing: Listing, before: int | None) -> int | None:
        after = None if before is None else (before, "")
        found = await newest(self._store, Listing(listing.principal, listing.agent, after=after, limit=1))
        return found.runs[0].created_at if found.runs else None

    async def _read(self, listing: Listing, begin: int, end: int, most: int | None) -> tuple[UsageSpan, list[Run]]:
        """Read the runs of a span, at most that many; return it with its runs that have not ended."""
        day, sums, unfinished, left = iso(begin)[:10], UsageSums(), list[Run](), most
        asked = Listing(listing.principal, listing.agent, after=(end, ""), limit=PAGE)
        while left is None or left > 0:
            page = await newest(self._store, asked)
            runs = [run for run in page.runs if run.created_at >= begin]
            for run in runs:
                if run.ended:
                    sums.add(run, day)
                else:
                    unfinished.append(run)
            left = None if left is None else left - len(runs)
            if len(runs) < len(page.runs) or page.after is None:
                earlier = page.runs[len(runs)].created_at if len(runs) < len(page.runs) else None
                return UsageSpan(day, sums, [run.id for run in unfinished], earlier), unfinished
            asked = replace(asked, after=page.after)
            if left is None:
                await asyncio.sleep(GIVE_WAY_S)
        return UsageSpan(day, sums, whole=False), unfinished

    async def _current(self, span: UsageSpan) -> list[Run]:
        """Read the unfinished runs of a kept span again, and add those that have ended to its sums."""
        heads = [await self._store.head(run) for run in list(span.unfinished)]
        found = [head.run for head in heads if head is not None and head.run.id in span.unfinished]
        for run in found:
            if run.ended:
                span.unfinished.remove(run.id)
                if not run.gone:
                    span.sums.add(run, span.day)
        return [run for run in found if not run.ended]
