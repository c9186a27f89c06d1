import pytest

from parley.errors import InvalidState, StepNotFound
from parley.orchestrations.rules.commands import (
    Advance,
    Command,
    Pause,
    Resume,
    Retry,
    Settle,
    StepResult,
    conclusion,
    decide,
    estimated_end,
    overdue,
    wake_at,
)
from parley.orchestrations.rules.plan import Rules, Step
from parley.orchestrations.rules.state import Orchestration, words_of
from parley.runs.rules.commands import MAX_RESCUES, Begin, Emit, Give, Recover, Steer
from parley.runs.rules.content import Message, text_part
from parley.runs.rules.events import Completed, Failed, InputRequired, Planned, Stepped
from parley.runs.rules.state import State
from parley.runs.rules.view import View, view_of
from tests.orchestrations.plans import Book, step

DONE = StepResult("completed", (text_part("done"),))
BROKEN = StepResult("failed", code="x", reason="It broke.")


class Stage(Book):
    """An orchestration with a plan, a turn under way."""

    def __init__(self, *steps: Step, rules: Rules | None = None) -> None:
        super().__init__()
        self.__dict__.update(Book.begun(rules or Rules()).__dict__)
        self.do(Begin("r"), Emit(1, Planned(steps, 1)))

    @property
    def now_at(self) -> Orchestration:
        assert self.state is not None
        return self.state

    def tell(self, command: Command) -> None:
        for event in decide(self.now_at, command):
            if isinstance(event, Stepped):
                self.do(Emit(self.epoch, event))
            else:
                self.do(Steer(event))

    @property
    def epoch(self) -> int:
        return self.run.epoch if self.run else 0

    def settle(self, step: str, result: StepResult) -> None:
        self.tell(Settle(step, self.now_at.step(step).attempt, result, self.now))

    def go(self) -> list[str]:
        self.tell(Advance(self.now))
        return [one.step.id for one in self.now_at.running]

    @property
    def view(self) -> View:
        return view_of(self.events)


def test_one_that_waits_for_a_step_is_rescued_as_often_as_it_takes() -> None:
    stage = Stage(step("a"))
    assert stage.go() == ["a"]
    for _ in range(MAX_RESCUES + 5):
        stage.do(Recover(stage.epoch, "resume"))
        stage.do(Begin("r"))
    stage.settle("a", DONE)
    assert conclusion(stage.now_at) is not None


def test_one_that_dies_before_its_first_step_is_given_up() -> None:
    stage = Stage(step("a"))
    for _ in range(MAX_RESCUES):
        stage.do(Recover(stage.epoch, "resume"))
        stage.do(Begin("r"))
    stage.do(Recover(stage.epoch, "resume"))
    assert stage.run is not None
    assert stage.run.state is State.FAILED


def test_a_step_begins_when_all_it_depends_on_is_done() -> None:
    stage = Stage(step("a"), step("b"), step("c", "a", "b"))
    assert stage.go() == ["a", "b"]
    stage.settle("b", DONE)
    assert stage.go() == ["a"]
    stage.settle("a", DONE)
    assert stage.go() == ["c"]
    stage.settle("c", DONE)
    assert conclusion(stage.now_at) == Completed()
    assert stage.now_at.step_values["steps.a.output"] == "done"


def test_no_more_steps_run_at_once_than_the_rules_allow() -> None:
    stage = Stage(*(step(f"s{n}") for n in range(5)), rules=Rules(max_parallel=2))
    assert stage.go() == ["s0", "s1"]
    stage.settle("s1", DONE)
    assert stage.go() == ["s0", "s2"]


def test_after_a_failure_nothing_begins_and_what_runs_is_awaited() -> None:
    stage = Stage(step("a"), step("b"), step("c", "b"))
    stage.go()
    stage.settle("a", BROKEN)
    assert stage.go() == ["b"]
    assert conclusion(stage.now_at) is None
    stage.settle("b", DONE)
    assert stage.go() == []
    assert conclusion(stage.now_at) == Failed("step_failed", "Step 1/3 a failed: It broke.")


def test_a_step_is_tried_again_after_a_while_as_often_as_the_rules_say() -> None:
    stage = Stage(step("a"), rules=Rules(auto_retry=True, max_retries=2))
    for wait in (2000, 4000):
        stage.go()
        stage.settle("a", BROKEN)
        assert stage.now_at.step("a").status == "pending"
        assert wake_at(stage.now_at) == stage.now + wait
        assert stage.go() == []
        stage.now += wait
    assert stage.go() == ["a"]
    stage.settle("a", BROKEN)
    assert (stage.now_at.step("a").status, stage.now_at.step("a").attempt) == ("failed", 3)


def test_a_retry_is_not_put_off_by_a_server_whose_clock_is_ahead() -> None:
    stage = Stage(step("a"), rules=Rules(auto_retry=True, retry_delay_ms=100))
    stage.go()
    stage.tell(Settle("a", 1, BROKEN, stage.now + 300_000))
    assert stage.now_at.step("a").due > stage.now + 300_000
    assert stage.go() == ["a"]


def test_what_cannot_end_otherwise_is_not_tried_again() -> None:
    stage = Stage(step("a"), rules=Rules(auto_retry=True))
    stage.go()
    stage.settle("a", StepResult("failed", code="rejected", retryable=False))
    assert stage.now_at.step("a").status == "failed"


def test_a_paused_one_lets_steps_finish_and_then_waits_for_leave() -> None:
    stage = Stage(step("a"), step("b", "a"))
    stage.go()
    stage.tell(Pause("ann"))
    assert (stage.now_at.status, conclusion(stage.now_at)) == ("paused", None)
    stage.settle("a", DONE)
    assert stage.go() == []
    ending = conclusion(stage.now_at)
    assert isinstance(ending, InputRequired)
    stage.do(Emit(stage.epoch, ending))
    assert stage.now_at.status == "paused"
    stage.tell(Resume("ann"))
    assert stage.run
    assert stage.run.ready
    stage.do(Begin("r"))
    assert stage.go() == ["b"]
    assert stage.run.turns == 1


def test_a_message_lets_a_paused_one_go_on() -> None:
    stage = Stage(step("a"), step("b", "a"))
    stage.tell(Pause("ann"))
    stage.do(Emit(1, InputRequired((text_part("Paused."),))), Give(Message("n", (text_part("go on"),))), Begin("r"))
    assert stage.go() == ["a"]


def test_a_checkpoint_asks_and_its_answer_can_be_used() -> None:
    stage = Stage(step("a", checkpoint="Good?"), step("b", "a", text="{{steps.a.answer}}"), step("c"))
    stage.go()
    stage.settle("a", DONE)
    assert stage.now_at.status == "paused"
    stage.settle("c", DONE)
    assert conclusion(stage.now_at) == InputRequired((text_part("Good?"),))
    stage.do(Emit(1, InputRequired((text_part("Good?"),))), Give(Message("n", (text_part("yes, very"),))), Begin("r"))
    assert stage.go() == ["b"]
    assert stage.now_at.step_values["steps.a.answer"] == "yes, very"


@pytest.mark.parametrize(("word", "then"), [("retry", ["a"]), ("Abort", [])])
def test_at_a_checkpoint_a_step_can_be_done_again_or_everything_be_stopped(word: str, then: list[str]) -> None:
    stage = Stage(step("a", checkpoint="Good?"), step("b", "a"))
    stage.go()
    stage.settle("a", DONE)
    stage.do(Emit(1, InputRequired((text_part("Good?"),))), Give(Message("n", (text_part(word),))), Begin("r"))
    assert stage.go() == then
    ending = conclusion(stage.now_at)
    assert ending is None if then else isinstance(ending, Failed) and ending.code == "aborted"


def test_only_a_failed_step_is_tried_again() -> None:
    stage = Stage(step("a"), step("b"))
    stage.go()
    with pytest.raises(InvalidState):
        stage.tell(Retry("a", "ann"))
    with pytest.raises(StepNotFound):
        stage.tell(Retry("z", "ann"))
    stage.settle("a", BROKEN)
    stage.tell(Retry("a", "ann"))
    assert stage.go() == ["a", "b"]
    assert stage.now_at.step("a").attempt == 2


def test_a_late_result_of_an_earlier_attempt_changes_nothing() -> None:
    stage = Stage(step("a"), rules=Rules(auto_retry=True, retry_delay_ms=0))
    stage.go()
    stage.settle("a", BROKEN)
    stage.go()
    assert decide(stage.now_at, Settle("a", 1, DONE, stage.now)) == []


def test_a_step_over_its_time_is_found() -> None:
    stage = Stage(step("a"), rules=Rules(step_timeout_ms=500))
    stage.go()
    assert wake_at(stage.now_at) == stage.now + 500
    assert overdue(stage.now_at, stage.now + 499) == []
    assert [one.step.id for one in overdue(stage.now_at, stage.now + 500)] == ["a"]


def test_the_end_is_estimated_by_what_was_done_and_what_must_follow_it() -> None:
    stage = Stage(step("a"), step("b", "a"), step("c", "b"), step("d", "a"))
    stage.go()
    assert estimated_end(stage.now_at, stage.now) is None
    stage.now += 1000
    stage.settle("a", DONE)
    assert estimated_end(stage.now_at, stage.now) == stage.now + 2000


def test_its_status_says_what_happens() -> None:
    stage = Stage(step("a"), step("chart", "a"), rules=Rules(auto_retry=True))
    stage.go()
    said = stage.view.status.said
    assert said
    assert words_of(said.parts) == "Step 1/2 a: running"
    stage.settle("a", BROKEN)
    said = stage.view.status.said
    assert said
    assert words_of(said.parts) == "Step 1/2 a: failed, to be tried again (It broke.)"
    assert stage.view.status.state is State.WORKING


def test_what_is_kept_when_events_are_forgotten_tells_of_the_steps() -> None:
    stage = Stage(step("a"))
    stage.go()
    stage.settle("a", StepResult("completed", (text_part("x"),)))
    assert View.restored(stage.view.snapshot()).orchestration == stage.now_at
