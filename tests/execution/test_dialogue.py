"""A run as a talk."""

from typing import get_args

from msgspec import UNSET, Raw

from parley.execution.rules import Reply, Scribe, Text, joined
from parley.ids import ConversationId, RunId
from parley.runs.rules.commands import Report
from parley.runs.rules.content import Message, Part, text_part
from parley.runs.rules.events import (
    GENESIS,
    ArtifactAdded,
    Completed,
    Event,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Payload,
    Progress,
    Replied,
    Rescued,
    Started,
    Submitted,
    TurnEnded,
    sealed,
)
from parley.runs.rules.transcript import TurnRound, rounds
from parley.runs.rules.view import view_of

BEGUN = Submitted("a", ConversationId("c"), "local")


def log(*payloads: Payload) -> list[Event]:
    events: list[Event] = []
    for seq, payload in enumerate((BEGUN, *payloads), 1):
        events.append(sealed(RunId("r"), seq, 1, payload, events[-1].hash if events else GENESIS))
    return events


def asked(text: str) -> InputReceived:
    return InputReceived(Message(text, (text_part(text),)))


def said(text: str, turn: int = 1, *, append: bool = True, metadata: Raw | None = None) -> ArtifactAdded:
    parts = (text_part(text),)
    return ArtifactAdded(f"response-{turn}", parts, "response", append=append, metadata=metadata or UNSET)


def talk(*payloads: Payload) -> list[tuple[list[str], str]]:
    return [([message.id for message in one.asked], one.answer) for one in rounds(log(*payloads))]


def test_what_was_streamed_and_said_is_the_answer_and_the_rest_is_not() -> None:
    made = ArtifactAdded("file", (Part(text="a file"),), "file")
    question = InputRequired((text_part("Which?"),))
    first = (
        asked("hi"),
        Started(1),
        Progress((text_part("thinking"),)),
        said("a", append=False),
        said("b"),
        made,
        question,
    )
    second = (asked("this"), Started(2), Failed("x", "no luck"))
    assert talk(*first, *second) == [(["hi"], "ab\nWhich?"), (["this"], "")]


def test_input_that_came_during_a_turn_belongs_to_the_next() -> None:
    events = (
        asked("1"),
        Started(1),
        asked("2"),
        said("a", append=False),
        asked("3"),
        TurnEnded(),
        Started(2),
        said("b", 2),
    )
    assert talk(*events, Completed()) == [(["1"], "a"), (["2", "3"], "b")]


def test_a_turn_that_was_taken_up_again_counts_once_and_reads_all_that_came() -> None:
    events = (asked("1"), Started(1), said("half", append=False), asked("2"), Rescued(2, 1, "restart"), Started(3))
    assert talk(*events) == [(["1", "2"], "")]
    assert talk(*events, said("whole", append=False), Completed()) == [(["1", "2"], "whole")]


def test_a_turn_that_a_fork_works_on_again_counts_once() -> None:
    before = (asked("1"), Started(1), said("a", append=False), TurnEnded())
    assert talk(*before, Forked("local", again=True), Started(2), said("b", append=False), Completed()) == [
        (["1"], "b")
    ]
    broken = (asked("1"), Started(1), said("half", append=False), Forked("local"), asked("2"), Started(2))
    assert talk(*broken) == [(["1"], "half"), (["2"], "")]


def test_a_run_that_never_began_has_no_rounds() -> None:
    assert rounds(log(asked("1"))) == list[TurnRound]()


def test_what_a_piece_tells_about_the_answer_adds_to_what_is_known() -> None:
    pieces = (
        said("a", append=False, metadata=Raw(b'{"model":"m","usage":{"in":1}}')), said("b"),
        said("", metadata=Raw(b'{"usage":{"in":1,"out":2}}')),
    )  # fmt: skip
    (artifact,) = view_of(log(asked("1"), Started(1), *pieces)).artifacts
    assert artifact.metadata == Raw(b'{"model":"m","usage":{"in":1,"out":2}}')
    assert [part.text for part in artifact.parts] == ["ab"]


def test_pieces_are_joined_with_what_they_tell_unless_both_do() -> None:
    scribe = Scribe(1)
    tells = (Text("a", {"model": "m"}), Text("b"), Text("c", {"out": 2}))
    reports: list[Report] = [scribe.report(piece) for piece in tells]
    first, second = joined(reports)
    assert isinstance(first, ArtifactAdded)
    assert isinstance(second, ArtifactAdded)
    assert (first.parts, first.metadata) == ((text_part("ab"),), Raw(b'{"model":"m"}'))
    assert second.metadata == Raw(b'{"out":2}')
    (whole,) = joined(reports[1:])
    assert isinstance(whole, ArtifactAdded)
    assert (whole.parts, whole.metadata) == ((text_part("bc"),), Raw(b'{"out":2}'))


def test_a_reply_can_tell_something_about_itself() -> None:
    report = Scribe(1).report(Reply("hi", {"model": "m"}))
    assert isinstance(report, get_args(Payload))
    view = view_of(log(asked("1"), Started(1), report))
    assert view.reply is not None
    assert view.reply.metadata == Raw(b'{"model":"m"}')
    assert isinstance(report, Replied)
