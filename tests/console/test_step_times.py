"""Bars of steps, and the path on which an orchestration's time depends."""

from parley.console.pages.orchestrations import WIDEST, drawn
from parley.console.step_times import times_of
from parley.ids import ConversationId, RunId
from parley.orchestrations.rules.plan import Rules, Step
from parley.orchestrations.rules.state import Orchestration, StepState


def orchestration(*steps: tuple[str, tuple[str, ...], int, int]) -> Orchestration:
    """Each step with its dependencies, start and end."""
    made = tuple(
        StepState(Step(id_, "agent", depends_on=before), number, started_at=start, ended_at=end)
        for number, (id_, before, start, end) in enumerate(steps, 1)
    )
    run = RunId("r")
    return Orchestration(run, run, "agent", ConversationId("c"), "local", Rules(), 0, steps=made)


def test_the_critical_path_leads_from_the_last_end_to_the_first_start() -> None:
    state = orchestration(
        ("a", (), 1000, 2000), ("b", ("a",), 2000, 6000), ("c", ("a",), 2000, 3000), ("d", ("b", "c"), 6000, 11000)
    )
    times = times_of(state, 99_000)
    assert [one.step.id for one in times.path] == ["a", "b", "d"]
    assert times.span == 10_000
    assert [(one.x, one.width, one.critical) for one in times.steps.values()] == [
        (0, 10, True), (10, 40, True), (10, 10, False), (50, 50, True),
    ]  # fmt: skip


def test_a_step_that_runs_ends_now_and_one_that_was_not_started_has_no_bar() -> None:
    state = orchestration(("a", (), 1000, 2000), ("b", ("a",), 2000, 0), ("c", ("b",), 0, 0))
    times = times_of(state, 5000)
    assert (times.steps[2].duration, times.steps[2].offset, list(times.steps)) == (3000, 1000, [1, 2])
    assert times_of(orchestration(("a", (), 0, 0)), 1).steps == {}


def test_two_hundred_steps_are_laid_out_narrowly_whatever_hangs_on_what() -> None:
    fan = [("first", (), 0, 0), *((f"p{n}", ("first",), 0, 0) for n in range(198))]
    join = ("last", tuple(f"p{n}" for n in range(198)), 0, 0)
    chain = [(f"s{n}", (f"s{n - 1}",) if n else (), 0, 0) for n in range(200)]
    for steps in ([*fan, join], chain):
        graph = drawn(orchestration(*steps))
        assert len(graph.boxes) == 200
        assert graph.width < (WIDEST + 2) * 200 + 400
        spots = {(box.x, box.y) for box in graph.boxes.values()}
        assert len(spots) == 200
        assert all(graph.boxes[line.start].y < graph.boxes[line.to].y for line in graph.lines)
