"""Pages for runs: the filtered list, one run with its live timeline, and the inbox."""

from msgspec import Struct

from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, PageStream, redirect, run_path
from parley.console.timeline import TimelineEntry, frames, is_image, read_earlier, read_timeline
from parley.errors import Invalid, NotFound, RunNotFound
from parley.faces.a2a.downloads import content_of_part, saved
from parley.http.requests import header, page_cursor, place_token
from parley.ids import is_id, new_id
from parley.runs.listing import newest, place_in_queue, waiting
from parley.runs.requests import Branch, Send
from parley.runs.rules.access import Principal
from parley.runs.rules.answers import AnswerForm, answer_form, answer_parts
from parley.runs.rules.content import Message, Part, text_of, text_part
from parley.runs.rules.events import content_of
from parley.runs.rules.state import Run, State
from parley.runs.store import Listing

PAGE = 30
WAITS = "waiting"
"""Filter value for runs that wait for input, in any state."""


class RunsPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/runs", self.list)]

    async def list(self, visit: PageRequest) -> PageReply:
        query = visit.query
        state, agent, text = query.get("state", ""), query.get("agent", ""), query.get("id", "").strip()
        if text and (found := await self._named(visit, text)) is not None:
            return redirect(run_path(found.id))
        if text and not is_id(text):
            raise Invalid("A run ID may contain only letters, digits and ._:@/+=~-", field="id")
        listing = Listing(
            self._desk.owner(visit.principal),
            agent or None,
            state=_state(state),
            after=page_cursor(query.get("after", "")),
            limit=PAGE,
            prefix=text,
        )
        look = waiting if state == WAITS else newest
        shelf = await look(self._desk.exchange.store, listing)
        return visit.page(
            "runs.html",
            title="Runs",
            runs=shelf.runs,
            next=place_token(shelf.after),
            first=not query.get("after"),
            agents=self._desk.agents(visit.principal),
            states=[one.value for one in State],
            chosen={"state": state, "agent": agent, "id": text},
        )

    async def _named(self, visit: PageRequest, text: str) -> Run | None:
        """The run with exactly this id: a visitor who pastes a whole id goes straight to the run."""
        try:
            return await self._desk.exchange.visible(text, visit.principal)
        except RunNotFound:
            return None


def _state(name: str) -> State | None:
    if name in ("", WAITS):
        return None
    try:
        return State(name)
    except ValueError:
        raise Invalid(f"The state must be one of {', '.join(State)}, or {WAITS}.", field="state") from None


# One run: its live timeline and its actions.

ENTRIES = 100
RAW = 50


class RunSeen(Struct):
    """Data for the page of a run."""

    run: Run
    entries: list[TimelineEntry]
    earlier: int
    """Cursor of the earlier entries; 0 if there are none."""
    place: int | None
    """Position in the queue; None if the run is not queued."""
    form: AnswerForm


class RunPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        at = "/runs/{id:path}"
        return [
            Page("GET", f"{at}/events", self.events),
            Page("GET", f"{at}/raw", self.raw),
            Page("GET", f"{at}/timeline", self.fragment),
            Page("GET", f"{at}/parts/{{seq:int}}/{{number:int}}", self.part),
            Page("GET", f"{at}/text/{{artifact:path}}", self.text),
            Page("POST", f"{at}/answer", self.answer, "send"),
            Page("POST", f"{at}/cancel", self.cancel, "send"),
            Page("POST", f"{at}/fork", self.fork, "send"),
            Page("GET", at, self.show),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        run = await self._run(visit)
        before = _number(visit.query.get("before", "0"), "before")
        seen = await self._seen(run, before)
        return visit.page(
            "run.html",
            title=f"Run {run.id[-8:]}",
            crumbs=[("Runs", "/runs")],
            seen=seen,
            run=seen.run,
            past=bool(before),
            base_url=self._desk.base_url,
        )

    async def fragment(self, visit: PageRequest) -> PageReply:
        """The timeline alone, for embedding in another page."""
        seen = await self._seen(await self._run(visit), 0)
        return visit.fragment("_timeline.html", seen=seen, run=seen.run, past=False)

    async def events(self, visit: PageRequest) -> PageStream:
        """Stream the log from a cursor as changes of the timeline: first stored events, then live ones."""
        run = await self._run(visit)
        cursor = header(visit.scope, b"last-event-id") or visit.query.get("after", "0")
        after = _number(cursor, "after")
        follower = await self._desk.exchange.follow(run.id, after)
        timeline = await read_timeline(self._desk.exchange, run.id, after)
        return PageStream(frames(visit, timeline, follower, self._desk.exchange.attachments), follower)

    async def raw(self, visit: PageRequest) -> PageReply:
        run = await self._run(visit)
        after = _number(visit.query.get("after", "0"), "after")
        events = await self._desk.exchange.store.read(run.id, after, RAW + 1)
        last = events[RAW - 1].seq if len(events) > RAW else 0
        return visit.page(
            "raw.html",
            title="Raw events",
            run=run,
            events=events[:RAW],
            next=last,
            first=not after,
            crumbs=[("Runs", "/runs"), (f"Run {run.id[-8:]}", run_path(run.id))],
        )

    async def part(self, visit: PageRequest) -> PageReply:
        """A file of an entry. Images may be displayed; all other files are downloads, never shown in the browser."""
        run, number = await self._run(visit), int(visit.path["number"])
        seq = int(visit.path["seq"])
        events = await self._desk.exchange.store.read(run.id, seq - 1, 1) if seq > 0 else []
        parts = content_of(events[0].payload) if events and events[0].seq == seq else ()
        if number >= len(parts):
            raise NotFound("There is no such file.")
        part = (await self._desk.exchange.attachments.loaded((parts[number],)))[0]
        media = (part.media_type or "").partition(";")[0].strip().lower()
        if visit.query.get("look") and part.raw is not None and is_image(media):
            return PageReply(part.raw, 200, media.encode(), [(b"cache-control", b"private, max-age=3600")])
        return _saved(part)

    async def text(self, visit: PageRequest) -> PageReply:
        """The full text of an artifact, as a download."""
        run = await self._run(visit)
        view = await self._desk.exchange.view(run.id, told=True)
        made = next((one for one in view.artifacts if one.id == visit.path["artifact"]), None)
        if made is None:
            raise NotFound("There is no such artifact.")
        return _saved(Part(text=text_of(made.parts), filename=f"{made.name or made.id}.txt"))

    async def answer(self, visit: PageRequest) -> PageReply:
        run, form = await self._run(visit), await visit.form()
        parts = answer_parts(form, await self._desk.exchange.expected_answer(run))
        if not parts:
            raise Invalid("Write an answer first.", field="text")
        message = Message(new_id(), parts)
        sent = Send(run.agent, visit.principal, message, run.id, key=form.get("key") or None)
        await self._desk.exchange.send(sent)
        return await self._done(visit, run.id, form)

    async def cancel(self, visit: PageRequest) -> PageReply:
        run, form = await self._run(visit), await visit.form()
        await self._desk.exchange.cancel(run.id, visit.principal)
        return await self._done(visit, run.id, form)

    async def fork(self, visit: PageRequest) -> PageReply:
        """Fork a run. Without a message, the fork repeats the last input."""
        run, form = await self._run(visit), await visit.form()
        text, at = form.get("text", "").strip(), form.get("at", "").strip()
        message = Message(new_id(), (text_part(text),)) if text else None
        branch = Branch(run.id, visit.principal, at=_number(at, "at") if at else None, message=message)
        outcome = await self._desk.exchange.fork(branch)
        return redirect(run_path(outcome.run.id))

    async def _done(self, visit: PageRequest, run_id: str, form: dict[str, str]) -> PageReply:
        if visit.wants_fragment:
            return PageReply(status=204)
        return redirect("/inbox" if form.get("back") == "inbox" else run_path(run_id))

    async def _run(self, visit: PageRequest) -> Run:
        return await self._desk.exchange.visible(visit.path["id"], visit.principal)

    async def _seen(self, run: Run, before: int) -> RunSeen:
        exchange = self._desk.exchange
        timeline = await (read_earlier(exchange, run, before) if before else read_timeline(exchange, run.id))
        shown = [entry for entry in timeline.entries.values() if not before or entry.seq < before]
        earlier = shown[-ENTRIES].seq if len(shown) > ENTRIES else timeline.start + 1 if timeline.partial else 0
        current = run if before else timeline.run or run
        place, form = await place_in_queue(exchange, run), answer_form(timeline.expects)
        return RunSeen(current, shown[-ENTRIES:], earlier, place, form)


def _number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid(f'"{field}" must be an event number.', field=field)
    return int(text)


def _saved(part: Part) -> PageReply:
    content, media = content_of_part(part)
    return PageReply(content, 200, media, [*saved(part)])


# The inbox: runs that wait for input, each with a form to answer.

INBOX_PAGE = 15
MOST_COUNTED = 99
MAX_QUESTION = 4000


class Question(Struct, frozen=True):
    run: Run
    text: str
    asked: str
    """First message of the run."""
    form: AnswerForm


async def count_waiting(desk: ConsoleContext, principal: Principal) -> int:
    shelf = await waiting(desk.exchange.store, Listing(desk.owner(principal), limit=MOST_COUNTED))
    return len(shelf.runs) + (shelf.after is not None)


class InboxPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/inbox", self.list)]

    async def list(self, visit: PageRequest) -> PageReply:
        after = page_cursor(visit.query.get("after", ""))
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=INBOX_PAGE)
        shelf = await waiting(self._desk.exchange.store, listing)
        return visit.page(
            "inbox.html",
            title="Inbox",
            questions=[await self._question(run) for run in shelf.runs],
            next=place_token(shelf.after),
            first=after is None,
            served=self._desk.exchange.agents,
        )

    async def _question(self, run: Run) -> Question:
        view = await self._desk.exchange.view(run.id, told=True)
        asked = next((text_of(said.parts) for said in view.history if said.role == "user"), "")
        said = view.status.said
        form = answer_form(await self._desk.exchange.expected_answer(run))
        return Question(run, text_of(said.parts)[:MAX_QUESTION] if said else "", asked, form)
