"""A2A 1.0 as JSON: converts received messages to the core's types, and results from them."""

from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.errors import Invalid
from parley.faces.a2a import messages
from parley.faces.a2a.dialect import Operation
from parley.faces.a2a.messages import Ask, CancelParams, CardParams, ForkAsk, HookRef, Query, TaskPage, TaskParams
from parley.faces.a2a.protobuf_json import ROLES, Out, ProtobufJson, TaskOut
from parley.http.requests import page_size, time_ms
from parley.push.hooks import Hook
from parley.runs.rules.content import Part, Parts, check_count, text_part
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import StatusMessage

STATES: dict[State, str] = {state: f"TASK_STATE_{state.name}" for state in State}
_NAMED: dict[str, State | None] = {name: state for state, name in STATES.items()} | {"TASK_STATE_UNSPECIFIED": None}
AGENT = "urn:parley:agent"


class _In(Struct, frozen=True, rename="camel", kw_only=True):
    """Base of received messages. Unknown fields are ignored."""

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
    metadata: Raw | UnsetType = UNSET


class ForkParams(_In, frozen=True, kw_only=True):
    """Params of the extension `urn:parley:extension:fork:1`; the task is in the path."""

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


class MessageOut(Out, frozen=True):
    message_id: str
    role: str
    parts: Parts
    context_id: str | None = None
    task_id: str | None = None
    metadata: Raw | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class PageOut(Struct, frozen=True, rename="camel"):
    """A page of tasks. Every field is required, even if it is empty."""

    tasks: list[TaskOut]
    next_page_token: str
    page_size: int
    total_size: int


class HookOut(Out, frozen=True):
    task_id: str
    id: str
    url: str
    token: str | None = None
    authentication: Authentication | None = None


class HooksOut(Out, frozen=True):
    configs: list[HookOut] | UnsetType = UNSET
    next_page_token: str = ""


_NOTHING: Parts = (text_part(""),)
"""Content of an artifact or a message without any: A2A requires at least one part."""


class V1(ProtobufJson):
    states: ClassVar[dict[State, str]] = STATES
    version: ClassVar[str] = "1.0"
    params: ClassVar[dict[Operation, type[Any]]] = {
        "send": SendParams,
        "stream": SendParams,
        "get": TaskParams,
        "list": ListParams,
        "cancel": CancelParams,
        "subscribe": TaskParams,
        "set_hook": HookIn,
        "get_hook": HookRefIn,
        "list_hooks": HookListIn,
        "delete_hook": HookRefIn,
        "card": CardParams,
        "fork": ForkParams,
    }

    def ask(self, params: SendParams) -> Ask:
        wire, asked = params.message, params.configuration or Configuration()
        check_count(wire.parts)
        parts = tuple(_part_in(part) for part in wire.parts)
        message = messages.message(wire, parts, "ROLE_USER", references=wire.reference_task_ids)
        hook = asked.task_push_notification_config
        return Ask(
            message,
            wire.task_id or None,
            wire.context_id or None,
            messages.history_length(asked.history_length),
            bool(asked.return_immediately),
            self.hook(hook) if hook else None,
            messages.metadata(params.metadata, "metadata"),
            asked.accepted_output_modes or (),
        )

    def fork(self, params: ForkParams) -> ForkAsk:
        if params.message is None:
            return ForkAsk(params.id, params.at)
        ask = self.ask(SendParams(message=params.message))
        if ask.task not in (None, params.id):
            raise Invalid("taskId of the message must be the task to fork.", field="message.taskId")
        return ForkAsk(params.id, params.at, ask.message, ask.context)

    def query(self, params: ListParams) -> Query:
        if params.status and params.status not in _NAMED:
            raise Invalid(f"status {params.status!r} must be one of {', '.join(_NAMED)}.", field="status")
        after = params.status_timestamp_after
        return Query(
            params.context_id or None,
            _NAMED[params.status] if params.status else None,
            time_ms(after, "statusTimestampAfter") if after else None,
            page_size(params.page_size),
            params.page_token or "",
            messages.history_length(params.history_length),
            bool(params.include_artifacts),
        )

    def hook(self, params: HookIn) -> Hook:
        auth = params.authentication
        return Hook(
            params.task_id or "",
            params.url,
            params.id or "",
            params.token or None,
            (auth.scheme,) if auth else (),
            auth.credentials if auth else None,
            self.version,
        )

    def hook_ref(self, params: HookRefIn | HookListIn) -> HookRef:
        return HookRef(params.task_id, params.id if isinstance(params, HookRefIn) else None)

    def message_out(self, run: Run, said: StatusMessage, task: str | None) -> MessageOut:
        return MessageOut(
            said.id,
            ROLES[said.role],
            self.parts_out(said.parts),
            run.conversation,
            task,
            said.metadata,
            said.extensions,
            said.references,
        )

    def parts_out(self, parts: Parts) -> Parts:
        return parts or _NOTHING

    def page(self, page: TaskPage) -> PageOut:
        return PageOut([_listed(self.task(shown), shown.run) for shown in page.tasks], page.next, page.size, page.total)

    def hook_out(self, hook: Hook) -> HookOut:
        auth = Authentication(hook.schemes[0], hook.credentials) if hook.schemes else None
        return HookOut(hook.task, hook.id, hook.url, hook.token, auth)

    def hooks_out(self, hooks: list[Hook], next_token: str) -> HooksOut:
        return HooksOut([self.hook_out(hook) for hook in hooks], next_token)


def _listed(task: TaskOut, run: Run) -> TaskOut:
    """Add the agent to the metadata of a task: a list may have tasks of several agents, and A2A has no field for it."""
    known = {} if task.metadata is UNSET else task.metadata
    return replace(task, metadata={**known, AGENT: run.agent})


def _part_in(part: Part) -> Part:
    """Remove `blob` from a client's part: it refers to stored bytes and is a field of the log, not of the wire."""
    return replace(part, blob=None) if part.blob is not None else part
