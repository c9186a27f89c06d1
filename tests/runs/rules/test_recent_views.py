"""The view by the end of a log is the end of the view by the whole log."""

from hypothesis import given
from hypothesis import strategies as st

from parley.ids import ConversationId
from parley.runs.rules.content import Message, Parts, text_part
from parley.runs.rules.events import (
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    Completed,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Noted,
    Payload,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Started,
    Steered,
    Submitted,
    TurnEnded,
)
from parley.runs.rules.view import STATUS_TYPES, View, view_of
from parley.testing.logs import LogWriter

WORDS: list[Parts] = [(), (text_part("words"),)]
PAYLOADS: list[Payload] = [
    InputReceived(Message("m", (text_part("asked"),))),
    Started(1),
    *(Progress(parts) for parts in WORDS),
    ArtifactAdded("a", (text_part("made"),)),
    Noted({"k": "v"}),
    CancelRequested("local"),
    *(TurnEnded(parts) for parts in WORDS),
    *(InputRequired(parts) for parts in WORDS),
    *(AuthRequired(parts) for parts in WORDS),
    Rescued("restart", 1, 1),
    Forked("local"),
    Steered("pause", "local"),
    Steered("resume", "local"),
    *(Completed(parts) for parts in WORDS),
    *(Replied(parts) for parts in WORDS),
    Failed("broken", "It broke."),
    Canceled(None),
    Canceled("Enough."),
    Rejected("no", "Not today."),
]


@given(st.booleans(), st.lists(st.sampled_from(PAYLOADS), max_size=30), st.integers(1, 31))
def test_the_end_of_a_log_says_what_the_whole_log_says(open_: bool, payloads: list[Payload], window: int) -> None:
    log = LogWriter()
    log.append(Submitted("agent", ConversationId("c"), "local", open=open_), *payloads)
    whole = view_of(log.events)
    latest = [event for event in log.events if event.type in STATUS_TYPES][-window:]
    view = View.recent(whole.run, latest)
    if view is None:
        assert latest[0].seq > 1
        return
    view.add_artifacts(log.events)
    assert view.status == whole.status
    assert view.artifacts == whole.artifacts
    assert not view.history or view.history == whole.history[-len(view.history) :]
    if latest[0].seq == 1:
        assert (view.history, view.reply) == (whole.history, whole.reply)


@given(st.booleans(), st.lists(st.sampled_from(PAYLOADS), max_size=12), st.lists(st.sampled_from(PAYLOADS), max_size=6))
def test_a_view_that_is_given_the_run_is_the_same_as_one_that_folds_it(
    open_: bool, before: list[Payload], added: list[Payload]
) -> None:
    log = LogWriter()
    log.append(Submitted("agent", ConversationId("c"), "local", open=open_), *before)
    fed, folded = view_of(log.events), view_of(log.events)
    length = len(log.events)
    log.append(*added)
    folded.feed(log.events[length:])
    fed.feed(log.events[length:], folded.run)
    assert (fed.run, fed.status, fed.history, fed.reply) == (folded.run, folded.status, folded.history, folded.reply)
    assert (fed.artifacts, fed.metadata, fed.has_blobs) == (folded.artifacts, folded.metadata, folded.has_blobs)
