"""Page for usage: tokens and cost by day, principal, agent and model, as plots, tables and CSV."""

import csv
import io
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import iso, now_ms
from parley.console.pages.runs import day_start
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply
from parley.runs.rules.usage import ModelTotals, total
from parley.runs.store import Listing
from parley.runs.usage_reports import UsageCell

DAYS = 30
SHOWN = 15
_DAY_MS = 24 * 3600 * 1000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins with one of these would be run as a formula by a spreadsheet."""


class UsageRow(Struct, frozen=True):
    """Usage by one key. The shares are relative to the largest row, in percent."""

    name: str
    totals: ModelTotals
    runs: int
    share: float = 0
    cost_share: float = 0

    @property
    def tokens(self) -> int:
        return self.totals.input_tokens + self.totals.output_tokens


class UsagePages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/usage", self.show), Page("GET", "/usage.csv", self.csv)]

    async def show(self, visit: PageRequest) -> PageReply:
        chosen = _chosen(visit)
        report = await self._desk.usage.report(self._listing(visit, chosen))
        cells = report.cells
        return visit.page(
            "usage.html",
            title="Usage",
            chosen=chosen,
            report=report,
            all=visit.principal.may("admin"),
            agents=self._desk.agents(visit.principal),
            total=_row("", cells),
            days=_by_day(cells, chosen["since"], chosen["until"]),
            tables=[
                ("Principal", _grouped(cells, lambda cell: cell.principal)),
                ("Agent", _grouped(cells, lambda cell: self._desk.name_of(cell.agent))),
                ("Model", _grouped(cells, lambda cell: cell.model)),
            ],
        )

    async def csv(self, visit: PageRequest) -> PageReply:
        report = await self._desk.usage.complete(self._listing(visit, _chosen(visit)))
        out = io.StringIO()
        table = csv.writer(out)
        table.writerow(
            ["day", "principal", "agent", "model", "runs", "input_tokens", "output_tokens", "cached_tokens", "cost_usd"]
        )
        for cell in sorted(report.cells, key=lambda cell: (cell.day, cell.principal, cell.agent, cell.model)):
            used = cell.totals
            names = [_safe(text) for text in (cell.day, cell.principal, cell.agent, cell.model)]
            figures = [cell.runs, used.input_tokens, used.output_tokens, used.cached_tokens]
            table.writerow([*names, *figures, "" if used.cost is None else round(used.cost, 9)])
        headers = [(b"content-disposition", b'attachment; filename="usage.csv"')]
        return PageReply(out.getvalue().encode(errors="replace"), 200, b"text/csv; charset=utf-8", headers)

    def _listing(self, visit: PageRequest, chosen: dict[str, str]) -> Listing:
        owner = self._desk.owner(visit.principal)
        return Listing(
            owner if owner is not None else chosen["principal"] or None,
            chosen["agent"] or None,
            created_from=day_start(chosen["since"], "since"),
            created_before=day_start(chosen["until"], "until", 1),
        )


def _chosen(visit: PageRequest) -> dict[str, str]:
    query, now = visit.query, now_ms()
    return {
        "since": query.get("since", "") or iso(now - (DAYS - 1) * _DAY_MS)[:10],
        "until": query.get("until", "") or iso(now)[:10],
        "principal": query.get("principal", "").strip(),
        "agent": query.get("agent", "").strip(),
    }


def _row(name: str, cells: Iterable[UsageCell]) -> UsageRow:
    found = list(cells)
    used = total({str(number): cell.totals for number, cell in enumerate(found)})
    return UsageRow(name, used, sum(cell.runs for cell in found))


def _rows(cells: list[UsageCell], key: Callable[[UsageCell], str]) -> list[UsageRow]:
    groups: dict[str, list[UsageCell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    rows = [_row(name, found) for name, found in groups.items()]
    tokens = max((row.tokens for row in rows), default=0) or 1
    costs = max((row.totals.cost or 0 for row in rows), default=0) or 1
    return [
        replace(row, share=_percent(row.tokens / tokens), cost_share=_percent((row.totals.cost or 0) / costs))
        for row in rows
    ]


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _grouped(cells: list[UsageCell], key: Callable[[UsageCell], str]) -> list[UsageRow]:
    return sorted(_rows(cells, key), key=lambda row: (-row.tokens, row.name))[:SHOWN]


def _by_day(cells: list[UsageCell], since: str, until: str) -> list[UsageRow]:
    """A row for every day of the period, at most the last 92."""
    known = {row.name: row for row in _rows(cells, lambda cell: cell.day)}
    end, begin = _date(until), max(_date(since), _date(until) - timedelta(days=91))
    names = [(begin + timedelta(days=number)).strftime("%Y-%m-%d") for number in range((end - begin).days + 1)]
    return [known.get(name) or UsageRow(name, ModelTotals(), 0) for name in names]


def _date(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
