"""A run and how it grows: `evolve` folds an event into the state. What leads to events is in `core.commands`."""

from enum import StrEnum
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from parley.core.artifacts import any_beside, says_something
from parley.core.dialogue import is_bad_end, is_end, words_of
from parley.core.documents import Assignment
from parley.core.events import (
    SPOKEN,
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    ChildStarted,
    Closing,
    Completed,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Noted,
    Omitted,
    Origin,
    Payload,
    Planned,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Started,
    Steered,
    Stepped,
    Submitted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    content_of,
)
from parley.core.transcripts import shown
from parley.errors import (
    RunNotFound,
    VersionConflict,
)
from parley.ids import ConversationId, RunId
from parley.telemetry.trace import Trace

ELSEWHERE = "runtime:"
"""Begins the name of an owner that is no replica: it came for the run, and works on it elsewhere."""


class State(StrEnum):
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED})
WAITING = frozenset({State.INPUT_REQUIRED, State.AUTH_REQUIRED})
FOLD = 1
"""By which rules a run is folded from its log. To be raised with whatever `Run` learns to tell: a row of other rules,
or one that an older process has written since, is folded again when it is read."""
_WORDED = frozenset((InputReceived, *SPOKEN))
"""What holds content, found by its type alone: most of the time that is all there is to know."""


class Run(Struct, frozen=True, omit_defaults=True):
    """What must be known of a run to decide about it: a fold of its events, small enough to keep in a row."""

    id: RunId
    agent: str
    conversation: ConversationId
    principal: str
    parent: RunId | None = None
    state: State = State.SUBMITTED
    version: int = 0
    cancel_requested: bool = False
    open: bool = False
    """Whether it waits for more input when its agent is done."""
    closing: bool = False
    """Whether it takes no more input, and completes when its agent is done."""
    owner: str = ""
    """The replica that works on it, or the runtime elsewhere, while somebody does."""
    epoch: int = 0
    inputs: int = 0
    """Inputs received, and how many of them turns have read."""
    read: int = 0
    read_before: int = 0
    """What had been read when the current turn began: a rescued turn reads from here again."""
    rescues: int = 0
    turns: int = 0
    resuming: bool = False
    """The next turn to begin is one that was broken off, not a new one."""
    spent_ms: int = 0
    started_at: int = 0
    created_at: int = 0
    updated_at: int = 0
    status_at: int = 0
    """When its status, or what the agent says with it, last changed."""
    children: tuple[RunId, ...] = ()
    origin: Origin | None = None
    """Where its first entries were copied from, if it is a fork."""
    notes: dict[str, str] = {}
    """What its agent noted for later turns."""
    trace: Trace | None = None
    """The newest that came with an input."""
    orchestration: RunId | None = None
    """The orchestration that it carries out, if it does."""
    steered: int = 0
    """The number of the event with which somebody last steered it."""
    said: int = 0
    """Messages of its users and its agent, as `core.transcripts` tells them: only what was copied is not counted."""
    notices: int = 0
    """Messages of ours: why it failed, or was canceled or rejected."""
    said_at: int = 0
    """When the last message of any kind was said."""
    answering: bool = False
    """Whether the turn under way has said or made something."""
    assignment: Assignment | None = None
    """What it was made for, where a contract says more than that an agent is asked."""
    beside: bool = False
    """Whether something that was said in it is kept beside the log."""
    fold: int = 0
    """The rules by which it was folded; an older process does not know of them, and leaves them out."""

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def gone(self) -> bool:
        """Whether its owner had it erased."""
        return not self.principal

    @property
    def ready(self) -> bool:
        """Whether a turn could begin."""
        return self.state is State.SUBMITTED and self.inputs > self.read

    @property
    def settled(self) -> bool:
        """Whether nothing more will happen until somebody acts."""
        return self.state in TERMINAL or self.state in WAITING

    @property
    def elsewhere(self) -> bool:
        """Whether it is worked on elsewhere, so that no replica's life or death concerns it."""
        return self.owner.startswith(ELSEWHERE)


_STEPS = (Planned, Stepped, Steered)
"""Said to whoever reads the status, as progress is."""


def erased(run: Run) -> Run:
    """What is left of a run when its owner wants it forgotten."""
    return Run(
        run.id, run.agent, ConversationId(""), "", state=run.state, version=run.version, epoch=run.epoch,
        created_at=run.created_at, updated_at=run.updated_at, status_at=run.status_at, fold=run.fold,
    )  # fmt: skip


def evolve(run: Run | None, run_id: RunId, seq: int, at: int, event: Payload) -> Run:
    """The state after an event. Total: whatever was decided can be folded."""
    if run is None and isinstance(event, Submitted):
        return Run(
            run_id, event.agent, event.conversation, event.principal, event.parent,
            state=State.INPUT_REQUIRED if event.open else State.SUBMITTED, open=event.open,
            version=seq, created_at=at, updated_at=at, status_at=at, origin=event.origin,
            assignment=event.assignment, orchestration=None if event.rules is None else run_id, fold=FOLD,
        )  # fmt: skip
    if run is None:
        raise RunNotFound("A log begins with `submitted`.")
    if type(event) in _WORDED and not run.beside and any_beside(content_of(event)):
        run = replace(run, beside=True)
    if isinstance(event, ArtifactAdded):
        answering = run.answering or (run.state is State.WORKING and says_something(event.parts))
        return replace(run, version=seq, updated_at=at, answering=answering)
    if isinstance(event, Progress):
        return replace(run, version=seq, updated_at=at, status_at=at if event.parts else run.status_at)
    changes = _changes(run, at, event)
    moved = isinstance(event, _STEPS) or changes.get("state", run.state) is not run.state
    status_at = at if moved else run.status_at
    told = _told(run, at, event)
    return replace(run, version=seq, updated_at=at, status_at=status_at, **changes, **told)


def _told(run: Run, at: int, event: Payload) -> dict[str, Any]:
    """What an event adds to the messages of the run."""
    if isinstance(event, InputReceived):
        return {"said": run.said + 1, "said_at": at} if shown(event.message) else {}
    if isinstance(event, Started):
        return {"answering": False}
    if isinstance(event, Forked):
        return {"said": 0, "notices": 0, "said_at": 0, "answering": False}
    if not is_end(event):
        return {}
    notices, said = run.notices + is_bad_end(event), run.said
    if run.state is State.WORKING and (run.answering or says_something(words_of(event))):
        said += 1
    said_at = at if (said, notices) != (run.said, run.notices) else run.said_at
    return {"said": said, "notices": notices, "said_at": said_at, "answering": False}


def _changes(run: Run, at: int, event: Payload) -> dict[str, Any]:
    match event:
        case Started():
            return {
                "state": State.WORKING, "owner": event.replica, "epoch": event.epoch, "started_at": at,
                "read_before": run.read, "read": run.inputs, "turns": run.turns + (not run.resuming),
                "resuming": False,
            }  # fmt: skip
        case Progress() | ArtifactAdded() | ToolCalled() | ToolReturned() | Omitted():
            return {}
        case Planned():
            return {"rescues": 0}
        case Stepped(run=child):
            # It gets on, so that the next crash is not one more of the same.
            begun = child is not None and child not in run.children
            return {"rescues": 0, "children": (*run.children, child)} if begun else {"rescues": 0}
        case Steered():
            return _steered(run, event)
        case Forked():
            return _forked(run, event)
        case Noted():
            return {"notes": {**run.notes, **event.notes}}
        case InputReceived():
            # A waiting run that got its answer is submitted again: accepted, and not yet being worked on.
            state = State.SUBMITTED if run.state in WAITING else run.state
            return {"inputs": run.inputs + 1, "state": state, "trace": event.trace or run.trace}
        case Completed() | Replied():
            return _end(run, State.COMPLETED, at)
        case ChildStarted():
            return {"children": (*run.children, event.child)}
        case TurnEnded():
            return _pause(run, State.SUBMITTED, at)
        case InputRequired():
            return _pause(run, State.INPUT_REQUIRED, at)
        case AuthRequired():
            return _pause(run, State.AUTH_REQUIRED, at)
        case CancelRequested():
            return {"cancel_requested": True}
        case Closing():
            return {"closing": True}
        case Rescued():
            return {
                "state": State.SUBMITTED, "owner": "", "epoch": event.epoch, "read": run.read_before,
                "rescues": event.attempt, "resuming": True,
            }  # fmt: skip
        case Failed():
            return _end(run, State.FAILED, at)
        case Canceled():
            return _end(run, State.CANCELED, at)
        case Rejected():
            return _end(run, State.REJECTED, at)
        case Submitted():
            raise VersionConflict("A log begins once.")
        case _:
            assert_never(event)


def _steered(run: Run, event: Steered) -> dict[str, Any]:
    """Who waits for leave to go on takes the broken-off turn up again."""
    changes: dict[str, Any] = {"steered": run.version + 1}
    if event.how == "resume" and run.state in WAITING:
        return {**changes, "state": State.SUBMITTED, "read": run.read_before, "resuming": True}
    return changes


def _forked(run: Run, event: Forked) -> dict[str, Any]:
    """The run is its own from here: nobody works on it, it has no children, its time and its rescues count from zero,
    and it belongs to the trace in which it was made."""
    changes: dict[str, Any] = {
        "state": State.SUBMITTED, "owner": "", "spent_ms": 0, "rescues": 0, "trace": event.trace,
        "orchestration": event.orchestration or run.orchestration, "children": (),
    }  # fmt: skip
    if event.again and (run.state is State.WORKING or run.inputs == run.read):
        return {**changes, "read": run.read_before, "resuming": True}
    return changes


def _pause(run: Run, state: State, at: int) -> dict[str, Any]:
    """The turn is over; the clock of the run's timeout stops."""
    return {"state": state, "owner": "", "spent_ms": _spent(run, at), "rescues": 0}


def _end(run: Run, state: State, at: int) -> dict[str, Any]:
    """The run is over, and with it the turn under way, if there is one."""
    return {"state": state, "owner": "", "spent_ms": _spent(run, at) if run.state is State.WORKING else run.spent_ms}


def _spent(run: Run, at: int) -> int:
    return run.spent_ms + max(0, at - run.started_at)
