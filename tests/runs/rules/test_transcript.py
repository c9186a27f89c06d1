"""Messages of a run."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from parley.errors import ParleyError
from parley.ids import ConversationId, RunId
from parley.runs.rules.commands import Begin, Cancel, Command, Emit, Fail, Fork, Give, Recover, Start, decide
from parley.runs.rules.content import CONTEXT, Message, Part, text_part
from parley.runs.rules.events import (
    GENESIS,
    RESPONSE,
    ArtifactAdded,
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    InputReceived,
    InputRequired,
    Origin,
    Payload,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Started,
    Submitted,
    TurnEnded,
    sealed,
)
from parley.runs.rules.state import Run, evolve
from parley.runs.rules.transcript import Transcript, TranscriptMessage, transcript_of

ID = RunId("r")
BEGUN = Submitted("a", ConversationId("c"), "local")
CONTEXTUAL = Part(text="The current plan.", metadata=Raw(msgspec.json.encode({CONTEXT: "plan"})))


def log(*payloads: Payload) -> list[Event]:
    events: list[Event] = []
    for seq, payload in enumerate((BEGUN, *payloads), 1):
        events.append(sealed(ID, seq, seq * 10, payload, events[-1].hash if events else GENESIS))
    return events


def asked(text: str, *parts: Part) -> InputReceived:
    return InputReceived(Message("m", (text_part(text), *parts)))


def answered(text: str, *, append: bool = False, metadata: Raw | None = None) -> ArtifactAdded:
    return ArtifactAdded("response-1", (text_part(text),), RESPONSE, append=append, metadata=metadata or msgspec.UNSET)


def talk(*payloads: Payload) -> list[tuple[str, str, str]]:
    return [(said.id, said.role, said.content) for said in transcript_of(log(*payloads))]


def about(said: TranscriptMessage) -> object:
    return msgspec.json.decode(said.metadata)


def test_a_talk_reads_in_the_order_in_which_it_was_said() -> None:
    events = (
        asked("hello"), Started(1), Progress((text_part("thinking"),)), answered("a"), answered("b", append=True),
        asked("one more thing"), TurnEnded((text_part("there"),)), Started(2), Completed((text_part("done"),)),
    )  # fmt: skip
    assert talk(*events) == [
        ("r.2", "user", "hello"),
        ("r.7", "user", "one more thing"),
        ("r.8", "assistant", "ab\nthere"),
        ("r.10", "assistant", "done"),
    ]


def test_a_question_is_an_answer_and_the_way_a_run_fails_is_told_by_nobody() -> None:
    events = (
        asked("book"), Started(1), InputRequired((text_part("Which?"),)), asked("this"), Started(2), answered("half"),
        Failed("model_error", "The model is gone."),
    )  # fmt: skip
    assert talk(*events) == [
        ("r.2", "user", "book"),
        ("r.4", "assistant", "Which?"),
        ("r.5", "user", "this"),
        ("r.7", "assistant", "half"),
        ("r.8", "system", "The model is gone."),
    ]
    assert about(transcript_of(log(*events))[-1]) == {"code": "model_error"}
    assert talk(asked("x"), Canceled())[-1] == ("r.3", "system", "Canceled.")
    assert talk(asked("x"), Canceled("enough"))[-1] == ("r.3", "system", "Canceled: enough")
    assert talk(asked("x"), Rejected("queue_full", "Later."))[-1] == ("r.3", "system", "Later.")


def test_what_was_put_before_an_agent_is_not_what_somebody_said() -> None:
    assert talk(asked("make a plan", CONTEXTUAL)) == [("r.2", "user", "make a plan")]
    assert talk(InputReceived(Message("m", (CONTEXTUAL,)))) == []


def test_files_and_data_are_mentioned_beside_the_text() -> None:
    given = (
        Part(raw=b"12345", filename="a.bin", media_type="application/x"),
        Part(text="x = 1", filename="a.py"),
        Part(url="https://example.com/a"),
        Part(data=Raw(b'{"a": 1}')),
    )
    made = ArtifactAdded("file", (Part(raw=b"12", media_type="image/png"),), "a.png")
    more = ArtifactAdded("file", (Part(raw=b"34"),), "a.png", append=True)
    whole = ArtifactAdded("page", (text_part("<html>"),), "page.html")
    told = Raw(b'{"model":"m","usage":{"outputTokens":3}}')
    events = (asked("look", *given), Started(1), made, more, whole, answered("see", metadata=told), Completed())
    user, assistant = transcript_of(log(*events))
    assert user.content == "look"
    assert about(user) == {
        "attachments": [
            {"kind": "file", "name": "a.bin", "mediaType": "application/x", "size": 5},
            {"kind": "file", "name": "a.py", "size": 5},
            {"kind": "link", "url": "https://example.com/a"},
            {"kind": "data"},
        ]
    }
    assert assistant.content == "see"
    assert about(assistant) == {
        "model": "m",
        "usage": {"outputTokens": 3},
        "attachments": [
            {"kind": "file", "name": "a.png", "mediaType": "image/png"},
            {"kind": "file", "name": "page.html", "size": 6},
        ],
    }


def test_a_turn_that_was_taken_up_again_is_told_once() -> None:
    events = (asked("1"), Started(1), answered("half"), Rescued(2, 1, "restart"), Started(3), answered("whole"))
    assert talk(*events, Completed()) == [("r.2", "user", "1"), ("r.8", "assistant", "whole")]


def test_a_run_that_records_what_is_done_already_says_nothing() -> None:
    assert talk(Completed((Part(data=Raw(b"{}")),))) == []


def test_a_fork_tells_only_what_is_its_own() -> None:
    first = log(asked("one"), Started(1), answered("uno"), Completed())
    payloads = tuple(event.payload for event in first if event.payload is not None)
    origin = Origin(ID, first[-1].seq, first[-1].hash.hex())
    run, events = played([Fork(origin, payloads, "local", Message("n", (text_part("two"),)), Begin("x"))])
    assert [said.content for said in transcript_of(events)] == ["two"]
    assert run is not None
    assert run.said == 1
    run, events = played([Fork(origin, payloads, "local", None, Begin("x")), Emit(2, Completed((text_part("eins"),)))])
    assert [said.content for said in transcript_of(events)] == ["eins"]


def played(commands: list[Command]) -> tuple[Run | None, list[Event]]:
    """The log that some commands lead to; those that are refused lead to nothing."""
    run: Run | None = None
    events: list[Event] = []
    for command in commands:
        try:
            payloads = decide(run, command)
        except ParleyError:
            continue
        for payload in payloads:
            seq = len(events) + 1
            events.append(sealed(ID, seq, seq * 10, payload, events[-1].hash if events else GENESIS))
            run = evolve(run, ID, seq, seq * 10, payload)
    return run, events


part = st.sampled_from([text_part("w"), text_part(""), Part(raw=b"x"), CONTEXTUAL])
parts = st.one_of(st.just(()), st.tuples(part), st.tuples(part, part))
messages = st.builds(Message, st.just("m"), st.one_of(st.tuples(part), st.tuples(part, part)))
begins = st.sampled_from([None, Begin("r")])
reports = st.one_of(
    st.builds(Progress, parts),
    st.builds(ArtifactAdded, st.just("a"), parts, st.sampled_from([RESPONSE, "file"]), append=st.booleans()),
    *(st.builds(kind, parts) for kind in (InputRequired, AuthRequired, Completed, Replied)),
    st.sampled_from([Failed("x", "y"), Canceled(), Rejected("x", "y")]),
)
commands = st.one_of(
    st.builds(Give, messages, begins),
    st.just(Begin("r")),
    st.builds(Emit, st.integers(1, 3), reports),
    st.just(Cancel("local")),
    st.just(Fail("x", "y")),
    st.builds(Recover, st.integers(1, 3), st.sampled_from(["restart", "fail"])),
)
starts = st.builds(Start, st.just("a"), st.just(ConversationId("c")), st.just("local"), messages, begin=begins)
talks = st.tuples(starts, st.lists(commands, max_size=25)).map(lambda drawn: [drawn[0], *drawn[1]])


def check(run: Run | None, events: list[Event]) -> None:
    """Streamed is folded at once; what the run counts is what is told; and it is told in order."""
    transcript = Transcript()
    streamed = [said for event in events for said in transcript.feed(event)]
    assert streamed == transcript_of(events)
    assert run is not None
    assert run.said == sum(said.role != "system" for said in streamed)
    assert run.notices == sum(said.role == "system" for said in streamed)
    assert run.said_at == (streamed[-1].at if streamed else 0)
    assert len({said.id for said in streamed}) == len(streamed)
    assert [said.at for said in streamed] == sorted(said.at for said in streamed)


@given(talks)
def test_a_run_knows_how_much_is_said_in_it(drawn: list[Command]) -> None:
    check(*played(drawn))


@given(talks, st.integers(0, 40), st.one_of(st.none(), messages), begins, st.lists(commands, max_size=10))
def test_so_does_a_fork(
    drawn: list[Command], at: int, message: Message | None, begin: Begin | None, more: list[Command]
) -> None:
    _, events = played(drawn)
    events = events[: 1 + at % len(events)]
    payloads = tuple(event.payload for event in events if event.payload is not None)
    fork = Fork(Origin(ID, len(events), events[-1].hash.hex()), payloads, "local", message, begin)
    run, forked = played([fork, *more])
    if run is not None:
        check(run, forked)
