"""The transcript of a run: its messages, built one event at a time, so that a log is never held in memory as a
whole."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.documents.rules import spoken
from parley.ids import RunId
from parley.runs.rules.content import Message, Part, Parts, combined, merged, names_in, says_something, text_of
from parley.runs.rules.events import (
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Payload,
    Rejected,
    Replied,
    Rescued,
    Started,
    Steered,
    Submitted,
    Suspended,
    TurnEnded,
)

# A run as a dialogue: for each turn, the input and the answer.


class TurnRound(Struct, frozen=True):
    """One turn: the input that it read, and its answer. Progress is not part of the answer."""

    asked: tuple[Message, ...]
    answer: str


class Attachment(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file, link or data of a message or a turn that is not message text, described without its content."""

    kind: Literal["file", "link", "data"]
    name: str | None = None
    media_type: str | None = None
    size: int | None = None
    url: str | None = None


def attachment_of(part: Part, name: str | None = None) -> Attachment:
    name = part.filename or name
    if part.url is not None:
        return Attachment("link", name, part.media_type, url=part.url)
    if part.data is not UNSET:
        return Attachment("data", name, part.media_type)
    if part.blob is not None:
        return Attachment("file", name, part.media_type, part.blob.size)
    content = part.raw if part.raw is not None else (part.text or "").encode()
    return Attachment("file", name, part.media_type, len(content))


class Turned(Struct, frozen=True):
    """A turn that has ended, or the current state of a running one."""

    number: int
    """1 for the first turn; a resumed turn keeps its number."""
    asked: tuple[Message, ...]
    response: Parts
    words: Parts
    """The message with which the turn ended."""
    made: tuple[Attachment, ...]
    """Attachments that the turn made in addition to its response."""
    metadata: Raw | UnsetType
    """The agent's metadata of the response."""
    last: int
    """Number of the last event with content, including the end of the turn; 0 if there is none."""

    @property
    def answer(self) -> str:
        texts = (text_of(self.response), text_of(self.words))
        return "\n".join(text for text in texts if text)


class Dialogue:
    """Takes the events of a run in order. Returns each turn when it has ended, and then drops it."""

    def __init__(self) -> None:
        self._unread: list[Message] = []
        self._turn: _Open | None = None
        self._before: list[Message] = []
        """The inputs of the last turn that ended: a fork may process them again."""
        self._number = 0
        self._resuming = False

    def add(self, event: Event) -> Turned | None:
        payload, turn = event.payload, self._turn
        match payload:
            case InputReceived(message):
                self._unread.append(message)
            case Started():
                self._begin()
            case ArtifactAdded() if turn is not None:
                turn.add(payload, event.seq)
            case Rescued() | Suspended():
                self._take_back()
            case Steered(how="resume") if turn is None:
                self._take_back()
            case Forked(again=True) if turn is not None or not self._unread:
                self._take_back()
            case Forked():
                return self._end(())
            case _ if payload is not None and turn is not None and is_end(payload):
                words = words_of(payload)
                if says_something(words):
                    turn.last = event.seq
                if isinstance(payload, Replied):
                    turn.metadata = combined(turn.metadata, payload.metadata)
                return self._end(words)
            case _:
                pass
        return None

    @property
    def under_way(self) -> Turned | None:
        return self._turn.turned(self._number, ()) if self._turn else None

    def _begin(self) -> None:
        self._number += not self._resuming
        self._turn, self._unread, self._resuming = _Open(self._unread), [], False

    def _take_back(self) -> None:
        """Return the inputs of the interrupted turn to the unread ones, for the same turn."""
        self._unread = [*(self._turn.asked if self._turn else self._before), *self._unread]
        self._turn, self._resuming = None, self._number > 0

    def _end(self, words: Parts) -> Turned | None:
        if self._turn is None:
            return None
        turn, self._turn = self._turn, None
        self._before = turn.asked
        return turn.turned(self._number, words)


class _Open:
    """A running turn."""

    def __init__(self, asked: list[Message]) -> None:
        self.asked = asked
        self.last = 0
        self.metadata: Raw | UnsetType = UNSET
        self._response: list[Part] = []
        self._made: dict[str, Attachment] = {}

    def add(self, piece: ArtifactAdded, seq: int) -> None:
        if says_something(piece.parts):
            self.last = seq
        if piece.name != RESPONSE:
            self._mention(piece)
            return
        if not piece.append:
            self._response.clear()
        self.metadata = combined(self.metadata, piece.metadata)
        self._response.extend(piece.parts)

    def _mention(self, piece: ArtifactAdded) -> None:
        if not says_something(piece.parts):
            return
        known = self._made.get(piece.artifact)
        if known is not None and piece.append:
            self._made[piece.artifact] = replace(known, size=None)
        else:
            self._made[piece.artifact] = attachment_of(piece.parts[0], piece.name or piece.artifact)

    def turned(self, number: int, words: Parts) -> Turned:
        made, response = tuple(self._made.values()), merged(self._response)
        return Turned(number, tuple(self.asked), response, words, made, self.metadata, self.last)


def is_end(payload: Payload) -> bool:
    """Return whether an event ends a turn, if one is running."""
    return isinstance(payload, _ENDS)


def is_bad_end(payload: Payload | None) -> bool:
    return isinstance(payload, _BAD)


def words_of(payload: Payload) -> Parts:
    """Return the agent's message at the end of a turn."""
    return payload.parts if isinstance(payload, _GOOD) else ()


_GOOD = (InputRequired, AuthRequired, Completed, Replied, TurnEnded)
_BAD = (Failed, Canceled, Rejected)
_ENDS = (*_GOOD, *_BAD)


def rounds(events: Iterable[Event]) -> list[TurnRound]:
    """Return every turn that began, in order. Input that came during a turn belongs to the next one."""
    found: list[TurnRound] = []
    for turn in _turns(events):
        # A resumed turn replaces the earlier attempt.
        found[turn.number - 1 :] = [TurnRound(turn.asked, turn.answer)]
    return found


def _turns(events: Iterable[Event]) -> Iterator[Turned]:
    talk = Dialogue()
    for event in events:
        if turn := talk.add(event):
            yield turn
    if turn := talk.under_way:
        yield turn


# Metadata of the messages of a conversation.


class MessageUsage(Struct, frozen=True, rename="camel"):
    """Tokens used for an answer, if the vendor of the model reported them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class MessageMetadata(Struct, frozen=True, rename="camel"):
    """Facts about a message. It also contains the metadata that an agent gives its answers, under the agent's own
    names."""

    attachments: Annotated[list[Attachment], Meta(description="Files, links and data.")] | UnsetType = UNSET
    model: Annotated[str, Meta(description="Model that answered.")] | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET
    code: Annotated[str, Meta(description="Code of a failure, in a system message.")] | UnsetType = UNSET
    orchestration_id: Annotated[str, Meta(description="Orchestration whose step answered.")] | UnsetType = UNSET
    step_id: str | UnsetType = UNSET


def fitting(told: dict[str, Raw]) -> dict[str, Raw]:
    """Return the metadata of an agent's answer, without members whose type does not match MessageMetadata."""
    return {name: raw for name, raw in told.items() if name not in _READERS or _fits(name, raw)}


_READERS = {field.encode_name: msgspec.json.Decoder(field.type) for field in msgspec.structs.fields(MessageMetadata)}


def _fits(name: str, raw: Raw) -> bool:
    try:
        _READERS[name].decode(raw)
    except msgspec.MsgspecError:
        return False
    return True


Role = Literal["user", "assistant", "system"]


class TranscriptMessage(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. Its id is derived from its place in the log, so that every reader sees the
    same."""

    id: str
    role: Role
    content: str
    at: int
    run: RunId
    metadata: Raw = Raw(b"{}")
    """A JSON object: the `attachments` of the message; the agent's metadata of its answer (`model`, `usage`); the
    `code` of a failure."""
    agent: str = ""
    """Name of the agent that answered, in an export: several agents can take part in one conversation."""


class Transcript:
    """Takes the events of a run in order, and returns the messages that each of them adds."""

    def __init__(self) -> None:
        self._talk = Dialogue()
        self._copied = 0
        """Number of the last copied entry. Messages up to it are left out, because the original run contains them
        too."""

    def feed(self, event: Event) -> list[TranscriptMessage]:
        payload = event.payload
        if isinstance(payload, Submitted) and payload.origin is not None:
            # The `forked` event follows the copied entries.
            self._copied = payload.origin.seq + 1
        turn = self._talk.add(event)
        if payload is None or event.seq <= self._copied:
            return []
        return [*_asked(event, payload), *_answered(event, turn), *_noticed(event, payload)]


def transcript_of(events: Iterable[Event]) -> list[TranscriptMessage]:
    """Return all messages of a log that is in memory."""
    transcript = Transcript()
    return [said for event in events for said in transcript.feed(event)]


def shown(message: Message) -> Parts:
    """Return the parts that the user sent, without the context that the server added before them."""
    return spoken(message.parts)


def _asked(event: Event, payload: Payload) -> Iterator[TranscriptMessage]:
    if isinstance(payload, InputReceived) and (parts := shown(payload.message)):
        yield _said(event, event.seq, "user", _text(parts), _about(parts))


def _answered(event: Event, turn: Turned | None) -> Iterator[TranscriptMessage]:
    """Return the answer of a turn. It is placed at the end of a turn that ended well, and before the end of one that
    failed or was canceled."""
    if turn is not None and turn.last:
        seq = turn.last if is_bad_end(event.payload) else event.seq
        content = "\n".join(text for text in (_text(turn.response), _text(turn.words)) if text)
        told = fitting(names_in(turn.metadata)) if turn.metadata is not UNSET else {}
        yield _said(event, seq, "assistant", content, told | _about((*turn.response, *turn.words), turn.made))


def _noticed(event: Event, payload: Payload) -> Iterator[TranscriptMessage]:
    match payload:
        case Failed(code, reason) | Rejected(code, reason):
            yield _said(event, event.seq, "system", reason, {"code": code})
        case Canceled(reason):
            words = f"Canceled: {reason}" if reason else "Canceled."
            yield _said(event, event.seq, "system", words, {"code": "canceled"})
        case _:
            return


def _said(event: Event, seq: int, role: Role, content: str, metadata: object) -> TranscriptMessage:
    return TranscriptMessage(
        f"{event.run}.{seq}", role, content, event.at, event.run, Raw(msgspec.json.encode(metadata))
    )


def _text(parts: Parts) -> str:
    """Return the text of messages. Text with a filename is a file and is left out."""
    return text_of(part for part in parts if part.filename is None)


def _about(parts: Parts, made: tuple[Attachment, ...] = ()) -> dict[str, object]:
    given = [attachment_of(part) for part in parts if part.text is None or part.filename is not None]
    return {"attachments": [*given, *made]} if given or made else {}
