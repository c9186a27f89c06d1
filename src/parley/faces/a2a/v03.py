"""A2A 0.3 over JSON-RPC: every object has its `kind`. Variants that 0.3 clients send are accepted too."""

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.clock import iso
from parley.errors import Invalid, Unsupported
from parley.faces.a2a import messages
from parley.faces.a2a.dialect import Operation
from parley.faces.a2a.messages import (
    Ask,
    CancelParams,
    CardParams,
    HookRef,
    Query,
    ReplyShown,
    Shown,
    TaskPage,
    TaskParams,
    TaskShown,
)
from parley.push.hooks import Hook
from parley.runs.rules.content import Artifact, Part, check_count, combined
from parley.runs.rules.events import ArtifactAdded, Event
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import RunStatus, StatusMessage

STATES: dict[State, str] = {state: state.value.replace("_", "-") for state in State}
_KINDS = ("text", "file", "data")


class _In(Struct, frozen=True, rename="camel", kw_only=True):
    """Base of received messages. Unknown fields are ignored."""


class FileIn(_In, frozen=True, kw_only=True):
    name: str | None = None
    mime_type: str | None = None
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None


class PartIn(_In, frozen=True, kw_only=True):
    """A part. `kind` names the member with the content; older clients send `type`, and some clients neither."""

    kind: str | None = None
    type: str | None = None
    text: str | None = None
    file: FileIn | None = None
    data: Raw | UnsetType = UNSET
    metadata: Raw | UnsetType = UNSET


class MessageIn(_In, frozen=True, kw_only=True):
    message_id: str
    role: str
    parts: tuple[PartIn, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class Authentication(Struct, frozen=True, omit_defaults=True):
    schemes: tuple[str, ...] = ()
    """Required by 0.3, but some clients omit it when it is empty."""
    credentials: str | None = None


class HookConfig(Struct, frozen=True, omit_defaults=True):
    """Configuration of a webhook; the same in requests and responses."""

    url: str
    id: str | None = None
    token: str | None = None
    authentication: Authentication | None = None


class TaskHook(Struct, frozen=True, rename="camel"):
    task_id: str
    push_notification_config: HookConfig


class HookRefIn(_In, frozen=True, kw_only=True):
    id: str
    push_notification_config_id: str | None = None


class Configuration(_In, frozen=True, kw_only=True):
    accepted_output_modes: tuple[str, ...] | None = None
    history_length: int | None = None
    blocking: bool | None = None
    push_notification_config: HookConfig | None = None


class SendParams(_In, frozen=True, kw_only=True):
    message: MessageIn
    configuration: Configuration | None = None
    metadata: Raw | UnsetType = UNSET


class _Out(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="kind"):
    pass


class TextOut(_Out, frozen=True, tag="text"):
    text: str
    metadata: Raw | UnsetType = UNSET


class FileContent(Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str | None = None
    mime_type: str | None = None
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None


class FileOut(_Out, frozen=True, tag="file"):
    file: FileContent
    metadata: Raw | UnsetType = UNSET


class DataOut(_Out, frozen=True, tag="data"):
    data: Raw
    metadata: Raw | UnsetType = UNSET


class MessageOut(_Out, frozen=True, tag="message"):
    message_id: str
    role: str
    parts: list[TextOut | FileOut | DataOut]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class StatusOut(Struct, frozen=True, omit_defaults=True):
    state: str
    timestamp: str
    message: MessageOut | None = None


class ArtifactOut(Struct, frozen=True, omit_defaults=True, rename="camel"):
    artifact_id: str
    parts: list[TextOut | FileOut | DataOut]
    name: str | None = None
    description: str | None = None
    metadata: Raw | UnsetType = UNSET


class TaskOut(_Out, frozen=True, tag="task"):
    id: str
    context_id: str
    status: StatusOut
    artifacts: list[ArtifactOut] = []
    history: list[MessageOut] = []
    metadata: Raw | UnsetType = UNSET


class StatusUpdate(Struct, frozen=True, rename="camel", tag_field="kind", tag="status-update"):
    task_id: str
    context_id: str
    status: StatusOut
    final: bool
    metadata: Raw | UnsetType = UNSET


class ArtifactUpdate(Struct, frozen=True, rename="camel", tag_field="kind", tag="artifact-update"):
    task_id: str
    context_id: str
    artifact: ArtifactOut
    append: bool
    last_chunk: bool


class V03:
    version: ClassVar[str] = "0.3"
    params: ClassVar[dict[Operation, type[Any]]] = {
        "send": SendParams,
        "stream": SendParams,
        "get": TaskParams,
        "cancel": CancelParams,
        "subscribe": TaskParams,
        "set_hook": TaskHook,
        "get_hook": HookRefIn,
        "list_hooks": HookRefIn,
        "delete_hook": HookRefIn,
        "card": CardParams,
    }

    def ask(self, params: SendParams) -> Ask:
        wire, asked = params.message, params.configuration or Configuration()
        check_count(wire.parts)
        parts = tuple(_part_in(part, index) for index, part in enumerate(wire.parts))
        message = messages.message(wire, parts, "user", "ROLE_USER", references=wire.reference_task_ids)
        hook = asked.push_notification_config
        return Ask(
            message,
            wire.task_id or None,
            wire.context_id or None,
            messages.history_length(asked.history_length),
            asked.blocking is False,
            hook_in("", hook) if hook else None,
            messages.metadata(params.metadata, "metadata"),
            asked.accepted_output_modes or (),
        )

    def query(self, params: Any) -> Query:
        raise Unsupported("A2A 0.3 does not list tasks.")

    def hook(self, params: TaskHook) -> Hook:
        return hook_in(params.task_id, params.push_notification_config)

    def hook_ref(self, params: HookRefIn) -> HookRef:
        return HookRef(params.id, params.push_notification_config_id)

    def sent(self, shown: TaskShown | ReplyShown) -> TaskOut | MessageOut:
        if isinstance(shown, TaskShown):
            return self.task(shown)
        said = shown.said
        return MessageOut(said.id, said.role, _parts_out(said.parts), shown.run.conversation, metadata=said.metadata)

    def task(self, shown: TaskShown) -> TaskOut:
        run = shown.run
        return TaskOut(
            run.id,
            run.conversation,
            _status_out(run, shown.status),
            [_artifact_out(artifact) for artifact in shown.artifacts],
            [_said_out(run, said) for said in shown.history],
            shown.metadata,
        )

    def frame(self, shown: Shown, last: bool) -> object:
        if isinstance(shown, TaskShown | ReplyShown):
            return self.sent(shown)
        return _update_out(shown.run, shown.event, last)

    def page(self, page: TaskPage) -> object:
        raise Unsupported("A2A 0.3 does not list tasks.")

    def hook_out(self, hook: Hook) -> TaskHook:
        return TaskHook(hook.task, hook_config(hook))

    def hooks_out(self, hooks: list[Hook], next_token: str) -> list[TaskHook]:
        return [self.hook_out(hook) for hook in hooks]


def hook_in(task: str, config: HookConfig) -> Hook:
    auth = config.authentication
    return Hook(
        task,
        config.url,
        config.id or "",
        config.token or None,
        auth.schemes if auth else (),
        auth.credentials if auth else None,
        V03.version,
    )


def hook_config(hook: Hook) -> HookConfig:
    auth = Authentication(hook.schemes, hook.credentials) if hook.schemes else None
    return HookConfig(hook.url, hook.id, hook.token, auth)


def as_object(data: Raw) -> Raw:
    """Wrap data that is not an object in one: 0.3 allows only objects."""
    return data if bytes(data).lstrip().startswith(b"{") else Raw(msgspec.json.encode({"value": data}))


def _part_in(part: PartIn, index: int) -> Part:
    kind, where = part.kind or part.type, f"message.parts[{index}]"
    if kind is not None and kind not in _KINDS:
        raise Invalid(f"The kind of a part must be one of {', '.join(_KINDS)}, not {kind!r}.", field=where)
    given = {"text": part.text is not None, "file": part.file is not None, "data": part.data is not UNSET}
    if kind is not None and not given[kind]:
        raise Invalid(f"A part of kind {kind} must have the member {kind}.", field=where)
    if kind is None and sum(given.values()) != 1:
        raise Invalid("A part must have exactly one of text, file, data.", field=where)
    metadata = messages.metadata(part.metadata, f"{where}.metadata")
    if kind == "file" or (kind is None and part.file is not None):
        return _file_in(part.file or FileIn(), metadata, where)
    if kind == "data" or (kind is None and part.data is not UNSET):
        return Part(data=part.data, metadata=metadata)
    return Part(text=part.text, metadata=metadata)


def _file_in(file: FileIn, metadata: Raw | UnsetType, where: str) -> Part:
    if (file.raw is None) == (file.uri is None):
        raise Invalid("A file must have either bytes or a uri.", field=f"{where}.file")
    return Part(raw=file.raw, url=file.uri, media_type=file.mime_type, filename=file.name, metadata=metadata)


def _parts_out(parts: tuple[Part, ...]) -> list[TextOut | FileOut | DataOut]:
    return [_part_out(part) for part in parts]


def _part_out(part: Part) -> TextOut | FileOut | DataOut:
    if part.text is not None:
        return TextOut(part.text, typed_metadata(part))
    if part.data is not UNSET:
        return DataOut(as_object(part.data), typed_metadata(part))
    return FileOut(FileContent(part.filename, part.media_type, part.raw, part.url), part.metadata)


def typed_metadata(part: Part) -> Raw | UnsetType:
    """Return the metadata of a text or data part with its media type, for which 0.3 has no member."""
    if part.media_type in (None, "application/json" if part.text is None else "text/plain"):
        return part.metadata
    return combined(Raw(msgspec.json.encode({"mimeType": part.media_type})), part.metadata)


def _update_out(run: Run, event: Event, last: bool) -> StatusUpdate | ArtifactUpdate | None:
    payload = event.payload
    if isinstance(payload, ArtifactAdded):
        parts = _parts_out(payload.parts)
        artifact = ArtifactOut(payload.artifact, parts, payload.name, payload.description, payload.metadata)
        return ArtifactUpdate(run.id, run.conversation, artifact, payload.append, payload.last)
    status = messages.status_of(event)
    if status is None:
        return None
    return StatusUpdate(run.id, run.conversation, _status_out(run, status), last, messages.update_metadata(run, event))


def _status_out(run: Run, status: RunStatus) -> StatusOut:
    return StatusOut(STATES[status.state], iso(status.at), _said_out(run, status.said) if status.said else None)


def _said_out(run: Run, said: StatusMessage) -> MessageOut:
    return MessageOut(
        said.id,
        said.role,
        _parts_out(said.parts),
        run.conversation,
        run.id,
        said.metadata,
        said.extensions,
        said.references,
    )


def _artifact_out(artifact: Artifact) -> ArtifactOut:
    return ArtifactOut(artifact.id, _parts_out(artifact.parts), artifact.name, artifact.description, artifact.metadata)
