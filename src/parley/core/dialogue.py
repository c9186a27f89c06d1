"""A run as a talk: turn by turn, what was asked and what the agent answered."""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.core.artifacts import Part, Parts, combined, merged, says_something, text_of
from parley.core.conversations import Message
from parley.core.events import (
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
    TurnEnded,
)


class Round(Struct, frozen=True):
    """One turn: the input that it read, and the words that came of it. Progress is no answer."""

    asked: tuple[Message, ...]
    answer: str


class Attachment(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Something that was given or made and is no text of a message, by what is known of it without its content."""

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
    """A turn that is over, or as far as it has come."""

    number: int
    """1 for the first; a turn that is taken up again keeps its number."""
    asked: tuple[Message, ...]
    response: Parts
    words: Parts
    """What was said with its end."""
    made: tuple[Attachment, ...]
    """What it made beside its response."""
    metadata: Raw | UnsetType
    """What its agent told of the response."""
    last: int
    """The number of the event that said something last, its end included; 0 if none did."""

    @property
    def answer(self) -> str:
        texts = (text_of(self.response), text_of(self.words))
        return "\n".join(text for text in texts if text)


class Talk:
    """Feed it the events of a run in order: it tells of each turn when that is over, and forgets it."""

    def __init__(self) -> None:
        self._unread: list[Message] = []
        self._turn: _Open | None = None
        self._before: list[Message] = []
        """What the last turn that ended had read: a fork may work on it again."""
        self._number = 0
        self._resuming = False

    def hear(self, event: Event) -> Turned | None:
        payload, turn = event.payload, self._turn
        match payload:
            case InputReceived(message):
                self._unread.append(message)
            case Started():
                self._begin()
            case ArtifactAdded() if turn is not None:
                turn.add(payload, event.seq)
            case Rescued():
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
        """What the turn had read waits again, for the same turn."""
        self._unread = [*(self._turn.asked if self._turn else self._before), *self._unread]
        self._turn, self._resuming = None, self._number > 0

    def _end(self, words: Parts) -> Turned | None:
        if self._turn is None:
            return None
        turn, self._turn = self._turn, None
        self._before = turn.asked
        return turn.turned(self._number, words)


class _Open:
    """A turn under way."""

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
    """Whether it ends a turn, if one is under way."""
    return isinstance(payload, _ENDS)


def is_bad_end(payload: Payload | None) -> bool:
    return isinstance(payload, _BAD)


def words_of(payload: Payload) -> Parts:
    """What an agent says with the end of a turn."""
    return payload.parts if isinstance(payload, _GOOD) else ()


_GOOD = (InputRequired, AuthRequired, Completed, Replied, TurnEnded)
_BAD = (Failed, Canceled, Rejected)
_ENDS = (*_GOOD, *_BAD)


def rounds(events: Iterable[Event]) -> list[Round]:
    """Every turn that began, in order. Input that came during a turn belongs to the next one."""
    found: list[Round] = []
    for turn in _turns(events):
        # A turn that was taken up again stands in place of what had come of it before.
        found[turn.number - 1 :] = [Round(turn.asked, turn.answer)]
    return found


def _turns(events: Iterable[Event]) -> Iterator[Turned]:
    talk = Talk()
    for event in events:
        if turn := talk.hear(event):
            yield turn
    if turn := talk.under_way:
        yield turn
