"""Any plan, any failures, and anybody steering at any moment: what holds of every orchestration, always."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from parley.errors import InvalidState, ParleyError
from parley.orchestrations.rules.commands import (
    Advance,
    Pause,
    Resume,
    Retry,
    Settle,
    StepResult,
    conclusion,
    decide,
    wake_at,
)
from parley.orchestrations.rules.plan import Rules, Step, ancestors
from parley.orchestrations.rules.state import Orchestration
from parley.runs.rules.commands import Begin, Cancel, Emit, Fork, Give, Recover, Steer
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Origin, Planned, Steered, Stepped, decode, encode
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import view_of
from tests.orchestrations.plans import MESSAGE, Book, fold, plans

pytestmark = pytest.mark.slow

rules = st.builds(
    Rules, max_parallel=st.integers(1, 4), step_timeout_ms=st.none(), auto_retry=st.booleans(),
    max_retries=st.integers(0, 2), retry_delay_ms=st.just(100),
)  # fmt: skip
results = st.sampled_from(
    [StepResult("completed", (text_part("done"),)), StepResult("completed"), StepResult("failed", code="x", reason="y"),
     StepResult("failed", code="x", retryable=False)]
)  # fmt: skip


class Conducted(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.book = Book()
        self.logs = 0
        self.succeeded: set[str] = set()
        self.tries: dict[str, int] = {}
        """Attempts since somebody asked for the step."""

    @property
    def run(self) -> Run:
        assert self.book.run is not None
        return self.book.run

    @property
    def state(self) -> Orchestration:
        assert self.book.state is not None
        return self.book.state

    @property
    def working(self) -> bool:
        return self.run.state is State.WORKING

    def emit(self, *events: Stepped | Steered) -> None:
        """As the conductor writes: a step that begins is a child from that moment."""
        for event in events:
            assert isinstance(event, Stepped)
            self.book.do(Emit(self.run.epoch, event))
            assert event.run in self.run.children

    @initialize(rules=rules, steps=plans())
    def plan(self, rules: Rules, steps: tuple[Step, ...]) -> None:
        self.book = Book.begun(rules)
        assert self.state.status == "planning"
        self.book.do(Begin("r"), Emit(1, Planned(steps, 1)))
        self.before = ancestors(steps)

    @precondition(lambda self: self.working)
    @rule(later=st.sampled_from([0, 50, 1000]))
    def advance(self, later: int) -> None:
        self.book.now += later
        halted, free = self.state.halted, self.state.rules.max_parallel - len(self.state.running)
        begun = decide(self.state, Advance(self.book.now))
        assert not (halted and begun)
        assert len(begun) <= free
        done = {one.step.id for one in self.state.steps if one.status == "completed"}
        for one in begun:
            assert isinstance(one, Stepped)
            assert done >= self.before[one.step]
            assert one.step not in self.succeeded
            self.tries[one.step] = self.tries.get(one.step, 0) + 1
            most = 1 + (self.state.rules.max_retries if self.state.rules.auto_retry else 0)
            assert self.tries[one.step] <= most
        self.emit(*begun)
        runs = [one.payload.run for one in self.book.events if _begins(one.payload)]
        assert len(runs) == len(set(runs))

    @precondition(lambda self: self.working and self.state.running)
    @rule(which=st.integers(0, 7), result=results)
    def settle(self, which: int, result: StepResult) -> None:
        one = self.state.running[which % len(self.state.running)]
        told = decide(self.state, Settle(one.step.id, one.attempt, result, self.book.now))
        assert len(told) == 1
        self.emit(*told)
        if result.status == "completed":
            self.succeeded.add(one.step.id)
        after = self.state.step(one.step.id)
        assert (after.status == "completed") == (result.status == "completed")
        assert decide(self.state, Settle(one.step.id, one.attempt, result, self.book.now)) == []

    @rule()
    def time_passes(self) -> None:
        self.book.now += 10

    @precondition(lambda self: not self.run.ended)
    @rule()
    def pause(self) -> None:
        for event in decide(self.state, Pause("ann")) if self.state.status in ("running", "paused") else []:
            assert isinstance(event, Steered)
            self.book.do(Steer(event))
            assert self.state.status == "paused"

    @precondition(lambda self: not self.run.ended)
    @rule()
    def resume(self) -> None:
        if self.state.status != "paused":
            with pytest.raises(InvalidState):
                decide(self.state, Resume("ann"))
            return
        for event in decide(self.state, Resume("ann")):
            assert isinstance(event, Steered)
            self.book.do(Steer(event))
        assert not self.state.paused
        self.go_on()

    @precondition(lambda self: self.run.state is State.INPUT_REQUIRED)
    @rule()
    def answer(self) -> None:
        self.book.do(Give(MESSAGE))
        assert not self.state.paused
        self.go_on()

    def go_on(self) -> None:
        if self.run.ready:
            self.book.do(Begin("r"))
            assert self.working

    @precondition(lambda self: not self.run.ended)
    @rule(how=st.sampled_from(["retry", "cancel"]), which=st.integers(0, 7))
    def steer(self, how: str, which: int) -> None:
        failed = [one.step.id for one in self.state.steps if one.status == "failed"]
        if how == "retry" and failed:
            self.try_again(failed[which % len(failed)])
        elif how == "cancel" and which == 0:
            self.book.do(Cancel("ann"))
            if self.working:
                self.book.do(Recover(self.run.epoch, "resume"))
            assert self.state.status == "cancelled"

    def try_again(self, step: str) -> None:
        (event,) = decide(self.state, Retry(step, "ann"))
        assert isinstance(event, Steered)
        self.book.do(Steer(event))
        self.tries[step] = 0
        assert self.state.step(step).status == "pending"

    @precondition(lambda self: self.working)
    @rule()
    def an_end_that_is_overtaken_does_not_hold(self) -> None:
        ending = conclusion(self.state)
        if ending is not None and self.state.status in ("running", "paused"):
            seen, before = self.state.version, self.state.steps
            self.book.do(Steer(Steered("pause", "ann")), Emit(self.run.epoch, ending, seen))
            assert self.run.ready
            self.book.do(Begin("r"))
            assert (self.state.steps, self.state.paused) == (before, True)

    @precondition(lambda self: self.working)
    @rule()
    def crash(self) -> None:
        """After a crash, another replica finds every step unchanged, with the same run."""
        before = self.state.steps
        self.book.do(Recover(self.run.epoch, "resume"))
        if not self.run.ended:
            self.book.do(Begin("other"))
            assert self.state.steps == before

    @precondition(lambda self: self.working)
    @rule()
    def conclude(self) -> None:
        ending = conclusion(self.state)
        if ending is None:
            waits = wake_at(self.state) is not None
            begins = decide(self.state, Advance(self.book.now))
            assert self.state.running or waits or begins, "nothing is left to happen"
            return
        assert not self.state.running
        self.book.do(Emit(self.run.epoch, ending))
        statuses = {one.status for one in self.state.steps}
        if "failed" in statuses:
            assert self.state.status == "failed"
        elif statuses == {"completed"} and self.run.ended:
            assert self.state.status == "completed"
        elif not self.run.ready:
            assert self.state.status == "paused"
        self.go_on()

    @precondition(lambda self: self.state.status == "failed")
    @rule(which=st.integers(0, 7))
    def retry_after_the_end(self, which: int) -> None:
        """It goes on as another run; what was done is not done again."""
        failed = [one.step.id for one in self.state.steps if one.status == "failed"]
        if not failed or self.logs > 3:
            return
        step, id_, done = failed[which % len(failed)], self.state.id, set(self.succeeded)
        (steered,) = decide(self.state, Retry(step, "ann"))
        assert isinstance(steered, Steered)
        last = self.book.events[-1]
        entries = tuple(event.payload for event in self.book.events if event.payload)
        self.logs += 1
        origin, new = Origin(self.book.id, last.seq, last.hash.hex()), Book(f"run-{self.logs}")
        new.now = self.book.now
        new.do(Fork(origin, entries, "ann", begin=Begin("r"), continues=id_, steered=steered))
        self.book = new
        self.tries[step] = 0
        assert self.state.id == id_ == self.run.orchestration
        assert {one.step.id for one in self.state.steps if one.status == "completed"} == done
        assert self.state.step(step).status == "pending"

    @invariant()
    def what_succeeded_stays(self) -> None:
        if self.book.state is not None:
            done = {one.step.id for one in self.state.steps if one.status == "completed"}
            assert done == self.succeeded
            assert len(self.state.running) <= self.state.rules.max_parallel

    def teardown(self) -> None:
        """The log tells all."""
        if self.book.state is not None:
            assert fold(self.book.events) == self.state
            assert view_of(self.book.events).orchestration == self.state
            assert self.run.orchestration == self.state.id
            assert all(decode(encode(event.payload)) == event.payload for event in self.book.events if event.payload)

    @invariant()
    def nothing_begins_once_it_is_over(self) -> None:
        if self.book.state is not None and self.run.ended:
            assert decide(self.state, Advance(self.book.now + 10**9)) == []
            with pytest.raises(ParleyError):
                decide(self.state, Pause("ann"))


def _begins(payload: object) -> bool:
    return isinstance(payload, Stepped) and payload.status == "running"


TestConducted = Conducted.TestCase
TestConducted.settings = settings(max_examples=100, stateful_step_count=40)
