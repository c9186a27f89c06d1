"""Commands of an orchestration: `decide` turns a command into events, or raises the reason for a refusal. A driver of
orchestrations needs nothing else from this module."""

import math
import uuid
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from parley.errors import InvalidState
from parley.ids import RunId
from parley.orchestrations.rules.plan import Step, ancestors, retry_delay_ms
from parley.orchestrations.rules.state import Orchestration, StepState
from parley.runs.rules.content import Parts, text_part
from parley.runs.rules.events import Completed, Failed, InputRequired, Steered, Stepped

AHEAD_MS = 5_000
"""Largest difference between the clocks of two servers. A time further ahead was written by a server with a wrong
clock."""


class StepResult(Struct, frozen=True):
    """Result of one attempt of a step."""

    status: Literal["completed", "failed"]
    output: Parts = ()
    code: str = ""
    reason: str = ""
    retryable: bool = True
    """True if another attempt might have another result."""


class Advance(Struct, frozen=True):
    """Start the steps that can start."""

    now: int


class Settle(Struct, frozen=True):
    """Record that an attempt has ended."""

    step: str
    attempt: int
    result: StepResult
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
    """Return the events that a command leads to, or raise the reason why it is refused. An empty list means that
    nothing has to change."""
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
    """Return the steps that can start, in the order of the plan, up to the limit of parallel steps."""
    if state.ended or state.halted:
        return []
    room = state.rules.max_parallel - state.count("running")
    return [one for one in _waiting(state) if _due(state, one, now)][: max(0, room)]


def _due(state: Orchestration, one: StepState, now: int) -> bool:
    """Return whether a step's retry is due. A time further ahead than any retry delay was written by a wrong clock, and
    counts as due."""
    furthest = now + retry_delay_ms(state.rules, max(1, one.tries)) + AHEAD_MS
    return one.due <= now or one.due > furthest


def wake_at(state: Orchestration) -> int | None:
    """Return the time of the next action that no event triggers: a retry, or a step's timeout."""
    limit = state.rules.step_timeout_ms
    times = [one.started_at + limit for one in state.running] if limit is not None else []
    if not state.halted:
        times += [one.due for one in _waiting(state) if one.due]
    return min(times, default=None)


def overdue(state: Orchestration, now: int) -> list[StepState]:
    limit = state.rules.step_timeout_ms
    return [one for one in state.running if limit is not None and one.started_at + limit <= now]


def conclusion(state: Orchestration) -> Completed | Failed | InputRequired | None:
    """Return how the turn ends when no step is running any more; None while there is work left."""
    if state.running or not state.steps:
        return None
    failed = [one for one in state.steps if one.status == "failed"]
    if failed and (state.halted or not _waiting(state)):
        reasons = [f"Step {_place(state, one)} failed: {one.reason or one.code}" for one in failed]
        return Failed("step_failed", " ".join(reasons))
    if state.aborted:
        return Failed(
            "aborted", f"The orchestration was aborted after {state.count('completed')} of {state.total} steps."
        )
    if state.asked:
        return InputRequired((text_part(state.step(state.asked[0]).step.checkpoint),))
    if state.done:
        return Completed()
    if state.paused:
        done = f"Paused after {state.count('completed')} of {state.total} steps."
        return InputRequired((text_part(f"{done} Send a message to continue."),))
    return None


def estimated_end(state: Orchestration, now: int) -> int | None:
    """Return the estimated end, if the remaining steps take as long as the completed ones; None if nothing is known."""
    took = [one.ended_at - one.started_at for one in state.steps if one.status == "completed"]
    left = [one.step for one in state.steps if one.status in ("pending", "running")]
    if state.ended or not took or not left:
        return None
    mean = sum(took) / len(took)
    return now + round(mean * max(_depth(left), math.ceil(len(left) / state.rules.max_parallel)))


def _depth(left: list[Step]) -> int:
    """Return the number of these steps that have to be done one after another."""
    ids = {step.id for step in left}
    steps = [replace(step, depends_on=tuple(one for one in step.depends_on if one in ids)) for step in left]
    depths: dict[str, int] = {}
    before = ancestors(steps)
    for id_ in sorted(before, key=lambda one: len(before[one])):
        depths[id_] = 1 + max((depths[other] for other in before[id_]), default=0)
    return max(depths.values(), default=0)


# Why: docs/decisions/orchestrations.md#name-the-run-of-a-step-before-it-starts
def child_of(state: Orchestration, step: str, attempt: int) -> RunId:
    """Return the run id of an attempt. It is always the same, so a process that resumes the orchestration finds the
    same run."""
    return RunId(str(uuid.uuid5(uuid.NAMESPACE_URL, f"orch:{state.run}:{state.plan}:{step}:{attempt}")))


def _waiting(state: Orchestration) -> list[StepState]:
    """Return the steps that wait only for their time and a free slot."""
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
        one.step.id,
        result.status,
        one.number,
        state.total,
        one.attempt,
        one.step.name,
        one.run,
        result.output,
        result.code,
        result.reason,
    )
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
        raise InvalidState(f"Step {command.step} is {one.status}; only a failed step can be retried.", state=one.status)
    return [Steered("retry", command.by, command.step)]
