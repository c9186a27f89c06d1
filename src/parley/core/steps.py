"""What comes next in an orchestration: `decide` turns a command into events, or says why it is refused. Whoever drives
one needs to know nothing else."""

import math
import uuid
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from parley.core.artifacts import Parts, text_part
from parley.core.events import Completed, Failed, InputRequired, Steered, Stepped
from parley.core.orchestrations import Orchestration, StepState
from parley.core.plans import Step, ancestors, retry_delay_ms
from parley.errors import InvalidState
from parley.ids import RunId

AHEAD_MS = 5_000
"""By so much the clocks of two servers may differ; a time that is further ahead was told by a wrong one."""


class Result(Struct, frozen=True):
    """What came of one attempt of a step."""

    status: Literal["completed", "failed"]
    output: Parts = ()
    code: str = ""
    reason: str = ""
    retryable: bool = True
    """Whether another attempt might end otherwise."""


class Advance(Struct, frozen=True):
    """Begin what can begin."""

    now: int


class Settle(Struct, frozen=True):
    """An attempt has ended."""

    step: str
    attempt: int
    result: Result
    now: int


class Pause(Struct, frozen=True):
    by: str


class Resume(Struct, frozen=True):
    by: str


class Retry(Struct, frozen=True):
    step: str
    by: str


Command = Advance | Settle | Pause | Resume | Retry


def decide(state: Orchestration, command: Command) -> list[Stepped | Steered]:
    """The events that a command leads to, or the reason why it is refused. An empty list: it holds already."""
    match command:
        case Advance(now):
            return [_begun(state, one) for one in ready(state, now)]
        case Settle():
            return _settle(state, command)
        case Pause(by):
            return _pause(state, by)
        case Resume(by):
            if state.status != "paused":
                raise InvalidState(f"The orchestration is {state.status}, not paused.", state=state.status)
            return [Steered("resume", by)]
        case Retry():
            return _retry(state, command)
        case _:
            assert_never(command)


def ready(state: Orchestration, now: int) -> list[StepState]:
    """What can begin, in the order of the plan, as far as there is room."""
    if state.ended or state.halted:
        return []
    room = state.rules.max_parallel - state.count("running")
    return [one for one in _waiting(state) if _due(state, one, now)][: max(0, room)]


def _due(state: Orchestration, one: StepState, now: int) -> bool:
    """Also when its time is further ahead than any retry waits: then it was told by a wrong clock."""
    furthest = now + retry_delay_ms(state.rules, max(1, one.tries)) + AHEAD_MS
    return one.due <= now or one.due > furthest


def wake_at(state: Orchestration) -> int | None:
    """When something will have to be done though nothing happens: a retry, or the end of somebody's time."""
    limit = state.rules.step_timeout_ms
    times = [one.started_at + limit for one in state.running] if limit is not None else []
    if not state.halted:
        times += [one.due for one in _waiting(state) if one.due]
    return min(times, default=None)


def overdue(state: Orchestration, now: int) -> list[StepState]:
    limit = state.rules.step_timeout_ms
    return [one for one in state.running if limit is not None and one.started_at + limit <= now]


def conclusion(state: Orchestration) -> Completed | Failed | InputRequired | None:
    """How the turn ends when nothing is under way any more; None while there is something to do."""
    if state.running or not state.steps:
        return None
    failed = [one for one in state.steps if one.status == "failed"]
    if failed and (state.halted or not _waiting(state)):
        reasons = [f"Step {_place(state, one)} failed: {one.reason or one.code}" for one in failed]
        return Failed("step_failed", " ".join(reasons))
    if state.aborted:
        return Failed("aborted", f"It was decided to stop after {state.count('completed')} of {state.total} steps.")
    if state.asked:
        return InputRequired((text_part(state.step(state.asked[0]).step.checkpoint),))
    if state.done:
        return Completed()
    if state.paused:
        done = f"Paused after {state.count('completed')} of {state.total} steps."
        return InputRequired((text_part(f"{done} A message lets it go on."),))
    return None


def estimated_end(state: Orchestration, now: int) -> int | None:
    """When it will be done if what is left takes as long as what was done; None when nothing is known."""
    took = [one.ended_at - one.started_at for one in state.steps if one.status == "completed"]
    left = [one.step for one in state.steps if one.status in ("pending", "running")]
    if state.ended or not took or not left:
        return None
    mean = sum(took) / len(took)
    return now + round(mean * max(_depth(left), math.ceil(len(left) / state.rules.max_parallel)))


def _depth(left: list[Step]) -> int:
    """How many of these have to be done one after another."""
    ids = {step.id for step in left}
    steps = [replace(step, depends_on=tuple(one for one in step.depends_on if one in ids)) for step in left]
    depths: dict[str, int] = {}
    before = ancestors(steps)
    for id_ in sorted(before, key=lambda one: len(before[one])):
        depths[id_] = 1 + max((depths[other] for other in before[id_]), default=0)
    return max(depths.values(), default=0)


def child_of(state: Orchestration, step: str, attempt: int) -> RunId:
    """The run of an attempt: whoever takes the orchestration up again finds the same one."""
    return RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, f"orch:{state.run}:{state.plan}:{step}:{attempt}")))


def _waiting(state: Orchestration) -> list[StepState]:
    """Steps that wait for nothing but their time and a free place."""
    completed = {one.step.id for one in state.steps if one.status == "completed"}
    return [one for one in state.steps if one.status == "pending" and completed.issuperset(one.step.depends_on)]


def _place(state: Orchestration, one: StepState) -> str:
    return f"{one.number}/{state.total} {one.step.title}"


def _begun(state: Orchestration, one: StepState) -> Stepped:
    attempt = one.attempt + 1
    run = child_of(state, one.step.id, attempt)
    return Stepped(one.step.id, "running", one.number, state.total, attempt, one.step.name, run)


def _settle(state: Orchestration, command: Settle) -> list[Stepped | Steered]:
    one, result = state.step(command.step), command.result
    if state.ended or state.canceling or one.status != "running" or one.attempt != command.attempt:
        return []
    ended = Stepped(
        one.step.id, result.status, one.number, state.total, one.attempt, one.step.name, one.run, result.output,
        result.code, result.reason,
    )  # fmt: skip
    rules = state.rules
    if result.status == "failed" and result.retryable and rules.auto_retry and one.tries <= rules.max_retries:
        due = command.now + retry_delay_ms(rules, one.tries)
        return [replace(ended, status="pending", due=due)]
    return [ended]


def _pause(state: Orchestration, by: str) -> list[Stepped | Steered]:
    if state.paused:
        return []
    if state.canceling or state.status not in ("running", "paused"):
        raise InvalidState(f"The orchestration is {state.status}; it cannot be paused.", state=state.status)
    return [Steered("pause", by)]


def _retry(state: Orchestration, command: Retry) -> list[Stepped | Steered]:
    one = state.step(command.step)
    if one.status != "failed":
        raise InvalidState(f"Step {command.step} is {one.status}; only a failed one is tried again.", state=one.status)
    return [Steered("retry", command.by, command.step)]
