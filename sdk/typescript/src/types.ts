/** Made from the contract's OpenAPI document by `make sdk`; what is changed here is lost. */

/** Facts about how a task was done: its duration, and the model if one was used. */
export interface About {
  executionTimeMs: number;
  llmModel?: string | null;
  tokensUsed?: number | null;
}

/** Result of a task that was created through another API and made no document: the agent's answer. */
export interface Answered {
  content: string;
}

export interface ArtifactsDeleted {
  plans: number;
  deliverables: number;
}

/** A file, link or data of a message or a turn that is not message text, described without its content. */
export interface Attachment {
  kind: "data" | "file" | "link";
  name?: string | null;
  mediaType?: string | null;
  size?: number | null;
  url?: string | null;
}

export interface BuildCopyVersionRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  versionId: string;
  setCurrent?: boolean | null;
  mode: "build";
  action: "copy_version";
}

export interface BuildCreateRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  message?: string | null;
  planVersionId?: string | null;
  forceNew?: boolean | null;
  expectedVersionId?: string | null;
  format?: "css" | "html" | "javascript" | "json" | "markdown" | "python" | "text" | "typescript" | "yaml" | null;
  taskId?: string | null;
  mode: "build";
  action: "create";
}

export interface BuildDeleteRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  /** Must be true. */
  confirm: true;
  mode: "build";
  action: "delete";
}

export interface BuildDeleteVersionRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  versionId: string;
  confirm?: true | null;
  mode: "build";
  action: "delete_version";
}

export interface BuildEditRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  editedContent: string;
  editNotes?: string | null;
  expectedVersionId?: string | null;
  mode: "build";
  action: "edit";
}

export interface BuildListRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  limit?: number | null;
  offset?: number | null;
  mode: "build";
  action: "list";
}

export interface BuildMergeVersionsRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  versionIds: string[];
  mergePrompt: string;
  llmConfig?: LlmConfig | null;
  mode: "build";
  action: "merge_versions";
}

export interface BuildReadRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  versionId?: string | null;
  mode: "build";
  action: "read";
}

export interface BuildRerunRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  sourceVersionId?: string | null;
  rerunConfig?: RerunConfig | null;
  message?: string | null;
  mode: "build";
  action: "rerun";
}

export interface BuildSetCurrentRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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
  metadata?: RequestMetadata | null;
  /** Must be true. */
  confirm: true;
  deleteArtifacts: boolean;
  mode: "converse";
  action: "delete_conversation";
}

export interface ConverseExportConversationRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  format: "html" | "json" | "markdown" | "pdf";
  includeArtifacts?: boolean | null;
  mode: "converse";
  action: "export_conversation";
}

export interface ConverseReadConversationRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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
  format: "css" | "html" | "javascript" | "json" | "markdown" | "python" | "text" | "typescript" | "yaml";
  createdByType: "conversation_task" | "copy_operation" | "llm_rerun" | "manual_edit" | "merge_operation";
  isCurrent: boolean;
  createdAt: string;
  metadata: VersionMetadata;
}

/** Body of every response. `result` is present when there is one, and it can be null. */
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
  metadata: ExecutionMetadata;
}

/** Reason why a tool call failed. */
export interface ExecutionFault {
  code: string;
  message: string;
}

/** Facts about a stored tool call and its output. */
export interface ExecutionMetadata {
  executionTimeMs: number;
  mcpServer: string;
  rowsReturned?: number;
  filesFound?: number;
  error?: ExecutionFault;
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
  /** Warnings about content that the file cannot show. */
  warnings?: string[];
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
    | "STALE_VERSION"
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

/** Settings of the agent's model for this request; omitted members keep the values of the agent's definition. */
export interface LlmConfig {
  model?: string | null;
  temperature?: number | null;
}

/**
 * Facts about a message. It also contains the metadata that an agent gives its answers, under the agent's own
 * names.
 */
export type MessageMetadata = {
  /** Files, links and data. */
  attachments?: Attachment[];
  /** Model that answered. */
  model?: string;
  usage?: MessageUsage;
  /** Code of a failure, in a system message. */
  code?: string;
  /** Orchestration whose step answered. */
  orchestrationId?: string;
  stepId?: string;
} & Record<string, unknown>;

export interface MessageShown {
  id: string;
  role: "assistant" | "system" | "user";
  content: string;
  timestamp: string;
  metadata: MessageMetadata;
}

/** Tokens used for an answer, if the vendor of the model reported them. */
export interface MessageUsage {
  inputTokens?: number | null;
  outputTokens?: number | null;
}

/** A new conversation. With `id`, a repeated request returns the same conversation; else the server makes an id. */
export interface NewConversation {
  agentSlug: string;
  id?: string | null;
}

export interface OrchestrateCancelRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  orchestrationId?: string | null;
  confirm?: true | null;
  mode: "orchestrate";
  action: "cancel";
}

export interface OrchestrateCreateRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  message: string;
  config?: OrchestrationConfig | null;
  mode: "orchestrate";
  action: "create";
}

export interface OrchestrateDeleteRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  orchestrationId?: string | null;
  /** Must be true. */
  confirm: true;
  mode: "orchestrate";
  action: "delete";
}

export interface OrchestrateListRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  status?: "cancelled" | "completed" | "failed" | "paused" | "planning" | "running" | null;
  limit?: number | null;
  offset?: number | null;
  mode: "orchestrate";
  action: "list";
}

export interface OrchestratePauseRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  orchestrationId?: string | null;
  mode: "orchestrate";
  action: "pause";
}

export interface OrchestrateReadRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  orchestrationId?: string | null;
  mode: "orchestrate";
  action: "read";
}

export interface OrchestrateResumeRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  orchestrationId?: string | null;
  message?: string | null;
  stepId?: string | null;
  mode: "orchestrate";
  action: "resume";
}

export interface OrchestrateRetryStepRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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
  question?: string | null;
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
  metadata?: RequestMetadata | null;
  versionId: string;
  setCurrent?: boolean | null;
  mode: "plan";
  action: "copy_version";
}

export interface PlanCreateRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  message: string;
  forceNew?: boolean | null;
  expectedVersionId?: string | null;
  format?: "html" | "json" | "markdown" | "text" | "yaml" | null;
  taskId?: string | null;
  mode: "plan";
  action: "create";
}

export interface PlanCreated {
  plan: Plan;
  version: DocumentVersion;
}

export interface PlanDeleteRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  /** Must be true. */
  confirm: true;
  mode: "plan";
  action: "delete";
}

export interface PlanDeleteVersionRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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
  metadata?: RequestMetadata | null;
  editedContent: string;
  editNotes?: string | null;
  expectedVersionId?: string | null;
  mode: "plan";
  action: "edit";
}

export interface PlanListRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  limit?: number | null;
  offset?: number | null;
  mode: "plan";
  action: "list";
}

/** Model that made a plan, and the tokens it used if its vendor reported them. */
export interface PlanMaker {
  llmModel: string;
  tokensUsed?: number | null;
}

export interface PlanMergeVersionsRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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
  metadata?: RequestMetadata | null;
  versionId?: string | null;
  mode: "plan";
  action: "read";
}

export interface PlanSetCurrentRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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

/** A document after its current version was changed. */
export interface Pointed {
  id: string;
  currentVersionId: string;
  updatedAt: string;
}

/** The task waits for an answer (`input`) or for credentials (`auth`). */
export interface QuestionEvent {
  type: "question";
  taskId: string;
  question: string;
  needs: "auth" | "input";
}

/** Facts about a request. Any value and further members are accepted; none of them is used. */
export type RequestMetadata = {
  /** Origin of the request, for example `ui`, `agent` or `webhook`. */
  source?: unknown;
  /** Time at which the client sent the request. */
  clientTimestamp?: unknown;
  /** Id that the client gave the request. */
  correlationId?: unknown;
} & Record<string, unknown>;

export interface RerunConfig {
  model?: string | null;
  temperature?: number | null;
  maxTokens?: number | null;
}

export interface RetryStarted {
  orchestrationId: string;
  step: StepRetried;
}

/** Status of the task, and the agent's progress message. */
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
  taskId?: string | null;
  conversationId?: string | null;
  question?: string | null;
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

/** Last event of the stream: the final envelope of the task. */
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

/** A piece of the answer. Append it to the pieces before it; with `reset`, replace them. */
export interface TextEvent {
  type: "text";
  taskId: string;
  text: string;
  reset?: boolean;
}

export interface ToolExecuteRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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
  metadata: ToolMetadata;
}

export interface ToolListRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
  toolName?: string | null;
  limit?: number | null;
  offset?: number | null;
  mode: "tool";
  action: "list";
}

/** Facts about a tool call and its output. */
export interface ToolMetadata {
  /** Id for the action `read`. */
  executionId: string;
  mcpServer: string;
  rowsReturned?: number;
  filesFound?: number;
}

export interface ToolReadRequest {
  agentSlug: string;
  metadata?: RequestMetadata | null;
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

/** Origin of a version of a document; the members depend on `createdByType`. */
export interface VersionMetadata {
  /** Id of the version that this one was made from. */
  basedOn?: string;
  /** Version of the plan that the agent was given. */
  planVersionId?: string;
  editedFromVersionId?: string;
  editedAt?: string;
  editNotes?: string;
  /** Ids of the merged versions. */
  mergedFrom?: string[];
  mergePrompt?: string;
  /** Id of the copied version. */
  copiedFrom?: string;
  originalVersionNumber?: number;
  /** Id of the source version. */
  rerunFrom?: string;
  rerunConfig?: RerunConfig;
  /** Model that wrote the version. */
  llmModel?: string;
  tokensUsed?: number;
  /** True if the vendor reported no tokens. */
  tokensEstimated?: boolean;
  /** Temperature setting of the model. */
  temperature?: number;
  /** True if the model's answer was cut off. */
  truncated?: boolean;
  /** Reason why the answer was cut off. */
  finishReason?: string;
  /** Orchestration whose step wrote the version. */
  orchestrationId?: string;
  stepId?: string;
}

export interface VersionSummary {
  id: string;
  versionNumber: number;
  contentPreview: string;
  format: "css" | "html" | "javascript" | "json" | "markdown" | "python" | "text" | "typescript" | "yaml";
  createdByType: "conversation_task" | "copy_operation" | "llm_rerun" | "manual_edit" | "merge_operation";
  isCurrent: boolean;
  createdAt: string;
  metadata: VersionMetadata;
}

/** Result of a task that waits for an answer: its question. */
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
