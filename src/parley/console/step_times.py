"""Times of an orchestration's steps as bars on one scale, and the critical path: the steps that its duration depends
on."""

from collections.abc import Sequence

from msgspec import Struct

from parley.orchestrations.rules.state import Orchestration, StepState

_LEAST = 0.6
"""Width of the shortest bar, in percent, so that it can be seen."""


class StepTime(Struct, frozen=True):
    """When a step worked; `x` and `width` are percent of the orchestration's time so far."""

    offset: int
    duration: int
    x: float
    width: float
    critical: bool


class StepTimes(Struct, frozen=True):
    steps: dict[int, StepTime]
    """By the number of the step; only steps that were started."""
    path: list[StepState]
    """The critical path, in the order of its steps."""
    span: int
    """Time from the start of the first step to the end of the last one, or until now."""


def times_of(state: Orchestration, now: int) -> StepTimes:
    begun = [one for one in state.steps if one.started_at]
    if not begun:
        return StepTimes({}, [], 0)
    first = min(one.started_at for one in begun)
    span = max(1, max(_end(one, now) for one in begun) - first)
    path = critical_path(begun, now)
    critical = {one.number for one in path}
    return StepTimes({one.number: _time(one, first, span, now, critical) for one in begun}, path, span)


def critical_path(steps: Sequence[StepState], now: int) -> list[StepState]:
    """From the step that ended last, back to each step's dependency that ended last."""
    known = {one.step.id: one for one in steps}
    path: list[StepState] = []
    step = max(steps, key=lambda one: _end(one, now), default=None)
    while step is not None and step not in path:
        path.append(step)
        before = [known[id_] for id_ in step.step.depends_on if id_ in known]
        step = max(before, key=lambda one: _end(one, now), default=None)
    return path[::-1]


def _end(step: StepState, now: int) -> int:
    return max(step.ended_at, step.started_at) if step.ended_at else max(now, step.started_at)


def _time(step: StepState, first: int, span: int, now: int, critical: set[int]) -> StepTime:
    duration = _end(step, now) - step.started_at
    width = max(_LEAST, 100 * duration / span)
    x = min(100 * (step.started_at - first) / span, 100 - width)
    return StepTime(step.started_at - first, duration, round(x, 2), round(width, 2), step.number in critical)
