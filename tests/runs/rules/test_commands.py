"""The rules of a run, one by one, on values."""

from collections.abc import Callable

import pytest
from msgspec import Raw
from msgspec.structs import replace

from parley.errors import LateResult, LeaseLost, NotCancelable, NotReady, RunEnded, RunNotFound, VersionConflict
from parley.ids import ConversationId, RunId
from parley.runs.rules.agents import Rescue
from parley.runs.rules.commands import (
    MAX_RESCUES,
    Adopt,
    Begin,
    CallTool,
    Cancel,
    Command,
    Emit,
    Fail,
    Give,
    Recover,
    Report,
    ReturnTool,
    Start,
    decide,
)
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import (
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    ChildStarted,
    Completed,
    Failed,
    InputReceived,
    InputRequired,
    Payload,
    Progress,
    Rejected,
    Rescued,
    Started,
    Submitted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from parley.runs.rules.state import Run, State, evolve

RUN = RunId("run-1")
WORDS = (text_part("words"),)
MESSAGE = Message("m1", WORDS)
START = Start("echo", ConversationId("c1"), "local", MESSAGE)
ENDINGS: list[Report] = [Completed(), Failed("broken", "It broke."), Canceled(), Rejected("no", "No.")]


Step = Command | Callable[[Run], Command]


def recover(how: Rescue, *, orderly: bool = False, reason: str = "It stopped.") -> Callable[[Run], Command]:
    """Recover whatever turn is under way."""
    return lambda run: Recover(run.epoch, how, orderly, reason)


def play(*steps: Step, at: int = 1000, step: int = 0) -> Run:
    """The run that some commands lead to."""
    run: Run | None = None
    for one in steps:
        command = one(run) if callable(one) else one  # type: ignore[arg-type]
        for event in decide(run, command):
            run = evolve(run, RUN, (run.version if run else 0) + 1, at, event)
            at += step
    assert run is not None
    return run


def working() -> Run:
    return play(START, Begin("here"))


def test_a_start_is_submitted_with_its_input() -> None:
    assert decide(None, START) == [Submitted("echo", ConversationId("c1"), "local"), InputReceived(MESSAGE)]
    run = play(START)
    assert (run.state, run.version, run.inputs, run.ready) == (State.SUBMITTED, 2, 1, True)


def test_a_start_with_a_free_slot_begins_in_the_same_step() -> None:
    start = Start("echo", ConversationId("c1"), "local", MESSAGE, begin=Begin("here"))
    assert [type(event) for event in decide(None, start)] == [Submitted, InputReceived, Started]
    assert play(start).state is State.WORKING


def test_a_start_over_the_limit_is_rejected_and_says_so() -> None:
    start = Start("echo", ConversationId("c1"), "local", MESSAGE, reject=Rejected("queue_full", "Later."))
    run = play(start)
    assert run.state is State.REJECTED
    assert run.inputs == 1


def test_a_run_cannot_be_started_twice() -> None:
    with pytest.raises(VersionConflict):
        decide(play(START), START)


@pytest.mark.parametrize(
    "command", [Give(MESSAGE), Begin(), Cancel("local"), Recover(1, "restart"), Emit(1, Completed())]
)
def test_nothing_can_be_done_to_a_run_that_does_not_exist(command: Command) -> None:
    with pytest.raises(RunNotFound):
        decide(None, command)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_terminal_run_absorbs_everything(ending: Report) -> None:
    run = play(START, Begin(), Emit(1, ending))
    assert run.ended
    with pytest.raises(RunEnded):
        decide(run, Give(MESSAGE))
    with pytest.raises(NotCancelable):
        decide(run, Cancel("local"))
    with pytest.raises(NotReady):
        decide(run, Begin())
    for late in (*ENDINGS, Progress(WORDS), ArtifactAdded("a", WORDS), InputRequired(WORDS)):
        with pytest.raises(LateResult):
            decide(run, Emit(1, late))
    assert decide(run, Recover(run.epoch, "restart")) == []


def test_a_late_result_cannot_reopen_a_canceled_run() -> None:
    run = play(START, Begin(), Cancel("local"), Emit(1, Canceled()))
    assert run.state is State.CANCELED
    with pytest.raises(LateResult):
        decide(run, Emit(1, Completed(WORDS)))


@pytest.mark.parametrize("ending", [*ENDINGS, InputRequired(WORDS), AuthRequired(WORDS)])
def test_once_a_cancel_is_on_record_every_end_of_the_turn_is_canceled(ending: Report) -> None:
    run = play(START, Begin(), Cancel("local"))
    assert (run.state, run.cancel_requested) == (State.WORKING, True)
    assert [type(event) for event in decide(run, Emit(1, ending))] == [Canceled]


def test_a_canceled_run_still_shows_what_was_made_before_it_stopped() -> None:
    run = play(START, Begin(), Cancel("local"))
    chunk = ArtifactAdded("a", WORDS)
    assert decide(run, Emit(1, chunk)) == [chunk]


@pytest.mark.parametrize("before", [(START,), (START, Begin(), Emit(1, InputRequired(WORDS)))])
def test_a_run_that_nobody_works_on_is_canceled_at_once(before: tuple[Command, ...]) -> None:
    events = decide(play(*before), Cancel("local", "Changed my mind."))
    assert events == [CancelRequested("local", "Changed my mind."), Canceled("Changed my mind.")]


def test_a_second_cancel_adds_nothing() -> None:
    assert decide(play(START, Begin(), Cancel("local")), Cancel("local")) == []


def test_an_answer_to_a_question_makes_the_run_ready_again() -> None:
    run = play(START, Begin(), Emit(1, InputRequired(WORDS)), Give(MESSAGE))
    assert (run.state, run.ready, run.inputs, run.read) == (State.SUBMITTED, True, 2, 1)
    run = play(START, Begin(), Emit(1, InputRequired(WORDS)), Give(MESSAGE, begin=Begin()))
    assert (run.state, run.epoch, run.turns) == (State.WORKING, 2, 2)


def test_an_input_while_working_is_kept_for_the_next_turn() -> None:
    run = play(START, Begin(), Give(MESSAGE, begin=Begin()))
    assert (run.state, run.epoch, run.inputs, run.read) == (State.WORKING, 1, 2, 1)


@pytest.mark.parametrize("ending", [Completed(WORDS), InputRequired(WORDS), AuthRequired(WORDS)])
def test_an_acknowledged_input_is_never_lost(ending: Report) -> None:
    run = play(START, Begin(), Give(MESSAGE))
    assert decide(run, Emit(1, ending)) == [TurnEnded(WORDS)]
    run = play(START, Begin(), Give(MESSAGE), Emit(1, ending))
    assert run.ready


def test_a_failure_ends_the_run_whatever_is_unread() -> None:
    assert play(START, Begin(), Give(MESSAGE), Emit(1, Failed("broken", "It broke."))).state is State.FAILED


def test_an_input_to_a_run_that_is_being_canceled_is_refused() -> None:
    with pytest.raises(RunEnded):
        decide(play(START, Begin(), Cancel("local")), Give(MESSAGE))


def test_only_the_executor_of_the_current_epoch_is_heard() -> None:
    run = play(START, Begin(), recover("restart"), Begin())
    assert run.epoch == 3
    for epoch in (0, 1, 2, 4):
        with pytest.raises(LeaseLost):
            decide(run, Emit(epoch, Completed()))
    assert decide(run, Emit(3, Completed())) == [Completed()]


def test_nobody_is_heard_while_the_run_waits() -> None:
    with pytest.raises(LeaseLost):
        decide(play(START, Begin(), Emit(1, InputRequired(WORDS))), Emit(1, Completed()))


def test_a_turn_begins_once() -> None:
    with pytest.raises(NotReady):
        decide(working(), Begin())


def test_a_rescued_turn_reads_its_input_again_under_a_new_epoch() -> None:
    run = play(START, Begin(), recover("restart"))
    assert decide(working(), Recover(1, "restart")) == [Rescued(2, 1, "restart")]
    assert (run.ready, run.read, run.rescues) == (True, 0, 1)
    again = play(START, Begin(), recover("restart"), Begin())
    assert (again.turns, again.read_before) == (1, 0)


def test_rescue_gives_up_after_three_times() -> None:
    steps: list[Step] = [START]
    for _ in range(MAX_RESCUES):
        steps += [Begin(), recover("restart")]
    run = play(*steps, Begin())
    (event,) = decide(run, Recover(run.epoch, "restart"))
    assert isinstance(event, Failed)
    assert event.code == "rescue_exhausted"


def test_an_orderly_stop_is_not_counted_as_a_failure() -> None:
    steps: list[Step] = [START]
    for _ in range(MAX_RESCUES + 5):
        steps += [Begin(), recover("resume", orderly=True)]
    run = play(*steps)
    assert (run.ready, run.rescues, run.turns) == (True, 0, 1)


def test_an_agent_that_declares_so_fails_with_the_reason() -> None:
    assert decide(working(), Recover(1, "fail", reason="It stopped.")) == [Failed("interrupted", "It stopped.")]


def test_a_broken_turn_that_was_being_canceled_is_canceled() -> None:
    assert decide(play(START, Begin(), Cancel("local")), Recover(1, "restart")) == [Canceled()]


def test_a_rescue_ends_no_run_whose_children_were_not_canceled_before() -> None:
    run = play(START, Begin(), Adopt(1, RunId("child"), "other"), Cancel("local"))
    assert decide(run, Recover(1, "restart", orderly=True, stopped=0)) == []
    assert decide(run, Recover(1, "restart", orderly=True, stopped=1)) == [Canceled()]
    failing = play(START, Begin(), Adopt(1, RunId("child"), "other"))
    assert decide(failing, Recover(1, "fail", stopped=0)) == []
    assert decide(failing, Recover(1, "restart", stopped=0)) == [Rescued(2, 1, "restart")]


def test_a_run_without_a_turn_does_not_end_before_its_children_were_canceled() -> None:
    before: list[Step] = [START, Begin(), Adopt(1, RunId("child"), "other"), recover("restart", orderly=True)]
    run = play(*before)
    assert decide(run, Cancel("local", stopped=0)) == []
    assert decide(run, Cancel("local", stopped=1)) == [CancelRequested("local"), Canceled()]
    assert decide(run, Fail("broken", "It broke.", stopped=0)) == []
    assert decide(run, Fail("broken", "It broke.", stopped=1)) == [Failed("broken", "It broke.")]


def test_a_stale_rescue_does_not_disturb_the_executor_who_took_over() -> None:
    run = play(START, Begin("a"), recover("restart"), Begin("b"))
    assert (run.owner, run.epoch) == ("b", 3)
    assert decide(run, Recover(1, "restart")) == []


def test_a_run_has_an_owner_exactly_while_it_is_worked_on() -> None:
    assert play(START).owner == ""
    assert play(START, Begin("a")).owner == "a"
    for after in (Emit(1, InputRequired(WORDS)), Emit(1, Completed()), recover("restart")):
        assert play(START, Begin("a"), after).owner == ""


def test_rescue_leaves_alone_what_is_not_being_worked_on() -> None:
    assert decide(play(START), Recover(0, "restart")) == []
    assert decide(play(START, Begin(), Emit(1, InputRequired(WORDS))), Recover(1, "restart")) == []


def test_the_clock_stops_while_a_run_waits() -> None:
    run = play(START, Begin(), Emit(1, InputRequired(WORDS)), Give(MESSAGE), Begin(), Emit(2, Progress(WORDS)), step=10)
    assert run.spent_ms == 10


@pytest.mark.parametrize("end", ENDINGS)
def test_the_last_turn_counts_as_time_spent(end: Report) -> None:
    run = play(START, Begin(), Emit(1, end), step=10)
    assert run.ended
    assert run.spent_ms == 10


def test_a_run_that_is_canceled_while_it_waits_has_spent_only_its_turns() -> None:
    run = play(START, Begin(), Emit(1, InputRequired(WORDS)), Cancel("local"), step=10)
    assert run.ended
    assert run.spent_ms == 10


def test_a_child_is_recorded_once() -> None:
    child = RunId("child")
    assert decide(working(), Adopt(1, child, "other")) == [ChildStarted(child, "other")]
    run = play(START, Begin(), Adopt(1, child, "other"))
    assert run.children == (child,)
    assert decide(run, Adopt(1, child, "other")) == []


def test_a_run_that_is_being_canceled_starts_no_child() -> None:
    with pytest.raises(RunEnded):
        decide(play(START, Begin(), Cancel("local")), Adopt(1, RunId("child"), "other"))


CALL = ToolCalled("call-1", "get_issue", Raw(b'{"issue_number":1}'))
RETURN = ToolReturned("call-1", "get_issue", "succeeded", Raw(b'{"title":"x"}'))


@pytest.mark.parametrize(
    "before",
    [(START,), (START, Begin()), (START, Begin(), Emit(1, InputRequired(WORDS))),
     (START, Begin(), Emit(1, AuthRequired(WORDS)))],
    ids=["submitted", "working", "input_required", "auth_required"],
)  # fmt: skip
def test_a_tool_changes_nothing_but_the_length_of_the_log(before: tuple[Step, ...]) -> None:
    run = play(*before)
    assert decide(run, CallTool(CALL)) == [CALL]
    assert decide(run, ReturnTool(RETURN)) == [RETURN]
    after = evolve(evolve(run, RUN, run.version + 1, 2000, CALL), RUN, run.version + 2, 2001, RETURN)
    assert after == replace(run, version=run.version + 2, updated_at=2001)


def test_a_run_that_is_being_canceled_calls_no_tool_and_hears_of_one_under_way() -> None:
    run = play(START, Begin(), CallTool(CALL), Cancel("local"))
    with pytest.raises(RunEnded, match="canceling"):
        decide(run, CallTool(CALL))
    assert decide(run, ReturnTool(RETURN)) == [RETURN]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_late_tool_result_cannot_reopen_a_run(ending: Report) -> None:
    run = play(START, Begin(), CallTool(CALL), Emit(1, ending))
    with pytest.raises(LateResult):
        decide(run, ReturnTool(RETURN))
    with pytest.raises(RunEnded):
        decide(run, CallTool(CALL))


def test_a_log_begins_with_submitted() -> None:
    event: Payload = Completed()
    with pytest.raises(RunNotFound):
        evolve(None, RUN, 1, 0, event)
