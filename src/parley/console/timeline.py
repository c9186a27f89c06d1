"""Timeline of a run for people: folds events into entries and reports which entries each event adds or changes."""

import hashlib
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial

import msgspec
from msgspec import UNSET, Struct

from parley.clock import Monotonic, iso
from parley.console.request import PageRequest
from parley.console.responses import off_loop, plain
from parley.http.sse import KEEP_ALIVE_S, Chunk, frame
from parley.ids import RunId
from parley.runs.attachments import Attachments
from parley.runs.rules.answers import Expected, answer_form
from parley.runs.rules.content import Part, Parts, text_of
from parley.runs.rules.events import (
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    ChildStarted,
    Closing,
    Completed,
    Event,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Payload,
    Planned,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Started,
    Steered,
    Stepped,
    StepRecord,
    Submitted,
    Suspended,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Woken,
    is_usage,
)
from parley.runs.rules.state import Run, evolve
from parley.runs.rules.transcript import shown
from parley.runs.rules.view import View, told
from parley.runs.service import Exchange
from parley.runs.streams import Follower, pages

MAX_TEXT = 16 * 1024
"""Maximum characters of one text on a page; the full text can be downloaded."""


class TimelinePiece(Struct):
    """A part that is not plain text: its event and number, and a preview."""

    seq: int
    number: int
    kind: str
    """`image`, `code`, `markdown`, `file`, `data` or `link`."""
    name: str = ""
    media: str = ""
    size: int | None = None
    text: str = ""
    url: str = ""


class TimelineEntry(Struct):
    """One entry of the timeline. Its key is the id of its HTML element and never changes."""

    key: str
    kind: str
    """`you`, `agent`, `file`, `status`, `tool`, `question`, `child`, `step`, `mark`, `bad` or `done`: sets the look."""
    seq: int
    at: int
    text: str = ""
    growing: bool = False
    cut: bool = False
    """True if the text is longer than shown."""
    name: str = ""
    artifact: str = ""
    pieces: list[TimelinePiece] = []
    call: ToolCalled | None = None
    result: ToolReturned | None = None
    result_at: int = 0
    result_seq: int = 0
    receipt: str = ""
    """Hash of the event that proves the tool's result."""
    run: str = ""
    code: str = ""


class Decision(Struct, frozen=True):
    """A button that answers a question: its label, the answer, and the look of the button."""

    label: str
    value: str
    style: str = ""


APPROVAL = (Decision("Approve", "yes", "primary"), Decision("Reject", "no", "danger"))


def decisions_in(parts: Parts) -> tuple[Decision, ...]:
    """The buttons for a question: those of an approval, if its data asks for one."""
    asks = any(part.data is not UNSET and bytes(part.data).startswith(b'{"approval":') for part in parts)
    return APPROVAL if asks else ()


class Change(Struct):
    """An entry that is new or has changed; `grown` is set if only text was appended."""

    entry: TimelineEntry
    grown: str | None = None


class Timeline:
    """Folds events, fed in order, into entries, and returns the changes that each event makes."""

    def __init__(self, kept: View | None = None, run: Run | None = None, start: int = 0) -> None:
        """`kept` is the view of the run from before its first events were deleted.

        For a long run, only events after `start` are fed; `run` is then its state at its last event.
        """
        self.run: Run | None = kept.run if kept else run
        self.start = start
        self.partial = run is not None
        """True if there are entries before those of the events fed."""
        self._seq = start
        self.entries: dict[str, TimelineEntry] = {one.key: one for one in remembered(kept)} if kept else {}
        self._growing = ""
        self.expects: Expected | None = None
        """The answer that the last question expects."""
        self.decisions: tuple[Decision, ...] = ()

    def feed(self, event: Event) -> list[Change]:
        payload, self._seq = event.payload, event.seq
        if payload is None:
            return [
                Change(self._put(TimelineEntry(_key(event), "mark", event.seq, event.at, "This event was erased.")))
            ]
        if self.run is None or event.seq > self.run.version:
            self.run = evolve(self.run, event.run, event.seq, event.at, payload)
        if isinstance(payload, InputRequired | InputReceived):
            asks = isinstance(payload, InputRequired)
            self.expects = payload.expects if asks else None
            self.decisions = decisions_in(payload.parts) if asks else ()
        if isinstance(payload, ArtifactAdded):
            return self._artifact(event, payload)
        if isinstance(payload, ToolReturned):
            return [*self._settled(), Change(self._returned(event, payload))]
        made = _entry(event, payload)
        changes = [] if isinstance(payload, Progress | Started) else self._settled()
        return changes if made is None else [*changes, Change(self._put(made))]

    @property
    def is_behind(self) -> bool:
        """True if `run` is newer than the last event fed."""
        return self.run is not None and self._seq < self.run.version

    def cut_off(self) -> None:
        """End the timeline at the last event fed: text that continues after it is marked as cut."""
        entry = self.entries.get(self._growing)
        if entry is not None:
            entry.growing, entry.cut, self._growing = False, True, ""

    def _put(self, entry: TimelineEntry) -> TimelineEntry:
        self.entries[entry.key] = entry
        return entry

    def _settled(self) -> list[Change]:
        """Finish the growing text, so that it is rendered as Markdown."""
        entry = self.entries.get(self._growing)
        self._growing = ""
        if entry is None:
            return []
        entry.growing = False
        return [Change(entry)]

    def _returned(self, event: Event, payload: ToolReturned) -> TimelineEntry:
        key = entry_key("tool", payload.call)
        entry = self.entries.get(key) or TimelineEntry(key, "tool", event.seq, event.at, name=payload.tool)
        entry.result, entry.result_at, entry.result_seq = payload, event.at, event.seq
        entry.receipt = event.hash.hex()
        return self._put(entry)

    def _artifact(self, event: Event, payload: ArtifactAdded) -> list[Change]:
        key = entry_key("made", payload.artifact)
        before = self.entries.get(key) if payload.append else None
        changes = self._settled() if self._growing not in ("", key) else []
        texts = [part for part in payload.parts if _is_said(part)]
        if before is not None and len(texts) == len(payload.parts) and before.growing:
            return [*changes, self._grow(before, text_of(texts), payload.last)]
        entry = before or TimelineEntry(
            key,
            "agent" if payload.name == RESPONSE else "file",
            event.seq,
            event.at,
            name=payload.name or "",
            artifact=payload.artifact,
            cut=payload.append and self.partial,
        )
        self._add(entry, event.seq, payload)
        return [*changes, Change(self._put(entry))]

    def _grow(self, entry: TimelineEntry, text: str, last: bool) -> Change:
        room = MAX_TEXT - len(entry.text)
        entry.cut = entry.cut or len(text) > room
        entry.text += text[: max(room, 0)]
        if last:
            entry.growing, self._growing = False, ""
            return Change(entry)
        return Change(entry, text[: max(room, 0)])

    def _add(self, entry: TimelineEntry, seq: int, payload: ArtifactAdded) -> None:
        said = [part for part in payload.parts if _is_said(part)]
        entry.pieces = [*entry.pieces, *pieces_of(payload.parts, seq)]
        text = entry.text + text_of(said)
        entry.text, entry.cut = text[:MAX_TEXT], entry.cut or len(text) > MAX_TEXT
        entry.growing = bool(said) and not payload.last
        self._growing = entry.key if entry.growing else self._growing


def pieces_of(parts: Parts, seq: int) -> list[TimelinePiece]:
    return [_piece(part, seq, number) for number, part in enumerate(parts) if not _is_said(part)]


def _piece(part: Part, seq: int, number: int) -> TimelinePiece:
    name, media = part.filename or "", (part.media_type or "").partition(";")[0].strip().lower()
    if part.url is not None:
        return TimelinePiece(seq, number, "link", name, media, url=part.url)
    if part.data is not UNSET:
        text = bytes(part.data).decode(errors="replace")
        return TimelinePiece(seq, number, "data", name, media or "application/json", len(text), text[:MAX_TEXT])
    if part.blob is not None:
        kind = "image" if is_image(media) and not part.blob.text else "file"
        return TimelinePiece(seq, number, kind, name, media, part.blob.size)
    if part.raw is not None:
        return TimelinePiece(seq, number, "image" if is_image(media) else "file", name, media, len(part.raw))
    text = part.text or ""
    kind = "markdown" if media == "text/markdown" or name.endswith((".md", ".markdown")) else "code"
    return TimelinePiece(seq, number, kind, name, media, len(text.encode()), text[:MAX_TEXT])


def is_image(media: str) -> bool:
    """True for image types that cannot contain scripts."""
    return media in ("image/png", "image/jpeg", "image/gif", "image/webp")


def _is_said(part: Part) -> bool:
    return part.text is not None and part.filename is None


def entry_key(what: str, id_: str) -> str:
    """A key for something with an id of its own; hashed, because the id may be any text."""
    return f"{what}-{hashlib.sha256(id_.encode(errors='replace')).hexdigest()[:16]}"


def _key(event: Event) -> str:
    return f"event-{event.seq}"


def _entry(event: Event, payload: Payload) -> TimelineEntry | None:
    """The entry that an event adds; None if the event shows only in the run's state."""
    match payload:
        case InputReceived(message):
            return _spoken(event, "you", shown(message))
        case Progress() if is_usage(payload):
            return None
        case Progress(parts, step=step):
            return _spoken(event, "status", parts) if step is None else _step(event, step)
        case InputRequired(parts):
            return _spoken(event, "question", parts)
        case AuthRequired(parts):
            return _spoken(event, "question", parts, "The agent needs authorization to continue.")
        case Completed(parts) | Replied(parts) | TurnEnded(parts):
            return _spoken(event, "agent", parts) if parts else _end(event, payload)
        case ToolCalled(call, tool):
            return TimelineEntry(entry_key("tool", call), "tool", event.seq, event.at, name=tool, call=payload)
        case ChildStarted(child, agent):
            return TimelineEntry(_key(event), "child", event.seq, event.at, name=agent, run=child)
        case Planned() | Stepped() | Steered():
            run = payload.run if isinstance(payload, Stepped) and payload.run else ""
            return TimelineEntry(_key(event), "step", event.seq, event.at, told(payload), run=run)
        case _:
            return _mark(event, payload)


def _step(event: Event, step: StepRecord) -> TimelineEntry:
    """The entry of a durable step: its result is shown as a piece, its failure as text."""
    if step.due:
        text = f"Slept until {iso(step.due)}"
    elif step.code:
        text = f"Step {step.name} failed{'' if step.final else ' and is retried'}: {step.reason}"
    else:
        text = f"Step {step.name} · {step.duration_ms:,} ms"
    shown = pieces_of((step.output,), event.seq) if step.output else []
    return TimelineEntry(_key(event), "step", event.seq, event.at, text, pieces=shown)


def _end(event: Event, payload: Payload) -> TimelineEntry | None:
    if isinstance(payload, TurnEnded):
        return None
    return TimelineEntry(_key(event), "done", event.seq, event.at, "Completed.")


def _mark(event: Event, payload: Payload) -> TimelineEntry | None:
    kind, text, code = "mark", "", ""
    match payload:
        case Failed(code, text) | Rejected(code, text):
            kind = "bad"
        case Canceled(reason):
            text = f"Canceled: {reason}" if reason else "Canceled."
        case CancelRequested(by, reason):
            text = f"{by} asked to cancel{f': {reason}' if reason else '.'}"
        case Closing(by):
            text = f"{by} closed the input."
        case Rescued(_, attempt):
            text = f"The process was lost; the run continues (attempt {attempt})."
        case Suspended(due):
            text = f"Sleeping until {iso(due)}. No process holds the run."
        case Woken():
            text = "Woken; the turn continues."
        case Forked(by):
            text = f"{by} forked the run here."
        case Submitted(origin=origin) if origin is not None:
            return TimelineEntry(_key(event), "mark", event.seq, event.at, f"Fork of {origin.run}", run=origin.run)
        case _:
            return None
    return TimelineEntry(_key(event), kind, event.seq, event.at, text, code=code)


def _spoken(event: Event, kind: str, parts: Parts, otherwise: str = "") -> TimelineEntry:
    said = text_of(part for part in parts if _is_said(part)) or otherwise
    return TimelineEntry(
        _key(event),
        kind,
        event.seq,
        event.at,
        said[:MAX_TEXT],
        cut=len(said) > MAX_TEXT,
        pieces=pieces_of(parts, event.seq),
    )


def remembered(view: View) -> list[TimelineEntry]:
    """Entries for a run whose events are no longer stored."""
    said = [*view.history, *([view.status.said] if view.status.said else [])]
    entries = [
        TimelineEntry(
            f"kept-{number}", "you" if one.role == "user" else "agent", 0, view.run.created_at, text_of(one.parts)
        )
        for number, one in enumerate(said)
    ]
    made = [
        TimelineEntry(
            entry_key("made", one.id), "file", 0, view.run.updated_at, text_of(one.parts), name=one.name or one.id
        )
        for one in view.artifacts
    ]
    return [*entries, *made]


# Live updates of a timeline: each frame has the number of its last event and the changes for the page.

WINDOW = 1000
"""Maximum number of events read for a page. A longer run is shown in several pages of this many events."""
_SILENCE: Chunk = (b"", False)
RENDER_EVERY_S = 0.2


async def read_timeline(exchange: Exchange, run_id: RunId, upto: int | None = None) -> Timeline:
    """The timeline of a run now, or as of the event `upto`; for a long run, only the last `WINDOW` events before it."""
    head = await exchange.store.head(run_id)
    floor, version = (head.floor, head.run.version) if head else (0, 0)
    start = (version if upto is None else min(upto, version)) - WINDOW
    if head is not None and start > floor:
        timeline = Timeline(run=head.run, start=start)
    else:
        timeline = Timeline(View.restored(head.snapshot) if head and head.snapshot else None, start=floor)
    # Page by page, so that other tasks of the event loop can run in between.
    async for page in pages(exchange.store, run_id, timeline.start):
        for event in await exchange.attachments.told(page):
            if upto is None or event.seq <= upto:
                timeline.feed(event)
        if upto is not None and page[-1].seq >= upto:
            break
    return timeline


async def read_earlier(exchange: Exchange, run: Run, before: int) -> Timeline:
    """The entries before an event. For a short run they include later changes; for a long run they end at the event."""
    if run.version <= WINDOW:
        return await read_timeline(exchange, run.id)
    timeline = await read_timeline(exchange, run.id, before - 1)
    timeline.cut_off()
    return timeline


class RenderPace:
    """Decides when growing text is rendered again as Markdown. Until then, text is appended as it is."""

    def __init__(self, monotonic: Monotonic = time.monotonic) -> None:
        self._monotonic = monotonic
        self._due = 0.0

    def is_due(self) -> bool:
        return self._monotonic() >= self._due

    def timed(self, make: Callable[[], bytes]) -> bytes:
        """Render. The more that takes, the longer the next time waits: to at most a tenth of a thread."""
        began = self._monotonic()
        made = make()
        ended = self._monotonic()
        self._due = ended + max(RENDER_EVERY_S, 9 * (ended - began))
        return made


async def frames(
    visit: PageRequest, timeline: Timeline, follower: Follower, attachments: Attachments
) -> AsyncGenerator[Chunk, None]:
    """Frames of a run until it ends. `timeline` holds what the browser already shows."""
    pace = RenderPace()
    while timeline.run is None or not timeline.run.ended or timeline.is_behind:
        events = await follower.next(KEEP_ALIVE_S)
        if not events:
            yield _SILENCE
            continue
        before = None if timeline.is_behind else _shown(timeline)
        changes = [change for event in await attachments.told(events) for change in timeline.feed(event)]
        if pace.is_due():
            changes = [Change(change.entry) for change in changes]
        is_new = before != _shown(timeline)
        traceback = await _traceback(visit, timeline.run) if is_new else ""
        make = partial(_frame, visit, events, changes, timeline, traceback, is_new=is_new)
        if all(change.grown is not None for change in changes):
            yield make(), False
        else:
            yield await off_loop(partial(pace.timed, make)), False
    yield b"event: end\ndata: {}\n\n", True


def _frame(
    visit: PageRequest,
    events: list[Event],
    changes: list[Change],
    timeline: Timeline,
    traceback: str,
    *,
    is_new: bool,
) -> bytes:
    """`is_new`: the panel of the run has changed."""
    run = timeline.run
    since = run.created_at if run is not None else 0
    told: dict[str, object] = {"changes": [_told(visit, events[0].run, since, change) for change in _joined(changes)]}
    if run is not None and is_new:
        form = answer_form(timeline.expects)
        shown = {"run": run, "place": None, "form": form, "traceback": traceback, "decisions": timeline.decisions}
        panel = visit.piece("_panel.html", **shown)
        told |= {"state": run.state.value, "panel": panel}
    return frame(events[-1].seq, msgspec.json.encode(told))


async def _traceback(visit: PageRequest, run: Run | None) -> str:
    return await visit.desk.beside.tracebacks.read(run, visit.principal) if run is not None else ""


def _shown(timeline: Timeline) -> tuple[object, ...]:
    """The values that the panel of a run depends on."""
    run = timeline.run
    return (run.state, run.cancel_requested, run.closing, timeline.expects) if run is not None else ()


def _joined(changes: list[Change]) -> list[Change]:
    """Merge the changes of each entry: appended text is joined, anything else becomes one full change."""
    found: dict[str, Change] = {}
    for change in changes:
        before = found.get(change.entry.key)
        if before is None or before.grown is None or change.grown is None:
            whole = before is not None and before.grown is None
            found[change.entry.key] = Change(change.entry) if whole else change
        else:
            found[change.entry.key] = Change(change.entry, before.grown + change.grown)
    return list(found.values())


def _told(visit: PageRequest, run_id: str, since: int, change: Change) -> dict[str, str]:
    key = change.entry.key
    if change.grown is not None:
        return {"key": key, "grow": plain(change.grown)}
    return {"key": key, "html": visit.piece("_entry.html", entry=change.entry, run_id=run_id, since=since)}
