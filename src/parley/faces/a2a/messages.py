"""Requests and results of A2A, independent of its versions."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import Invalid
from parley.push.hooks import Hook
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Artifact, Message, Parts, combined
from parley.runs.rules.events import (
    ENDINGS,
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    Forked,
    InputRequired,
    Payload,
    Planned,
    Progress,
    Rejected,
    Rescued,
    Started,
    Steered,
    Stepped,
    Suspended,
    TurnEnded,
    is_usage,
    task_metadata_of,
)
from parley.runs.rules.state import Run, State, is_update
from parley.runs.rules.usage import shown as usage_shown
from parley.runs.rules.view import RunStatus, StatusMessage, spoken


class A2ACall(Struct, frozen=True):
    """A call of an agent by a principal, with the values of the transport's headers.

    A call without an agent came to the server's root: a new task goes to the default agent, and any task that
    the caller may see can be read, followed and canceled.
    """

    agent: str | None
    principal: Principal
    key: str | None = None
    last_event_id: str | None = None
    extensions: frozenset[str] = frozenset()
    """URIs of the extensions that the caller supports."""
    owner: Callable[[], Awaitable[Principal | None]] | None = None
    """Looks up the owner of the credential if `auth` is `none`, where all callers share one principal."""
    taken: Callable[[], None] | None = None
    """Called when a remote agent works on the call and the caller has waited for long: from then on the connection is
    kept alive."""
    generations: bool = False
    """True if the caller's version of A2A has generations (1.1), so that the updates of streams are counted."""


class HookRef(Struct, frozen=True):
    task: str
    id: str | None = None
    """None means the first one, in versions of A2A in which the id is optional."""


class Ask(Struct, frozen=True):
    """A message for an agent: a new task, or one more input to `task`."""

    message: Message
    task: str | None = None
    context: str | None = None
    history_length: int | None = None
    immediate: bool = False
    """True to answer as soon as the task is accepted."""
    hook: Hook | None = None
    metadata: Raw | UnsetType = UNSET
    """Metadata of the request; its message has metadata of its own."""
    output_modes: tuple[str, ...] = ()
    generation: int | None = None
    """The generation that `task` must have; None if any will do."""


class ForkAsk(Struct, frozen=True):
    """A copy of `task` up to the event `at`, and the message with which it continues."""

    task: str
    at: int | None = None
    message: Message | None = None
    context: str | None = None


class Query(Struct, frozen=True):
    """Filter and page of a list of tasks."""

    context: str | None = None
    state: State | None = None
    since: int | None = None
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    artifacts: bool = False


class TaskShown(Struct, frozen=True):
    run: Run
    status: RunStatus
    history: Sequence[StatusMessage]
    artifacts: Sequence[Artifact]
    metadata: Raw | UnsetType = UNSET

    @property
    def size(self) -> int:
        """Number of messages and parts; rendering takes time in proportion to it."""
        return len(self.history) + sum(len(artifact.parts) for artifact in self.artifacts)


class ReplyShown(Struct, frozen=True):
    """A direct reply: a message in a context without a task."""

    run: Run
    said: StatusMessage


class UpdateShown(Struct, frozen=True):
    """An event of a task, with its attachments loaded."""

    run: Run
    """The run after the event if `generation` is set, else at the start of the stream."""
    event: Event
    generation: int = 0
    """Generation of the task after the event; 0 if the event is no update, or if generations are not needed."""


Shown = TaskShown | ReplyShown | UpdateShown


class TaskPage(Struct, frozen=True):
    tasks: list[TaskShown]
    next: str
    size: int
    total: int


class _In(Struct, frozen=True, rename="camel", kw_only=True):
    """Params that are the same in every version. Unknown fields are ignored."""

    tenant: str | None = None


class TaskParams(_In, frozen=True, kw_only=True):
    id: str
    history_length: int | None = None


class PollParams(TaskParams, frozen=True, kw_only=True):
    """Params of a request that waits until the task has a higher generation than this one."""

    current_generation: int | str | None = None


class CancelParams(_In, frozen=True, kw_only=True):
    id: str
    metadata: dict[str, object] | None = None


class CardParams(_In, frozen=True, kw_only=True):
    pass


# Checks of requests that all versions of A2A share, and the status that a stream shows for an event.

MAX_MESSAGE_ID = 255
MAX_INT64 = 1 << 63
_INT64 = re.compile(r"-?[0-9]{1,19}")
_STATES: dict[type[Payload], State] = {
    Started: State.WORKING,
    Progress: State.WORKING,
    Planned: State.WORKING,
    Stepped: State.WORKING,
    Steered: State.WORKING,
    InputRequired: State.INPUT_REQUIRED,
    AuthRequired: State.AUTH_REQUIRED,
    TurnEnded: State.SUBMITTED,
    Rescued: State.SUBMITTED,
    Suspended: State.SUBMITTED,
    Forked: State.SUBMITTED,
    Completed: State.COMPLETED,
    Failed: State.FAILED,
    Canceled: State.CANCELED,
    Rejected: State.REJECTED,
}


def status_of(event: Event) -> RunStatus | None:
    """Return the status that an event leads to; None if streams do not show the event."""
    payload = event.payload
    state = _STATES.get(type(payload)) if payload is not None else None
    if payload is None or state is None or is_usage(payload):
        return None
    return RunStatus(state, event.at, spoken(event, payload))


def counted_update(after: Run, event: Event) -> UpdateShown:
    """Return an update with its generation. `after` is the run after the event."""
    payload = event.payload
    updates = payload is not None and is_update(payload, event.seq, open=after.open)
    return UpdateShown(after, event, after.generation if updates else 0)


USAGE = "usage"
"""Member of a task's metadata: tokens and cost of its model calls."""


def task_metadata(run: Run, given: Raw | UnsetType) -> Raw | UnsetType:
    """Return the metadata of a task: its usage, if it has any, and what its agent gave. The agent's own values win."""
    return combined(Raw(msgspec.json.encode({USAGE: usage_shown(run.usage)})), given) if run.usage else given


def update_metadata(run: Run, event: Event) -> Raw | UnsetType:
    """Return the metadata that an update adds to the task. The last update has the usage of the whole task."""
    if event.payload is None:
        return UNSET
    given = task_metadata_of(event.payload)
    return task_metadata(run, given) if event.type in ENDINGS else given


class MessageWire(Protocol):
    """Members that a message has in every version; its parts differ."""

    @property
    def message_id(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def metadata(self) -> Raw | UnsetType: ...

    @property
    def extensions(self) -> tuple[str, ...] | None: ...


def message(wire: MessageWire, parts: Parts, *users: str, references: tuple[str, ...] | None = None) -> Message:
    """Check and convert a client's message; `users` are the accepted names of its role."""
    if wire.role not in users:
        raise Invalid(f"role must be {users[0]} in a client's message.", field="message.role")
    if not 1 <= len(wire.message_id) <= MAX_MESSAGE_ID or not wire.message_id.isprintable():
        raise Invalid(f"messageId must have 1 to {MAX_MESSAGE_ID} printable characters.", field="message.messageId")
    about = metadata(wire.metadata, "message.metadata")
    return Message(wire.message_id, parts, about, wire.extensions or (), references or ())


def metadata(value: Raw | UnsetType, field: str) -> Raw | UnsetType:
    if value is UNSET or bytes(value) == b"null":
        return UNSET
    if not bytes(value).lstrip().startswith(b"{"):
        raise Invalid("metadata must be a JSON object.", field=field)
    return value


def int64(value: int | str | None, field: str) -> int | None:
    """Return an int64, which protobuf's JSON writes as a number or as a text of digits."""
    if value is None or (isinstance(value, int) and abs(value) < MAX_INT64):
        return value
    if isinstance(value, str) and _INT64.fullmatch(value) and abs(int(value)) < MAX_INT64:
        return int(value)
    raise Invalid(f"{field} must be a whole number of 64 bits.", field=field)


def history_length(length: int | None) -> int | None:
    if length is not None and length < 0:
        raise Invalid("historyLength must be zero or more.", field="historyLength")
    return length
