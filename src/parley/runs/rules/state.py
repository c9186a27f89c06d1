"""The state of a run: `evolve` folds an event into it. `commands` decides which events are added."""

from enum import StrEnum
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from parley.documents.rules import Assignment
from parley.errors import (
    RunNotFound,
    VersionConflict,
)
from parley.ids import ConversationId, RunId
from parley.runs.rules.content import MAX_EXCERPT, any_beside, excerpt, says_something
from parley.runs.rules.events import (
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
    Suspended,
    ToolCalled,
    ToolReturned,
    TreePlace,
    TurnEnded,
    Woken,
    content_of,
    is_usage,
)
from parley.runs.rules.transcript import is_bad_end, is_end, shown, words_of
from parley.runs.rules.usage import ModelTotals, added
from parley.telemetry.trace import Trace

ELSEWHERE = "runtime:"
"""Prefix of an owner that is a paired runtime and not a replica."""


class State(StrEnum):
    """State of a run."""

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
FOLD = 4
"""Version of the rules by which a run is folded from its log. Increase it when `Run` gets new fields: a row with other
rules, or one written by an older process since then, is folded again when it is read."""
_WORDED = frozenset((InputReceived, *SPOKEN))
"""Events that hold content, found by type alone, which is fast and usually enough."""
_UPDATES: frozenset[type[Payload]] = frozenset(
    (
        *(ArtifactAdded, Started, Progress, Planned, Stepped, Steered, TurnEnded, Rescued, Suspended, Forked),
        *(InputRequired, AuthRequired, Completed, Replied, Failed, Canceled, Rejected),
    )
)
FIRST_INPUT = 2
"""Number of the input with which a run is created, unless it is open."""


class Run(Struct, frozen=True, omit_defaults=True):
    """The state of a run that decisions need: a fold of its events, small enough to store in a row."""

    id: RunId
    agent: str
    conversation: ConversationId
    principal: str
    parent: RunId | None = None
    state: State = State.SUBMITTED
    version: int = 0
    cancel_requested: bool = False
    open: bool = False
    """True if the run waits for more input when its agent is done."""
    closing: bool = False
    """True if the run accepts no more input, and completes when its agent is done."""
    owner: str = ""
    """The replica or paired runtime that works on the run; empty if none does."""
    epoch: int = 0
    inputs: int = 0
    """Number of inputs received; `read` is the number that turns have read."""
    read: int = 0
    read_before: int = 0
    """Value of `read` when the current turn began: a rescued turn reads from here again."""
    rescues: int = 0
    turns: int = 0
    resuming: bool = False
    """True if the next turn resumes an interrupted one instead of starting a new one."""
    spent_ms: int = 0
    started_at: int = 0
    created_at: int = 0
    updated_at: int = 0
    status_at: int = 0
    """Time of the last change of the status, or of the agent's message in it."""
    children: tuple[RunId, ...] = ()
    origin: Origin | None = None
    """The origin of the copied entries, if the run is a fork."""
    notes: dict[str, str] = {}
    """Notes of the agent for later turns."""
    trace: Trace | None = None
    """The newest trace that came with an input."""
    orchestration: RunId | None = None
    """The orchestration that the run carries out, if any."""
    steered: int = 0
    """Number of the last event that steered the run."""
    said: int = 0
    """Number of messages of users and agent, as in `transcript`; copied messages are not counted."""
    notices: int = 0
    """Number of system messages: why the run failed, or was canceled or rejected."""
    said_at: int = 0
    """Time of the last message of any kind."""
    answering: bool = False
    """True if the running turn has produced text or an artifact."""
    assignment: Assignment | None = None
    """The purpose of the run, if a contract defines one beyond asking the agent."""
    beside: bool = False
    """True if some message text of the run is stored outside the log."""
    due: int = 0
    """Time at which the run is woken (ms), if its agent sleeps."""
    usage: dict[str, ModelTotals] = {}
    """Tokens and cost of its model calls, by model; without its children, and without the copied part of a fork."""
    title: str = ""
    """Beginning of the first message, for lists."""
    code: str = ""
    """Error code, if the run failed or was rejected; `reason` is the beginning of the explanation."""
    reason: str = ""
    tree: TreePlace | None = None
    """Place in a tree of runs, if the run was started by another one, or if groups of its caller have limits."""
    generation: int = 0
    """Number of updates of the task, plus one for its creation; 0 if an older process folded the run."""
    fold: int = 0
    """Version of the rules by which the run was folded. An older process does not know this field and leaves it out."""

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def gone(self) -> bool:
        """True if the owner had the run erased."""
        return not self.principal

    @property
    def ready(self) -> bool:
        """True if a turn can begin."""
        return self.state is State.SUBMITTED and self.inputs > self.read and not self.due

    @property
    def settled(self) -> bool:
        """True if nothing more happens until the caller acts."""
        return self.state in TERMINAL or self.state in WAITING

    @property
    def at_runtime(self) -> bool:
        """True if a paired runtime works on the run, so that it does not depend on any replica."""
        return self.owner.startswith(ELSEWHERE)


def lets_go(run: Run) -> bool:
    """Return whether the runs that a run has started are canceled with it."""
    return run.cancel_requested or run.state is State.FAILED


_STEPS = (Planned, Stepped, Steered)
"""Events that are shown in the status, like progress."""


# Why: docs/decisions/documents.md#erase-the-owner-of-deleted-runs-instead-of-hiding-them
def erased(run: Run) -> Run:
    """Return the part of a run that is kept when its owner has it erased."""
    return Run(
        run.id,
        run.agent,
        ConversationId(""),
        "",
        state=run.state,
        version=run.version,
        epoch=run.epoch,
        created_at=run.created_at,
        updated_at=run.updated_at,
        status_at=run.status_at,
        fold=run.fold,
    )


# Why: docs/decisions/runs.md#count-every-update-of-a-task-in-its-generation
def is_update(event: Payload, seq: int, *, open: bool) -> bool:
    """Return whether an event updates the status or an artifact of the task, which raises its generation by one.
    `open` is that of the run. The input that creates a task is no update; a later one is, because it clears the status
    message, and ends the wait of a waiting task."""
    if type(event) in _UPDATES:
        return not is_usage(event)
    return type(event) is InputReceived and (seq > FIRST_INPUT or open)


def evolve(run: Run | None, run_id: RunId, seq: int, at: int, event: Payload) -> Run:
    """Return the state after an event. Every decided event can be folded."""
    if run is None and isinstance(event, Submitted):
        return Run(
            run_id,
            event.agent,
            event.conversation,
            event.principal,
            event.parent,
            state=State.INPUT_REQUIRED if event.open else State.SUBMITTED,
            open=event.open,
            version=seq,
            created_at=at,
            updated_at=at,
            status_at=at,
            origin=event.origin,
            assignment=event.assignment,
            orchestration=None if event.rules is None else run_id,
            tree=event.tree,
            generation=1,
            fold=FOLD,
        )
    if run is None:
        raise RunNotFound("A log begins with `submitted`.")
    generation = run.generation + is_update(event, seq, open=run.open)
    if type(event) in _WORDED and not run.beside and any_beside(content_of(event)):
        run = replace(run, beside=True)
    if isinstance(event, ArtifactAdded):
        answering = run.answering or (run.state is State.WORKING and says_something(event.parts))
        return replace(run, version=seq, updated_at=at, answering=answering, generation=generation)
    if isinstance(event, Progress):
        # A recorded step or mark is not repeated: a later crash does not count as a repetition of an earlier one.
        rescues = 0 if event.step is not None or event.mark else run.rescues
        status_at = at if event.parts else run.status_at
        if event.usage is not None:
            run = replace(run, usage=added(run.usage, event.usage))
        return replace(run, version=seq, updated_at=at, status_at=status_at, rescues=rescues, generation=generation)
    changes = _changes(run, at, event)
    moved = isinstance(event, _STEPS) or changes.get("state", run.state) is not run.state
    status_at = at if moved else run.status_at
    told = _told(run, at, event)
    return replace(run, version=seq, updated_at=at, status_at=status_at, generation=generation, **changes, **told)


def _told(run: Run, at: int, event: Payload) -> dict[str, Any]:
    """Return the changes that an event makes to the message counts of the run."""
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
    match event:  # The events that nearly every run has come first: cases are tried in order.
        case InputReceived():
            # A waiting run that got its answer is submitted again: accepted, and not yet being worked on.
            state = State.SUBMITTED if run.state in WAITING else run.state
            title = run.title or excerpt(shown(event.message))
            return {"inputs": run.inputs + 1, "state": state, "trace": event.trace or run.trace, "title": title}
        case Started():
            return {
                "state": State.WORKING, "owner": event.replica, "epoch": event.epoch, "started_at": at,
                "read_before": run.read, "read": run.inputs, "turns": run.turns + (not run.resuming),
                "resuming": False,
            }  # fmt: skip
        case Completed() | Replied():
            return _end(run, State.COMPLETED, at)
        case Progress() | ArtifactAdded() | ToolCalled() | ToolReturned() | Omitted():
            return {}
        case Planned():
            return {"rescues": 0}
        case Stepped(run=child):
            # The step makes progress, so a later crash does not count as a repetition of this one.
            begun = child is not None and child not in run.children
            return {"rescues": 0, "children": (*run.children, child)} if begun else {"rescues": 0}
        case Steered():
            return _steered(run, event)
        case Forked():
            return _forked(run, event)
        case Noted():
            return {"notes": {**run.notes, **event.notes}}
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
        case Woken():
            return {"due": 0}
        case Suspended(due):
            return {**_pause(run, State.SUBMITTED, at), "due": due, "read": run.read_before, "resuming": True}
        case Failed(code, reason):
            return {**_end(run, State.FAILED, at), "code": code, "reason": reason[:MAX_EXCERPT]}
        case Canceled():
            return _end(run, State.CANCELED, at)
        case Rejected(code, reason):
            return {**_end(run, State.REJECTED, at), "code": code, "reason": reason[:MAX_EXCERPT]}
        case Submitted():
            raise VersionConflict("A log can have only one `submitted` event, at its beginning.")
        case _:
            assert_never(event)


def _steered(run: Run, event: Steered) -> dict[str, Any]:
    """Steer a run. A waiting run that may continue resumes its interrupted turn."""
    changes: dict[str, Any] = {"steered": run.version + 1}
    if event.how == "resume" and run.state in WAITING:
        return {**changes, "state": State.SUBMITTED, "read": run.read_before, "resuming": True}
    return changes


def _forked(run: Run, event: Forked) -> dict[str, Any]:
    """Make a fork independent of its original: it has no executor and no children, its time and its rescues count from
    zero, so does its usage, and it belongs to the trace in which it was created."""
    changes: dict[str, Any] = {
        "state": State.SUBMITTED,
        "owner": "",
        "spent_ms": 0,
        "rescues": 0,
        "trace": event.trace,
        "orchestration": event.orchestration or run.orchestration,
        "children": (),
        "due": 0,
        "usage": {},
        "code": "",
        "reason": "",
    }
    if event.again and (run.state is State.WORKING or run.inputs == run.read):
        return {**changes, "read": run.read_before, "resuming": True}
    return changes


def _pause(run: Run, state: State, at: int) -> dict[str, Any]:
    """End the turn and stop the clock of the run's timeout."""
    return {"state": state, "owner": "", "spent_ms": _spent(run, at), "rescues": 0}


def _end(run: Run, state: State, at: int) -> dict[str, Any]:
    """End the run, and the running turn if there is one."""
    spent = _spent(run, at) if run.state is State.WORKING else run.spent_ms
    return {"state": state, "owner": "", "spent_ms": spent, "due": 0}


def _spent(run: Run, at: int) -> int:
    return run.spent_ms + max(0, at - run.started_at)
