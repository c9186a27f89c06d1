"""Any commands in any order: what holds of every run, always."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from parley.errors import ParleyError
from parley.ids import ConversationId, RunId
from parley.runs.rules.commands import (
    Adopt,
    Begin,
    CallTool,
    Cancel,
    Close,
    Command,
    Emit,
    Fail,
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
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    InputRequired,
    Progress,
    Rejected,
    Replied,
    ToolCalled,
    ToolReturned,
    decode,
    encode,
    sealed,
    verify,
)
from parley.runs.rules.state import Run, State, evolve
from parley.runs.rules.view import view_of

ID = RunId("run")
WORDS = (text_part("w"),)
MESSAGE = Message("m", WORDS)

begins = st.sampled_from([None, Begin("r")])
reports = st.sampled_from(
    [Progress(WORDS), ArtifactAdded("a", WORDS), ArtifactAdded("a", WORDS, append=True), InputRequired(WORDS),
     AuthRequired(WORDS), Completed(WORDS), Replied(WORDS), Failed("x", "y"), Canceled(), Rejected("x", "y")]
)  # fmt: skip
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Give, st.just(MESSAGE), begins),
    st.just(Begin("r")),
    st.builds(Emit, st.integers(0, 6), reports),
    st.builds(Adopt, st.integers(0, 6), st.sampled_from([RunId("c1"), RunId("c2")]), st.just("other")),
    st.just(CallTool(ToolCalled("t", "look", Raw(b"{}")))),
    st.just(ReturnTool(ToolReturned("t", "look", "succeeded", Raw(b"{}")))),
    st.just(Cancel("local")),
    st.just(Close("local")),
    st.just(Fail("x", "y")),
    st.builds(Recover, st.integers(0, 6), st.sampled_from(["restart", "resume", "fail"]), st.booleans()),
)
starts = st.builds(
    Start, st.just("a"), st.just(ConversationId("c")), st.just("local"), st.sampled_from([MESSAGE, None]),
    begin=begins, reject=st.sampled_from([None, None, None, Rejected("queue_full", "Later.")]), open=st.booleans(),
)  # fmt: skip


class RunMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.run: Run | None = None
        self.events: list[Event] = []

    def do(self, command: Command) -> None:
        try:
            payloads = decide(self.run, command)
        except ParleyError:
            return
        for payload in payloads:
            previous = self.events[-1].hash if self.events else GENESIS
            event = sealed(ID, len(self.events) + 1, 1000 + len(self.events), payload, previous)
            self.events.append(event)
            self.run = evolve(self.run, ID, event.seq, event.at, payload)

    @precondition(lambda self: self.run is None)
    @rule(start=starts)
    def start(self, start: Start) -> None:
        self.do(start)

    @rule(command=commands)
    def command(self, command: Command) -> None:
        self.do(command)

    @precondition(lambda self: self.run is not None)
    @rule(report=reports)
    def current_executor_reports(self, report: Completed) -> None:
        assert self.run is not None
        self.do(Emit(self.run.epoch, report))

    @invariant()
    def at_most_one_end_and_nothing_after_it(self) -> None:
        ends = [event.seq for event in self.events if event.type in ENDINGS]
        assert len(ends) <= 1
        assert not ends or ends[0] == len(self.events)
        assert self.run is None or self.run.ended == bool(ends)

    @invariant()
    def numbers_have_no_gap_and_the_chain_verifies(self) -> None:
        assert [event.seq for event in self.events] == list(range(1, len(self.events) + 1))
        assert verify(self.events)[0] == len(self.events)

    @invariant()
    def the_state_is_the_fold_of_the_events_as_stored(self) -> None:
        run = None
        for event in self.events:
            payload = decode(encode(event.payload)) if event.payload else None
            assert payload == event.payload
            assert payload is not None
            run = evolve(run, ID, event.seq, event.at, payload)
        assert run == self.run
        if run is not None:
            assert view_of(self.events).status.state is run.state

    @invariant()
    def somebody_owns_it_exactly_while_it_is_worked_on(self) -> None:
        if self.run is not None:
            assert bool(self.run.owner) == (self.run.state is State.WORKING)

    @invariant()
    def what_is_read_was_received(self) -> None:
        if self.run is not None:
            assert 0 <= self.run.read_before <= self.run.read <= self.run.inputs

    @invariant()
    def epochs_only_grow(self) -> None:
        epochs = [event.payload.epoch for event in self.events if hasattr(event.payload, "epoch")]  # type: ignore[union-attr]
        assert epochs == sorted(set(epochs))

    @invariant()
    def no_tool_is_called_once_a_cancel_is_on_record(self) -> None:
        types = [event.type for event in self.events]
        if "cancel_requested" in types:
            assert "tool_call" not in types[types.index("cancel_requested") :]

    @invariant()
    def a_completed_run_has_read_everything(self) -> None:
        if self.run is not None and self.run.state is State.COMPLETED:
            assert self.run.read == self.run.inputs

    @invariant()
    def an_open_run_completes_only_when_it_was_closed(self) -> None:
        if self.run is not None and self.run.open and self.run.state is State.COMPLETED:
            assert self.run.closing


TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = settings(max_examples=200, stateful_step_count=30)


@given(order=st.permutations(["cancel", "complete", "cancel", "progress", "complete", "give"]))
def test_a_cancel_that_races_completion_ends_in_exactly_one_terminal_event(order: list[str]) -> None:
    """Every interleaving of two cancels, two completions (one of them late), progress and an input."""
    machine = RunMachine()
    machine.do(Start("a", ConversationId("c"), "local", MESSAGE, begin=Begin("r")))
    steps: dict[str, Command] = {
        "cancel": Cancel("local"),
        "complete": Emit(1, Completed(WORDS)),
        "progress": Emit(1, Progress(WORDS)),
        "give": Give(MESSAGE),
    }
    for name in order:
        machine.do(steps[name])
    run = machine.run
    assert run is not None
    if not run.ended:
        # The input came before the first completion and the cancel before that one's turn ended.
        machine.do(Emit(run.epoch, Canceled())) if run.state is State.WORKING else machine.do(Cancel("local"))
    machine.at_most_one_end_and_nothing_after_it()
    assert machine.run is not None
    assert machine.run.ended
    assert machine.run.state in (State.CANCELED, State.COMPLETED)
