"""Page that compares two runs: inputs, outputs, events, durations and usage side by side."""

import asyncio
from collections import Counter

from msgspec import Struct

from parley.console.gantt import MOST_EVENTS, TYPES, Bar, drawn
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, run_path
from parley.console.text_diff import DiffLine, difference
from parley.errors import RunNotFound
from parley.runs.listing import newest
from parley.runs.rules.content import text_of
from parley.runs.rules.state import Run
from parley.runs.rules.usage import ModelTotals, total
from parley.runs.store import Listing

MAX_TEXT = 64 * 1024
"""Characters of the input and of the output that are compared."""
MOST_CANDIDATES = 10
MOST_BARS = 100


class Side(Struct, frozen=True):
    """One of the two runs."""

    run: Run
    asked: str
    answered: str
    usage: ModelTotals
    bars: list[Bar]
    begin: int
    activity: str
    """Turns, steps, tool calls, child runs and waits, one on a line."""
    counts: Counter[str]
    """Number of events of each type, of those that the bars are made of."""

    @property
    def took_ms(self) -> int:
        return self.run.updated_at - self.run.created_at


class ComparisonPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/runs/{id:path}/compare", self.compare)]

    async def compare(self, visit: PageRequest) -> PageReply:
        run = await self._desk.exchange.visible(visit.path["id"], visit.principal)
        wanted = visit.query.get("other", "").strip()
        other = await self._desk.exchange.visible(wanted, visit.principal) if wanted else None
        sides = [await self._side(run), await self._side(other)] if other is not None else []
        return visit.page(
            "compare.html",
            title="Compare runs",
            crumbs=[("Runs", "/runs"), (f"Run {run.id[-8:]}", run_path(run.id))],
            run=run,
            other=other,
            sides=sides,
            types=sorted({name for side in sides for name in side.counts}),
            inputs=await _different(sides[0].asked, sides[1].asked) if sides else [],
            outputs=await _different(sides[0].answered, sides[1].answered) if sides else [],
            activity=await _different(sides[0].activity, sides[1].activity) if sides else [],
            candidates=await self._candidates(visit, run),
        )

    async def _candidates(self, visit: PageRequest, run: Run) -> list[Run]:
        """Runs that are likely to be compared: the original of a fork, and the latest of the same agent."""
        listing = Listing(self._desk.owner(visit.principal), run.agent, limit=MOST_CANDIDATES)
        found = {one.id: one for one in (await newest(self._desk.exchange.store, listing)).runs if one.id != run.id}
        if run.origin is not None:
            try:
                original = await self._desk.exchange.visible(run.origin.run, visit.principal)
            except RunNotFound:
                return list(found.values())
            return [original, *(one for one in found.values() if one.id != original.id)]
        return list(found.values())

    async def _side(self, run: Run) -> Side:
        view = await self._desk.exchange.view(run.id, told=True)
        events = await self._desk.exchange.store.read_types(run.id, TYPES, 0, MOST_EVENTS)
        asked = "\n\n".join(text_of(one.parts) for one in view.history if one.role == "user")
        said = [text_of(one.parts) for one in view.artifacts]
        said += [text_of(view.status.said.parts)] if view.status.said and run.ended else []
        gantt = drawn(events, run, {}, run.updated_at)
        return Side(
            run,
            asked[:MAX_TEXT],
            "\n\n".join(said)[:MAX_TEXT],
            total(run.usage),
            gantt.bars[:MOST_BARS],
            gantt.begin,
            "\n".join(_told(bar) for bar in gantt.bars[:MOST_BARS]),
            Counter(event.type for event in events),
        )


def _told(bar: Bar) -> str:
    name = bar.name if bar.kind in ("turn", "queued", "wait", "sleep") else f"{bar.kind} {bar.name}"
    return f"{name} (failed)" if bar.state == "bad" else name


async def _different(one: str, two: str) -> list[DiffLine]:
    return await asyncio.to_thread(difference, one, two)
