"""The generation of a task as a fold of its log: each update counts once, whatever else is in the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.faces.a2a.messages import counted_update
from parley.faces.a2a.v1 import V1
from parley.faces.a2a.v11 import V11
from parley.ids import ConversationId, RunId
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    GENESIS,
    ArtifactAdded,
    CancelRequested,
    ChildStarted,
    Completed,
    Event,
    Failed,
    InputReceived,
    InputRequired,
    Noted,
    Omitted,
    Payload,
    Progress,
    Replied,
    Started,
    Submitted,
    TurnEnded,
    sealed,
)
from parley.runs.rules.state import Run, evolve, is_update
from parley.runs.rules.usage import Usage
from parley.runs.rules.view import View, view_of

WORDS = (text_part("words"),)
SILENT: list[Payload] = [
    Noted({"a": "b"}),
    ChildStarted(RunId("child"), "agent"),
    CancelRequested("local"),
    Omitted("noted"),
    Progress((), usage=Usage("model", 1, 1)),
]
SHOWN: list[Payload] = [
    InputReceived(Message("m", WORDS)),
    Started(2),
    Progress(WORDS),
    Progress(()),
    ArtifactAdded("a", WORDS, append=True),
    InputRequired(WORDS),
    TurnEnded(WORDS),
]
ENDS: list[Payload] = [Completed(), Failed("code", "reason"), Replied(WORDS)]


def log_of(*payloads: Payload, opened: bool = False) -> list[Event]:
    first: list[Payload] = [Submitted("agent", ConversationId("c"), "local", open=opened)]
    first += [] if opened else [InputReceived(Message("m", WORDS))]
    previous, made = GENESIS, list[Event]()
    for seq, payload in enumerate([*first, *payloads], 1):
        made.append(sealed(RunId("run"), seq, 1000 + seq, payload, previous))
        previous = made[-1].hash
    return made


def test_a_new_task_has_generation_1() -> None:
    assert view_of(log_of()).run.generation == 1
    assert view_of(log_of(opened=True)).run.generation == 1


@pytest.mark.parametrize("payload", [*SHOWN, *ENDS])
def test_an_update_raises_the_generation_by_one(payload: Payload) -> None:
    assert view_of(log_of(payload)).run.generation == 2
    assert view_of(log_of(payload, opened=True)).run.generation == 2


@pytest.mark.parametrize("payload", SILENT)
def test_what_is_not_shown_leaves_the_generation(payload: Payload) -> None:
    assert view_of(log_of(payload)).run.generation == 1


@given(st.lists(st.sampled_from([*SHOWN, *SILENT])), st.sampled_from(ENDS), st.booleans(), st.data())
def test_updates_that_are_shown_are_numbered_without_gaps(
    middle: list[Payload], end: Payload, opened: bool, data: st.DataObject
) -> None:
    events = log_of(*middle, end, opened=opened)
    run: Run | None = None
    shown: list[int] = []
    for event in events:
        assert event.payload is not None
        run = evolve(run, event.run, event.seq, event.at, event.payload)
        if (frame := V11().frame(counted_update(run, event), last=False)) is not None:
            update = frame.status_update or frame.artifact_update
            assert update is not None
            shown.append(update.generation)
    assert run is not None
    assert shown == list(range(2, run.generation + 1))
    assert run.generation <= run.version
    cut = data.draw(st.integers(1, len(events)))
    restored = View.restored(view_of(events[:cut]).snapshot())
    restored.feed(events[cut:])
    assert restored.run.generation == run.generation


def test_every_update_that_1_0_shows_counts() -> None:
    for payload in (*SHOWN, *SILENT, *ENDS):
        event = log_of(payload)[-1]
        run = view_of(log_of(payload)).run
        old = V1().frame(counted_update(run, event), last=False)
        assert old is None or is_update(payload, event.seq, open=False)
