"""Results of each action (002): the member `result` of its envelope."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from parley.documents.rules import FORMATS, Provenance
from parley.faces.actions.params import RerunConfig
from parley.runs.rules.transcript import MessageMetadata

# Members of the `metadata` of results.
#
# Metadata is stored and returned as JSON. These types describe it: add a new member here, so that the OpenAPI document
# and the SDK include it.

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""ISO 8601 in UTC."""


class VersionMetadata(Struct, frozen=True, rename="camel"):
    """Origin of a version of a document; the members depend on `createdByType`."""

    based_on: Annotated[str, Meta(description="Id of the version that this one was made from.")] | UnsetType = UNSET
    plan_version_id: Annotated[str, Meta(description="Version of the plan that the agent was given.")] | UnsetType = (
        UNSET
    )
    edited_from_version_id: str | UnsetType = UNSET
    edited_at: Time | UnsetType = UNSET
    edit_notes: str | UnsetType = UNSET
    merged_from: Annotated[list[str], Meta(description="Ids of the merged versions.")] | UnsetType = UNSET
    merge_prompt: str | UnsetType = UNSET
    copied_from: Annotated[str, Meta(description="Id of the copied version.")] | UnsetType = UNSET
    original_version_number: int | UnsetType = UNSET
    rerun_from: Annotated[str, Meta(description="Id of the source version.")] | UnsetType = UNSET
    rerun_config: RerunConfig | UnsetType = UNSET
    llm_model: Annotated[str, Meta(description="Model that wrote the version.")] | UnsetType = UNSET
    tokens_used: int | UnsetType = UNSET
    tokens_estimated: Annotated[bool, Meta(description="True if the vendor reported no tokens.")] | UnsetType = UNSET
    temperature: Annotated[float, Meta(description="Temperature setting of the model.")] | UnsetType = UNSET
    truncated: Annotated[bool, Meta(description="True if the model's answer was cut off.")] | UnsetType = UNSET
    finish_reason: Annotated[str, Meta(description="Reason why the answer was cut off.")] | UnsetType = UNSET
    orchestration_id: Annotated[str, Meta(description="Orchestration whose step wrote the version.")] | UnsetType = (
        UNSET
    )
    step_id: str | UnsetType = UNSET


class ToolMetadata(Struct, frozen=True, rename="camel"):
    """Facts about a tool call and its output."""

    execution_id: Annotated[str, Meta(description="Id for the action `read`.")]
    mcp_server: str
    rows_returned: int | UnsetType = UNSET
    files_found: int | UnsetType = UNSET


class ExecutionFault(Struct, frozen=True):
    """Reason why a tool call failed."""

    code: str
    message: str


class ExecutionMetadata(Struct, frozen=True, rename="camel"):
    """Facts about a stored tool call and its output."""

    execution_time_ms: int
    mcp_server: str
    rows_returned: int | UnsetType = UNSET
    files_found: int | UnsetType = UNSET
    error: ExecutionFault | UnsetType = UNSET


DESCRIBED: tuple[type[Struct], ...] = (VersionMetadata, MessageMetadata, ToolMetadata, ExecutionMetadata)


def shaped(by: type[Struct]) -> Meta:
    """Annotate JSON that is returned as it is stored: its schema is that of `by`."""
    return Meta(extra_json_schema={"$ref": f"#/components/schemas/{by.__name__}"})


DocumentType = Literal["document", "code", "data"]
ExportFormat = Literal["json", "markdown", "pdf", "html"]
StepStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
OrchestrationStatus = Literal["planning", "running", "paused", "completed", "failed", "cancelled"]
Names = dict[str, Raw]
DocumentFormat = Annotated[
    str, Meta(extra_json_schema={"enum": sorted({one for few in FORMATS.values() for one in few})})
]
AboutVersion = Annotated[Raw, shaped(VersionMetadata)]


class Plan(Struct, frozen=True, rename="camel"):
    id: str
    conversation_id: str
    title: str
    current_version_id: str
    created_at: Time
    updated_at: Time


class Deliverable(Plan, frozen=True, rename="camel"):
    type: DocumentType


class DocumentVersion(Struct, frozen=True, rename="camel"):
    id: str
    version_number: int
    content: str
    format: DocumentFormat
    created_by_type: Provenance
    is_current: bool
    created_at: Time
    metadata: AboutVersion


class VersionSummary(Struct, frozen=True, rename="camel"):
    id: str
    version_number: int
    content_preview: str
    format: DocumentFormat
    created_by_type: Provenance
    is_current: bool
    created_at: Time
    metadata: AboutVersion


class PlanCreated(Struct, frozen=True):
    plan: Plan
    version: DocumentVersion


class DeliverableCreated(Struct, frozen=True):
    deliverable: Deliverable
    version: DocumentVersion


class PlanRead(Struct, frozen=True, rename="camel"):
    plan: Plan
    current_version: DocumentVersion


class DeliverableRead(Struct, frozen=True, rename="camel"):
    deliverable: Deliverable
    current_version: DocumentVersion


class PlanVersions(Struct, frozen=True, rename="camel"):
    plan_id: str
    versions: list[VersionSummary]
    total: int
    has_more: bool


class DeliverableVersions(Struct, frozen=True, rename="camel"):
    deliverable_id: str
    versions: list[VersionSummary]
    total: int
    has_more: bool


class VersionMade(Struct, frozen=True):
    version: DocumentVersion


class Pointed(Struct, frozen=True, rename="camel"):
    """A document after its current version was changed."""

    id: str
    current_version_id: str
    updated_at: Time


class PlanPointed(Struct, frozen=True, rename="camel"):
    plan: Pointed
    previous_version_id: str
    new_version_id: str


class DeliverablePointed(Struct, frozen=True, rename="camel"):
    deliverable: Pointed
    previous_version_id: str
    new_version_id: str


class VersionDeleted(Struct, frozen=True, rename="camel"):
    success: bool
    deleted_version_id: str
    remaining_version_count: int


class PlanDeleted(Struct, frozen=True, rename="camel"):
    success: bool
    deleted_plan_id: str
    versions_deleted: int


class DeliverableDeleted(Struct, frozen=True, rename="camel"):
    success: bool
    deleted_deliverable_id: str
    versions_deleted: int


class ConversationShown(Struct, frozen=True, rename="camel"):
    id: str
    agent_name: str
    user_id: str
    started_at: Time
    last_message_at: Time | None


class ConversationBegun(Struct, frozen=True):
    conversation: ConversationShown


class MessageShown(Struct, frozen=True):
    id: str
    role: Literal["user", "assistant", "system"]
    content: str
    timestamp: Time
    metadata: Annotated[Raw, shaped(MessageMetadata)]


class ConversationRead(Struct, frozen=True, rename="camel"):
    conversation: ConversationShown
    messages: list[MessageShown]
    total: int
    has_more: bool


class ArtifactsDeleted(Struct, frozen=True):
    plans: int
    deliverables: int


class ConversationDeleted(Struct, frozen=True, rename="camel", omit_defaults=True):
    success: bool
    deleted_conversation_id: str
    messages_deleted: int
    artifacts_deleted: ArtifactsDeleted | None = None
    """Present only if artifacts were deleted too."""


class ExportCounts(Struct, frozen=True, rename="camel", omit_defaults=True):
    message_count: int
    artifacts_included: int
    warnings: Annotated[tuple[str, ...], Meta(description="Warnings about content that the file cannot show.")] = ()


class ConversationExported(Struct, frozen=True, rename="camel"):
    export_url: str
    format: ExportFormat
    expires_at: Time
    file_size: int
    metadata: ExportCounts


class ToolExecuted(Struct, frozen=True, rename="camel"):
    tool_name: str
    output: Raw
    execution_time_ms: int
    metadata: Annotated[Raw, shaped(ToolMetadata)]


class Execution(Struct, frozen=True, rename="camel"):
    id: str
    tool_name: str
    input: Raw
    output: Raw
    status: Literal["completed", "failed"]
    executed_at: Time
    metadata: Annotated[Raw, shaped(ExecutionMetadata)]


class ExecutionRead(Struct, frozen=True):
    execution: Execution


class ExecutionSummary(Struct, frozen=True, rename="camel"):
    id: str
    tool_name: str
    input_summary: str
    status: Literal["completed", "failed"]
    executed_at: Time
    execution_time_ms: int


class Executions(Struct, frozen=True, rename="camel"):
    executions: list[ExecutionSummary]
    total: int
    has_more: bool


class StepShown(Struct, frozen=True, rename="camel", omit_defaults=True):
    step_id: str
    agent_slug: str
    mode: str
    action: str
    depends_on: list[str]
    status: StepStatus
    task_id: str | None = None
    """Task of its latest attempt, like its conversation below; absent before the step has started."""
    conversation_id: str | None = None
    question: str | None = None
    """Question of the step while its task waits for an answer."""


class PlanMaker(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Model that made a plan, and the tokens it used if its vendor reported them."""

    llm_model: str
    tokens_used: int | None = None


class StepsShown(Struct, frozen=True, omit_defaults=True):
    steps: list[StepShown]
    metadata: PlanMaker | None = None
    """Absent if no model made the plan."""


class OrchestrationShown(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    conversation_id: str
    status: OrchestrationStatus
    plan: StepsShown
    current_step: int
    total_steps: int
    started_at: Time
    completed_steps: int | None = None
    failed_steps: int | None = None
    results: Names | None = None
    estimated_completion_at: Time | None = None
    completed_at: Time | None = None
    error: Raw | None = None
    question: str | None = None
    """Question of the checkpoint while it waits for an answer."""


class OrchestrationRead(Struct, frozen=True):
    orchestration: OrchestrationShown


class OrchestrationSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    status: OrchestrationStatus
    total_steps: int
    completed_steps: int
    started_at: Time
    completed_at: Time | None = None


class Orchestrations(Struct, frozen=True, rename="camel"):
    orchestrations: list[OrchestrationSummary]
    total: int
    has_more: bool


class OrchestrationPaused(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    status: Literal["paused"]
    paused_at: Time
    current_step: int


class OrchestrationResumed(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    status: Literal["running"]
    resumed_at: Time
    current_step: int


class OrchestrationCancelled(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    status: Literal["cancelled"]
    cancelled_at: Time
    completed_steps: int
    cancelled_steps: int


class StepRetried(Struct, frozen=True, rename="camel", omit_defaults=True):
    step_id: str
    status: Literal["running", "completed", "failed"]
    retry_count: int
    result: Raw | None = None


class RetryStarted(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    step: StepRetried


class OrchestrationDeleted(Struct, frozen=True, rename="camel"):
    success: bool
    deleted_orchestration_id: str


class Waiting(Struct, frozen=True):
    """Result of a task that waits for an answer: its question."""

    question: str
    needs: Literal["input", "auth"]


class Answered(Struct, frozen=True):
    """Result of a task that was created through another API and made no document: the agent's answer."""

    content: str
