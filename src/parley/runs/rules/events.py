"""The closed set of events of a run, their encoding, and the hash chain that links them.

A run is its events, numbered from 1 without gaps. Everything else is a fold of them.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.documents.rules import Assignment
from parley.errors import BrokenChain
from parley.ids import ConversationId, RunId
from parley.json_values import readable
from parley.orchestrations.rules.plan import Rules, Steps
from parley.runs.rules.access import Principal, Reach
from parley.runs.rules.agents import Rescue
from parley.runs.rules.answers import Expected
from parley.runs.rules.content import Message, Part, Parts
from parley.runs.rules.usage import Usage
from parley.telemetry.trace import Trace

RESPONSE = "response"
"""Name of the artifact to which the text of a turn is added."""

ToolStatus = Literal["succeeded", "failed", "timed_out", "canceled", "blocked"]
StepStatus = Literal["pending", "running", "completed", "failed", "cancelled"]


class _Event(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type"):
    pass


class Origin(Struct, frozen=True):
    """The entry of another log up to which a run is a copy; `hash` is the hash of that entry, in hex."""

    run: RunId
    seq: int
    hash: str


class TreePlace(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The place of a run in a tree of runs: the outermost run (None for this one), and the number of runs above it.

    `groups` are those groups of the caller that had limits when the outermost run began.
    """

    root: RunId | None = None
    depth: int = 0
    groups: tuple[str, ...] = ()


class Submitted(_Event, tag="submitted", frozen=True):
    """The first event: agent, conversation and principal of the run; for a fork also its origin.

    An `open` run waits for input from the start, and again after each turn, until it is closed. A run with `rules` is
    an orchestration, which carries out its steps by these rules.
    """

    agent: str
    conversation: ConversationId
    principal: str
    parent: RunId | None = None
    origin: Origin | None = None
    open: bool = False
    assignment: Assignment | None = None
    """The purpose of the run, if a contract defines one beyond asking the agent."""
    rules: Rules | None = None
    reach: Reach | None = None
    """Rights of the caller in addition to its name, such as the agents that it is limited to."""
    tree: TreePlace | None = None
    """Place in a tree of runs. None for a run that was not started by another one and whose caller has no groups with
    limits."""


class InputReceived(_Event, tag="input", frozen=True):
    message: Message
    trace: Trace | None = None
    """The trace that the caller sent, if any."""
    agents: tuple[str, ...] = ()
    """The only agents that the sender may use, if it is limited; the following turns are limited to them too."""


class Started(_Event, tag="started", frozen=True):
    """A turn began: the executor with this epoch works on all input received so far."""

    epoch: int
    replica: str = ""


class StepRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The end of an attempt of a durable step (`turn.step`, `turn.sleep`, `turn.now`).

    `number` is the place of the step among the steps of its turn. `output` is the result as JSON; `code` and `reason`
    explain a failure, after which the step is tried again unless it is `final`. `due` is the end of a sleep (ms).
    """

    turn: int
    number: int
    name: str
    attempt: int = 1
    duration_ms: int = 0
    output: Part | None = None
    code: str = ""
    reason: str = ""
    final: bool = True
    due: int = 0


class Progress(_Event, tag="progress", frozen=True):
    """A progress message of the agent."""

    parts: Parts
    mark: str = ""
    """The agent's own marker of its progress, with which it can continue after a crash without repeating work."""
    step: StepRecord | None = None
    """The durable step that this progress reports."""
    usage: Usage | None = None
    """Tokens and cost of a model call. It comes without parts, and is not shown as a message."""


class ArtifactAdded(_Event, tag="artifact", frozen=True):
    """A complete artifact, or a chunk of one (`append`); `last` closes it. Metadata of a chunk is added to the
    artifact's."""

    artifact: str
    parts: Parts
    name: str | None = None
    description: str | None = None
    append: bool = False
    last: bool = False
    metadata: Raw | UnsetType = UNSET
    mark: str = ""


class Noted(_Event, tag="noted", frozen=True):
    """Notes of the agent for its later turns. They are never shown."""

    notes: dict[str, str]


class ChildStarted(_Event, tag="child", frozen=True):
    """This run asked another agent; canceling this run also cancels the child."""

    child: RunId
    agent: str


class ToolCalled(_Event, tag="tool_call", frozen=True):
    """A tool is about to be used on behalf of this run; `input` contains no secrets."""

    call: str
    tool: str
    input: Raw


class ToolReturned(_Event, tag="tool_result", frozen=True):
    """The result of a tool call. `code` and `reason` explain a status other than `succeeded`."""

    call: str
    tool: str
    status: ToolStatus
    output: Raw | UnsetType = UNSET
    code: str = ""
    reason: str = ""


class Planned(_Event, tag="planned", frozen=True):
    """The plan of an orchestration for its current input."""

    steps: Steps
    turn: int
    model: str = ""
    """The model that made the plan, if one did; `tokens` is its usage, if the vendor reported it."""
    tokens: int | None = None


class Stepped(_Event, tag="step", frozen=True):
    """A change of a step: it runs, as the run `run`; it has ended; or it waits until `due` to be retried.

    `number` of `total` is its position in the plan, for readers that have not seen the plan.
    """

    step: str
    status: StepStatus
    number: int
    total: int
    attempt: int
    name: str = ""
    run: RunId | None = None
    output: Parts = ()
    code: str = ""
    reason: str = ""
    due: int = 0


class Steered(_Event, tag="steered", frozen=True):
    """A request that the orchestration starts no further step, continues, or retries a step."""

    how: Literal["pause", "resume", "retry"]
    by: str
    step: str = ""


class TurnEnded(_Event, tag="turn_ended", frozen=True):
    """The turn has ended, but input arrived meanwhile: the run is ready again."""

    parts: Parts = ()


class InputRequired(_Event, tag="input_required", frozen=True):
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    """Metadata of the message."""
    task_metadata: Raw | UnsetType = UNSET
    """Metadata of the task; later events add to it."""
    expects: Expected | None = None
    """The expected answer, if not every answer will do."""


class AuthRequired(_Event, tag="auth_required", frozen=True):
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    task_metadata: Raw | UnsetType = UNSET


class CancelRequested(_Event, tag="cancel_requested", frozen=True):
    by: str
    reason: str | None = None


class Closing(_Event, tag="closing", frozen=True):
    """No further input is accepted: the run completes when all input has been processed."""

    by: str


class Rescued(_Event, tag="rescued", frozen=True):
    """The executor died with its process; the turn is resumed under a new epoch."""

    epoch: int
    attempt: int
    how: Rescue


class Suspended(_Event, tag="suspended", frozen=True):
    """The agent sleeps until `due` (ms). No executor holds the run meanwhile."""

    due: int


class Woken(_Event, tag="woken", frozen=True):
    """The sleep of a suspended run is over: its turn can be resumed."""


class Omitted(_Event, tag="omitted", frozen=True):
    """Replaces an entry in a fork that concerned only the original run; `entry` is the type of that entry."""

    entry: str


class Forked(_Event, tag="forked", frozen=True):
    """The end of the copy in a fork. `again`: the last input is processed again, as part of this `trace`."""

    by: str
    again: bool = False
    trace: Trace | None = None
    orchestration: RunId | None = None
    """The orchestration that continues here. Without it, a new orchestration begins as a copy."""


class Completed(_Event, tag="completed", frozen=True):
    parts: Parts = ()
    metadata: Raw | UnsetType = UNSET
    task_metadata: Raw | UnsetType = UNSET


class Replied(_Event, tag="replied", frozen=True):
    """Completed with a direct answer: a message instead of a task, for agents that declare it."""

    parts: Parts
    metadata: Raw | UnsetType = UNSET


class Failed(_Event, tag="failed", frozen=True):
    code: str
    reason: str
    task_metadata: Raw | UnsetType = UNSET


class Canceled(_Event, tag="canceled", frozen=True):
    reason: str | None = None


class Rejected(_Event, tag="rejected", frozen=True):
    code: str
    reason: str


Ending = Completed | Replied | Failed | Canceled | Rejected
SPOKEN = (Progress, ArtifactAdded, TurnEnded, InputRequired, AuthRequired, Completed, Replied)
"""The events that hold content of an agent."""
Payload = (
    Submitted
    | InputReceived
    | Started
    | Progress
    | ArtifactAdded
    | Noted
    | ChildStarted
    | ToolCalled
    | ToolReturned
    | Planned
    | Stepped
    | Steered
    | TurnEnded
    | InputRequired
    | AuthRequired
    | CancelRequested
    | Closing
    | Rescued
    | Suspended
    | Woken
    | Omitted
    | Forked
    | Ending
)
EventType = Literal[
    "submitted", "input", "started", "progress", "artifact", "noted", "child", "tool_call", "tool_result",
    "planned", "step", "steered", "turn_ended", "input_required", "auth_required", "cancel_requested", "closing",
    "rescued", "suspended", "woken", "omitted", "forked", "completed", "replied", "failed", "canceled", "rejected",
]  # fmt: skip
EVENT_TYPES: tuple[str, ...] = get_args(EventType)
ENDINGS = frozenset({"completed", "replied", "failed", "canceled", "rejected"})
"""No event follows after one of these."""
QUESTIONS = frozenset({"input_required", "auth_required"})
"""No event follows after one of these until the caller answers."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Payload)
_TYPES: dict[type[Payload], str] = {cls: str(cls.__struct_config__.tag) for cls in get_args(Payload)}

GENESIS = bytes(32)


class Event(Struct, frozen=True, gc=False):
    """One numbered entry of a run's log, with the bytes that were hashed.

    `body` is None when the payload was erased; `digest` then still proves its content.
    """

    run: RunId
    seq: int
    at: int
    payload: Payload | None
    body: bytes | None
    digest: bytes
    hash: bytes
    type: str


def encode(payload: Payload) -> bytes:
    return _encoder.encode(payload)


def decode(body: bytes) -> Payload:
    return _decoder.decode(body)


def type_of(payload: Payload) -> str:
    return _TYPES[type(payload)]


def caller_of(events: Iterable[Event]) -> Principal | None:
    """Return the principal for which a run works, with the limits of all senders of its input, as read from its log."""
    caller: Principal | None = None
    for event in events:
        if isinstance(event.payload, Submitted):
            caller = Principal.parse(event.payload.principal, event.payload.reach)
        elif isinstance(event.payload, InputReceived) and caller is not None:
            caller = caller.narrowed(event.payload.agents)
    return caller


def task_metadata_of(payload: Payload | None) -> Raw | UnsetType:
    """Return the task metadata that an event adds."""
    return payload.task_metadata if isinstance(payload, Completed | InputRequired | AuthRequired | Failed) else UNSET


def is_usage(payload: object) -> bool:
    """Return whether an event only records usage, and contains nothing to show."""
    return isinstance(payload, Progress) and payload.usage is not None and not payload.parts


def content_of(payload: Payload | None) -> Parts:
    """Return the parts of an entry, from the caller or from the agent."""
    if isinstance(payload, InputReceived):
        return payload.message.parts
    return payload.parts if isinstance(payload, SPOKEN) else ()


def with_content(event: Event, parts: Parts) -> Event:
    """Return the entry with other parts in place of its own."""
    payload = event.payload
    if isinstance(payload, InputReceived):
        message = msgspec.structs.replace(payload.message, parts=parts)
        return msgspec.structs.replace(event, payload=msgspec.structs.replace(payload, message=message))
    if isinstance(payload, SPOKEN):
        return msgspec.structs.replace(event, payload=msgspec.structs.replace(payload, parts=parts))
    return event


def link(previous: bytes, seq: int, at: int, type_: str, digest: bytes) -> bytes:
    """Return the hash of an event: over the hash of its predecessor, its number, time, type, and its payload's
    digest."""
    return hashlib.sha256(b"%b|%d|%d|%b|%b" % (previous, seq, at, type_.encode(), digest)).digest()


# Why: docs/decisions/runs.md#include-the-time-in-an-events-hash
def sealed(run: RunId, seq: int, at: int, payload: Payload, previous: bytes) -> Event:
    """Create the entry that follows the event whose hash is `previous`."""
    body = encode(payload)
    digest = hashlib.sha256(body).digest()
    type_ = type_of(payload)
    return Event(run, seq, at, payload, body, digest, link(previous, seq, at, type_, digest), type_)


def restored(
    run: RunId, seq: int, at: int, type_: str, body: bytes | None, digest: bytes | None, hash_: bytes
) -> Event:
    """Build an entry from its stored values; the digest is stored only if the body was erased."""
    if body is None:
        return Event(run, seq, at, None, None, digest or b"", hash_, type_)
    try:
        return Event(run, seq, at, decode(readable(body)), body, hashlib.sha256(body).digest(), hash_, type_)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BrokenChain(f"The payload of event {seq} cannot be read.", run=run, seq=seq) from error


def verify(events: Iterable[Event], floor: int = 0, floor_hash: bytes = GENESIS) -> tuple[int, bytes]:
    """Walk the hash chain from the floor. Return the last seq and hash; raise BrokenChain at the first wrong event."""
    seq, previous = floor, floor_hash
    for event in events:
        seq += 1
        if event.seq != seq:
            raise BrokenChain(f"Event {seq} is missing.", run=event.run, seq=seq)
        if event.body is not None and hashlib.sha256(event.body).digest() != event.digest:
            raise BrokenChain(f"The payload of event {seq} was changed.", run=event.run, seq=seq)
        if link(previous, seq, event.at, event.type, event.digest) != event.hash:
            raise BrokenChain(f"Event {seq} does not match its hash.", run=event.run, seq=seq)
        previous = event.hash
    return seq, previous
