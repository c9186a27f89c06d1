"""Commands to a run: `decide` turns a command into events, or raises the reason for its refusal."""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from parley.documents.rules import Assignment
from parley.errors import (
    GenerationMismatch,
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
from parley.orchestrations.rules.plan import Rules
from parley.runs.rules.access import Principal, Reach
from parley.runs.rules.agents import Rescue
from parley.runs.rules.content import Message, Parts, text_part
from parley.runs.rules.events import (
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
    task_metadata_of,
    type_of,
)
from parley.runs.rules.state import WAITING, Run, State, evolve
from parley.telemetry.trace import Trace

# Copies of runs (forks).


def copied(
    origin: Origin, entries: tuple[Payload, ...], by: str, reach: Reach | None = None
) -> tuple[list[Payload], Run]:
    """Return the entries of a fork, and its state at the end of the copy. Entries are copied one to one, so that a
    number means the same event in both logs up to the fork. A fork by the run's owner has the owner's current rights; a
    fork by an administrator keeps the limits of the run."""
    copy: list[Payload] = []
    run: Run | None = None
    for seq, entry in enumerate(entries, 1):
        if isinstance(entry, Submitted) and entry.principal == by:
            entry = replace(entry, reach=reach)
        copy.append(_copied(run, entry, origin))
        run = evolve(run, RunId(""), seq, 0, copy[-1])
    if run is None or run.version != origin.seq:
        raise Invalid("A fork needs the log from its beginning.", field="at")
    return copy, run


def _copied(run: Run | None, entry: Payload, origin: Origin) -> Payload:
    """Return an entry as it appears in a fork. Most entries stay the same. Children, tool calls, cancels and ends
    belong to the original run only, and so do its agent's notes: a fork must not continue the original's work at
    another server. The assignment is dropped too, because the original run fulfils it.

    The last message of a turn is kept, also if it ended the run.
    """
    match entry:
        case Submitted():
            # A fork is the root of a tree of its own.
            tree = TreePlace(groups=entry.tree.groups) if entry.tree is not None and entry.tree.groups else None
            return replace(entry, parent=None, origin=origin, assignment=None, tree=tree)
        case ChildStarted() | ToolCalled() | ToolReturned() | CancelRequested() | Closing() | Noted():
            return Omitted(type_of(entry))
        case Progress() if entry.mark or entry.step:
            return replace(entry, mark="", step=None)
        case ArtifactAdded() if entry.mark:
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


MAX_RESCUES = 3


class Begin(Struct, frozen=True):
    """An executor begins the run's next turn."""

    replica: str = ""


# Why: docs/decisions/runs.md#accept-and-start-a-run-in-one-commit
class Start(Struct, frozen=True):
    """A new run. `begin`: the accepting process works on it at once. `reject`: the run is rejected.

    A message may only be missing for an `open` run, or for one that records work already `done`.
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
    """Rights of the caller in addition to its name."""
    tree: TreePlace | None = None

    @property
    def orchestrates(self) -> bool:
        return self.rules is not None

    @property
    def caller(self) -> Principal:
        return Principal.parse(self.principal, self.reach)


class Fork(Struct, frozen=True):
    """A new run that starts as a copy of the first entries of another, and continues with `message` or its last input.

    `conversation` and `principal` are those of the copied run; `by` is the caller.
    """

    origin: Origin
    entries: tuple[Payload, ...]
    by: str
    message: Message | None = None
    begin: Begin | None = None
    reject: Rejected | None = None
    trace: Trace | None = None
    continues: RunId | None = None
    """The orchestration that continues in the new run, with `steered` applied."""
    steered: Steered | None = None
    reach: Reach | None = None
    """Rights of the caller in addition to its name."""

    @property
    def orchestrates(self) -> bool:
        first = self.entries[0] if self.entries else None
        return isinstance(first, Submitted) and first.rules is not None


class Give(Struct, frozen=True):
    """An additional input."""

    message: Message
    begin: Begin | None = None
    trace: Trace | None = None
    agents: tuple[str, ...] = ()
    """The only agents that the sender may use, if it is limited."""
    checked: int | None = None
    """Epoch of the turn whose question was compared with the message, 0 if no question was open; None if that does not
    matter."""
    generation: int | None = None
    """The generation that the run must have; None if any will do."""


Report = (
    Progress
    | ArtifactAdded
    | Noted
    | Planned
    | Stepped
    | InputRequired
    | AuthRequired
    | Suspended
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
    """A report of the executor with `epoch`. An end that was decided at event `upto` is not accepted if the run was
    steered after that event: the turn is resumed instead."""

    epoch: int
    report: Report
    upto: int | None = None


class Adopt(Struct, frozen=True):
    """The executor with `epoch` is about to ask another agent."""

    epoch: int
    child: RunId
    agent: str


class Steer(Struct, frozen=True):
    """A change to how an orchestration continues. Its steps decide whether that is possible."""

    steered: Steered


class CallTool(Struct, frozen=True):
    """The run's executor or owner is about to use a tool on behalf of the run."""

    called: ToolCalled


class ReturnTool(Struct, frozen=True):
    """The result of a tool call."""

    returned: ToolReturned


class Cancel(Struct, frozen=True):
    by: str
    reason: str | None = None
    stopped: int | None = None
    """Number of children that were canceled. A run without a turn that has more does not end; None to end it anyway."""


class Close(Struct, frozen=True):
    """The sender of input declares that there is no more."""

    by: str


class Fail(Struct, frozen=True):
    """The sender of input declares that the run has failed, whatever the agent is doing."""

    code: str
    reason: str
    stopped: int | None = None
    """As for `Cancel`."""


class Wake(Struct, frozen=True):
    """It is `now` (ms): a suspended run whose sleep is over becomes ready."""

    now: int


class Recover(Struct, frozen=True):
    """The executor with `epoch` is gone. `orderly`: it was asked to stop, which does not count as a failure."""

    epoch: int
    how: Rescue
    orderly: bool = False
    reason: str = "The process that worked on this task stopped."
    most: int = MAX_RESCUES
    """Number of rescues before the run fails, with `given_up` if that is set."""
    given_up: Failed | None = None
    stopped: int | None = None
    """Number of the run's children that were canceled before. If there are more and the run would end, nothing happens:
    children end first, because nothing cancels them after a crash."""


Command = (
    Start | Fork | Give | Begin | Emit | Adopt | Steer | CallTool | ReturnTool | Cancel | Close | Fail | Wake | Recover
)


def decide(run: Run | None, command: Command) -> list[Payload]:
    """Return the events that a command leads to; empty if it has no effect. Raise an error if the command is
    refused."""
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
        case Wake():
            return [Woken()] if 0 < run.due <= command.now else []
        case Recover():
            return _recover(run, command)
        case _:
            assert_never(command)


def _start(command: Start) -> list[Payload]:
    submitted = Submitted(
        command.agent,
        command.conversation,
        command.principal,
        command.parent,
        open=command.open,
        assignment=command.assignment,
        rules=command.rules,
        reach=command.reach,
        tree=command.tree,
    )
    events: list[Payload] = [submitted]
    if command.done is not None:
        return [*events, command.done]
    if command.message is not None:
        events.append(InputReceived(command.message, command.trace))
    elif not command.open:
        raise Invalid("A run needs a message, unless it is opened to receive one later.", field="message")
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
    check_generation(run, command.generation)
    _check_open(run)
    if command.checked not in (None, run.epoch) and run.state in WAITING:
        raise VersionConflict("The run has asked another question meanwhile.")
    events: list[Payload] = [InputReceived(command.message, command.trace, command.agents)]
    if command.begin is not None and run.state in WAITING:
        events.append(Started(run.epoch + 1, command.begin.replica))
    return events


def check_generation(run: Run, expected: int | None) -> None:
    """Raise GenerationMismatch if the run has another generation than its sender expects."""
    if expected not in (None, run.generation):
        raise GenerationMismatch(
            f"The task has generation {run.generation}, not {expected}: read it again before you send.",
            taskId=run.id,
            expectedGeneration=expected,
            currentGeneration=run.generation,
        )


def _check_open(run: Run) -> None:
    if run.ended or run.cancel_requested or run.closing:
        raise RunEnded(f"The task is {run.state.value}; it accepts no further messages.", state=run.state.value)


def _started(run: Run, command: Begin) -> Started:
    if not run.ready:
        raise NotReady("The run has no turn to begin.", state=run.state.value)
    return Started(run.epoch + 1, command.replica)


def _not_ended(run: Run) -> None:
    if run.ended:
        raise LateResult(f"The run is {run.state.value}; the late result was dropped.", state=run.state.value)


def _check_executor(run: Run, epoch: int) -> None:
    _not_ended(run)
    if epoch != run.epoch or run.state is not State.WORKING:
        raise LeaseLost("Another executor works on this run.", epoch=run.epoch)


# Why: docs/decisions/runs.md#work-on-unread-input-before-completing-a-run
def _emit(run: Run, command: Emit) -> list[Payload]:
    _check_executor(run, command.epoch)
    report = command.report
    if isinstance(report, _SAYINGS):
        return [report]
    if run.cancel_requested:
        # After a cancel request, any end of the turn means canceled: the run has a single end that all readers see.
        return [Canceled(report.reason if isinstance(report, Canceled) else None)]
    if command.upto is not None and run.steered > command.upto:
        return [Rescued(run.epoch + 1, run.rescues, "resume")]
    if run.inputs > run.read and isinstance(report, _GOOD_ENDS):
        # An acknowledged input is never lost: the run continues with it.
        return [TurnEnded(report.parts)]
    if run.closing and isinstance(report, _QUESTIONS):
        # No caller is left to answer.
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
    """Accept the result also after a cancel request: the effect of the tool is worth recording until the run has
    ended."""
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
    return [] if _has_children_left(run, command.stopped) else [request, Canceled(command.reason)]


def _close(run: Run, command: Close) -> list[Payload]:
    _check_open(run)
    if run.state is State.WORKING or run.ready:
        return [Closing(command.by)]
    return [Closing(command.by), Completed()]


def _fail(run: Run, command: Fail) -> list[Payload]:
    _check_open(run)
    if run.state is not State.WORKING and _has_children_left(run, command.stopped):
        return []
    return [Failed(command.code, command.reason)]


def _recover(run: Run, command: Recover) -> list[Payload]:
    if run.state is not State.WORKING or run.epoch != command.epoch:
        return []
    recovery = _recovery(run, command)
    ends = isinstance(recovery, Canceled | Failed)
    return [] if ends and _has_children_left(run, command.stopped) else [recovery]


def _has_children_left(run: Run, stopped: int | None) -> bool:
    """Return whether the run has more children than were canceled."""
    return stopped is not None and stopped < len(run.children)


def _recovery(run: Run, command: Recover) -> Canceled | Failed | Rescued:
    if run.cancel_requested:
        return Canceled()
    if command.how == "fail":
        return Failed("interrupted", command.reason)
    if command.orderly:
        return Rescued(run.epoch + 1, run.rescues, command.how)
    # An orchestration that has begun a step only waits for it, which cannot crash a process: its steps are counted
    # themselves.
    waits = run.orchestration is not None and bool(run.children)
    if run.rescues >= command.most and not waits:
        words = f"Given up after {command.most} rescues. {command.reason}"
        return command.given_up or Failed("rescue_exhausted", words)
    return Rescued(run.epoch + 1, run.rescues + 1, command.how)
