"""What each action of contract 002 answers with: the member `result` of its envelope."""

from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from parley.core.documents import Provenance

DocumentType = Literal["document", "code", "data"]
ExportFormat = Literal["json", "markdown", "pdf", "html"]
StepStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
OrchestrationStatus = Literal["planning", "running", "paused", "completed", "failed", "cancelled"]
Names = dict[str, Raw]
Members = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
"""An object that is passed on as it is kept."""


class Plan(Struct, frozen=True, rename="camel"):
    id: str
    conversation_id: str
    title: str
    current_version_id: str
    created_at: str
    updated_at: str


class Deliverable(Plan, frozen=True, rename="camel"):
    type: DocumentType


class DocumentVersion(Struct, frozen=True, rename="camel"):
    id: str
    version_number: int
    content: str
    format: str
    created_by_type: Provenance
    is_current: bool
    created_at: str
    metadata: Members


class VersionSummary(Struct, frozen=True, rename="camel"):
    id: str
    version_number: int
    content_preview: str
    format: str
    created_by_type: Provenance
    is_current: bool
    created_at: str
    metadata: Members


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
    """A document after another version has become its current one."""

    id: str
    current_version_id: str
    updated_at: str


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
    started_at: str
    last_message_at: str | None


class ConversationBegun(Struct, frozen=True):
    conversation: ConversationShown


class MessageShown(Struct, frozen=True):
    id: str
    role: Literal["user", "assistant", "system"]
    content: str
    timestamp: str
    metadata: Members


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
    """Only where they were to be deleted too."""


class ExportCounts(Struct, frozen=True, rename="camel"):
    message_count: int
    artifacts_included: int


class ConversationExported(Struct, frozen=True, rename="camel"):
    export_url: str
    format: ExportFormat
    expires_at: str
    file_size: int
    metadata: ExportCounts


class ToolExecuted(Struct, frozen=True, rename="camel"):
    tool_name: str
    output: Raw
    execution_time_ms: int
    metadata: Names


class Execution(Struct, frozen=True, rename="camel"):
    id: str
    tool_name: str
    input: Raw
    output: Raw
    status: Literal["completed", "failed"]
    executed_at: str
    metadata: Names


class ExecutionRead(Struct, frozen=True):
    execution: Execution


class ExecutionSummary(Struct, frozen=True, rename="camel"):
    id: str
    tool_name: str
    input_summary: str
    status: Literal["completed", "failed"]
    executed_at: str
    execution_time_ms: int


class Executions(Struct, frozen=True, rename="camel"):
    executions: list[ExecutionSummary]
    total: int
    has_more: bool


class StepShown(Struct, frozen=True, rename="camel"):
    step_id: str
    agent_slug: str
    mode: str
    action: str
    depends_on: list[str]
    status: StepStatus


class PlanMaker(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Model that made a plan, and the tokens that took as far as its vendor told."""

    llm_model: str
    tokens_used: int | None = None


class StepsShown(Struct, frozen=True, omit_defaults=True):
    steps: list[StepShown]
    metadata: PlanMaker | None = None
    """Absent where no model made the plan."""


class OrchestrationShown(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    conversation_id: str
    status: OrchestrationStatus
    plan: StepsShown
    current_step: int
    total_steps: int
    started_at: str
    completed_steps: int | None = None
    failed_steps: int | None = None
    results: Names | None = None
    estimated_completion_at: str | None = None
    completed_at: str | None = None
    error: Raw | None = None


class OrchestrationRead(Struct, frozen=True):
    orchestration: OrchestrationShown


class OrchestrationSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    id: str
    status: OrchestrationStatus
    total_steps: int
    completed_steps: int
    started_at: str
    completed_at: str | None = None


class Orchestrations(Struct, frozen=True, rename="camel"):
    orchestrations: list[OrchestrationSummary]
    total: int
    has_more: bool


class OrchestrationPaused(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    status: Literal["paused"]
    paused_at: str
    current_step: int


class OrchestrationResumed(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    status: Literal["running"]
    resumed_at: str
    current_step: int


class OrchestrationCancelled(Struct, frozen=True, rename="camel"):
    orchestration_id: str
    status: Literal["cancelled"]
    cancelled_at: str
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
    """The result of a task that waits for somebody: what it asks. A2A or the console answer it."""

    question: str
    needs: Literal["input", "auth"]


class Answered(Struct, frozen=True):
    """The result of a task that was asked for elsewhere, and made no document: what the agent answered."""

    content: str
