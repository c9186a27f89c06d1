"""The state machine of a run: `decide` turns a command into events, `evolve` folds an event into the state."""

from enum import StrEnum
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from parley.core.agents import Rescue
from parley.core.artifacts import Parts, text_part
from parley.core.conversations import Message
from parley.core.events import (
    ArtifactAdded,
    AuthRequired,
    Canceled,
    CancelRequested,
    ChildStarted,
    Closing,
    Completed,
    Ending,
    Failed,
    Forked,
    InputReceived,
    InputRequired,
    Noted,
    Omitted,
    Origin,
    Payload,
    Progress,
    Rejected,
    Replied,
    Rescued,
    Started,
    Submitted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    type_of,
)
from parley.errors import (
    Invalid,
    LateResult,
    LeaseLost,
    NotCancelable,
    NotReady,
    RunEnded,
    RunNotFound,
    VersionConflict,
)
from parley.ids import ConversationId, RunId
from parley.telemetry.trace import Trace

MAX_RESCUES = 3
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

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

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


class Begin(Struct, frozen=True):
    """An executor takes the run's next turn."""

    replica: str = ""


class Start(Struct, frozen=True):
    """A new run. `begin` when the accepting process will work on it at once; `reject` when it never will.

    Only an `open` run can do without a message.
    """

    agent: str
    conversation: ConversationId
    principal: str
    message: Message | None
    parent: RunId | None = None
    begin: Begin | None = None
    reject: Rejected | None = None
    open: bool = False
    trace: Trace | None = None


class Fork(Struct, frozen=True):
    """A new run that begins as a copy of the first entries of another, and goes on with `message` or its last input.

    `conversation` and `principal` are those of the run that is copied; `by` is who asks.
    """

    origin: Origin
    entries: tuple[Payload, ...]
    by: str
    message: Message | None = None
    begin: Begin | None = None
    reject: Rejected | None = None
    trace: Trace | None = None


class Give(Struct, frozen=True):
    """One more input."""

    message: Message
    begin: Begin | None = None
    trace: Trace | None = None


Report = (
    Progress | ArtifactAdded | Noted | InputRequired | AuthRequired | Completed | Replied | Failed | Canceled | Rejected
)


_SAYINGS = (Progress, ArtifactAdded, Noted)
_QUESTIONS = (InputRequired, AuthRequired)
_GOOD_ENDS = (Completed, Replied, *_QUESTIONS)


class Emit(Struct, frozen=True):
    """What the executor of `epoch` has to say."""

    epoch: int
    report: Report


class Adopt(Struct, frozen=True):
    """The executor of `epoch` is about to ask another agent."""

    epoch: int
    child: RunId
    agent: str


class CallTool(Struct, frozen=True):
    """Somebody is about to use a tool on the run's behalf: its executor, or its owner."""

    called: ToolCalled


class ReturnTool(Struct, frozen=True):
    """What came of a tool that was called."""

    returned: ToolReturned


class Cancel(Struct, frozen=True):
    by: str
    reason: str | None = None


class Close(Struct, frozen=True):
    """Whoever gives the input says that there is no more of it."""

    by: str


class Fail(Struct, frozen=True):
    """Whoever gives the input says that the matter has failed, whatever the agent is doing."""

    code: str
    reason: str


class Recover(Struct, frozen=True):
    """The executor of `epoch` is gone. `orderly`: it was told to stop, which is nobody's failure."""

    epoch: int
    how: Rescue
    orderly: bool = False
    reason: str = "The process that worked on this task stopped."
    most: int = MAX_RESCUES
    """How often it is taken up again before it fails, with `given_up` if that is said."""
    given_up: Failed | None = None


Command = Start | Fork | Give | Begin | Emit | Adopt | CallTool | ReturnTool | Cancel | Close | Fail | Recover


def decide(run: Run | None, command: Command) -> list[Payload]:
    """The events a command leads to, or the reason why it is refused. An empty list: it holds already."""
    if run is not None and type(command) is Emit:
        return _emit(run, command)
    if isinstance(command, Start | Fork):
        if run is not None:
            raise VersionConflict("A run with this id exists already.")
        return _start(command) if isinstance(command, Start) else _fork(command)
    if run is None:
        raise RunNotFound("Task not found.")
    match command:
        case Give():
            return _give(run, command)
        case Begin():
            return [_started(run, command)]
        case Emit():
            return _emit(run, command)
        case Adopt():
            return _adopt(run, command)
        case CallTool():
            return _call_tool(run, command)
        case ReturnTool():
            return _return_tool(run, command)
        case Cancel():
            return _cancel(run, command)
        case Close():
            return _close(run, command)
        case Fail():
            return _fail(run, command)
        case Recover():
            return _recover(run, command)
        case _:
            assert_never(command)


def _start(command: Start) -> list[Payload]:
    events: list[Payload] = [
        Submitted(command.agent, command.conversation, command.principal, command.parent, open=command.open)
    ]
    if command.message is not None:
        events.append(InputReceived(command.message, command.trace))
    elif not command.open:
        raise Invalid("A run begins with a message, or stays open for one.", field="message")
    if command.reject is not None:
        events.append(command.reject)
    elif command.begin is not None and command.message is not None:
        events.append(Started(1, command.begin.replica))
    return events


def _fork(command: Fork) -> list[Payload]:
    """Entry for entry, so that a number means the same in both logs up to the fork."""
    origin, scratch = command.origin, RunId("")
    copy: list[Payload] = []
    run: Run | None = None
    for seq, entry in enumerate(command.entries, 1):
        copy.append(_copied(run, entry, origin))
        run = evolve(run, scratch, seq, 0, copy[-1])
    if run is None or run.version != origin.seq:
        raise Invalid("A fork needs the log from its beginning.", field="at")
    if command.message is None and not run.inputs:
        raise Invalid("There is no input yet at this event: give one, or fork at a later event.", field="at")
    if command.message is None:
        copy.append(Forked(command.by, again=True, trace=command.trace))
    else:
        copy += Forked(command.by), InputReceived(command.message, command.trace)
    if command.reject is not None:
        copy.append(command.reject)
    elif command.begin is not None:
        copy.append(Started(run.epoch + 1, command.begin.replica))
    return copy


def _copied(run: Run | None, entry: Payload, origin: Origin) -> Payload:
    """What an entry is in a fork: the same; but children, tools, cancels and ends are the other run's own affair, and
    so is what its agent noted for itself: a fork must not go on with another run's work elsewhere.

    The last words of a turn stay said, also where they ended the run.
    """
    match entry:
        case Submitted():
            return replace(entry, parent=None, origin=origin)
        case ChildStarted() | ToolCalled() | ToolReturned() | CancelRequested() | Closing() | Noted():
            return Omitted(type_of(entry))
        case Progress() | ArtifactAdded() if entry.mark:
            return replace(entry, mark="")
        case Completed() | Replied() | Failed() | Canceled() | Rejected():
            under_way = run is not None and run.state is State.WORKING
            return TurnEnded(_last_words(entry)) if under_way else Omitted(type_of(entry))
        case _:
            return entry


def _last_words(ending: Ending) -> Parts:
    if isinstance(ending, Completed | Replied):
        return ending.parts
    return (text_part(ending.reason),) if ending.reason else ()


def _give(run: Run, command: Give) -> list[Payload]:
    _check_open(run)
    events: list[Payload] = [InputReceived(command.message, command.trace)]
    if command.begin is not None and run.state in WAITING:
        events.append(Started(run.epoch + 1, command.begin.replica))
    return events


def _check_open(run: Run) -> None:
    if run.ended or run.cancel_requested or run.closing:
        raise RunEnded(f"The task is {run.state.value}; it takes no further messages.", state=run.state.value)


def _started(run: Run, command: Begin) -> Started:
    if not run.ready:
        raise NotReady("The run has nothing to begin.", state=run.state.value)
    return Started(run.epoch + 1, command.replica)


def _not_ended(run: Run) -> None:
    if run.ended:
        raise LateResult(f"The run is {run.state.value}; the late result was dropped.", state=run.state.value)


def _check_executor(run: Run, epoch: int) -> None:
    _not_ended(run)
    if epoch != run.epoch or run.state is not State.WORKING:
        raise LeaseLost("Another executor has this run.", epoch=run.epoch)


def _emit(run: Run, command: Emit) -> list[Payload]:
    _check_executor(run, command.epoch)
    report = command.report
    if isinstance(report, _SAYINGS):
        return [report]
    if run.cancel_requested:
        # Whatever ends the turn once a cancel is on record, the run was canceled: one end, known to all.
        return [Canceled(report.reason if isinstance(report, Canceled) else None)]
    if run.inputs > run.read and isinstance(report, _GOOD_ENDS):
        # An acknowledged input is never lost: the run goes on with it.
        return [TurnEnded(report.parts)]
    if run.closing and isinstance(report, _QUESTIONS):
        # Nobody is left to answer.
        return [Completed(report.parts)]
    if run.open and not run.closing and isinstance(report, Completed | Replied):
        return [InputRequired(report.parts)]
    return [report]


def _adopt(run: Run, command: Adopt) -> list[Payload]:
    _check_executor(run, command.epoch)
    if command.child in run.children:
        return []
    if run.cancel_requested:
        raise RunEnded("The task is being canceled; it starts no further work.", state="canceling")
    return [ChildStarted(command.child, command.agent)]


def _call_tool(run: Run, command: CallTool) -> list[Payload]:
    if run.ended or run.cancel_requested:
        state = run.state.value if run.ended else "canceling"
        raise RunEnded(f"The task is {state}; it starts no further work.", state=state)
    return [command.called]


def _return_tool(run: Run, command: ReturnTool) -> list[Payload]:
    """Also while a cancel is on record: what the tool did is worth knowing until the run has ended."""
    _not_ended(run)
    return [command.returned]


def _cancel(run: Run, command: Cancel) -> list[Payload]:
    if run.ended:
        raise NotCancelable(f"The task is {run.state.value}; it cannot be canceled.", state=run.state.value)
    if run.cancel_requested:
        return []
    request = CancelRequested(command.by, command.reason)
    if run.state is State.WORKING:
        return [request]
    return [request, Canceled(command.reason)]


def _close(run: Run, command: Close) -> list[Payload]:
    _check_open(run)
    if run.state is State.WORKING or run.ready:
        return [Closing(command.by)]
    return [Closing(command.by), Completed()]


def _fail(run: Run, command: Fail) -> list[Payload]:
    _check_open(run)
    return [Failed(command.code, command.reason)]


def _recover(run: Run, command: Recover) -> list[Payload]:
    if run.state is not State.WORKING or run.epoch != command.epoch:
        return []
    if run.cancel_requested:
        return [Canceled()]
    if command.how == "fail":
        return [Failed("interrupted", command.reason)]
    if command.orderly:
        return [Rescued(run.epoch + 1, run.rescues, command.how)]
    if run.rescues >= command.most:
        words = f"Given up after {command.most} rescues. {command.reason}"
        return [command.given_up or Failed("rescue_exhausted", words)]
    return [Rescued(run.epoch + 1, run.rescues + 1, command.how)]


def evolve(run: Run | None, run_id: RunId, seq: int, at: int, event: Payload) -> Run:
    """The state after an event. Total: whatever was decided can be folded."""
    if run is None and isinstance(event, Submitted):
        return Run(
            run_id, event.agent, event.conversation, event.principal, event.parent,
            state=State.INPUT_REQUIRED if event.open else State.SUBMITTED, open=event.open,
            version=seq, created_at=at, updated_at=at, status_at=at, origin=event.origin,
        )  # fmt: skip
    if run is None:
        raise RunNotFound("A log begins with `submitted`.")
    if isinstance(event, ArtifactAdded):
        return replace(run, version=seq, updated_at=at)
    if isinstance(event, Progress):
        return replace(run, version=seq, updated_at=at, status_at=at if event.parts else run.status_at)
    changes = _changes(run, at, event)
    status_at = at if changes.get("state", run.state) is not run.state else run.status_at
    return replace(run, version=seq, updated_at=at, status_at=status_at, **changes)


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
        case Forked():
            return _forked(run, event)
        case Noted():
            return {"notes": {**run.notes, **event.notes}}
        case InputReceived():
            # A waiting run that got its answer is submitted again: accepted, and not yet being worked on.
            state = State.SUBMITTED if run.state in WAITING else run.state
            return {"inputs": run.inputs + 1, "state": state, "trace": event.trace or run.trace}
        case Completed() | Replied():
            return {"state": State.COMPLETED, "owner": ""}
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
            return {"state": State.FAILED, "owner": ""}
        case Canceled():
            return {"state": State.CANCELED, "owner": ""}
        case Rejected():
            return {"state": State.REJECTED, "owner": ""}
        case Submitted():
            raise VersionConflict("A log begins once.")
        case _:
            assert_never(event)


def _forked(run: Run, event: Forked) -> dict[str, Any]:
    """The run is its own from here: nobody works on it, its time and its rescues count from zero, and it belongs to
    the trace in which it was made."""
    changes: dict[str, Any] = {
        "state": State.SUBMITTED, "owner": "", "spent_ms": 0, "rescues": 0, "trace": event.trace,
    }  # fmt: skip
    if event.again and (run.state is State.WORKING or run.inputs == run.read):
        return {**changes, "read": run.read_before, "resuming": True}
    return changes


def _pause(run: Run, state: State, at: int) -> dict[str, Any]:
    """The turn is over; the clock of the run's timeout stops."""
    return {"state": state, "owner": "", "spent_ms": run.spent_ms + max(0, at - run.started_at), "rescues": 0}
