"""What can be asked of a run: `decide` turns a command into events, or says why it is refused."""

from typing import assert_never

from msgspec import Struct

from parley.core.access import Principal, Reach
from parley.core.agents import Rescue
from parley.core.conversations import Message
from parley.core.documents import Assignment
from parley.core.events import (
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
    task_metadata_of,
)
from parley.core.forks import copied
from parley.core.plans import Rules
from parley.core.runs import WAITING, Run, State
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


class Begin(Struct, frozen=True):
    """An executor takes the run's next turn."""

    replica: str = ""


class Start(Struct, frozen=True):
    """A new run. `begin` when the accepting process will work on it at once; `reject` when it never will.

    Only an `open` run can do without a message, or one that records what is `done` already.
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
    rules: Rules | None = None
    assignment: Assignment | None = None
    done: Completed | None = None
    reach: Reach | None = None
    """Rights of the caller beyond its name."""

    @property
    def orchestrates(self) -> bool:
        return self.rules is not None

    @property
    def caller(self) -> Principal:
        return Principal.parse(self.principal, self.reach)


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
    continues: RunId | None = None
    """The orchestration that goes on in the new run, steered so."""
    steered: Steered | None = None
    reach: Reach | None = None
    """Rights of who asks beyond its name."""

    @property
    def orchestrates(self) -> bool:
        first = self.entries[0] if self.entries else None
        return isinstance(first, Submitted) and first.rules is not None


class Give(Struct, frozen=True):
    """One more input."""

    message: Message
    begin: Begin | None = None
    trace: Trace | None = None
    agents: tuple[str, ...] = ()
    """The only agents that the sender may use, if it is limited."""


Report = (
    Progress
    | ArtifactAdded
    | Noted
    | Planned
    | Stepped
    | InputRequired
    | AuthRequired
    | Completed
    | Replied
    | Failed
    | Canceled
    | Rejected
)


_SAYINGS = (Progress, ArtifactAdded, Noted, Planned, Stepped)
_QUESTIONS = (InputRequired, AuthRequired)
_GOOD_ENDS = (Completed, Replied, *_QUESTIONS)


class Emit(Struct, frozen=True):
    """What the executor of `epoch` has to say. An end that was decided when the log had come `upto` an event does not
    hold where somebody has steered the run since: the turn is taken up again."""

    epoch: int
    report: Report
    upto: int | None = None


class Adopt(Struct, frozen=True):
    """The executor of `epoch` is about to ask another agent."""

    epoch: int
    child: RunId
    agent: str


class Steer(Struct, frozen=True):
    """Somebody wants an orchestration to go on otherwise. Whether that can be is decided by its steps."""

    steered: Steered


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


Command = Start | Fork | Give | Begin | Emit | Adopt | Steer | CallTool | ReturnTool | Cancel | Close | Fail | Recover


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
        case Steer():
            _check_open(run)
            return [command.steered]
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
    submitted = Submitted(
        command.agent, command.conversation, command.principal, command.parent, open=command.open,
        assignment=command.assignment, rules=command.rules, reach=command.reach,
    )  # fmt: skip
    events: list[Payload] = [submitted]
    if command.done is not None:
        return [*events, command.done]
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
    copy, run = copied(command.origin, command.entries, command.by, command.reach)
    if command.message is None and not run.inputs:
        raise Invalid("There is no input yet at this event: give one, or fork at a later event.", field="at")
    if command.message is None:
        copy.append(Forked(command.by, again=True, trace=command.trace, orchestration=command.continues))
    else:
        copy += Forked(command.by), InputReceived(command.message, command.trace)
    if command.steered is not None:
        copy.append(command.steered)
    if command.reject is not None:
        copy.append(command.reject)
    elif command.begin is not None:
        copy.append(Started(run.epoch + 1, command.begin.replica))
    return copy


def _give(run: Run, command: Give) -> list[Payload]:
    _check_open(run)
    events: list[Payload] = [InputReceived(command.message, command.trace, command.agents)]
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
    if command.upto is not None and run.steered > command.upto:
        return [Rescued(run.epoch + 1, run.rescues, "resume")]
    if run.inputs > run.read and isinstance(report, _GOOD_ENDS):
        # An acknowledged input is never lost: the run goes on with it.
        return [TurnEnded(report.parts)]
    if run.closing and isinstance(report, _QUESTIONS):
        # Nobody is left to answer.
        return [Completed(report.parts, report.metadata, report.task_metadata)]
    if run.open and not run.closing and isinstance(report, Completed | Replied):
        return [InputRequired(report.parts, report.metadata, task_metadata_of(report))]
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
    # An orchestration that has begun a step waits for it, and kills no process by that: its steps count for themselves.
    waits = run.orchestration is not None and bool(run.children)
    if run.rescues >= command.most and not waits:
        words = f"Given up after {command.most} rescues. {command.reason}"
        return [command.given_up or Failed("rescue_exhausted", words)]
    return [Rescued(run.epoch + 1, run.rescues + 1, command.how)]
