"""A run as a talk: round by round, what was asked and what the agent answered."""

from collections.abc import Iterable

from msgspec import Struct

from parley.core.artifacts import Part, Parts, merged, text_of
from parley.core.conversations import Message
from parley.core.events import (
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Completed,
    Event,
    InputReceived,
    InputRequired,
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


class _Open(Struct):
    first: int
    asked: list[Message]
    response: list[Part]
    words: Parts = ()


def rounds(events: Iterable[Event]) -> list[Round]:
    """Every turn that began, in order. Input that came during a turn belongs to the next one."""
    inputs: list[Message] = []
    opened: list[_Open] = []
    read, resuming, asked = 0, False, False
    for event in events:
        match event.payload:
            case InputReceived(message):
                inputs.append(message)
            case Started():
                first = opened.pop().first if resuming else read
                opened.append(_Open(first, inputs[first:], []))
                read, resuming, asked = len(inputs), False, False
            case Rescued():
                resuming = True
            case Steered(how="resume"):
                resuming = resuming or asked
            case ArtifactAdded(_, parts, name, append=append) if name == RESPONSE:
                if not append:
                    opened[-1].response.clear()
                opened[-1].response.extend(parts)
            case InputRequired() | AuthRequired() | Completed() | Replied() | TurnEnded() as said if (
                opened and said.parts
            ):
                opened[-1].words = said.parts
                asked = isinstance(said, InputRequired)
            case _:
                continue
    return [Round(tuple(one.asked), _answer(one)) for one in opened]


def _answer(one: _Open) -> str:
    texts = (text_of(merged(one.response)), text_of(one.words))
    return "\n".join(text for text in texts if text)
