"""A run as people read it: its events folded into entries, and which of them each event adds or changes."""

import hashlib

from msgspec import UNSET, Struct

from parley.core.artifacts import Part, Parts, text_of
from parley.core.events import (
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
    Submitted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from parley.core.runs import Run, evolve
from parley.core.transcripts import shown
from parley.core.views import View, told

MAX_TEXT = 16 * 1024
"""Characters of one text that a page shows; all of it can be fetched."""


class Piece(Struct):
    """A part that is no plain text: in which entry of the log it is, and what can be seen of it at once."""

    seq: int
    number: int
    kind: str
    """`image`, `code`, `markdown`, `file`, `data` or `link`."""
    name: str = ""
    media: str = ""
    size: int | None = None
    text: str = ""
    url: str = ""


class Entry(Struct):
    """One thing in the timeline. Its key is the id of its element, and stays."""

    key: str
    kind: str
    """`you`, `agent`, `file`, `status`, `tool`, `question`, `child`, `step`, `mark`, `bad` or `done`: how it looks."""
    seq: int
    at: int
    text: str = ""
    growing: bool = False
    cut: bool = False
    """Whether there is more text than is shown."""
    name: str = ""
    artifact: str = ""
    pieces: list[Piece] = []
    call: ToolCalled | None = None
    result: ToolReturned | None = None
    result_at: int = 0
    result_seq: int = 0
    receipt: str = ""
    """The hash of the entry of the log that proves what a tool gave back."""
    run: str = ""
    code: str = ""


class Change(Struct):
    """An entry that is new or another than before; or only by how much its text has grown."""

    entry: Entry
    grown: str | None = None


class Timeline:
    """Feed it events in order; it keeps the entries and tells what each event changes."""

    def __init__(self, kept: View | None = None, run: Run | None = None, start: int = 0) -> None:
        """`kept` is what could be seen of the run when its first events were forgotten.

        Of a long run only events after `start` are fed; `run` then says how it stands, at its last event.
        """
        self.run: Run | None = kept.run if kept else run
        self.start = start
        self.partial = run is not None
        """Whether there are entries before those of the events that were fed."""
        self._seq = start
        self.entries: dict[str, Entry] = {one.key: one for one in remembered(kept)} if kept else {}
        self._growing = ""

    def feed(self, event: Event) -> list[Change]:
        payload, self._seq = event.payload, event.seq
        if payload is None:
            return [Change(self._put(Entry(_key(event), "mark", event.seq, event.at, "This entry was erased.")))]
        if self.run is None or event.seq > self.run.version:
            self.run = evolve(self.run, event.run, event.seq, event.at, payload)
        if isinstance(payload, ArtifactAdded):
            return self._artifact(event, payload)
        if isinstance(payload, ToolReturned):
            return [*self._settled(), Change(self._returned(event, payload))]
        made = _entry(event, payload)
        changes = [] if isinstance(payload, Progress | Started) else self._settled()
        return changes if made is None else [*changes, Change(self._put(made))]

    @property
    def is_behind(self) -> bool:
        """Whether `run` says more than the events that were fed."""
        return self.run is not None and self._seq < self.run.version

    def cut_off(self) -> None:
        """End with the last event that was fed: a text that grew on after it is shown up to here."""
        entry = self.entries.get(self._growing)
        if entry is not None:
            entry.growing, entry.cut, self._growing = False, True, ""

    def _put(self, entry: Entry) -> Entry:
        self.entries[entry.key] = entry
        return entry

    def _settled(self) -> list[Change]:
        """A text that grew and grows no more is shown as what it is."""
        entry = self.entries.get(self._growing)
        self._growing = ""
        if entry is None:
            return []
        entry.growing = False
        return [Change(entry)]

    def _returned(self, event: Event, payload: ToolReturned) -> Entry:
        key = _named("tool", payload.call)
        entry = self.entries.get(key) or Entry(key, "tool", event.seq, event.at, name=payload.tool)
        entry.result, entry.result_at, entry.result_seq = payload, event.at, event.seq
        entry.receipt = event.hash.hex()
        return self._put(entry)

    def _artifact(self, event: Event, payload: ArtifactAdded) -> list[Change]:
        key = _named("made", payload.artifact)
        before = self.entries.get(key) if payload.append else None
        changes = self._settled() if self._growing not in ("", key) else []
        texts = [part for part in payload.parts if _is_said(part)]
        if before is not None and len(texts) == len(payload.parts) and before.growing:
            return [*changes, self._grow(before, text_of(texts), payload.last)]
        entry = before or Entry(
            key, "agent" if payload.name == RESPONSE else "file", event.seq, event.at,
            name=payload.name or "", artifact=payload.artifact, cut=payload.append and self.partial,
        )  # fmt: skip
        self._add(entry, event.seq, payload)
        return [*changes, Change(self._put(entry))]

    def _grow(self, entry: Entry, text: str, last: bool) -> Change:
        room = MAX_TEXT - len(entry.text)
        entry.cut = entry.cut or len(text) > room
        entry.text += text[: max(room, 0)]
        if last:
            entry.growing, self._growing = False, ""
            return Change(entry)
        return Change(entry, text[: max(room, 0)])

    def _add(self, entry: Entry, seq: int, payload: ArtifactAdded) -> None:
        said = [part for part in payload.parts if _is_said(part)]
        entry.pieces = [*entry.pieces, *pieces_of(payload.parts, seq)]
        text = entry.text + text_of(said)
        entry.text, entry.cut = text[:MAX_TEXT], entry.cut or len(text) > MAX_TEXT
        entry.growing = bool(said) and not payload.last
        self._growing = entry.key if entry.growing else self._growing


def pieces_of(parts: Parts, seq: int) -> list[Piece]:
    return [_piece(part, seq, number) for number, part in enumerate(parts) if not _is_said(part)]


def _piece(part: Part, seq: int, number: int) -> Piece:
    name, media = part.filename or "", (part.media_type or "").partition(";")[0].strip().lower()
    if part.url is not None:
        return Piece(seq, number, "link", name, media, url=part.url)
    if part.data is not UNSET:
        text = bytes(part.data).decode(errors="replace")
        return Piece(seq, number, "data", name, media or "application/json", len(text), text[:MAX_TEXT])
    if part.blob is not None:
        kind = "image" if is_image(media) and not part.blob.text else "file"
        return Piece(seq, number, kind, name, media, part.blob.size)
    if part.raw is not None:
        return Piece(seq, number, "image" if is_image(media) else "file", name, media, len(part.raw))
    text = part.text or ""
    kind = "markdown" if media == "text/markdown" or name.endswith((".md", ".markdown")) else "code"
    return Piece(seq, number, kind, name, media, len(text.encode()), text[:MAX_TEXT])


def is_image(media: str) -> bool:
    """Pictures that cannot do anything but be seen."""
    return media in ("image/png", "image/jpeg", "image/gif", "image/webp")


def _is_said(part: Part) -> bool:
    return part.text is not None and part.filename is None


def _named(what: str, id_: str) -> str:
    """A key for something that has a name of its own: any words at all."""
    return f"{what}-{hashlib.sha256(id_.encode(errors='replace')).hexdigest()[:16]}"


def _key(event: Event) -> str:
    return f"event-{event.seq}"


def _entry(event: Event, payload: Payload) -> Entry | None:
    """What an event adds by itself; None for one that is only seen in the state of the run."""
    match payload:
        case InputReceived(message):
            return _spoken(event, "you", shown(message))
        case Progress(parts):
            return _spoken(event, "status", parts)
        case InputRequired(parts):
            return _spoken(event, "question", parts)
        case AuthRequired(parts):
            return _spoken(event, "question", parts, "It needs to be let in somewhere.")
        case Completed(parts) | Replied(parts) | TurnEnded(parts):
            return _spoken(event, "agent", parts) if parts else _end(event, payload)
        case ToolCalled(call, tool):
            return Entry(_named("tool", call), "tool", event.seq, event.at, name=tool, call=payload)
        case ChildStarted(child, agent):
            return Entry(_key(event), "child", event.seq, event.at, name=agent, run=child)
        case Planned() | Stepped() | Steered():
            run = payload.run if isinstance(payload, Stepped) and payload.run else ""
            return Entry(_key(event), "step", event.seq, event.at, told(payload), run=run)
        case _:
            return _mark(event, payload)


def _end(event: Event, payload: Payload) -> Entry | None:
    if isinstance(payload, TurnEnded):
        return None
    return Entry(_key(event), "done", event.seq, event.at, "Completed.")


def _mark(event: Event, payload: Payload) -> Entry | None:
    kind, text, code = "mark", "", ""
    match payload:
        case Failed(code, text) | Rejected(code, text):
            kind = "bad"
        case Canceled(reason):
            text = f"Canceled: {reason}" if reason else "Canceled."
        case CancelRequested(by, reason):
            text = f"{by} asked to cancel{f': {reason}' if reason else '.'}"
        case Closing(by):
            text = f"{by} gives no further input."
        case Rescued(_, attempt):
            text = f"Its process was lost; taken up again (attempt {attempt})."
        case Forked(by):
            text = f"{by} forked it here."
        case Submitted(origin=origin) if origin is not None:
            return Entry(_key(event), "mark", event.seq, event.at, f"A copy of {origin.run}", run=origin.run)
        case _:
            return None
    return Entry(_key(event), kind, event.seq, event.at, text, code=code)


def _spoken(event: Event, kind: str, parts: Parts, otherwise: str = "") -> Entry:
    said = text_of(part for part in parts if _is_said(part)) or otherwise
    return Entry(
        _key(event), kind, event.seq, event.at, said[:MAX_TEXT], cut=len(said) > MAX_TEXT,
        pieces=pieces_of(parts, event.seq),
    )  # fmt: skip


def remembered(view: View) -> list[Entry]:
    """What is left of a run whose events are no longer kept."""
    said = [*view.history, *([view.status.said] if view.status.said else [])]
    entries = [
        Entry(f"kept-{number}", "you" if one.role == "user" else "agent", 0, view.run.created_at, text_of(one.parts))
        for number, one in enumerate(said)
    ]
    made = [
        Entry(_named("made", one.id), "file", 0, view.run.updated_at, text_of(one.parts), name=one.name or one.id)
        for one in view.artifacts
    ]
    return [*entries, *made]
