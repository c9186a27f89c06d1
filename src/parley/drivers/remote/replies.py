"""Replies of remote agents as JSON, of every version of A2A, in plain values.

The versions differ in names and nesting, not in meaning, so one set of types reads them all. Protobuf's JSON, which A2A
1.x and the HTTP binding of 0.3 use, has two spellings of each name, names or numbers for enums, two alphabets of base64
and null for a missing value; all are read.
"""

import binascii
from base64 import b64decode, urlsafe_b64decode
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from parley.client.generations import whole_number
from parley.drivers.remote.translation import (
    RemoteArtifact,
    RemoteMessage,
    RemoteRefused,
    RemoteReply,
    RemoteStatus,
    RemoteStep,
    RemoteTask,
    tidy,
)
from parley.runs.rules.content import Artifact, Part, Parts, names_in
from parley.runs.rules.state import State


class _File(Struct, rename="camel"):
    """The file of a part in A2A 0.3: over JSON-RPC with `bytes` and `uri`, over HTTP with the longer names."""

    raw: str | None = field(default=None, name="bytes")
    uri: str | None = None
    file_with_bytes: str | None = None
    file_with_uri: str | None = None
    mime_type: str | None = None
    name: str | None = None
    snake_file_with_bytes: str | None = field(default=None, name="file_with_bytes")
    snake_file_with_uri: str | None = field(default=None, name="file_with_uri")
    snake_mime_type: str | None = field(default=None, name="mime_type")


class _Part(Struct, rename="camel"):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Raw | UnsetType = UNSET
    file: _File | None = None
    media_type: str | None = None
    filename: str | None = None
    metadata: Raw | UnsetType = UNSET
    snake_media_type: str | None = field(default=None, name="media_type")


class _Message(Struct, rename="camel"):
    message_id: str | None = None
    role: str | int | None = None
    parts: list[_Part] | None = None
    content: list[_Part] | None = None
    """The parts in A2A 0.3 over HTTP."""
    context_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    snake_message_id: str | None = field(default=None, name="message_id")
    snake_context_id: str | None = field(default=None, name="context_id")


class _Status(Struct):
    state: str | int | None = None
    message: _Message | None = None
    update: _Message | None = None
    """The message by its name in the schema of A2A 0.3."""


class _Artifact(Struct, rename="camel"):
    artifact_id: str | None = None
    parts: list[_Part] | None = None
    name: str | None = None
    description: str | None = None
    metadata: Raw | UnsetType = UNSET
    snake_artifact_id: str | None = field(default=None, name="artifact_id")


class _Task(Struct, rename="camel"):
    id: str | None = None
    context_id: str | None = None
    status: _Status | None = None
    history: list[_Message] | None = None
    artifacts: list[_Artifact] | None = None
    metadata: Raw | UnsetType = UNSET
    generation: int | str | None = None
    snake_context_id: str | None = field(default=None, name="context_id")


class _Update(Struct, rename="camel"):
    """An update of the status, or of an artifact."""

    task_id: str | None = None
    context_id: str | None = None
    status: _Status | None = None
    artifact: _Artifact | None = None
    append: bool | None = None
    last_chunk: bool | None = None
    metadata: Raw | UnsetType = UNSET
    generation: int | str | None = None
    snake_task_id: str | None = field(default=None, name="task_id")
    snake_context_id: str | None = field(default=None, name="context_id")
    snake_last_chunk: bool | None = field(default=None, name="last_chunk")


class _Event(Struct, rename="camel"):
    """An event, or the result of a send: exactly one of its members. Over HTTP an error may come instead."""

    task: _Task | None = None
    message: _Message | None = None
    msg: _Message | None = None
    status_update: _Update | None = None
    artifact_update: _Update | None = None
    error: Any = None
    snake_status_update: _Update | None = field(default=None, name="status_update")
    snake_artifact_update: _Update | None = field(default=None, name="artifact_update")


T = TypeVar("T")


class RpcReply(Struct, Generic[T]):
    """A JSON-RPC response."""

    result: T | None = None
    error: Any = None


class _RawRpc(Struct):
    """A JSON-RPC response of A2A 0.3. Its result is decoded once its kind is known."""

    result: Raw = Raw(b"null")
    error: Any = None


class _Kind(Struct, rename="camel"):
    """The members of a result of A2A 0.3 that tell its kind. Older servers omit `kind`."""

    kind: str | None = None
    id: str | None = None
    message_id: str | None = None
    artifact: Raw | UnsetType = UNSET
    status: Raw | UnsetType = UNSET


decode_rpc_event = msgspec.json.Decoder(RpcReply[_Event]).decode
decode_rpc_task = msgspec.json.Decoder(RpcReply[_Task]).decode
decode_rpc = msgspec.json.Decoder(_RawRpc).decode
decode_task = msgspec.json.Decoder(_Task).decode
decode_event = msgspec.json.Decoder(_Event).decode
_message = msgspec.json.Decoder(_Message).decode
_update = msgspec.json.Decoder(_Update).decode
_kind = msgspec.json.Decoder(_Kind).decode


def decode_flat_event(content: bytes | str | Raw) -> _Event:
    """Decode an event of A2A 0.3 over JSON-RPC, which is not nested: its `kind` tells what it is."""
    found = _kind(content)
    kind = found.kind
    if not kind:
        if found.artifact is not UNSET:
            kind = "artifact-update"
        elif found.message_id is not None:
            kind = "message"
        else:
            kind = "task" if found.id is not None else "status-update" if found.status is not UNSET else ""
    match kind:
        case "task":
            return _Event(task=decode_task(content))
        case "message":
            return _Event(message=_message(content))
        case "status-update":
            return _Event(status_update=_update(content))
        case "artifact-update":
            return _Event(artifact_update=_update(content))
        case _:
            return _Event()


Format = Literal["1", "0.3", "0.3 http"]

_STATES: dict[str | int, State] = {
    name: state
    for number, state in enumerate(
        (
            State.SUBMITTED,
            State.WORKING,
            State.COMPLETED,
            State.FAILED,
            State.CANCELED,
            State.INPUT_REQUIRED,
            State.REJECTED,
            State.AUTH_REQUIRED,
        ),
        1,
    )
    for name in (number, f"TASK_STATE_{state.name}", state.value.replace("_", "-"))
} | {"TASK_STATE_CANCELLED": State.CANCELED}
"""States by their number, and by their names in 1.x and 0.3. Over HTTP 0.3 writes one with two L."""
_USERS = frozenset(("user", "ROLE_USER", 1))


class Replies:
    """Converts replies in the format of one version and binding to plain values."""

    def __init__(self, format_: Format, *, generations: bool = False) -> None:
        self._format = format_
        self._generations = generations

    def step(self, found: _Event, cursor: int | None = None) -> RemoteStep | None:
        """Return the step for an event; None if it has none of the known members."""
        if found.task is not None:
            now = self.task(found.task)
            return RemoteStep(now, cursor, generation=now.generation)
        said = found.message or found.msg
        if said is not None:
            return RemoteStep(RemoteReply(said.context_id or said.snake_context_id or "", self._said(said)), cursor)
        update = found.status_update or found.snake_status_update
        if update is not None:
            status = update.status or _Status()
            heard = RemoteStatus(_state(status.state), self._status_said(status), self._about(update.metadata))
        else:
            update = found.artifact_update or found.snake_artifact_update
            if update is None:
                return None
            heard = self._chunk(update)
        ids = update.task_id or update.snake_task_id or "", update.context_id or update.snake_context_id or ""
        return RemoteStep(heard, cursor, *ids, self._generation(update.generation))

    def task(self, found: _Task) -> RemoteTask:
        status = found.status or _Status()
        if not found.id:
            raise RemoteRefused("other", "Its answer is not valid A2A (a task without id).")
        return RemoteTask(
            found.id,
            found.context_id or found.snake_context_id or "",
            _state(status.state),
            self._status_said(status),
            tuple(self._said(one) for one in found.history or ()),
            tuple(self._artifact(one) for one in found.artifacts or ()),
            self._about(found.metadata),
            self._generation(found.generation),
        )

    def _generation(self, number: int | str | None) -> int:
        return whole_number(number) if self._generations else 0

    def _status_said(self, status: _Status) -> RemoteMessage | None:
        said = status.message or status.update
        return self._said(said) if said is not None else None

    def _said(self, said: _Message) -> RemoteMessage:
        about = self._about(said.metadata)
        return RemoteMessage(
            said.message_id or said.snake_message_id or "",
            "user" if said.role in _USERS else "agent",
            self._parts(said.parts or said.content),
            _text_in(about, "code") or None,
            about,
        )

    def _chunk(self, update: _Update) -> RemoteArtifact:
        made = self._artifact(update.artifact or _Artifact())
        last = update.last_chunk if update.last_chunk is not None else update.snake_last_chunk
        return RemoteArtifact(
            made.id, made.parts, made.name, made.description, bool(update.append), bool(last), made.metadata
        )

    def _artifact(self, found: _Artifact) -> Artifact:
        id_ = found.artifact_id or found.snake_artifact_id or ""
        about = self._about(found.metadata)
        return Artifact(id_, self._parts(found.parts), found.name or None, found.description or None, about)

    def _parts(self, found: list[_Part] | None) -> Parts:
        return tuple(part for one in found or () if (part := self._part(one)) is not None)

    def _part(self, found: _Part) -> Part | None:
        """Return a part; None if it has no content that is known."""
        about = self._about(found.metadata)
        media_type = found.media_type or found.snake_media_type or _text_in(about, "mimeType") or None
        filename = found.filename or None
        if found.text is not None:
            return Part(text=found.text, media_type=media_type, filename=filename, metadata=about)
        if found.file is not None:
            return self._file(found.file, about)
        if found.raw is not None:
            return Part(raw=_bytes(found.raw), media_type=media_type, filename=filename, metadata=about)
        if found.url is not None:
            return Part(url=found.url, media_type=media_type, filename=filename, metadata=about)
        if found.data is UNSET:
            return None
        data, about = self._data(found.data, about)
        return Part(data=data, media_type=media_type, filename=filename, metadata=about)

    def _data(self, data: Raw, about: Raw | UnsetType) -> tuple[Raw, Raw | UnsetType]:
        """Return the data of a part, and its metadata. In A2A 0.3 data is always an object; another value is wrapped by
        the SDK, which notes that in the metadata."""
        if self._format == "0.3 http":
            data = names_in(data)["data"]
        if self._format != "1" and about is not UNSET and (names := names_in(about)).pop(WRAPPED, b"false") != b"false":
            data = names_in(data)["value"]
            about = Raw(msgspec.json.encode(names)) if names else UNSET
        return Raw(tidy(data)), about

    def _file(self, file: _File, about: Raw | UnsetType) -> Part | None:
        media_type = file.mime_type or file.snake_mime_type or _text_in(about, "mimeType") or None
        name = file.name or None
        long = file.file_with_bytes if file.file_with_bytes is not None else file.snake_file_with_bytes
        raw = file.raw if file.raw is not None else long
        if raw is not None:
            content = _bytes(raw)
            if self._format == "0.3 http":
                content = _once(content)
            return Part(raw=content, media_type=media_type, filename=name, metadata=about)
        url = file.uri or file.file_with_uri or file.snake_file_with_uri
        return None if url is None else Part(url=url, media_type=media_type, filename=name, metadata=about)

    def _about(self, metadata: Raw | UnsetType) -> Raw | UnsetType:
        """Return metadata in the form in which equal values are equal. In A2A 0.3 an empty object is none at all."""
        if metadata is UNSET or bytes(metadata) == b"null":
            return UNSET
        written = tidy(metadata)
        if not written.startswith(b"{"):
            raise msgspec.ValidationError("metadata must be an object")
        return UNSET if written == b"{}" and self._format != "1" else Raw(written)


WRAPPED = "data_part_compat"
"""Metadata key of a data part of A2A 0.3 whose data is `{"value": …}` because it is not an object."""


def _state(wire: str | int | None) -> State:
    """Return the state. Unknown states count as working."""
    return State.WORKING if wire is None else _STATES.get(wire, State.WORKING)


def _text_in(metadata: Raw | UnsetType, name: str) -> str:
    """Return a text in metadata; empty if there is none."""
    if metadata is UNSET or f'"{name}"'.encode() not in bytes(metadata):
        return ""
    found = msgspec.json.decode(metadata).get(name)
    return found if isinstance(found, str) else ""


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


# Why: docs/decisions/faces.md#recognise-the-python-clients-of-03-by-their-user-agent
def _once(content: bytes) -> bytes:
    """Remove the second base64 encoding of A2A 0.3 over HTTP; return the bytes unchanged if there is none."""
    try:
        return b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return content
