"""Pages for runs: the filtered list, and one run with its live timeline."""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from parley.clock import now_ms
from parley.console.gantt import MOST_EVENTS, TYPES, Gantt, drawn
from parley.console.live import LiveRow, LiveRows, live_list
from parley.console.pages.inbox import count_waiting
from parley.console.request import ConsoleContext, Handler, Page, PageRequest
from parley.console.responses import PageReply, PageStream, redirect, run_path
from parley.console.timeline import Decision, TimelineEntry, frames, is_image, read_earlier, read_timeline
from parley.errors import Invalid, NotFound, ParleyError, RunNotFound
from parley.faces.a2a.downloads import content_of_part, saved
from parley.http.requests import header, page_cursor, place_token
from parley.ids import is_id, new_id
from parley.runs.listing import RunListing, newest, place_in_queue, waiting
from parley.runs.requests import Branch, Send
from parley.runs.rules.answers import AnswerForm, answer_form, answer_parts
from parley.runs.rules.content import Message, Part, text_of, text_part
from parley.runs.rules.events import InputReceived, content_of
from parley.runs.rules.state import Run, State
from parley.runs.store import Listing

PAGE = 30
WAITS = "waiting"
"""Filter value for runs that wait for input, in any state."""
MAX_FILTER = 200
MOST_AT_ONCE = 1000
"""Runs that one action on all matching runs changes."""
AT_ONCE = 50
"""Runs of these that are changed side by side."""
_ID_START = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{0,27}")
"""A text that is taken for the beginning of a run's id."""


class RunFilters(Struct, frozen=True):
    """Filters of the list, as in its address."""

    q: str = ""
    state: str = ""
    agent: str = ""
    principal: str = ""
    conversation: str = ""
    since: str = ""
    until: str = ""
    id: str = ""

    @property
    def query(self) -> dict[str, str]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}

    @property
    def more(self) -> bool:
        """True if a filter is set that is folded away by default."""
        return bool(self.principal or self.conversation or self.since or self.until)


class RunsPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/runs", self.list),
            Page("GET", "/runs/live", self.live),
            Page("POST", "/runs/cancel", self._bulk(self._cancel), "send"),
            Page("POST", "/runs/retry", self._bulk(self._retry), "send"),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        chosen = _filters(visit.query)
        if (found := await self._named(visit, chosen)) is not None:
            return redirect(run_path(found.id))
        shelf = await self._read(visit, chosen)
        return visit.page(
            "runs.html",
            title="Runs",
            runs=shelf.runs,
            next=place_token(shelf.after),
            first=not visit.query.get("after"),
            agents=self._desk.agents(visit.principal),
            states=[one.value for one in State],
            chosen=chosen,
            all=visit.principal.may("admin"),
            most=MOST_AT_ONCE,
            done=_outcome(visit),
        )

    async def live(self, visit: PageRequest) -> PageStream:
        """Stream the first page of the list as it changes."""
        chosen, every = _filters(visit.query), visit.principal.may("admin")

        async def read() -> LiveRows:
            runs = (await self._read(visit, chosen)).runs
            return LiveRows(
                [
                    LiveRow(f"run-{run.id}", run.version, partial(visit.piece, "_run_row.html", run=run, all=every))
                    for run in runs
                ],
                {"waiting": await count_waiting(self._desk, visit.principal)},
            )

        await read()
        return live_list(self._desk.exchange, read)

    async def _read(self, visit: PageRequest, chosen: RunFilters) -> RunListing:
        return await self._listed(visit, chosen, page_cursor(visit.query.get("after", "")))

    async def _listed(self, visit: PageRequest, chosen: RunFilters, after: tuple[int, str] | None) -> RunListing:
        owner = self._desk.owner(visit.principal)
        listing = Listing(
            owner if owner is not None else chosen.principal or None,
            chosen.agent or None,
            chosen.conversation or None,
            state=_state(chosen.state),
            after=after,
            limit=PAGE,
            prefix=chosen.id,
            text=chosen.q,
            created_from=day_start(chosen.since, "since"),
            created_before=day_start(chosen.until, "until", 1),
        )
        look = waiting if chosen.state == WAITS else newest
        return await look(self._desk.exchange.store, listing)

    async def _named(self, visit: PageRequest, chosen: RunFilters) -> Run | None:
        """The run with exactly this id: a visitor who pastes a whole id goes straight to the run."""
        for text in (chosen.id, chosen.q):
            try:
                return await self._desk.exchange.visible(text, visit.principal) if text else None
            except RunNotFound:
                continue
        return None

    def _bulk(self, act: Callable[[PageRequest, str], Awaitable[object]]) -> Handler:
        """Apply an action to every selected run, and count those that refuse it."""

        async def handle(visit: PageRequest) -> PageReply:
            form = await visit.form()
            filters = _filters(dict(parse_qsl(form.get("query", "")[:4000])))
            if "all" in form:
                chosen = await self._matching(visit, filters)
            else:
                chosen = [name.removeprefix("run.") for name in form if name.startswith("run.")]
            if not chosen:
                raise Invalid("Select at least one run.", field="run")
            refused = 0
            for first in range(0, len(chosen), AT_ONCE):
                some = chosen[first : first + AT_ONCE]
                refused += sum(await asyncio.gather(*(_refused(act(visit, run_id)) for run_id in some)))
            told = {"done": len(chosen) - refused, "refused": refused}
            return redirect(f"/runs?{urlencode({**filters.query, **told})}")

        return handle

    async def _matching(self, visit: PageRequest, chosen: RunFilters) -> Sequence[str]:
        """The newest runs that match the filters, on all pages."""
        found: list[str] = []
        after: tuple[int, str] | None = None
        while len(found) < MOST_AT_ONCE:
            page = await self._listed(visit, chosen, after)
            found += [run.id for run in page.runs]
            if (after := page.after) is None:
                break
        return found[:MOST_AT_ONCE]

    async def _cancel(self, visit: PageRequest, run_id: str) -> None:
        run = await self._desk.exchange.visible(run_id, visit.principal)
        await self._desk.exchange.cancel(run.id, visit.principal)

    async def _retry(self, visit: PageRequest, run_id: str) -> None:
        await self._desk.exchange.retry(run_id, visit.principal)


async def _refused(act: Awaitable[object]) -> bool:
    try:
        await act
    except ParleyError:
        return True
    return False


def _filters(query: Mapping[str, str]) -> RunFilters:
    given = (
        query.get("q", ""),
        query.get("state", ""),
        query.get("agent", ""),
        query.get("principal", ""),
        query.get("conversation", ""),
        query.get("since", ""),
        query.get("until", ""),
        query.get("id", ""),
    )
    chosen = RunFilters(*(text.strip()[:MAX_FILTER] for text in given))
    if not chosen.id and _ID_START.fullmatch(chosen.q):
        chosen = replace(chosen, id=chosen.q, q="")
    if chosen.id and not is_id(chosen.id):
        raise Invalid("A run ID may contain only letters, digits and ._:@/+=~-", field="id")
    return chosen


def _outcome(visit: PageRequest) -> str:
    """The result of an action on several runs, which its redirect counts in the address."""
    done, refused = visit.query.get("done", ""), visit.query.get("refused", "")
    if not (done.isdecimal() and refused.isdecimal()):
        return ""
    told = f"Done for {int(done[:4])} run{'' if int(done[:4]) == 1 else 's'}."
    return told if refused == "0" else f"{told} {int(refused[:4])} could not be changed in their present state."


def day_start(text: str, field: str, later: int = 0) -> int | None:
    """The beginning of a day in UTC (ms), or of the day that many days later."""
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return max(0, int((day + timedelta(days=later)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise Invalid(f"{field} must be a date such as 2026-01-31.", field=field) from None


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
MOST_CHILDREN = 50
MAX_COMMAND = 16_000
"""Characters of a message that a command for the terminal repeats whole."""


class RunSeen(Struct):
    """Data for the page of a run."""

    run: Run
    entries: list[TimelineEntry]
    earlier: int
    """Cursor of the earlier entries; 0 if there are none."""
    place: int | None
    """Position in the queue; None if the run is not queued."""
    form: AnswerForm
    traceback: str = ""
    decisions: tuple[Decision, ...] = ()


class RunPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        at = "/runs/{id:path}"
        return [
            Page("GET", f"{at}/events", self.events),
            Page("GET", f"{at}/raw", self.raw),
            Page("GET", f"{at}/bars", self.bars),
            Page("GET", f"{at}/timeline", self.fragment),
            Page("GET", f"{at}/parts/{{seq:int}}/{{number:int}}", self.part),
            Page("GET", f"{at}/text/{{artifact:path}}", self.text),
            Page("POST", f"{at}/answer", self.answer, "send"),
            Page("POST", f"{at}/cancel", self.cancel, "send"),
            Page("POST", f"{at}/retry", self.retry, "send"),
            Page("POST", f"{at}/fork", self.fork, "send"),
            Page("GET", at, self.show),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        run = await self._run(visit)
        before = event_number(visit.query.get("before", "0"), "before")
        seen = await self._seen(visit, run, before)
        children = await self._children(visit, run)
        return visit.page(
            "run.html",
            title=f"Run {run.id[-8:]}",
            crumbs=[("Runs", "/runs")],
            seen=seen,
            run=seen.run,
            children=children,
            gantt=await self._gantt(run, children),
            past=bool(before),
            base_url=self._desk.base_url,
            fork_at=event_number(visit.query.get("fork", "") or "0", "fork"),
            curl=await self._curl(seen.run),
        )

    async def fragment(self, visit: PageRequest) -> PageReply:
        """The timeline alone, for embedding in another page."""
        seen = await self._seen(visit, await self._run(visit), 0)
        return visit.fragment("_timeline.html", seen=seen, run=seen.run, past=False)

    async def bars(self, visit: PageRequest) -> PageReply:
        """The bars alone, for a script that shows them again while the run works."""
        run = await self._run(visit)
        gantt = await self._gantt(run, await self._children(visit, run))
        return visit.fragment("_gantt.html", gantt=gantt)

    async def _gantt(self, run: Run, children: tuple[Run, ...]) -> Gantt:
        events = await self._desk.exchange.store.read_types(run.id, TYPES, 0, MOST_EVENTS)
        return drawn(events, run, {child.id: child for child in children}, now_ms())

    async def _children(self, visit: PageRequest, run: Run) -> tuple[Run, ...]:
        heads = [await self._desk.exchange.store.head(child) for child in run.children[:MOST_CHILDREN]]
        found = [head.run for head in heads if head is not None]
        return tuple(child for child in found if self._desk.exchange.permits(child, visit.principal))

    async def _curl(self, run: Run) -> str:
        """A command that sends the first message of a run again, without its files."""
        events = await self._desk.exchange.store.read_types(run.id, ("input",), 0, 1)
        sent = events[0].payload if events else None
        given = sent.message.parts if isinstance(sent, InputReceived) else ()
        parts = [{"data": part.data} if part.text is None else {"text": part.text} for part in given if _is_plain(part)]
        message = {"messageId": new_id(), "role": "ROLE_USER", "parts": parts or [{"text": run.title}]}
        body = msgspec.json.encode({"message": message}).decode()
        if len(body) > MAX_COMMAND:
            body = msgspec.json.encode({"message": {**message, "parts": [{"text": run.title}]}}).decode()
        key = '-H "X-API-Key: $PARLEY_API_KEY" ' if self._desk.beside.settings.auth == "required" else ""
        address = shlex.quote(f"{self._desk.base_url}/agents/{run.agent}/message:send")
        return f"curl {address} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' {key}-d {shlex.quote(body)}"

    async def events(self, visit: PageRequest) -> PageStream:
        """Stream the log from a cursor as changes of the timeline: first stored events, then live ones."""
        run = await self._run(visit)
        cursor = header(visit.scope, b"last-event-id") or visit.query.get("after", "0")
        after = event_number(cursor, "after")
        follower = await self._desk.exchange.follow(run.id, after)
        timeline = await read_timeline(self._desk.exchange, run.id, after)
        return PageStream(frames(visit, timeline, follower, self._desk.exchange.attachments), follower)

    async def raw(self, visit: PageRequest) -> PageReply:
        run = await self._run(visit)
        chosen = event_number(visit.query.get("event", "0"), "event")
        after = event_number(visit.query.get("after", "0"), "after") or max(chosen - 1, 0)
        if chosen and visit.wants_fragment:
            return await self._event(visit, run, chosen)
        events = await self._desk.exchange.store.read(run.id, after, RAW + 1)
        last = events[RAW - 1].seq if len(events) > RAW else 0
        return visit.page(
            "raw.html",
            title="Raw events",
            run=run,
            events=events[:RAW],
            chosen=chosen,
            next=last,
            first=not after,
            crumbs=[("Runs", "/runs"), (f"Run {run.id[-8:]}", run_path(run.id))],
        )

    async def _event(self, visit: PageRequest, run: Run, seq: int) -> PageReply:
        """One event, for a script that shows it in the timeline."""
        events = await self._desk.exchange.store.read(run.id, seq - 1, 1)
        if not events or events[0].seq != seq:
            raise NotFound("This event is not stored any more.")
        return visit.fragment("_event.html", run=run, event=events[0], open=True)

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

    async def retry(self, visit: PageRequest) -> PageReply:
        run, _ = await self._run(visit), await visit.form()
        outcome = await self._desk.exchange.retry(run.id, visit.principal)
        return redirect(run_path(outcome.run.id))

    async def fork(self, visit: PageRequest) -> PageReply:
        """Fork a run. Without a message, the fork repeats the last input."""
        run, form = await self._run(visit), await visit.form()
        text, at = form.get("text", "").strip(), form.get("at", "").strip()
        message = Message(new_id(), (text_part(text),)) if text else None
        branch = Branch(run.id, visit.principal, at=event_number(at, "at") if at else None, message=message)
        outcome = await self._desk.exchange.fork(branch)
        return redirect(run_path(outcome.run.id))

    async def _done(self, visit: PageRequest, run_id: str, form: dict[str, str]) -> PageReply:
        if visit.wants_fragment and form.get("back") == "inbox":
            run = await self._desk.exchange.visible(run_id, visit.principal)
            return visit.fragment("_outcome.html", run=run, text="")
        if visit.wants_fragment:
            return PageReply(status=204)
        return redirect("/inbox" if form.get("back") == "inbox" else run_path(run_id))

    async def _run(self, visit: PageRequest) -> Run:
        return await self._desk.exchange.visible(visit.path["id"], visit.principal)

    async def _seen(self, visit: PageRequest, run: Run, before: int) -> RunSeen:
        exchange = self._desk.exchange
        timeline = await (read_earlier(exchange, run, before) if before else read_timeline(exchange, run.id))
        shown = [entry for entry in timeline.entries.values() if not before or entry.seq < before]
        earlier = shown[-ENTRIES].seq if len(shown) > ENTRIES else timeline.start + 1 if timeline.partial else 0
        current = run if before else timeline.run or run
        place, form = await place_in_queue(exchange, run), answer_form(timeline.expects)
        traceback = await self._desk.beside.tracebacks.read(current, visit.principal)
        return RunSeen(current, shown[-ENTRIES:], earlier, place, form, traceback, timeline.decisions)


def _is_plain(part: Part) -> bool:
    return part.data is not UNSET or (part.text is not None and part.filename is None)


def event_number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid(f'"{field}" must be an event number.', field=field)
    return int(text)


def _saved(part: Part) -> PageReply:
    content, media = content_of_part(part)
    return PageReply(content, 200, media, [*saved(part)])
