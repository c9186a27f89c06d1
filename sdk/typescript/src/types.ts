/** Made from the contract's OpenAPI document by `make sdk`; what is changed here is lost. */

/** What is known of how a task was done. */
export interface About {
  executionTimeMs: number;
  llmModel?: string | null;
  tokensUsed?: number | null;
}

/** The result of a task that was asked for elsewhere, and made no document: what the agent answered. */
export interface Answered {
  content: string;
}

export interface ArtifactsDeleted {
  plans: number;
  deliverables: number;
}

export interface BuildCopyVersionRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId: string;
  setCurrent?: boolean | null;
  mode: "build";
  action: "copy_version";
}

export interface BuildCreateRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  message?: string | null;
  planVersionId?: string | null;
  forceNew?: boolean | null;
  mode: "build";
  action: "create";
}

export interface BuildDeleteRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  /** Must be true. */
  confirm: true;
  mode: "build";
  action: "delete";
}

export interface BuildDeleteVersionRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId: string;
  confirm?: true | null;
  mode: "build";
  action: "delete_version";
}

export interface BuildEditRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  editedContent: string;
  editNotes?: string | null;
  mode: "build";
  action: "edit";
}

export interface BuildListRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  limit?: number | null;
  offset?: number | null;
  mode: "build";
  action: "list";
}

export interface BuildMergeVersionsRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionIds: string[];
  mergePrompt: string;
  llmConfig?: LlmConfig | null;
  mode: "build";
  action: "merge_versions";
}

export interface BuildReadRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId?: string | null;
  mode: "build";
  action: "read";
}

export interface BuildRerunRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  sourceVersionId?: string | null;
  rerunConfig?: RerunConfig | null;
  message?: string | null;
  mode: "build";
  action: "rerun";
}

export interface BuildSetCurrentRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId: string;
  mode: "build";
  action: "set_current";
}

export interface ConversationBegun {
  conversation: ConversationShown;
}

export interface ConversationDeleted {
  success: boolean;
  deletedConversationId: string;
  messagesDeleted: number;
  artifactsDeleted?: ArtifactsDeleted | null;
}

export interface ConversationExported {
  exportUrl: string;
  format: "html" | "json" | "markdown" | "pdf";
  expiresAt: string;
  fileSize: number;
  metadata: ExportCounts;
}

export interface ConversationRead {
  conversation: ConversationShown;
  messages: MessageShown[];
  total: number;
  hasMore: boolean;
}

export interface ConversationShown {
  id: string;
  agentName: string;
  userId: string;
  startedAt: string;
  lastMessageAt: string | null;
}

export interface ConverseDeleteConversationRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  /** Must be true. */
  confirm: true;
  deleteArtifacts: boolean;
  mode: "converse";
  action: "delete_conversation";
}

export interface ConverseExportConversationRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  format: "html" | "json" | "markdown" | "pdf";
  includeArtifacts?: boolean | null;
  mode: "converse";
  action: "export_conversation";
}

export interface ConverseReadConversationRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  limit?: number | null;
  offset?: number | null;
  includeSystem?: boolean | null;
  mode: "converse";
  action: "read_conversation";
}

export interface Deliverable {
  id: string;
  conversationId: string;
  title: string;
  currentVersionId: string;
  createdAt: string;
  updatedAt: string;
  type: "code" | "data" | "document";
}

export interface DeliverableCreated {
  deliverable: Deliverable;
  version: DocumentVersion;
}

export interface DeliverableDeleted {
  success: boolean;
  deletedDeliverableId: string;
  versionsDeleted: number;
}

export interface DeliverablePointed {
  deliverable: Pointed;
  previousVersionId: string;
  newVersionId: string;
}

export interface DeliverableRead {
  deliverable: Deliverable;
  currentVersion: DocumentVersion;
}

export interface DeliverableVersions {
  deliverableId: string;
  versions: VersionSummary[];
  total: number;
  hasMore: boolean;
}

export interface DocumentVersion {
  id: string;
  versionNumber: number;
  content: string;
  format: string;
  createdByType: "conversation_task" | "copy_operation" | "llm_rerun" | "manual_edit" | "merge_operation";
  isCurrent: boolean;
  createdAt: string;
  metadata: Record<string, unknown>;
}

/** Every answer. `result` is there when there is one; it can be null. */
export interface Envelope {
  taskId: string;
  conversationId: string;
  status: "completed" | "failed" | "pending" | "running";
  startedAt: string;
  result?:
    | PlanCreated
    | PlanRead
    | PlanVersions
    | VersionMade
    | PlanPointed
    | VersionDeleted
    | PlanDeleted
    | DeliverableCreated
    | DeliverableRead
    | DeliverableVersions
    | DeliverablePointed
    | DeliverableDeleted
    | ConversationRead
    | ConversationDeleted
    | ConversationExported
    | ToolExecuted
    | ExecutionRead
    | Executions
    | OrchestrationRead
    | Orchestrations
    | OrchestrationPaused
    | OrchestrationResumed
    | OrchestrationCancelled
    | RetryStarted
    | OrchestrationDeleted
    | ConversationBegun
    | Answered
    | Waiting
    | null;
  error?: Fault;
  completedAt?: string;
  metadata?: About;
}

export interface Execution {
  id: string;
  toolName: string;
  input: unknown;
  output: unknown;
  status: "completed" | "failed";
  executedAt: string;
  metadata: Record<string, unknown>;
}

export interface ExecutionRead {
  execution: Execution;
}

export interface ExecutionSummary {
  id: string;
  toolName: string;
  inputSummary: string;
  status: "completed" | "failed";
  executedAt: string;
  executionTimeMs: number;
}

export interface Executions {
  executions: ExecutionSummary[];
  total: number;
  hasMore: boolean;
}

export interface ExportCounts {
  messageCount: number;
  artifactsIncluded: number;
}

export interface Fault {
  code:
    | "AGENT_NOT_FOUND"
    | "CAPABILITY_NOT_FOUND"
    | "CONVERSATION_NOT_FOUND"
    | "DATABASE_ERROR"
    | "DELIVERABLE_NOT_FOUND"
    | "EXECUTION_NOT_FOUND"
    | "FORBIDDEN"
    | "INTERNAL_ERROR"
    | "INVALID_ACTION"
    | "INVALID_MODE"
    | "INVALID_REQUEST"
    | "INVALID_STATE"
    | "LLM_EXECUTION_FAILED"
    | "METHOD_NOT_ALLOWED"
    | "MISSING_REQUIRED_PARAM"
    | "NOT_FOUND"
    | "ORCHESTRATION_NOT_FOUND"
    | "PAYLOAD_TOO_LARGE"
    | "PLAN_NOT_FOUND"
    | "RATE_LIMITED"
    | "STALE_CURSOR"
    | "STEP_NOT_FOUND"
    | "TASK_CANCELED"
    | "TASK_NOT_FOUND"
    | "TASK_REJECTED"
    | "TOOL_EXECUTION_FAILED"
    | "TOOL_NOT_FOUND"
    | "UNAUTHORIZED"
    | "UNAVAILABLE"
    | "UNSUPPORTED_MEDIA_TYPE"
    | "VERSION_NOT_FOUND";
  message: string;
  details?: Record<string, unknown>;
}

/** How the agent's model is to answer this once; what is left out stays as the agent is defined. */
export interface LlmConfig {
  model?: string | null;
  temperature?: number | null;
}

export interface MessageShown {
  id: string;
  role: "assistant" | "system" | "user";
  content: string;
  timestamp: string;
  metadata: Record<string, unknown>;
}

/** `id` names the conversation, so that asking again finds it; else one is made. */
export interface NewConversation {
  agentSlug: string;
  id?: string | null;
}

export interface OrchestrateCancelRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  orchestrationId?: string | null;
  confirm?: true | null;
  mode: "orchestrate";
  action: "cancel";
}

export interface OrchestrateCreateRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  message: string;
  config?: OrchestrationConfig | null;
  mode: "orchestrate";
  action: "create";
}

export interface OrchestrateDeleteRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  orchestrationId?: string | null;
  /** Must be true. */
  confirm: true;
  mode: "orchestrate";
  action: "delete";
}

export interface OrchestrateListRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  status?: "cancelled" | "completed" | "failed" | "paused" | "planning" | "running" | null;
  limit?: number | null;
  offset?: number | null;
  mode: "orchestrate";
  action: "list";
}

export interface OrchestratePauseRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  orchestrationId?: string | null;
  mode: "orchestrate";
  action: "pause";
}

export interface OrchestrateReadRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  orchestrationId?: string | null;
  mode: "orchestrate";
  action: "read";
}

export interface OrchestrateResumeRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  orchestrationId?: string | null;
  mode: "orchestrate";
  action: "resume";
}

export interface OrchestrateRetryStepRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  orchestrationId?: string | null;
  stepId: string;
  mode: "orchestrate";
  action: "retry_step";
}

export interface OrchestrationCancelled {
  orchestrationId: string;
  status: "cancelled";
  cancelledAt: string;
  completedSteps: number;
  cancelledSteps: number;
}

export interface OrchestrationConfig {
  maxParallelSteps?: number | null;
  stepTimeoutMs?: number | null;
  autoRetry?: boolean | null;
  maxRetries?: number | null;
}

export interface OrchestrationDeleted {
  success: boolean;
  deletedOrchestrationId: string;
}

export interface OrchestrationPaused {
  orchestrationId: string;
  status: "paused";
  pausedAt: string;
  currentStep: number;
}

export interface OrchestrationRead {
  orchestration: OrchestrationShown;
}

export interface OrchestrationResumed {
  orchestrationId: string;
  status: "running";
  resumedAt: string;
  currentStep: number;
}

export interface OrchestrationShown {
  id: string;
  conversationId: string;
  status: "cancelled" | "completed" | "failed" | "paused" | "planning" | "running";
  plan: StepsShown;
  currentStep: number;
  totalSteps: number;
  startedAt: string;
  completedSteps?: number | null;
  failedSteps?: number | null;
  results?: Record<string, unknown> | null;
  estimatedCompletionAt?: string | null;
  completedAt?: string | null;
  error?: unknown;
}

export interface OrchestrationSummary {
  id: string;
  status: "cancelled" | "completed" | "failed" | "paused" | "planning" | "running";
  totalSteps: number;
  completedSteps: number;
  startedAt: string;
  completedAt?: string | null;
}

export interface Orchestrations {
  orchestrations: OrchestrationSummary[];
  total: number;
  hasMore: boolean;
}

export interface Plan {
  id: string;
  conversationId: string;
  title: string;
  currentVersionId: string;
  createdAt: string;
  updatedAt: string;
}

export interface PlanCopyVersionRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId: string;
  setCurrent?: boolean | null;
  mode: "plan";
  action: "copy_version";
}

export interface PlanCreateRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  message: string;
  forceNew?: boolean | null;
  mode: "plan";
  action: "create";
}

export interface PlanCreated {
  plan: Plan;
  version: DocumentVersion;
}

export interface PlanDeleteRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  /** Must be true. */
  confirm: true;
  mode: "plan";
  action: "delete";
}

export interface PlanDeleteVersionRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId: string;
  confirm?: true | null;
  mode: "plan";
  action: "delete_version";
}

export interface PlanDeleted {
  success: boolean;
  deletedPlanId: string;
  versionsDeleted: number;
}

export interface PlanEditRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  editedContent: string;
  editNotes?: string | null;
  mode: "plan";
  action: "edit";
}

export interface PlanListRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  limit?: number | null;
  offset?: number | null;
  mode: "plan";
  action: "list";
}

/** Model that made a plan, and the tokens that took as far as its vendor told. */
export interface PlanMaker {
  llmModel: string;
  tokensUsed?: number | null;
}

export interface PlanMergeVersionsRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionIds: string[];
  mergePrompt: string;
  llmConfig?: LlmConfig | null;
  mode: "plan";
  action: "merge_versions";
}

export interface PlanPointed {
  plan: Pointed;
  previousVersionId: string;
  newVersionId: string;
}

export interface PlanRead {
  plan: Plan;
  currentVersion: DocumentVersion;
}

export interface PlanReadRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId?: string | null;
  mode: "plan";
  action: "read";
}

export interface PlanSetCurrentRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  versionId: string;
  mode: "plan";
  action: "set_current";
}

export interface PlanVersions {
  planId: string;
  versions: VersionSummary[];
  total: number;
  hasMore: boolean;
}

/** A document after another version has become its current one. */
export interface Pointed {
  id: string;
  currentVersionId: string;
  updatedAt: string;
}

/** The task waits for somebody. */
export interface QuestionEvent {
  type: "question";
  taskId: string;
  question: string;
  needs: "auth" | "input";
}

export interface RerunConfig {
  model?: string | null;
  temperature?: number | null;
  maxTokens?: number | null;
}

export interface RetryStarted {
  orchestrationId: string;
  step: StepRetried;
}

/** The task's status, and what the agent says it is doing. */
export interface StatusEvent {
  type: "status";
  taskId: string;
  status: "completed" | "failed" | "pending" | "running";
  message?: string;
}

export interface StepRetried {
  stepId: string;
  status: "completed" | "failed" | "running";
  retryCount: number;
  result?: unknown;
}

export interface StepShown {
  stepId: string;
  agentSlug: string;
  mode: string;
  action: string;
  dependsOn: string[];
  status: "cancelled" | "completed" | "failed" | "pending" | "running";
}

export interface StepsShown {
  steps: StepShown[];
  metadata?: PlanMaker | null;
}

/** One event of a stream: `id` is its number in the task's log, `data` is JSON: a TaskStreamEvent. */
export interface StreamEvent {
  id: string;
  data: string;
}

/** The last event: the task as it ended. */
export interface TaskEvent {
  type: "task";
  task: Envelope;
}

export type TaskRequest =
  | PlanCreateRequest
  | PlanReadRequest
  | PlanListRequest
  | PlanEditRequest
  | PlanSetCurrentRequest
  | PlanDeleteVersionRequest
  | PlanMergeVersionsRequest
  | PlanCopyVersionRequest
  | PlanDeleteRequest
  | BuildCreateRequest
  | BuildReadRequest
  | BuildListRequest
  | BuildEditRequest
  | BuildSetCurrentRequest
  | BuildDeleteVersionRequest
  | BuildMergeVersionsRequest
  | BuildCopyVersionRequest
  | BuildDeleteRequest
  | BuildRerunRequest
  | ConverseReadConversationRequest
  | ConverseDeleteConversationRequest
  | ConverseExportConversationRequest
  | ToolExecuteRequest
  | ToolReadRequest
  | ToolListRequest
  | OrchestrateCreateRequest
  | OrchestrateReadRequest
  | OrchestrateListRequest
  | OrchestratePauseRequest
  | OrchestrateResumeRequest
  | OrchestrateCancelRequest
  | OrchestrateRetryStepRequest
  | OrchestrateDeleteRequest;

export type TaskStreamEvent = StatusEvent | TextEvent | QuestionEvent | TaskEvent;

/** A piece of the answer, to be put behind the pieces before it; `reset`: to be put in their place. */
export interface TextEvent {
  type: "text";
  taskId: string;
  text: string;
  reset?: boolean;
}

export interface ToolExecuteRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  toolName: string;
  input: Record<string, unknown>;
  timeoutMs?: number | null;
  mode: "tool";
  action: "execute";
}

export interface ToolExecuted {
  toolName: string;
  output: unknown;
  executionTimeMs: number;
  metadata: Record<string, unknown>;
}

export interface ToolListRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  toolName?: string | null;
  limit?: number | null;
  offset?: number | null;
  mode: "tool";
  action: "list";
}

export interface ToolReadRequest {
  agentSlug: string;
  metadata?: Record<string, unknown> | null;
  executionId: string;
  mode: "tool";
  action: "read";
}

export interface VersionDeleted {
  success: boolean;
  deletedVersionId: string;
  remainingVersionCount: number;
}

export interface VersionMade {
  version: DocumentVersion;
}

export interface VersionSummary {
  id: string;
  versionNumber: number;
  contentPreview: string;
  format: string;
  createdByType: "conversation_task" | "copy_operation" | "llm_rerun" | "manual_edit" | "merge_operation";
  isCurrent: boolean;
  createdAt: string;
  metadata: Record<string, unknown>;
}

/** The result of a task that waits for somebody: what it asks. A2A or the console answer it. */
export interface Waiting {
  question: string;
  needs: "auth" | "input";
}

/** What each action is asked with, and answered with. */
export interface Actions {
  "plan.create": { request: PlanCreateRequest; result: PlanCreated | null };
  "plan.read": { request: PlanReadRequest; result: PlanRead | null };
  "plan.list": { request: PlanListRequest; result: PlanVersions };
  "plan.edit": { request: PlanEditRequest; result: VersionMade | null };
  "plan.set_current": { request: PlanSetCurrentRequest; result: PlanPointed };
  "plan.delete_version": { request: PlanDeleteVersionRequest; result: VersionDeleted };
  "plan.merge_versions": { request: PlanMergeVersionsRequest; result: VersionMade | null };
  "plan.copy_version": { request: PlanCopyVersionRequest; result: VersionMade | null };
  "plan.delete": { request: PlanDeleteRequest; result: PlanDeleted };
  "build.create": { request: BuildCreateRequest; result: DeliverableCreated | null };
  "build.read": { request: BuildReadRequest; result: DeliverableRead | null };
  "build.list": { request: BuildListRequest; result: DeliverableVersions };
  "build.edit": { request: BuildEditRequest; result: VersionMade | null };
  "build.set_current": { request: BuildSetCurrentRequest; result: DeliverablePointed };
  "build.delete_version": { request: BuildDeleteVersionRequest; result: VersionDeleted };
  "build.merge_versions": { request: BuildMergeVersionsRequest; result: VersionMade | null };
  "build.copy_version": { request: BuildCopyVersionRequest; result: VersionMade | null };
  "build.delete": { request: BuildDeleteRequest; result: DeliverableDeleted };
  "build.rerun": { request: BuildRerunRequest; result: VersionMade | null };
  "converse.read_conversation": { request: ConverseReadConversationRequest; result: ConversationRead };
  "converse.delete_conversation": { request: ConverseDeleteConversationRequest; result: ConversationDeleted };
  "converse.export_conversation": { request: ConverseExportConversationRequest; result: ConversationExported };
  "tool.execute": { request: ToolExecuteRequest; result: ToolExecuted | null };
  "tool.read": { request: ToolReadRequest; result: ExecutionRead };
  "tool.list": { request: ToolListRequest; result: Executions };
  "orchestrate.create": { request: OrchestrateCreateRequest; result: OrchestrationRead | null };
  "orchestrate.read": { request: OrchestrateReadRequest; result: OrchestrationRead };
  "orchestrate.list": { request: OrchestrateListRequest; result: Orchestrations };
  "orchestrate.pause": { request: OrchestratePauseRequest; result: OrchestrationPaused };
  "orchestrate.resume": { request: OrchestrateResumeRequest; result: OrchestrationResumed };
  "orchestrate.cancel": { request: OrchestrateCancelRequest; result: OrchestrationCancelled };
  "orchestrate.retry_step": { request: OrchestrateRetryStepRequest; result: RetryStarted };
  "orchestrate.delete": { request: OrchestrateDeleteRequest; result: OrchestrationDeleted };
}
