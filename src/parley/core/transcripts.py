"""What was said in a run, as messages: one event at a time, so that a log of any length is never held whole."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from parley.core.artifacts import Parts, names_in, text_of
from parley.core.conversations import Message
from parley.core.dialogue import Attachment, Talk, Turned, attachment_of, is_bad_end
from parley.core.drafting import spoken
from parley.core.events import Canceled, Event, Failed, InputReceived, Payload, Rejected, Submitted
from parley.ids import RunId

Role = Literal["user", "assistant", "system"]


class Said(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation. Its id follows from its place in the log, so that every reader sees the same."""

    id: str
    role: Role
    content: str
    at: int
    run: RunId
    metadata: Raw = Raw(b"{}")
    """A JSON object: `attachments` that the message has beside its text; what an agent told of its answer (`model`,
    `usage`); the `code` of a failure."""
    agent: str = ""
    """The name of who answered, in an export: several agents can speak in one conversation."""


class Transcript:
    """Feed it the events of a run in order; it gives the messages that each of them adds."""

    def __init__(self) -> None:
        self._talk = Talk()
        self._copied = 0
        """The entries up to here tell what another run of the conversation tells too."""

    def feed(self, event: Event) -> list[Said]:
        payload = event.payload
        if isinstance(payload, Submitted) and payload.origin is not None:
            # The mark of the fork itself follows its copied entries.
            self._copied = payload.origin.seq + 1
        turn = self._talk.hear(event)
        if payload is None or event.seq <= self._copied:
            return []
        return [*_asked(event, payload), *_answered(event, turn), *_noticed(event, payload)]


def transcript_of(events: Iterable[Event]) -> list[Said]:
    """All at once, for a log that is at hand."""
    transcript = Transcript()
    return [said for event in events for said in transcript.feed(event)]


def shown(message: Message) -> Parts:
    """What somebody said in it: all but the context that was put before it."""
    return spoken(message.parts)


def _asked(event: Event, payload: Payload) -> Iterator[Said]:
    if isinstance(payload, InputReceived) and (parts := shown(payload.message)):
        yield _said(event, event.seq, "user", _text(parts), _about(parts))


def _answered(event: Event, turn: Turned | None) -> Iterator[Said]:
    """A turn that ends well has its last word with its end; one that breaks off, before it."""
    if turn is not None and turn.last:
        seq = turn.last if is_bad_end(event.payload) else event.seq
        content = "\n".join(text for text in (_text(turn.response), _text(turn.words)) if text)
        told = names_in(turn.metadata) if turn.metadata is not UNSET else {}
        yield _said(event, seq, "assistant", content, told | _about((*turn.response, *turn.words), turn.made))


def _noticed(event: Event, payload: Payload) -> Iterator[Said]:
    match payload:
        case Failed(code, reason) | Rejected(code, reason):
            yield _said(event, event.seq, "system", reason, {"code": code})
        case Canceled(reason):
            words = f"Canceled: {reason}" if reason else "Canceled."
            yield _said(event, event.seq, "system", words, {"code": "canceled"})
        case _:
            return


def _said(event: Event, seq: int, role: Role, content: str, metadata: object) -> Said:
    return Said(f"{event.run}.{seq}", role, content, event.at, event.run, Raw(msgspec.json.encode(metadata)))


def _text(parts: Parts) -> str:
    """Text that has a filename is a file."""
    return text_of(part for part in parts if part.filename is None)


def _about(parts: Parts, made: tuple[Attachment, ...] = ()) -> dict[str, object]:
    given = [attachment_of(part) for part in parts if part.text is None or part.filename is not None]
    return {"attachments": [*given, *made]} if given or made else {}
