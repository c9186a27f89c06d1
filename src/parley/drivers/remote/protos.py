"""Conversion between the A2A SDK's protobuf messages and plain values."""

from typing import Any

import msgspec
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format, struct_pb2
from msgspec import UNSET, Raw, UnsetType

from parley.drivers.remote.translation import (
    Heard,
    RemoteArtifact,
    RemoteMessage,
    RemoteRefused,
    RemoteReply,
    RemoteStatus,
    RemoteTask,
    tidy,
)
from parley.runs.rules.content import HOPS, Artifact, Message, Part, Parts
from parley.runs.rules.state import State

_STATES: dict[int, State] = {
    number: State(name.removeprefix("TASK_STATE_").lower()) for name, number in pb.TaskState.items() if number
}
_NUMBERS: dict[State, Any] = {state: number for number, state in _STATES.items()}


def message_out(message: Message, task: str | None, context: str | None, hops: int) -> pb.Message:
    metadata: dict[str, Any] = {} if message.metadata is UNSET else msgspec.json.decode(message.metadata)
    return pb.Message(
        message_id=message.id,
        role=pb.Role.ROLE_USER,
        parts=[part_out(part) for part in message.parts],
        task_id=task or "",
        context_id=context or "",
        metadata=json_format.ParseDict({**metadata, HOPS: hops}, struct_pb2.Struct()),
        extensions=message.extensions,
    )


def part_out(part: Part) -> pb.Part:
    out = pb.Part(media_type=part.media_type or "", filename=part.filename or "")
    if part.text is not None:
        out.text = part.text
    elif part.raw is not None:
        out.raw = part.raw
    elif part.url is not None:
        out.url = part.url
    elif part.data is not UNSET:
        json_format.Parse(bytes(part.data), out.data)
    if part.metadata is not UNSET:
        json_format.Parse(bytes(part.metadata), out.metadata)
    return out


def metadata_out(metadata: Raw | UnsetType) -> struct_pb2.Struct | None:
    return None if metadata is UNSET else json_format.Parse(bytes(metadata), struct_pb2.Struct())


def state_out(state: State) -> pb.TaskState:
    """Return the A2A state. States that A2A does not have count as working."""
    return _NUMBERS.get(state, pb.TaskState.TASK_STATE_WORKING)


def heard(event: pb.StreamResponse) -> Heard:
    match event.WhichOneof("payload"):
        case "task":
            return snapshot(event.task)
        case "message":
            return RemoteReply(event.message.context_id, words_of(event.message))
        case "status_update":
            update, status = event.status_update, event.status_update.status
            said = words_of(status.message) if status.HasField("message") else None
            return RemoteStatus(state_of(status.state), said, metadata_of(update))
        case "artifact_update":
            update = event.artifact_update
            made = artifact_of(update.artifact)
            return RemoteArtifact(
                made.id, made.parts, made.name, made.description, update.append, update.last_chunk, made.metadata
            )
        case _:
            raise RemoteRefused("other", "An event of its stream is empty.")


def place_of(event: pb.StreamResponse) -> tuple[str, str]:
    """Return the ids of the task and the context of an update."""
    kind = event.WhichOneof("payload")
    if kind not in ("status_update", "artifact_update"):
        return "", ""
    update: pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent = getattr(event, kind)
    return update.task_id, update.context_id


def snapshot(task: pb.Task) -> RemoteTask:
    status = task.status
    return RemoteTask(
        task.id,
        task.context_id,
        state_of(status.state),
        words_of(status.message) if status.HasField("message") else None,
        tuple(words_of(message) for message in task.history),
        tuple(artifact_of(artifact) for artifact in task.artifacts),
        metadata_of(task),
    )


def state_of(number: int) -> State:
    """Return the state. Unknown states count as working."""
    return _STATES.get(number, State.WORKING)


def words_of(message: pb.Message) -> RemoteMessage:
    code = message.metadata.fields["code"].string_value if "code" in message.metadata.fields else None
    role = "user" if message.role == pb.Role.ROLE_USER else "agent"
    return RemoteMessage(message.message_id, role, parts_in(message.parts), code or None, metadata_of(message))


def artifact_of(artifact: pb.Artifact) -> Artifact:
    return Artifact(
        artifact.artifact_id,
        parts_in(artifact.parts),
        artifact.name or None,
        artifact.description or None,
        metadata_of(artifact),
    )


def metadata_of(value: Any) -> Raw | UnsetType:
    return _json(value.metadata) if value.HasField("metadata") else UNSET


def parts_in(parts: Any) -> Parts:
    return tuple(_part(part) for part in parts if part.WhichOneof("content"))


def _part(part: pb.Part) -> Part:
    kind = part.WhichOneof("content")
    return Part(
        text=part.text if kind == "text" else None,
        raw=part.raw if kind == "raw" else None,
        url=part.url if kind == "url" else None,
        data=_json(part.data) if kind == "data" else UNSET,
        media_type=part.media_type or _media_type_in(part) or None,
        filename=part.filename or None,
        metadata=metadata_of(part),
    )


def _media_type_in(part: pb.Part) -> str:
    """Return the media type of a text or data part of A2A 0.3, which has no field for it."""
    return part.metadata.fields["mimeType"].string_value if "mimeType" in part.metadata.fields else ""


def _json(value: Any) -> Raw | UnsetType:
    return Raw(tidy(json_format.MessageToDict(value)))
