"""A2A 1.0 as JSON: what comes in becomes the words of the core, what goes out is written from them."""

from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.clock import iso
from parley.core.artifacts import Artifact, Part, Parts
from parley.core.conversations import Message
from parley.core.events import ArtifactAdded, Event, Rescued
from parley.core.runs import Run, State
from parley.core.views import Said, Status
from parley.engine.push import Hook
from parley.errors import Invalid
from parley.faces.a2a import reading
from parley.faces.a2a.dialect import Operation
from parley.faces.a2a.words import (
    Ask,
    CancelParams,
    CardParams,
    ForkAsk,
    HookRef,
    Page,
    Query,
    ReplyShown,
    Shown,
    TaskParams,
    TaskShown,
    UpdateShown,
)

STATES: dict[State, str] = {state: f"TASK_STATE_{state.name}" for state in State}
_NAMED: dict[str, State | None] = {name: state for state, name in STATES.items()} | {"TASK_STATE_UNSPECIFIED": None}
AGENT = "urn:parley:agent"
FORK = "urn:parley:extension:fork:1"
_ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}


class _In(Struct, frozen=True, rename="camel", kw_only=True):
    """Read from the wire: fields that are not known are ignored."""

    tenant: str | None = None


class MessageIn(Struct, frozen=True, rename="camel"):
    message_id: str
    role: str
    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] | None = None
    reference_task_ids: tuple[str, ...] | None = None


class Authentication(Struct, frozen=True, omit_defaults=True):
    scheme: str
    credentials: str | None = None


class HookIn(_In, frozen=True, kw_only=True):
    url: str
    id: str | None = None
    task_id: str | None = None
    token: str | None = None
    authentication: Authentication | None = None


class HookRefIn(_In, frozen=True, kw_only=True):
    task_id: str
    id: str


class HookListIn(_In, frozen=True, kw_only=True):
    task_id: str
    page_size: int | None = None
    page_token: str | None = None


class Configuration(_In, frozen=True, kw_only=True):
    accepted_output_modes: tuple[str, ...] | None = None
    history_length: int | None = None
    return_immediately: bool | None = None
    task_push_notification_config: HookIn | None = None


class SendParams(_In, frozen=True, kw_only=True):
    message: MessageIn
    configuration: Configuration | None = None


class ForkParams(_In, frozen=True, kw_only=True):
    """Of the extension `urn:parley:extension:fork:1`; the task stands in the path."""

    id: str = ""
    at: int | None = None
    message: MessageIn | None = None


class ListParams(_In, frozen=True, kw_only=True):
    context_id: str | None = None
    status: str | None = None
    page_size: int | None = None
    page_token: str | None = None
    history_length: int | None = None
    status_timestamp_after: str | None = None
    include_artifacts: bool | None = None


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
    metadata: dict[str, object] | UnsetType = UNSET


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


class PageOut(Struct, frozen=True, rename="camel"):
    """Every field is required, also an empty one."""

    tasks: list[TaskOut]
    next_page_token: str
    page_size: int
    total_size: int


class HookOut(_Out, frozen=True):
    task_id: str
    id: str
    url: str
    token: str | None = None
    authentication: Authentication | None = None


class HooksOut(_Out, frozen=True):
    configs: list[HookOut] | UnsetType = UNSET
    next_page_token: str = ""


class V1:
    version: ClassVar[str] = "1.0"
    params: ClassVar[dict[Operation, type[Any]]] = {
        "send": SendParams, "stream": SendParams, "get": TaskParams, "list": ListParams, "cancel": CancelParams,
        "subscribe": TaskParams, "set_hook": HookIn, "get_hook": HookRefIn, "list_hooks": HookListIn,
        "delete_hook": HookRefIn, "card": CardParams, "fork": ForkParams,
    }  # fmt: skip

    def ask(self, params: SendParams) -> Ask:
        wire, asked = params.message, params.configuration or Configuration()
        reading.check_role(wire.role, "ROLE_USER")
        message = Message(
            reading.message_id(wire.message_id),
            tuple(_part_in(part) for part in wire.parts),
            reading.metadata(wire.metadata, "message.metadata"),
            wire.extensions or (),
            wire.reference_task_ids or (),
        )
        hook = asked.task_push_notification_config
        return Ask(
            message, wire.task_id or None, wire.context_id or None,
            reading.history_length(asked.history_length), bool(asked.return_immediately),
            self.hook(hook) if hook else None,
        )  # fmt: skip

    def fork(self, params: ForkParams) -> ForkAsk:
        if params.message is None:
            return ForkAsk(params.id, params.at)
        ask = self.ask(SendParams(message=params.message))
        if ask.task not in (None, params.id):
            raise Invalid("The message names another task than the one to fork.", field="message.taskId")
        return ForkAsk(params.id, params.at, ask.message, ask.context)

    def query(self, params: ListParams) -> Query:
        if params.status and params.status not in _NAMED:
            raise Invalid(f"status {params.status!r} is none of {', '.join(_NAMED)}.", field="status")
        after = params.status_timestamp_after
        return Query(
            params.context_id or None,
            _NAMED[params.status] if params.status else None,
            reading.time_ms(after, "statusTimestampAfter") if after else None,
            reading.page_size(params.page_size),
            params.page_token or "",
            reading.history_length(params.history_length),
            bool(params.include_artifacts),
        )

    def hook(self, params: HookIn) -> Hook:
        auth = params.authentication
        return Hook(
            params.task_id or "", params.url, params.id or "", params.token or None,
            (auth.scheme,) if auth else (), auth.credentials if auth else None, self.version,
        )  # fmt: skip

    def hook_ref(self, params: HookRefIn | HookListIn) -> HookRef:
        return HookRef(params.task_id, params.id if isinstance(params, HookRefIn) else None)

    def sent(self, shown: TaskShown | ReplyShown) -> StreamResponse:
        if isinstance(shown, TaskShown):
            return StreamResponse(task=self.task(shown))
        said = shown.said
        reply = MessageOut(said.id, _ROLES[said.role], said.parts, shown.run.conversation, metadata=said.metadata)
        return StreamResponse(message=reply)

    def task(self, shown: TaskShown) -> TaskOut:
        run = shown.run
        return TaskOut(
            run.id,
            run.conversation,
            _status_out(run, shown.status),
            [_artifact_out(artifact) for artifact in shown.artifacts],
            [_said_out(run, said) for said in shown.history],
            {FORK: {"task": run.origin.run, "at": run.origin.seq}} if run.origin else UNSET,
        )

    def frame(self, shown: Shown, last: bool) -> StreamResponse | None:
        if isinstance(shown, UpdateShown):
            return _update_out(shown.run, shown.event)
        return self.sent(shown)

    def page(self, page: Page) -> PageOut:
        return PageOut([_listed(self.task(shown), shown.run) for shown in page.tasks], page.next, page.size, page.total)

    def hook_out(self, hook: Hook) -> HookOut:
        auth = Authentication(hook.schemes[0], hook.credentials) if hook.schemes else None
        return HookOut(hook.task, hook.id, hook.url, hook.token, auth)

    def hooks_out(self, hooks: list[Hook], next_token: str) -> HooksOut:
        return HooksOut([self.hook_out(hook) for hook in hooks], next_token)


def _listed(task: TaskOut, run: Run) -> TaskOut:
    """A list may hold tasks of several agents; A2A has no field that says whose each is."""
    known = {} if task.metadata is UNSET else task.metadata
    return replace(task, metadata={**known, AGENT: run.agent})


def _part_in(part: Part) -> Part:
    """A client may not refer to stored bytes: `blob` is a field of the log, unknown on the wire."""
    return replace(part, blob=None) if part.blob is not None else part


def _update_out(run: Run, event: Event) -> StreamResponse | None:
    payload = event.payload
    if isinstance(payload, ArtifactAdded):
        artifact = ArtifactOut(payload.artifact, payload.parts, payload.name, payload.description, payload.metadata)
        update = ArtifactUpdate(run.id, run.conversation, artifact, payload.append, payload.last)
        return StreamResponse(artifact_update=update)
    status = reading.status_of(event)
    if status is None:
        return None
    metadata: dict[str, object] | UnsetType = UNSET
    if isinstance(payload, Rescued):
        metadata = {"rescued": payload.how, "attempt": payload.attempt}
    return StreamResponse(status_update=StatusUpdate(run.id, run.conversation, _status_out(run, status), metadata))


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
