"""Parameters of each action (002), without mode and action. Names on the wire are camelCase, as in the contract."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.documents.rules import DeliverableFormat, PlanFormat
from parley.errors import ParamInvalid

MAX_LIST = 200
MAX_PLACE = 2**53 - 1
MAX_MERGED = 20

Text = Annotated[str, Meta(min_length=1)]
Words = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": r"\S"})]
"""Text that is not only white space."""
Content = Annotated[str, Meta(extra_json_schema={"pattern": "^[^\\u0000]*$"})]
"""Text that is stored unchanged; text columns accept every character except NUL."""
Expected = Annotated[str, Meta(min_length=1, description="Refuse the write unless this is the current version.")]
Limit = Annotated[int, Meta(ge=1, le=MAX_LIST)]
Offset = Annotated[int, Meta(ge=0, le=MAX_PLACE)]
Confirmed = Annotated[bool, Meta(extra_json_schema={"const": True}, description="Must be true.")]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]
CallTime = Annotated[int, Meta(ge=1, le=3600 * 1000)]
Milliseconds = Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)]


class RequestMetadata(Struct, frozen=True, rename="camel"):
    """Facts about a request. Any value and further members are accepted; none of them is used."""

    source: (
        Annotated[Raw, Meta(description="Origin of the request, for example `ui`, `agent` or `webhook`.")] | UnsetType
    ) = UNSET
    client_timestamp: Annotated[Raw, Meta(description="Time at which the client sent the request.")] | UnsetType = UNSET
    correlation_id: Annotated[Raw, Meta(description="Id that the client gave the request.")] | UnsetType = UNSET


class Params(Struct, frozen=True, rename="camel", kw_only=True):
    """Members of every request. Unknown members are ignored, so that newer clients work with older servers."""

    agent_slug: Text
    metadata: RequestMetadata | None = None

    def check(self) -> None:
        """Check rules that types cannot express; raise ParamInvalid for the first that is broken."""


def _spoken(name: str, text: str | UnsetType | None) -> None:
    if isinstance(text, str) and not text.strip():
        raise ParamInvalid(f"{name} must not be blank.", field=name)


def _answered(message: str | UnsetType | None, asker: str | UnsetType | None) -> None:
    """Refuse an answer to a question that has no message."""
    if isinstance(asker, str) and not isinstance(message, str):
        raise ParamInvalid("message is required: it is the answer to the question.", field="message")


def _storable(name: str, text: str) -> None:
    if "\0" in text:
        raise ParamInvalid(f"{name} must not contain NUL characters.", field=name)


def _confirmed(given: bool | None, consequence: str = "deletion cannot be undone") -> None:
    """Refuse `confirm: false`; None is allowed for actions in which `confirm` is optional."""
    if given is False:
        raise ParamInvalid(f"confirm must be true: {consequence}.", field="confirm")


class LlmConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Settings of the agent's model for this request; omitted members keep the values of the agent's definition."""

    model: Text | None = None
    temperature: Temperature | None = None


class RerunConfig(LlmConfig, frozen=True, rename="camel", omit_defaults=True):
    max_tokens: Tokens | None = None


class CreatePlan(Params, frozen=True, rename="camel", kw_only=True):
    """Create a plan from `message`. With `taskId`, the message answers the question of that task."""

    message: Words
    force_new: bool | None = None
    # UNSET, not None: without these members, a request with an idempotency key must encode as in the previous version.
    expected_version_id: Expected | UnsetType | None = UNSET
    format: PlanFormat | UnsetType | None = UNSET
    task_id: Text | UnsetType | None = UNSET

    def check(self) -> None:
        _spoken("message", self.message)


class CreateDeliverable(Params, frozen=True, rename="camel", kw_only=True):
    """Create a deliverable. `message` can be omitted if there is a plan to build from. With `taskId`, it answers the
    question of that task."""

    message: Words | None = None
    plan_version_id: Text | None = None
    force_new: bool | None = None
    expected_version_id: Expected | UnsetType | None = UNSET
    format: DeliverableFormat | UnsetType | None = UNSET
    task_id: Text | UnsetType | None = UNSET

    def check(self) -> None:
        _spoken("message", self.message)
        _answered(self.message, self.task_id)


class ReadDocument(Params, frozen=True, rename="camel", kw_only=True):
    version_id: Text | None = None


class ListVersions(Params, frozen=True, rename="camel", kw_only=True):
    limit: Limit | None = None
    offset: Offset | None = None


class EditDocument(Params, frozen=True, rename="camel", kw_only=True):
    edited_content: Content
    edit_notes: str | None = None
    expected_version_id: Expected | UnsetType | None = UNSET

    def check(self) -> None:
        _storable("editedContent", self.edited_content)


class SetCurrent(Params, frozen=True, rename="camel", kw_only=True):
    version_id: Text


class DeleteVersion(Params, frozen=True, rename="camel", kw_only=True):
    version_id: Text
    confirm: Confirmed | None = None

    def check(self) -> None:
        _confirmed(self.confirm)


class MergeVersions(Params, frozen=True, rename="camel", kw_only=True):
    version_ids: Annotated[
        tuple[Text, ...], Meta(min_length=2, max_length=MAX_MERGED, extra_json_schema={"uniqueItems": True})
    ]
    merge_prompt: Words
    llm_config: LlmConfig | None = None

    def check(self) -> None:
        if len(set(self.version_ids)) < len(self.version_ids):
            raise ParamInvalid("versionIds must not contain the same version twice.", field="versionIds")
        _spoken("mergePrompt", self.merge_prompt)


class RerunDeliverable(Params, frozen=True, rename="camel", kw_only=True):
    source_version_id: Text | None = None
    rerun_config: RerunConfig | None = None
    message: Words | None = None

    def check(self) -> None:
        _spoken("message", self.message)


class CopyVersion(Params, frozen=True, rename="camel", kw_only=True):
    version_id: Text
    set_current: bool | None = None


class DeleteAll(Params, frozen=True, rename="camel", kw_only=True):
    confirm: Confirmed

    def check(self) -> None:
        _confirmed(self.confirm)


class ReadConversation(Params, frozen=True, rename="camel", kw_only=True):
    limit: Limit | None = None
    offset: Offset | None = None
    include_system: bool | None = None


class DeleteConversation(DeleteAll, frozen=True, rename="camel", kw_only=True):
    delete_artifacts: bool


class ExportConversation(Params, frozen=True, rename="camel", kw_only=True):
    format: Literal["json", "markdown", "pdf", "html"]
    include_artifacts: bool | None = None


class ExecuteTool(Params, frozen=True, rename="camel", kw_only=True):
    tool_name: Text
    input: dict[str, Raw]
    timeout_ms: CallTime | None = None


class ReadExecution(Params, frozen=True, rename="camel", kw_only=True):
    execution_id: Text


class ListExecutions(Params, frozen=True, rename="camel", kw_only=True):
    tool_name: Text | None = None
    limit: Limit | None = None
    offset: Offset | None = None


class OrchestrationConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    max_parallel_steps: Annotated[int, Meta(ge=1, le=50)] | None = None
    step_timeout_ms: Milliseconds | None = None
    auto_retry: bool | None = None
    max_retries: Annotated[int, Meta(ge=0, le=10)] | None = None


class CreateOrchestration(Params, frozen=True, rename="camel", kw_only=True):
    message: Words
    config: OrchestrationConfig | None = None

    def check(self) -> None:
        _spoken("message", self.message)


class OneOrchestration(Params, frozen=True, rename="camel", kw_only=True):
    """Select an orchestration by id; without an id, the latest one of the conversation."""

    orchestration_id: Text | None = None


class ResumeOrchestration(OneOrchestration, frozen=True, rename="camel", kw_only=True):
    """Resume an orchestration. `message` answers the question of its checkpoint, or with `stepId` that of a step."""

    message: Words | UnsetType | None = UNSET
    step_id: Text | UnsetType | None = UNSET

    def check(self) -> None:
        _spoken("message", self.message)
        _answered(self.message, self.step_id)


class ListOrchestrations(Params, frozen=True, rename="camel", kw_only=True):
    status: Literal["planning", "running", "paused", "completed", "failed", "cancelled"] | None = None
    limit: Limit | None = None
    offset: Offset | None = None


class CancelOrchestration(OneOrchestration, frozen=True, rename="camel", kw_only=True):
    confirm: Confirmed | None = None

    def check(self) -> None:
        _confirmed(self.confirm, "a cancelled orchestration cannot be resumed")


class RetryStep(OneOrchestration, frozen=True, rename="camel", kw_only=True):
    step_id: Text


class DeleteOrchestration(OneOrchestration, frozen=True, rename="camel", kw_only=True):
    confirm: Confirmed

    def check(self) -> None:
        _confirmed(self.confirm)


class NewConversation(Struct, frozen=True, rename="camel"):
    """A new conversation. With `id`, a repeated request returns the same conversation; else the server makes an id."""

    agent_slug: Text
    id: Text | None = None
