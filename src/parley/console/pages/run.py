"""One run: its timeline, live; and all that can be done with it."""

from msgspec import Struct

from parley.console.desk import Desk
from parley.console.live import frames, read_earlier, read_timeline
from parley.console.pages.page import Page
from parley.console.rendering import run_path
from parley.console.replies import Reply, Stream, redirect
from parley.console.timeline import Entry, is_image
from parley.console.visits import Visit
from parley.core.artifacts import Part, text_of, text_part
from parley.core.conversations import Message
from parley.core.events import content_of
from parley.core.runs import Run
from parley.engine.queues import place_in_queue
from parley.engine.requests import Branch, Send
from parley.errors import Invalid, NotFound
from parley.faces.downloads import content_of_part, saved
from parley.faces.http import header
from parley.ids import new_id

ENTRIES = 100
RAW = 50


class Seen(Struct):
    """What the page of a run shows."""

    run: Run
    entries: list[Entry]
    earlier: int
    """The entry before which there are more; 0 where there are none."""
    place: int | None
    """The how-manieth to begin, if it waits for its turn."""


class RunPages:
    def __init__(self, desk: Desk) -> None:
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

    async def show(self, visit: Visit) -> Reply:
        run = await self._run(visit)
        before = _number(visit.query.get("before", "0"), "before")
        seen = await self._seen(run, before)
        return visit.page(
            "run.html", title=f"Run {run.id[-8:]}", crumbs=[("Runs", "/runs")], seen=seen, run=seen.run,
            past=bool(before), base_url=self._desk.base_url,
        )  # fmt: skip

    async def fragment(self, visit: Visit) -> Reply:
        """The timeline alone, for a page that shows another thing around it."""
        seen = await self._seen(await self._run(visit), 0)
        return visit.fragment("_timeline.html", seen=seen, run=seen.run, past=False)

    async def events(self, visit: Visit) -> Stream:
        """The log from a cursor on, as changes of the timeline: what is stored first, then what comes."""
        run = await self._run(visit)
        cursor = header(visit.scope, b"last-event-id") or visit.query.get("after", "0")
        after = _number(cursor, "after")
        follower = await self._desk.exchange.follow(run.id, after)
        timeline = await read_timeline(self._desk.exchange, run.id, after)
        return Stream(frames(visit, timeline, follower, self._desk.exchange.attachments), follower)

    async def raw(self, visit: Visit) -> Reply:
        run = await self._run(visit)
        after = _number(visit.query.get("after", "0"), "after")
        events = await self._desk.exchange.store.read(run.id, after, RAW + 1)
        last = events[RAW - 1].seq if len(events) > RAW else 0
        return visit.page(
            "raw.html", title="Raw events", run=run, events=events[:RAW], next=last, first=not after,
            crumbs=[("Runs", "/runs"), (f"Run {run.id[-8:]}", run_path(run.id))],
        )  # fmt: skip

    async def part(self, visit: Visit) -> Reply:
        """A file of an entry. Pictures may be looked at; everything else is saved, never shown."""
        run, number = await self._run(visit), int(visit.path["number"])
        seq = int(visit.path["seq"])
        events = await self._desk.exchange.store.read(run.id, seq - 1, 1) if seq > 0 else []
        parts = content_of(events[0].payload) if events and events[0].seq == seq else ()
        if number >= len(parts):
            raise NotFound("There is no such file.")
        part = (await self._desk.exchange.attachments.loaded((parts[number],)))[0]
        media = (part.media_type or "").partition(";")[0].strip().lower()
        if visit.query.get("look") and part.raw is not None and is_image(media):
            return Reply(part.raw, 200, media.encode(), [(b"cache-control", b"private, max-age=3600")])
        return _saved(part)

    async def text(self, visit: Visit) -> Reply:
        """The whole text of an artifact, as a file."""
        run = await self._run(visit)
        view = await self._desk.exchange.view(run.id, told=True)
        made = next((one for one in view.artifacts if one.id == visit.path["artifact"]), None)
        if made is None:
            raise NotFound("There is no such artifact.")
        return _saved(Part(text=text_of(made.parts), filename=f"{made.name or made.id}.txt"))

    async def answer(self, visit: Visit) -> Reply:
        run, form = await self._run(visit), await visit.form()
        text = form.get("text", "").strip()
        if not text:
            raise Invalid("Write an answer first.", field="text")
        message = Message(new_id(), (text_part(text),))
        sent = Send(run.agent, visit.principal, message, run.id, key=form.get("key") or None)
        await self._desk.exchange.send(sent)
        return await self._done(visit, run.id, form)

    async def cancel(self, visit: Visit) -> Reply:
        run, form = await self._run(visit), await visit.form()
        await self._desk.exchange.cancel(run.id, visit.principal)
        return await self._done(visit, run.id, form)

    async def fork(self, visit: Visit) -> Reply:
        """Without a message the last input is worked on again."""
        run, form = await self._run(visit), await visit.form()
        text, at = form.get("text", "").strip(), form.get("at", "").strip()
        message = Message(new_id(), (text_part(text),)) if text else None
        branch = Branch(run.id, visit.principal, at=_number(at, "at") if at else None, message=message)
        outcome = await self._desk.exchange.fork(branch)
        return redirect(run_path(outcome.run.id))

    async def _done(self, visit: Visit, run_id: str, form: dict[str, str]) -> Reply:
        if visit.wants_fragment:
            return Reply(status=204)
        return redirect("/inbox" if form.get("back") == "inbox" else run_path(run_id))

    async def _run(self, visit: Visit) -> Run:
        return await self._desk.exchange.visible(visit.path["id"], visit.principal)

    async def _seen(self, run: Run, before: int) -> Seen:
        exchange = self._desk.exchange
        timeline = await (read_earlier(exchange, run, before) if before else read_timeline(exchange, run.id))
        shown = [entry for entry in timeline.entries.values() if not before or entry.seq < before]
        earlier = shown[-ENTRIES].seq if len(shown) > ENTRIES else timeline.start + 1 if timeline.partial else 0
        current = run if before else timeline.run or run
        return Seen(current, shown[-ENTRIES:], earlier, await place_in_queue(exchange, run))


def _number(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Invalid("An event is named by its number.", field=field)
    return int(text)


def _saved(part: Part) -> Reply:
    content, media = content_of_part(part)
    return Reply(content, 200, media, [*saved(part)])
