"""A2A 1.0 as JSON: what comes in becomes the words of the core, what goes out is written from them."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.clock import iso
from parley.core.artifacts import Artifact, Part, Parts
from parley.core.conversations import Message
from parley.core.events import (
    ArtifactAdded,
    AuthRequired,
    Canceled,
    Completed,
    Event,
    Failed,
    InputRequired,
    Progress,
    Rejected,
    Rescued,
    Started,
    TurnEnded,
)
from parley.core.runs import Run, State
from parley.core.views import Said, Status, View, spoken
from parley.errors import Invalid
from parley.ids import is_id

STATES: dict[State, str] = {state: f"TASK_STATE_{state.name}" for state in State}
_ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}


class _In(Struct, frozen=True, rename="camel"):
    """Read from the wire: fields that are not known are ignored."""


class MessageIn(_In, frozen=True):
    message_id: str
    role: str
    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class Configuration(_In, frozen=True):
    accepted_output_modes: tuple[str, ...] | None = None
    history_length: int | None = None
    return_immediately: bool | None = None


class SendParams(_In, frozen=True):
    message: MessageIn
    configuration: Configuration | None = None


class TaskParams(_In, frozen=True):
    id: str
    history_length: int | None = None


class CancelParams(_In, frozen=True):
    id: str
    metadata: dict[str, object] | None = None


class _Out(Struct, frozen=True, omit_defaults=True, rename="camel"):
    pass


class MessageOut(_Out, frozen=True):
    message_id: str
    role: str
    parts: Parts
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class StatusOut(_Out, frozen=True):
    state: str
    timestamp: str
    message: MessageOut | None = None


class ArtifactOut(_Out, frozen=True):
    artifact_id: str
    parts: Parts
    name: str | None = None
    description: str | None = None
    metadata: Raw | UnsetType = UNSET


class TaskOut(_Out, frozen=True):
    id: str
    context_id: str
    status: StatusOut
    artifacts: list[ArtifactOut] = []
    history: list[MessageOut] = []


class StatusUpdate(_Out, frozen=True):
    task_id: str
    context_id: str
    status: StatusOut
    metadata: dict[str, object] | UnsetType = UNSET


class ArtifactUpdate(_Out, frozen=True):
    task_id: str
    context_id: str
    artifact: ArtifactOut
    append: bool = False
    last_chunk: bool = False


class StreamResponse(_Out, frozen=True):
    """One of the four; also the result of SendMessage, which has the first two."""

    task: TaskOut | None = None
    message: MessageOut | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


def message_in(wire: MessageIn) -> Message:
    if wire.role != "ROLE_USER":
        raise Invalid("A client's message has the role ROLE_USER.", field="message.role")
    if not wire.message_id or not is_id(wire.message_id):
        raise Invalid("messageId has 1 to 128 letters, digits or ._:@/+=~-", field="message.messageId")
    return Message(
        wire.message_id,
        tuple(_part_in(part) for part in wire.parts),
        _object(wire.metadata, "message.metadata"),
        wire.extensions or (),
        wire.reference_task_ids or (),
    )


def _part_in(part: Part) -> Part:
    """A client may not refer to stored bytes: `blob` is a field of the log, unknown on the wire."""
    return replace(part, blob=None) if part.blob is not None else part


def _object(value: Raw | UnsetType, field: str) -> Raw | UnsetType:
    if value is UNSET or bytes(value) == b"null":
        return UNSET
    if not bytes(value).lstrip().startswith(b"{"):
        raise Invalid("Metadata is a JSON object.", field=field)
    return value


def task_out(view: View, history_length: int | None = None) -> TaskOut:
    run = view.run
    return TaskOut(
        run.id,
        run.conversation,
        _status_out(run, view.status),
        [_artifact_out(artifact) for artifact in view.artifacts],
        [_said_out(run, said) for said in _latest(view.history, history_length)],
    )


def message_out(run: Run, said: Said) -> MessageOut:
    """A direct reply: it belongs to a context, and to no task."""
    return MessageOut(said.id, _ROLES[said.role], said.parts, run.conversation, metadata=said.metadata)


def update_out(run: Run, event: Event) -> StreamResponse | None:
    """What a stream shows of an event: at most one frame."""
    payload = event.payload
    match payload:
        case ArtifactAdded():
            artifact = ArtifactOut(payload.artifact, payload.parts, payload.name, payload.description, payload.metadata)
            update = ArtifactUpdate(run.id, run.conversation, artifact, payload.append, payload.last)
            return StreamResponse(artifact_update=update)
        case Started() | Progress():
            return _status_update(run, event, State.WORKING)
        case InputRequired():
            return _status_update(run, event, State.INPUT_REQUIRED)
        case AuthRequired():
            return _status_update(run, event, State.AUTH_REQUIRED)
        case TurnEnded():
            return _status_update(run, event, State.SUBMITTED)
        case Rescued():
            return _status_update(run, event, State.SUBMITTED, {"rescued": payload.how, "attempt": payload.attempt})
        case Completed():
            return _status_update(run, event, State.COMPLETED)
        case Failed():
            return _status_update(run, event, State.FAILED)
        case Canceled():
            return _status_update(run, event, State.CANCELED)
        case Rejected():
            return _status_update(run, event, State.REJECTED)
        case _:
            return None


def _status_update(
    run: Run, event: Event, state: State, metadata: dict[str, object] | UnsetType = UNSET
) -> StreamResponse:
    said = spoken(event, event.payload) if event.payload is not None else None
    status = _status_out(run, Status(state, event.at, said))
    return StreamResponse(status_update=StatusUpdate(run.id, run.conversation, status, metadata))


def _status_out(run: Run, status: Status) -> StatusOut:
    said = _said_out(run, status.said) if status.said else None
    return StatusOut(STATES[status.state], iso(status.at), said)


def _said_out(run: Run, said: Said) -> MessageOut:
    return MessageOut(
        said.id, _ROLES[said.role], said.parts, run.conversation, run.id,
        said.metadata, said.extensions, said.references,
    )  # fmt: skip


def _artifact_out(artifact: Artifact) -> ArtifactOut:
    return ArtifactOut(artifact.id, artifact.parts, artifact.name, artifact.description, artifact.metadata)


def _latest(history: Sequence[Said], length: int | None) -> Sequence[Said]:
    if length is None:
        return history
    if length < 0:
        raise Invalid("historyLength is zero or more.", field="historyLength")
    return history[-length:] if length else ()


encode = msgspec.json.Encoder().encode
