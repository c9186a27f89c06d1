"""An orchestration: a run that carries out a plan. Its state is a fold of that run's events; the commands that lead to
them are in `orchestrations.rules.commands`."""

from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from parley.errors import StepNotFound
from parley.ids import ConversationId, RunId
from parley.orchestrations.rules.plan import Rules, Step, dependants
from parley.runs.rules.content import Part, Parts, text_of
from parley.runs.rules.events import (
    Canceled,
    CancelRequested,
    Completed,
    Event,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Payload,
    Planned,
    Rejected,
    Replied,
    Started,
    Steered,
    Stepped,
    StepStatus,
    Submitted,
    TurnEnded,
)

OrchestrationStatus = Literal["planning", "running", "paused", "completed", "failed", "cancelled"]
Ending = Literal["", "completed", "failed", "cancelled"]


class StepState(Struct, frozen=True, omit_defaults=True):
    """A step and its state."""

    step: Step
    number: int
    status: StepStatus = "pending"
    attempt: int = 0
    """Number of times it was started; 0 if never."""
    tries: int = 0
    """Number of times it was started since a user last asked for it."""
    run: RunId | None = None
    started_at: int = 0
    ended_at: int = 0
    due: int = 0
    output: Parts = ()
    answer: str = ""
    """Answer to its checkpoint."""
    code: str = ""
    reason: str = ""


class Orchestration(Struct, frozen=True, omit_defaults=True):
    id: RunId
    """Id of its first run. If a failed step is retried after the end, the orchestration continues as another run with
    this id."""
    run: RunId
    agent: str
    conversation: ConversationId
    principal: str
    rules: Rules
    created_at: int
    version: int = 0
    words: Parts = ()
    """Messages received since the plan was made."""
    message: Parts = ()
    """The message that the plan is for."""
    plan: int = 0
    """Number of the event that holds the plan; 0 while there is none."""
    turn: int = 0
    steps: tuple[StepState, ...] = ()
    paused: bool = False
    asked: tuple[str, ...] = ()
    """Steps whose checkpoints wait for an answer."""
    failing: bool = False
    """True if a step has failed for good since a user last asked for a retry."""
    aborted: bool = False
    canceling: bool = False
    """True if a cancel was requested: results of its steps no longer count."""
    resting: bool = False
    """True if no process works on it."""
    ending: Ending = ""
    started_at: int = 0
    steered_at: int = 0
    ended_at: int = 0
    code: str = ""
    reason: str = ""
    model: str = ""
    """Model that made the plan, if one did, with the tokens used as far as its vendor reports them."""
    tokens: int | None = None

    @property
    def status(self) -> OrchestrationStatus:
        if self.ending:
            return self.ending
        if not self.steps:
            return "planning"
        if self.paused or self.asked:
            return "paused"
        return "completed" if self.resting and self.done else "running"

    @property
    def ended(self) -> bool:
        return self.ending != ""

    @property
    def done(self) -> bool:
        return all(one.status == "completed" for one in self.steps)

    @property
    def halted(self) -> bool:
        """True if no further step may start: one has failed for good, or a user paused, aborted or canceled it or must
        answer first."""
        return self.paused or self.aborted or self.canceling or bool(self.asked) or self.failing

    @property
    def total(self) -> int:
        return len(self.steps)

    @property
    def current(self) -> int:
        """The position of the furthest step that was started."""
        return max((one.number for one in self.steps if one.attempt), default=0)

    @property
    def running(self) -> list[StepState]:
        return [one for one in self.steps if one.status == "running"]

    def count(self, status: StepStatus) -> int:
        return sum(one.status == status for one in self.steps)

    def step(self, id_: str) -> StepState:
        found = next((one for one in self.steps if one.step.id == id_), None)
        if found is None:
            raise StepNotFound(f"This orchestration has no step {id_}.", step=id_)
        return found

    @property
    def step_values(self) -> dict[str, str]:
        """Return the outputs and answers of steps, by the names that later steps use to refer to them."""
        said: dict[str, str] = {}
        for one in self.steps:
            said[f"steps.{one.step.id}.output"] = words_of(one.output)
            said[f"steps.{one.step.id}.answer"] = one.answer
        return said


def words_of(parts: Parts) -> str:
    """Return parts as text: data as JSON, files by their names."""
    return "".join(map(_words, parts))


def _words(part: Part) -> str:
    if part.text is not None:
        return part.text
    return bytes(part.data).decode() if part.data is not UNSET else part.filename or part.url or ""


def evolve(state: Orchestration | None, event: Event) -> Orchestration | None:
    """Return the state after an event; None for a run that is not an orchestration."""
    payload = event.payload
    if isinstance(payload, Submitted):
        if payload.rules is None:
            return None
        return Orchestration(
            event.run,
            event.run,
            payload.agent,
            payload.conversation,
            payload.principal,
            payload.rules,
            event.at,
            event.seq,
            resting=payload.open,
        )
    if state is None:
        return None
    return replace(_changed(state, event.seq, event.at, payload) if payload else state, version=event.seq)


def foreseen(state: Orchestration, event: Stepped, at: int) -> Orchestration:
    """Return the state that an event will lead to, for decisions that are written together with it."""
    return _stepped(state, event, at)


def _changed(state: Orchestration, seq: int, at: int, payload: Payload) -> Orchestration:
    match payload:
        case InputReceived(message):
            return _heard(state, message.parts)
        case Started():
            return replace(state, resting=False)
        case Planned(steps, turn, model, tokens):
            fresh = tuple(StepState(step, number) for number, step in enumerate(steps, 1))
            return replace(
                state,
                steps=fresh,
                plan=seq,
                turn=turn,
                message=state.words,
                words=(),
                aborted=False,
                failing=False,
                paused=False,
                asked=(),
                started_at=state.started_at or at,
                model=model,
                tokens=tokens,
            )
        case Stepped() as stepped:
            return _stepped(state, stepped, at)
        case Steered() as steered:
            return replace(_steered(state, steered), steered_at=at)
        case CancelRequested():
            return replace(state, canceling=True)
        case InputRequired() | TurnEnded():
            return replace(state, resting=True)
        case Forked(orchestration=orchestration):
            return _forked(state, orchestration)
        case Completed() | Replied():
            return replace(_stopped(state, at), ending="completed")
        case Failed(code, reason) | Rejected(code, reason):
            return replace(_stopped(state, at, "running"), ending="failed", code=code, reason=reason)
        case Canceled():
            return replace(_stopped(state, at, "running", "pending"), ending="cancelled")
        case _:
            return state


def _with(state: Orchestration, one: StepState) -> Orchestration:
    steps = tuple(one if other.number == one.number else other for other in state.steps)
    return replace(state, steps=steps)


def _stepped(state: Orchestration, event: Stepped, at: int) -> Orchestration:
    one = state.step(event.step)
    if event.status == "running":
        begun = replace(
            one,
            status="running",
            attempt=event.attempt,
            tries=one.tries + 1,
            run=event.run,
            started_at=at,
            ended_at=0,
            due=0,
            output=(),
            answer="",
            code="",
            reason="",
        )
        return _with(state, begun)
    ended = replace(
        one, status=event.status, ended_at=at, due=event.due, output=event.output, code=event.code, reason=event.reason
    )
    asks = event.status == "completed" and one.step.checkpoint
    asked = (*state.asked, event.step) if asks else state.asked
    return replace(_with(state, ended), asked=asked, failing=state.failing or event.status == "failed")


def _heard(state: Orchestration, parts: Parts) -> Orchestration:
    """Apply a message: an answer to a checkpoint, permission to continue, or something new to plan for."""
    if not state.asked:
        return replace(state, paused=False) if state.paused else replace(state, words=(*state.words, *parts))
    step, rest = state.asked[0], state.asked[1:]
    answer = text_of(parts).strip()
    state = replace(state, paused=False, asked=rest)
    match answer.lower():
        case "retry":
            return _again(state, step)
        case "abort":
            return replace(state, aborted=True, asked=())
        case _:
            return _with(state, replace(state.step(step), answer=answer))


def _steered(state: Orchestration, event: Steered) -> Orchestration:
    match event.how:
        case "pause":
            return replace(state, paused=True)
        case "resume":
            return replace(state, paused=False, asked=())
        case "retry":
            return _again(state, event.step)


def _again(state: Orchestration, id_: str) -> Orchestration:
    """Reset the step and all steps that depend on it, but keep the count of attempts."""
    afresh = {id_, *dependants([one.step for one in state.steps], id_)}
    steps = tuple(
        StepState(one.step, one.number, attempt=one.attempt)
        if one.step.id in afresh and one.status != "running"
        else one
        for one in state.steps
    )
    return replace(state, steps=steps, failing=False)


def _forked(state: Orchestration, orchestration: RunId | None) -> Orchestration:
    """Apply a fork. If it continues the same orchestration, failed steps stay failed until a user asks for a retry; a
    fork that is a new orchestration resets all steps that are not completed."""
    keep = ("completed",) if orchestration is None else ("completed", "failed")
    steps = tuple(
        one if one.status in keep else StepState(one.step, one.number, attempt=one.attempt) for one in state.steps
    )
    return replace(
        state, id=orchestration or state.id, steps=steps, paused=False, asked=(), aborted=False, failing=False
    )


def _stopped(state: Orchestration, at: int, *statuses: StepStatus) -> Orchestration:
    steps = tuple(
        replace(one, status="cancelled", ended_at=at) if one.status in statuses else one for one in state.steps
    )
    return replace(state, steps=steps, ended_at=at, paused=False, asked=())
