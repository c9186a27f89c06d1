"""What each action of contract 002 is asked with, beside its mode and action; camelCase, as the contract has it."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from parley.errors import ParamInvalid

MAX_LIST = 200
MAX_PLACE = 2**53 - 1
MAX_MERGED = 20

Text = Annotated[str, Meta(min_length=1)]
Words = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": r"\S"})]
"""Something that can be answered: not only spaces."""
Content = Annotated[str, Meta(extra_json_schema={"pattern": "^[^\\u0000]*$"})]
"""What is kept as it is; a column of text takes every character but one."""
Limit = Annotated[int, Meta(ge=1, le=MAX_LIST)]
Offset = Annotated[int, Meta(ge=0, le=MAX_PLACE)]
Confirmed = Annotated[bool, Meta(extra_json_schema={"const": True}, description="Must be true.")]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Tokens = Annotated[int, Meta(ge=1, le=1_000_000)]
CallTime = Annotated[int, Meta(ge=1, le=3600 * 1000)]
Milliseconds = Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)]


class Params(Struct, frozen=True, rename="camel", kw_only=True):
    """What every request has. Members that nobody knows are passed over, so that clients may be ahead."""

    agent_slug: Text
    metadata: dict[str, Raw] | None = None
    """`source`, `clientTimestamp`, `correlationId` and the like: taken and not used."""

    def check(self) -> None:
        """What a type cannot say; raises ParamInvalid for the first thing that is wrong."""


def _spoken(name: str, text: str | None) -> None:
    if text is not None and not text.strip():
        raise ParamInvalid(f"{name} is blank.", field=name)


def _storable(name: str, text: str) -> None:
    if "\0" in text:
        raise ParamInvalid(f"{name} must not contain the character U+0000.", field=name)


def _confirmed(given: bool | None, consequence: str = "what is deleted cannot be brought back") -> None:
    """Refuse `confirm: false`; None is for actions that may be asked for without it."""
    if given is False:
        raise ParamInvalid(f"confirm must be true: {consequence}.", field="confirm")


class LlmConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the agent's model is to answer this once; what is left out stays as the agent is defined."""

    model: Text | None = None
    temperature: Temperature | None = None


class RerunConfig(LlmConfig, frozen=True, rename="camel", omit_defaults=True):
    max_tokens: Tokens | None = None


class CreatePlan(Params, frozen=True, rename="camel", kw_only=True):
    message: Words
    force_new: bool | None = None

    def check(self) -> None:
        _spoken("message", self.message)


class CreateDeliverable(Params, frozen=True, rename="camel", kw_only=True):
    """`message` can be left out where there is a plan to build from."""

    message: Words | None = None
    plan_version_id: Text | None = None
    force_new: bool | None = None

    def check(self) -> None:
        _spoken("message", self.message)


class ReadDocument(Params, frozen=True, rename="camel", kw_only=True):
    version_id: Text | None = None


class ListVersions(Params, frozen=True, rename="camel", kw_only=True):
    limit: Limit | None = None
    offset: Offset | None = None


class EditDocument(Params, frozen=True, rename="camel", kw_only=True):
    edited_content: Content
    edit_notes: str | None = None

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
            raise ParamInvalid("versionIds names a version twice.", field="versionIds")
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
    """The one that is named; else the latest of the conversation."""

    orchestration_id: Text | None = None


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
    """`id` names the conversation, so that asking again finds it; else one is made."""

    agent_slug: Text
    id: Text | None = None
