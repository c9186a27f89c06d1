"""Figures of an agent from its latest stored runs, whichever replica they ran at: success, durations, usage."""

from collections.abc import Sequence
from statistics import quantiles

from msgspec import Struct
from msgspec.structs import replace

from parley.runs.listing import PAGE, newest
from parley.runs.rules.state import Run, State
from parley.runs.rules.usage import total
from parley.runs.store import Listing, Store

COLUMNS = 24
"""Columns of a plot: the time of the runs read is divided into that many."""
_FAILED = (State.FAILED, State.REJECTED)


class FigureColumn(Struct, frozen=True):
    """The runs that began in one part of the time; heights are percent of the highest column."""

    begin: int
    completed: int = 0
    failed: int = 0
    other: int = 0
    median: float | None = None
    p95: float | None = None
    tokens: int = 0

    @property
    def runs(self) -> int:
        return self.completed + self.failed + self.other


class AgentFigures(Struct, frozen=True):
    runs: int = 0
    completed: int = 0
    failed: int = 0
    median: float | None = None
    """Time worked by runs that have ended, in ms: waits for people and in the queue do not count."""
    p95: float | None = None
    tokens: int = 0
    cost: float | None = None
    since: int = 0
    """Creation of the oldest run that was read."""
    until: int = 0
    more: bool = False
    """True if there are older runs, which were not read."""
    columns: tuple[FigureColumn, ...] = ()
    codes: tuple[tuple[str, int], ...] = ()
    """The most frequent error codes, with their number."""

    @property
    def success(self) -> float | None:
        """Percent of the runs that completed or failed; canceled runs do not count."""
        ended = self.completed + self.failed
        return 100 * self.completed / ended if ended else None


async def latest_figures(store: Store, listing: Listing, most: int) -> AgentFigures:
    """Read the newest runs of a listing, at most `most`."""
    runs: list[Run] = []
    asked = replace(listing, limit=min(PAGE, most))
    while True:
        page = await newest(store, asked)
        runs += page.runs
        if page.after is None or len(runs) >= most:
            return figures_of(runs[:most], more=page.after is not None or len(runs) > most)
        asked = replace(asked, after=page.after, limit=min(PAGE, most - len(runs)))


def figures_of(runs: Sequence[Run], *, more: bool = False) -> AgentFigures:
    """Add up some runs, the newest first."""
    if not runs:
        return AgentFigures()
    begin, end = runs[-1].created_at, runs[0].created_at + 1
    parts: list[list[Run]] = [[] for _ in range(COLUMNS)]
    for run in runs:
        parts[min(COLUMNS - 1, max(0, (run.created_at - begin) * COLUMNS // (end - begin)))].append(run)
    median, p95 = _durations(runs)
    codes: dict[str, int] = {}
    for run in runs:
        if run.state in _FAILED:
            codes[run.code or run.state.value] = codes.get(run.code or run.state.value, 0) + 1
    used = [total(run.usage) for run in runs if run.usage]
    costs = [one.cost for one in used if one.cost is not None]
    return AgentFigures(
        len(runs),
        _count(runs, State.COMPLETED),
        _count(runs, *_FAILED),
        median,
        p95,
        sum(one.input_tokens + one.output_tokens for one in used),
        sum(costs) if costs else None,
        begin,
        end - 1,
        more,
        tuple(_column(begin + number * (end - begin) // COLUMNS, part) for number, part in enumerate(parts)),
        tuple(sorted(codes.items(), key=lambda one: (-one[1], one[0]))[:5]),
    )


def _column(begin: int, runs: Sequence[Run]) -> FigureColumn:
    completed, failed = _count(runs, State.COMPLETED), _count(runs, *_FAILED)
    used = [total(run.usage) for run in runs if run.usage]
    tokens = sum(one.input_tokens + one.output_tokens for one in used)
    return FigureColumn(begin, completed, failed, len(runs) - completed - failed, *_durations(runs), tokens)


def _count(runs: Sequence[Run], *states: State) -> int:
    return sum(run.state in states for run in runs)


def _durations(runs: Sequence[Run]) -> tuple[float | None, float | None]:
    """Median and 95th percentile of the time worked."""
    times = sorted(run.spent_ms for run in runs if run.ended and run.turns)
    if not times:
        return None, None
    if len(times) == 1:
        return times[0], times[0]
    cuts = quantiles(times, n=20, method="inclusive")
    return cuts[9], cuts[18]
