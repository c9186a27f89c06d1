"""A fork is its origin up to an event, and a run of its own from there."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import asdict

from parley.errors import Invalid, ParleyError, VersionConflict
from parley.ids import ConversationId, RunId
from parley.runs.rules.commands import (
    Adopt,
    Begin,
    CallTool,
    Cancel,
    Command,
    Emit,
    Fork,
    Give,
    Recover,
    ReturnTool,
    Start,
    decide,
)
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    ENDINGS,
    GENESIS,
    ArtifactAdded,
    Canceled,
    Completed,
    Event,
    Failed,
    InputRequired,
    Origin,
    Progress,
    Rejected,
    Replied,
    Submitted,
    ToolCalled,
    ToolReturned,
    decode,
    encode,
    sealed,
    verify,
)
from parley.runs.rules.state import Run, State, evolve
from parley.runs.rules.view import View, view_of

OLD, NEW = RunId("old"), RunId("new")
WORDS = (text_part("w"),)
MORE = Message("more", (text_part("more"),))
START = Start("a", ConversationId("c"), "user:ann", Message("m", WORDS), RunId("parent"))


class Log:
    """A run and its chain, grown by commands; what is refused does not happen."""

    def __init__(self, run_id: RunId) -> None:
        self.id = run_id
        self.run: Run | None = None
        self.events: list[Event] = []

    def do(self, *commands: Command) -> "Log":
        for command in commands:
            for payload in decide(self.run, command):
                previous = self.events[-1].hash if self.events else GENESIS
                event = sealed(self.id, len(self.events) + 1, 1000, decode(encode(payload)), previous)
                self.events.append(event)
                self.run = evolve(self.run, self.id, event.seq, event.at, payload)
        return self

    def fork(self, at: int, message: Message | None = None, begin: Begin | None = None) -> "Log":
        entries = tuple(event.payload for event in self.events[:at] if event.payload is not None)
        origin = Origin(self.id, at, self.events[at - 1].hash.hex())
        return Log(NEW).do(Fork(origin, entries, "user:ann", message, begin))

    @property
    def state(self) -> Run:
        assert self.run is not None
        return self.run

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


reports = st.sampled_from(
    [Progress(WORDS), ArtifactAdded("a", WORDS), ArtifactAdded("a", WORDS, append=True), InputRequired(WORDS),
     Completed(WORDS), Replied(WORDS), Failed("x", "y"), Canceled("why"), Rejected("x", "y")]
)  # fmt: skip
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Give, st.just(Message("g", WORDS)), st.sampled_from([None, Begin("r")])),
    st.just(Begin("r")),
    st.builds(Emit, st.integers(1, 3), reports),
    st.builds(Adopt, st.integers(1, 3), st.sampled_from([RunId("c1"), RunId("c2")]), st.just("other")),
    st.just(CallTool(ToolCalled("t", "look", Raw(b"{}")))),
    st.just(ReturnTool(ToolReturned("t", "look", "failed", code="x", reason="y"))),
    st.just(Cancel("local", "enough")),
    st.builds(Recover, st.integers(1, 3), st.sampled_from(["restart", "fail"]), st.booleans()),
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(OLD).do(START)
    for command in draw(st.lists(commands, max_size=12)):
        try:
            log.do(command)
        except ParleyError:
            continue
    return log


def said(view: View) -> list[Any]:
    """Visible messages, without ids."""
    status = [view.status.said] if view.status.said else []
    return [(one.role, one.parts) for one in (*view.history, *status)]


def fold(log: Log, upto: int) -> dict[str, Any]:
    run = view_of(log.events[:upto]).run
    return {name: value for name, value in asdict(run).items() if name not in ("id", "parent", "origin")}


@given(log=logs(), data=st.data())
@settings(max_examples=300)
def test_the_fold_of_a_fork_is_that_of_the_prefix_except_for_who_it_is(log: Log, data: st.DataObject) -> None:
    at = data.draw(st.integers(2, len(log.events)))
    fork = log.fork(at, data.draw(st.sampled_from([None, MORE])))
    ours, theirs = fold(fork, at), fold(log, at)
    if not set(log.types[:at]) & {"child", "cancel_requested", *ENDINGS}:
        assert ours == theirs
    for name in ("agent", "conversation", "principal", "version", "inputs", "read", "read_before", "epoch", "turns"):
        assert ours[name] == theirs[name]
    assert ours["children"] == ()
    assert not ours["cancel_requested"]
    assert State(ours["state"]) not in (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED)
    old, new = view_of(log.events[:at]), view_of(fork.events[:at])
    assert new.artifacts == old.artifacts
    if "rejected" not in log.types[:at] and "canceled" not in log.types[:at]:
        assert said(new) == said(old)


@given(log=logs(), data=st.data())
@settings(max_examples=300)
def test_a_fork_has_a_chain_of_its_own_and_its_entries_the_bytes_of_the_origin(log: Log, data: st.DataObject) -> None:
    at = data.draw(st.integers(2, len(log.events)))
    fork = log.fork(at)
    assert verify(fork.events) == (len(fork.events), fork.events[-1].hash)
    first = fork.events[0].payload
    assert isinstance(first, Submitted)
    assert first.origin == Origin(OLD, at, log.events[at - 1].hash.hex())
    for theirs, ours in zip(log.events[1:at], fork.events[1:at], strict=True):
        own = ("child", "tool_call", "tool_result", "cancel_requested", *ENDINGS)
        changed = ours.type in ("omitted", "turn_ended") and theirs.type in own
        assert changed or ours.body == theirs.body


@given(log=logs(), data=st.data(), message=st.sampled_from([None, MORE]), begin=st.sampled_from([None, Begin("r")]))
@settings(max_examples=300)
def test_wherever_a_run_is_forked_it_can_go_on_to_its_end(
    log: Log, data: st.DataObject, message: Message | None, begin: Begin | None
) -> None:
    fork = log.fork(data.draw(st.integers(2, len(log.events))), message, begin)
    assert fork.state.ready or begin
    if begin is None:
        fork.do(Begin("r"))
    assert fork.state.owner == "r"
    assert fork.state.read == fork.state.inputs > fork.state.read_before
    assert fork.do(Emit(fork.state.epoch, Completed(WORDS))).state.state is State.COMPLETED
    again = Log(RunId("third")).do(
        Fork(Origin(NEW, 2, ""), tuple(e.payload for e in fork.events[:2] if e.payload), "user:ann")
    )
    assert again.state.ready


def conversation() -> Log:
    """submitted, input, started, artifact, question, input, started, completed."""
    return Log(OLD).do(
        START, Begin("r"), Emit(1, ArtifactAdded("response-1", WORDS)), Emit(1, InputRequired(WORDS)),
        Give(Message("answer", WORDS), Begin("r")), Emit(2, Completed(WORDS)),
    )  # fmt: skip


def test_without_a_new_input_the_last_turn_is_done_again() -> None:
    fork = conversation().fork(8)
    assert fork.types[-2:] == ["turn_ended", "forked"]
    fork.do(Begin("r"))
    assert (fork.state.turns, fork.state.read_before, fork.state.read) == (2, 1, 2)


def test_cut_in_mid_turn_the_turn_begins_anew() -> None:
    fork = conversation().fork(4, begin=Begin("r2"))
    assert fork.types[-2:] == ["forked", "started"]
    assert (fork.state.turns, fork.state.read_before, fork.state.epoch, fork.state.owner) == (1, 0, 2, "r2")


def test_a_new_input_to_a_completed_run_is_a_new_turn() -> None:
    fork = conversation().fork(8, MORE, Begin("r"))
    assert fork.types[-4:] == ["turn_ended", "forked", "input", "started"]
    assert (fork.state.turns, fork.state.read_before, fork.state.read) == (3, 2, 3)


def test_a_question_can_be_answered_otherwise() -> None:
    fork = conversation().fork(5, MORE, Begin("r"))
    assert (fork.state.turns, fork.state.read_before) == (2, 1)


def test_a_run_canceled_while_it_waited_is_forked_where_it_waited() -> None:
    log = Log(OLD).do(START, Begin("r"), Emit(1, InputRequired(WORDS)), Cancel("user:ann", "enough"))
    fork = log.fork(6)
    assert fork.types[4:] == ["omitted", "omitted", "forked"]
    assert fork.state.ready


def test_what_cannot_be_forked() -> None:
    log = conversation()
    with pytest.raises(Invalid, match="no input yet"):
        log.fork(1)
    assert log.fork(1, MORE).types == ["submitted", "forked", "input"]
    with pytest.raises(Invalid, match="from its beginning"):
        Log(NEW).do(Fork(Origin(OLD, 4, ""), (START_ENTRY,), "user:ann"))
    with pytest.raises(VersionConflict):
        log.do(Fork(Origin(OLD, 1, ""), (START_ENTRY,), "user:ann", MORE))


START_ENTRY = Submitted("a", ConversationId("c"), "user:ann")
