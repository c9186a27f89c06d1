"""The closed set of things that can happen to a run, their bytes, and the chain that binds them.

A run is its events, numbered from 1 without gaps. Everything else is a fold of them.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.access import Principal, Reach
from parley.core.agents import Rescue
from parley.core.artifacts import Parts
from parley.core.conversations import Message
from parley.core.documents import Assignment
from parley.core.nesting import readable
from parley.core.plans import Rules, Steps
from parley.errors import BrokenChain
from parley.ids import ConversationId, RunId
from parley.telemetry.trace import Trace

RESPONSE = "response"
"""The name of the artifact that the text of a turn grows."""

ToolStatus = Literal["succeeded", "failed", "timed_out", "canceled", "blocked"]
StepStatus = Literal["pending", "running", "completed", "failed", "cancelled"]


class _Event(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type"):
    pass


class Origin(Struct, frozen=True):
    """The entry of another log up to which a run is a copy; `hash` is that entry's, in hex."""

    run: RunId
    seq: int
    hash: str


class Submitted(_Event, tag="submitted", frozen=True):
    """The first event: what the run is, and whose; and where its first entries come from, if it is a fork.

    An `open` run waits for input from the start, and again after each turn, until somebody closes it. One with `rules`
    is an orchestration, and carries out its steps by them.
    """

    agent: str
    conversation: ConversationId
    principal: str
    parent: RunId | None = None
    origin: Origin | None = None
    open: bool = False
    assignment: Assignment | None = None
    """What it was made for, where a contract says more than that an agent is asked."""
    rules: Rules | None = None
    reach: Reach | None = None
    """Rights of the caller beyond its name, such as the agents that it is limited to."""


class InputReceived(_Event, tag="input", frozen=True):
    message: Message
    trace: Trace | None = None
    """What the caller said about where it comes from, if it did."""
    agents: tuple[str, ...] = ()
    """The only agents that the sender may use, if it is limited; the turns that follow are limited to them too."""


class Started(_Event, tag="started", frozen=True):
    """A turn began: the executor with this epoch works on all input received so far."""

    epoch: int
    replica: str = ""


class Progress(_Event, tag="progress", frozen=True):
    """The agent says what it is doing."""

    parts: Parts
    mark: str = ""
    """How far the agent has come, in words of its own: what it needs to go on after a crash without a repetition."""


class ArtifactAdded(_Event, tag="artifact", frozen=True):
    """A whole artifact, or a chunk of one (`append`); `last` closes it. A chunk's metadata adds to the artifact's."""

    artifact: str
    parts: Parts
    name: str | None = None
    description: str | None = None
    append: bool = False
    last: bool = False
    metadata: Raw | UnsetType = UNSET
    mark: str = ""


class Noted(_Event, tag="noted", frozen=True):
    """The agent notes something for its later turns. It is shown to nobody."""

    notes: dict[str, str]


class ChildStarted(_Event, tag="child", frozen=True):
    """This run asked another agent; a cancel of this one reaches the child."""

    child: RunId
    agent: str


class ToolCalled(_Event, tag="tool_call", frozen=True):
    """A tool is about to be used on this run's behalf; `input` holds no secrets."""

    call: str
    tool: str
    input: Raw


class ToolReturned(_Event, tag="tool_result", frozen=True):
    """What came of it. `code` and `reason` say why it is not `succeeded`."""

    call: str
    tool: str
    status: ToolStatus
    output: Raw | UnsetType = UNSET
    code: str = ""
    reason: str = ""


class Planned(_Event, tag="planned", frozen=True):
    """What the orchestration is going to do about the input it has."""

    steps: Steps
    turn: int
    model: str = ""
    """Model that made the plan, if one did, and the tokens that took as far as its vendor told."""
    tokens: int | None = None


class Stepped(_Event, tag="step", frozen=True):
    """A step has come to this: it runs, as the run `run`; it has ended; or it waits until `due` to be tried again.

    `number` of `total` is its place in the plan, for readers who have not seen that.
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
    """Somebody wants the orchestration to start no further step, to go on, or to try a step again."""

    how: Literal["pause", "resume", "retry"]
    by: str
    step: str = ""


class TurnEnded(_Event, tag="turn_ended", frozen=True):
    """The turn was done, but input had come in meanwhile: the run is ready again."""

    parts: Parts = ()


class InputRequired(_Event, tag="input_required", frozen=True):
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    """Metadata of the message."""
    task_metadata: Raw | UnsetType = UNSET
    """Metadata of the task; a later event adds to it."""


class AuthRequired(_Event, tag="auth_required", frozen=True):
    parts: Parts
    metadata: Raw | UnsetType = UNSET
    task_metadata: Raw | UnsetType = UNSET


class CancelRequested(_Event, tag="cancel_requested", frozen=True):
    by: str
    reason: str | None = None


class Closing(_Event, tag="closing", frozen=True):
    """No further input: the run completes when what was given is done."""

    by: str


class Rescued(_Event, tag="rescued", frozen=True):
    """The executor died with its process; the turn is taken up again under a new epoch."""

    epoch: int
    attempt: int
    how: Rescue


class Omitted(_Event, tag="omitted", frozen=True):
    """Stands in a fork for an entry that concerned only the run it was copied from; `entry` is the type of that."""

    entry: str


class Forked(_Event, tag="forked", frozen=True):
    """The copy ends here. `again`: the last input is worked on once more, as part of this `trace`."""

    by: str
    again: bool = False
    trace: Trace | None = None
    orchestration: RunId | None = None
    """The orchestration that goes on here, instead of another one that begins like it."""


class Completed(_Event, tag="completed", frozen=True):
    parts: Parts = ()
    metadata: Raw | UnsetType = UNSET
    task_metadata: Raw | UnsetType = UNSET


class Replied(_Event, tag="replied", frozen=True):
    """Completed with a direct answer: a message and no task, for agents that declare it."""

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
"""What holds content of an agent."""
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
    | Omitted
    | Forked
    | Ending
)
EventType = Literal[
    "submitted", "input", "started", "progress", "artifact", "noted", "child", "tool_call", "tool_result",
    "planned", "step", "steered", "turn_ended", "input_required", "auth_required", "cancel_requested", "closing",
    "rescued", "omitted", "forked", "completed", "replied", "failed", "canceled", "rejected",
]  # fmt: skip
EVENT_TYPES: tuple[str, ...] = get_args(EventType)
ENDINGS = frozenset({"completed", "replied", "failed", "canceled", "rejected"})
"""After one of these nothing follows."""
QUESTIONS = frozenset({"input_required", "auth_required"})
"""After one of these nothing follows until somebody answers."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Payload)
_TYPES: dict[type[Payload], str] = {cls: str(cls.__struct_config__.tag) for cls in get_args(Payload)}

GENESIS = bytes(32)


class Event(Struct, frozen=True, gc=False):
    """One numbered entry of a run's log, with the bytes that were hashed.

    `body` is None when the payload was erased; `digest` then still proves what stood there.
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
    """On whose behalf a run works, with the limits of everybody who has given it input; from its log."""
    caller: Principal | None = None
    for event in events:
        if isinstance(event.payload, Submitted):
            caller = Principal.parse(event.payload.principal, event.payload.reach)
        elif isinstance(event.payload, InputReceived) and caller is not None:
            caller = caller.narrowed(event.payload.agents)
    return caller


def task_metadata_of(payload: Payload | None) -> Raw | UnsetType:
    """Metadata of the task that an event adds."""
    return payload.task_metadata if isinstance(payload, Completed | InputRequired | AuthRequired | Failed) else UNSET


def content_of(payload: Payload | None) -> Parts:
    """The parts of an entry, whoever they come from."""
    if isinstance(payload, InputReceived):
        return payload.message.parts
    return payload.parts if isinstance(payload, SPOKEN) else ()


def with_content(event: Event, parts: Parts) -> Event:
    """The entry as it is shown with other parts in place of its own."""
    payload = event.payload
    if isinstance(payload, InputReceived):
        message = msgspec.structs.replace(payload.message, parts=parts)
        return msgspec.structs.replace(event, payload=msgspec.structs.replace(payload, message=message))
    if isinstance(payload, SPOKEN):
        return msgspec.structs.replace(event, payload=msgspec.structs.replace(payload, parts=parts))
    return event


def link(previous: bytes, seq: int, at: int, type_: str, digest: bytes) -> bytes:
    """The hash of an event: over its predecessor, its place, time and type, and its payload's digest."""
    return hashlib.sha256(b"%b|%d|%d|%b|%b" % (previous, seq, at, type_.encode(), digest)).digest()


def sealed(run: RunId, seq: int, at: int, payload: Payload, previous: bytes) -> Event:
    """Make the entry that follows the event whose hash is `previous`."""
    body = encode(payload)
    digest = hashlib.sha256(body).digest()
    type_ = type_of(payload)
    return Event(run, seq, at, payload, body, digest, link(previous, seq, at, type_, digest), type_)


def restored(
    run: RunId, seq: int, at: int, type_: str, body: bytes | None, digest: bytes | None, hash_: bytes
) -> Event:
    """An entry as a store returns it; the digest is stored only where the body was erased."""
    if body is None:
        return Event(run, seq, at, None, None, digest or b"", hash_, type_)
    try:
        return Event(run, seq, at, decode(readable(body)), body, hashlib.sha256(body).digest(), hash_, type_)
    except (msgspec.MsgspecError, TypeError) as error:
        raise BrokenChain(f"The payload of event {seq} cannot be read.", run=run, seq=seq) from error


def verify(events: Iterable[Event], floor: int = 0, floor_hash: bytes = GENESIS) -> tuple[int, bytes]:
    """Walk the chain from the floor; the last seq and hash, or BrokenChain at the first event that lies."""
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
