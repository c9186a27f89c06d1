"""A2A 0.3 over HTTP: the JSON of its protobuf, which differs from its JSON-RPC. `content` instead of `parts`, enum
names, CANCELLED with two L, resource names."""

import binascii
from base64 import b64decode, b64encode
from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.errors import Invalid, Unsupported
from parley.faces.a2a import messages, v1
from parley.faces.a2a.dialect import Operation
from parley.faces.a2a.messages import Ask, CancelParams, CardParams, HookRef, Query, TaskPage, TaskParams
from parley.faces.a2a.protobuf_json import ROLES, Out, ProtobufJson
from parley.faces.a2a.v03 import HookConfig, as_object, hook_config, hook_in, typed_metadata
from parley.push.hooks import Hook
from parley.runs.rules.content import Part, Parts, check_count
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import StatusMessage

STATES: dict[State, str] = v1.STATES | {State.CANCELED: "TASK_STATE_CANCELLED"}


class _In(Struct, frozen=True, rename="camel", kw_only=True):
    """Base of received messages. Unknown fields are ignored."""


class FileWire(Struct, frozen=True, omit_defaults=True, rename="camel"):
    file_with_uri: str | None = None
    file_with_bytes: bytes | None = None
    mime_type: str | None = None
    name: str | None = None


class Data(Struct, frozen=True):
    data: Raw


class PartWire(Struct, frozen=True, omit_defaults=True):
    """A part; the same in requests and responses."""

    text: str | None = None
    file: FileWire | None = None
    data: Data | None = None
    metadata: Raw | UnsetType = UNSET


class MessageIn(_In, frozen=True, kw_only=True):
    message_id: str
    role: str
    content: tuple[PartWire, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] | None = None


class Configuration(_In, frozen=True, kw_only=True):
    history_length: int | None = None
    blocking: bool | None = None
    push_notification: HookConfig | None = None


class SendParams(_In, frozen=True, kw_only=True):
    """Params of a send. The schema names the message `request`, its JSON `message`; protobuf accepts both."""

    message: MessageIn | None = None
    request: MessageIn | None = None
    configuration: Configuration | None = None


class ConfigIn(_In, frozen=True, kw_only=True):
    name: str | None = None
    push_notification_config: HookConfig


class HookIn(_In, frozen=True, kw_only=True):
    """A CreateTaskPushNotificationConfigRequest, or only its `config`, which the schema defines as the body. The task
    is in the path."""

    config: ConfigIn | None = None
    push_notification_config: HookConfig | None = None
    config_id: str | None = None
    task_id: str = ""


class HookRefIn(_In, frozen=True, kw_only=True):
    task_id: str
    id: str | None = None


class MessageOut(Out, frozen=True):
    message_id: str
    role: str
    content: list[PartWire]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()


class HookOut(Out, frozen=True):
    name: str
    push_notification_config: HookConfig


class HooksOut(Out, frozen=True):
    configs: list[HookOut] | UnsetType = UNSET
    next_page_token: str = ""


class V03Rest(ProtobufJson):
    """Dialect of A2A 0.3 over HTTP. With `twice`, bytes are base64 of base64, as Python clients write and read them."""

    states: ClassVar[dict[State, str]] = STATES
    says_final: ClassVar[bool] = True
    version: ClassVar[str] = "0.3"
    params: ClassVar[dict[Operation, type[Any]]] = {
        "send": SendParams,
        "stream": SendParams,
        "get": TaskParams,
        "cancel": CancelParams,
        "subscribe": TaskParams,
        "set_hook": HookIn,
        "get_hook": HookRefIn,
        "list_hooks": HookRefIn,
        "delete_hook": HookRefIn,
        "card": CardParams,
    }

    def __init__(self, *, twice: bool = False) -> None:
        self._twice = twice

    def ask(self, params: SendParams) -> Ask:
        wire, asked = params.message or params.request, params.configuration
        if wire is None:
            raise Invalid("message is required.", field="message")
        check_count(wire.content)
        parts = tuple(self._part_in(part, index) for index, part in enumerate(wire.content))
        message = messages.message(wire, parts, "ROLE_USER")
        task, context = wire.task_id or None, wire.context_id or None
        if asked is None:
            return Ask(message, task, context)
        hook = asked.push_notification
        # Protobuf omits false values, so a configuration without `blocking` means: do not wait.
        return Ask(
            message,
            task,
            context,
            messages.history_length(asked.history_length),
            not asked.blocking,
            hook_in("", hook) if hook else None,
        )

    def query(self, params: Any) -> Query:
        raise Unsupported("A2A 0.3 does not list tasks.")

    def hook(self, params: HookIn) -> Hook:
        config = params.config.push_notification_config if params.config else params.push_notification_config
        if config is None:
            raise Invalid("pushNotificationConfig is required.", field="config.pushNotificationConfig")
        hook = hook_in(params.task_id, config)
        return replace(hook, id=hook.id or params.config_id or "")

    def hook_ref(self, params: HookRefIn) -> HookRef:
        return HookRef(params.task_id, params.id)

    def message_out(self, run: Run, said: StatusMessage, task: str | None) -> MessageOut:
        parts = self.parts_out(said.parts)
        return MessageOut(said.id, ROLES[said.role], parts, run.conversation, task, said.metadata, said.extensions)

    def parts_out(self, parts: Parts) -> list[PartWire]:
        return [self._part_out(part) for part in parts]

    def page(self, page: TaskPage) -> object:
        raise Unsupported("A2A 0.3 does not list tasks.")

    def hook_out(self, hook: Hook) -> HookOut:
        return HookOut(f"tasks/{hook.task}/pushNotificationConfigs/{hook.id}", hook_config(hook))

    def hooks_out(self, hooks: list[Hook], next_token: str) -> HooksOut:
        return HooksOut([self.hook_out(hook) for hook in hooks], next_token)

    def _part_in(self, part: PartWire, index: int) -> Part:
        where = f"message.content[{index}]"
        metadata = messages.metadata(part.metadata, f"{where}.metadata")
        if sum(member is not None for member in (part.text, part.file, part.data)) != 1:
            raise Invalid("A part must have exactly one of text, file, data.", field=where)
        if part.text is not None:
            return Part(text=part.text, metadata=metadata)
        if part.data is not None:
            return Part(data=part.data.data, metadata=metadata)
        file = part.file or FileWire()
        if (file.file_with_bytes is None) == (file.file_with_uri is None):
            raise Invalid("A file must have either fileWithBytes or fileWithUri.", field=f"{where}.file")
        raw = _once(file.file_with_bytes) if file.file_with_bytes and self._twice else file.file_with_bytes
        return Part(
            raw=raw,
            url=file.file_with_uri,
            media_type=file.mime_type or None,
            filename=file.name or None,
            metadata=metadata,
        )

    def _part_out(self, part: Part) -> PartWire:
        if part.text is not None:
            return PartWire(text=part.text, metadata=typed_metadata(part))
        if part.data is not UNSET:
            return PartWire(data=Data(as_object(part.data)), metadata=typed_metadata(part))
        raw = b64encode(part.raw) if part.raw and self._twice else part.raw
        return PartWire(file=FileWire(part.url, raw, part.media_type, part.filename), metadata=part.metadata)


# Why: docs/decisions/faces.md#recognise-the-python-clients-of-03-by-their-user-agent
def _once(given: bytes) -> bytes:
    """Remove the second base64 encoding; return the bytes unchanged if there is none."""
    try:
        return b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return given
