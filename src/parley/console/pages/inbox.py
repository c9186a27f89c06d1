"""The inbox: runs that wait for a person, each with all that is needed to decide, and a form to answer."""

from functools import partial

import msgspec
from msgspec import Struct

from parley.console.live import LiveRow, LiveRows, live_list
from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, PageStream
from parley.console.timeline import Decision, TimelineEntry, pieces_of, read_timeline
from parley.http.requests import page_cursor, place_token
from parley.runs.listing import waiting
from parley.runs.rules.access import Principal
from parley.runs.rules.answers import AnswerForm, answer_form
from parley.runs.rules.content import text_of
from parley.runs.rules.state import Run
from parley.runs.store import Listing

INBOX_PAGE = 15
MOST_COUNTED = 99
MOST_ENTRIES = 6
"""Latest entries of a run shown with its question."""
CHECKPOINT = (
    Decision("Approve", "approve", "primary"),
    Decision("Retry step", "retry"),
    Decision("Abort", "abort", "danger"),
)
_SHOWN = ("agent", "file", "question", "bad")


class Question(Struct, frozen=True):
    run: Run
    entries: list[TimelineEntry]
    """Answers and files since the last input; the question itself is the last."""
    form: AnswerForm
    decisions: tuple[Decision, ...] = ()
    step: str = ""
    """Name of the step whose checkpoint asks, if one does."""


async def count_waiting(desk: ConsoleContext, principal: Principal) -> int:
    shelf = await waiting(desk.exchange.store, Listing(desk.owner(principal), limit=MOST_COUNTED))
    return len(shelf.runs) + (shelf.after is not None)


class InboxPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/inbox", self.show),
            Page("GET", "/inbox/live", self.live),
            Page("GET", "/inbox/count", self.count),
            Page("GET", "/inbox/{id:path}/outcome", self.outcome),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        after = page_cursor(visit.query.get("after", ""))
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=INBOX_PAGE)
        shelf = await waiting(self._desk.exchange.store, listing)
        return visit.page(
            "inbox.html",
            title="Inbox",
            questions=[await self._question(run) for run in shelf.runs],
            next=place_token(shelf.after),
            first=after is None,
        )

    async def live(self, visit: PageRequest) -> PageStream:
        """Stream the first page of the inbox as it changes."""
        listing = Listing(self._desk.owner(visit.principal), limit=INBOX_PAGE)

        async def read() -> LiveRows:
            runs = (await waiting(self._desk.exchange.store, listing)).runs
            rows = [await self._row(visit, run) for run in runs]
            return LiveRows(rows, {"waiting": await count_waiting(self._desk, visit.principal)})

        return live_list(self._desk.exchange, read)

    async def count(self, visit: PageRequest) -> PageReply:
        """The number of open questions, for pages without a stream of their own."""
        found = {"waiting": await count_waiting(self._desk, visit.principal)}
        return PageReply(msgspec.json.encode(found), 200, b"application/json")

    async def outcome(self, visit: PageRequest) -> PageReply:
        """The outcome of a run that was answered."""
        run = await self._desk.exchange.visible(visit.path["id"], visit.principal)
        view = await self._desk.exchange.view(run.id, told=True)
        said = view.status.said
        text = text_of(said.parts) if said else next((text_of(one.parts) for one in view.artifacts[-1:]), "")
        return visit.fragment("_outcome.html", run=view.run, text=text)

    async def _row(self, visit: PageRequest, run: Run) -> LiveRow:
        question = await self._question(run)
        return LiveRow(f"q-{run.id}", run.version, partial(visit.piece, "_question.html", one=question))

    async def _question(self, run: Run) -> Question:
        timeline = await read_timeline(self._desk.exchange, run.id)
        entries = list(timeline.entries.values())
        last = max((place for place, one in enumerate(entries) if one.kind == "you"), default=-1)
        shown = [one for one in entries[last + 1 :] if one.kind in _SHOWN][-MOST_ENTRIES:]
        form = answer_form(timeline.expects)
        if run.orchestration == run.id and (found := await self._checkpoint(run)) is not None:
            step, output = found
            return Question(run, [*output, *shown], form, CHECKPOINT, step)
        return Question(run, shown, form, timeline.decisions)

    async def _checkpoint(self, run: Run) -> tuple[str, list[TimelineEntry]] | None:
        """The step whose checkpoint asks, and its output."""
        state = (await self._desk.exchange.view(run.id, told=True)).orchestration
        if state is None or not state.asked:
            return None
        step = state.step(state.asked[0])
        pieces = [] if step.run is None else pieces_of(step.output, 0)
        output = TimelineEntry("", "agent", 0, step.ended_at, text_of(step.output)[:8000], pieces=pieces)
        return step.step.name or step.step.id, [output] if output.text or pieces else []
