# ruff: noqa: E501 (the lines are as long as they are in the contract)
"""The texts of the actions contract, section by section, as they stand there."""

ENDPOINT = "POST /api/agent2agent/conversations/:conversationId/tasks"

EVERY_REQUEST = """\
{
  mode: 'converse' | 'plan' | 'build' | 'tool' | 'orchestrate',
  action: string,
  agentSlug: string,
  // ... plus action-specific params
}
"""

EVERY_RESPONSE = """\
{
  taskId: string,
  conversationId: string,
  status: 'pending' | 'running' | 'completed' | 'failed',
  result?: { /* varies by action */ },
  error?: { code: string, message: string, details?: any },
  startedAt: string,  // ISO 8601
  completedAt?: string
}
"""

REQUESTS: dict[str, str] = {
    "plan.create": """\
{
  message: string,       // Required
  forceNew?: boolean
}
""",
    "plan.read": """\
{
  versionId?: string  // Optional: get specific version
}
""",
    "plan.list": """\
{
  limit?: number,
  offset?: number
}
""",
    "plan.edit": """\
{
  editedContent: string,  // Required: full new content
  editNotes?: string
}
""",
    "plan.set_current": """\
{
  versionId: string  // Required
}
""",
    "plan.delete_version": """\
{
  versionId: string,  // Required
  confirm?: boolean
}
""",
    "plan.merge_versions": """\
{
  versionIds: string[],   // Required: 2+ versions
  mergePrompt: string,    // Required: how to merge
  llmConfig?: { model?: string, temperature?: number }
}
""",
    "plan.copy_version": """\
{
  versionId: string,    // Required
  setCurrent?: boolean
}
""",
    "plan.delete": """\
{
  confirm: boolean  // Required
}
""",
    "build.rerun": """\
{
  sourceVersionId?: string,  // Optional: which version to rerun (default: current)
  rerunConfig?: {
    model?: string,
    temperature?: number,
    maxTokens?: number
  },
  message?: string  // Optional: additional instructions
}
""",
    "converse.read_conversation": """\
{
  limit?: number,
  offset?: number,
  includeSystem?: boolean
}
""",
    "converse.delete_conversation": """\
{
  confirm: boolean,         // Required
  deleteArtifacts: boolean  // Required: cascade to plans/deliverables
}
""",
    "converse.export_conversation": """\
{
  format: 'json' | 'markdown' | 'pdf' | 'html',  // Required
  includeArtifacts?: boolean
}
""",
    "tool.execute": """\
{
  toolName: string,  // Required: e.g., 'supabase-query', 'obsidian-search'
  input: {
    // Tool-specific parameters
    // For Supabase:
    query?: { table, select?, where?, orderBy?, limit? },

    // For Obsidian:
    search?: { query, path?, limit? },

    // Generic:
    [key: string]: any
  },
  timeoutMs?: number
}
""",
    "tool.read": """\
{
  executionId: string  // Required
}
""",
    "tool.list": """\
{
  toolName?: string,  // Optional: filter
  limit?: number,
  offset?: number
}
""",
    "orchestrate.create": """\
{
  message: string,  // Required: what to orchestrate
  config?: {
    maxParallelSteps?: number,
    stepTimeoutMs?: number,
    autoRetry?: boolean,
    maxRetries?: number
  }
}
""",
    "orchestrate.read": """\
{
  orchestrationId?: string  // Optional: defaults to current
}
""",
    "orchestrate.list": """\
{
  status?: 'running' | 'completed' | 'failed',
  limit?: number,
  offset?: number
}
""",
    "orchestrate.pause": """\
{}
""",
    "orchestrate.resume": """\
{}
""",
    "orchestrate.cancel": """\
{
  confirm?: boolean
}
""",
    "orchestrate.retry_step": """\
{
  stepId: string  // Required
}
""",
    "orchestrate.delete": """\
{
  confirm: boolean  // Required
}
""",
}

RESULTS: dict[str, str] = {
    "plan.create": """\
{
  plan: { id, conversationId, title, currentVersionId, createdAt, updatedAt },
  version: { id, versionNumber, content, format, createdByType, isCurrent, createdAt, metadata }
}
""",
    "plan.read": """\
{
  plan: { id, conversationId, title, currentVersionId, ... },
  currentVersion: { id, versionNumber, content, format, ... }
} | null
""",
    "plan.list": """\
{
  planId: string,
  versions: [{ id, versionNumber, contentPreview, format, createdByType, isCurrent, createdAt, metadata }],
  total: number,
  hasMore: boolean
}
""",
    "plan.edit": """\
{
  version: { id, versionNumber, content, format, createdByType: 'manual_edit', isCurrent, createdAt, metadata }
}
""",
    "plan.set_current": """\
{
  plan: { id, currentVersionId, updatedAt },
  previousVersionId: string,
  newVersionId: string
}
""",
    "plan.delete_version": """\
{
  success: boolean,
  deletedVersionId: string,
  remainingVersionCount: number
}
""",
    "plan.merge_versions": """\
{
  version: {
    id, versionNumber, content, format,
    createdByType: 'merge_operation',
    metadata: { mergedFrom: string[], mergePrompt: string, llmModel: string }
  }
}
""",
    "plan.copy_version": """\
{
  version: {
    id, versionNumber, content, format,
    createdByType: 'copy_operation',
    metadata: { copiedFrom: string, originalVersionNumber: number }
  }
}
""",
    "plan.delete": """\
{
  success: boolean,
  deletedPlanId: string,
  versionsDeleted: number
}
""",
    "build.rerun": """\
{
  version: {
    id, versionNumber, content, format,
    createdByType: 'llm_rerun',
    metadata: {
      llmModel: string,
      tokensUsed: number,
      rerunFrom: string,  // Source version ID
      rerunConfig: any
    }
  }
}
""",
    "converse.read_conversation": """\
{
  conversation: { id, agentName, userId, startedAt, lastMessageAt },
  messages: [{ id, role, content, timestamp, metadata }],
  total: number,
  hasMore: boolean
}
""",
    "converse.delete_conversation": """\
{
  success: boolean,
  deletedConversationId: string,
  messagesDeleted: number,
  artifactsDeleted?: { plans: number, deliverables: number }
}
""",
    "converse.export_conversation": """\
{
  exportUrl: string,      // Presigned download URL
  format: string,
  expiresAt: string,
  fileSize: number,
  metadata: { messageCount: number, artifactsIncluded: number }
}
""",
    "tool.execute": """\
{
  toolName: string,
  output: any,  // Tool-specific output
  executionTimeMs: number,
  metadata?: { mcpServer: string, rowsReturned?: number, filesFound?: number }
}
""",
    "tool.read": """\
{
  execution: {
    id: string,
    toolName: string,
    input: any,
    output: any,
    status: 'completed' | 'failed',
    executedAt: string,
    metadata?: any
  }
}
""",
    "tool.list": """\
{
  executions: [{ id, toolName, inputSummary, status, executedAt, executionTimeMs }],
  total: number,
  hasMore: boolean
}
""",
    "orchestrate.create": """\
{
  orchestration: {
    id: string,
    conversationId: string,
    status: 'planning' | 'running' | 'paused' | 'completed' | 'failed',
    plan: {
      steps: [{
        stepId: string,
        agentSlug: string,
        mode: string,
        action: string,
        dependsOn: string[],
        status: 'pending' | 'running' | 'completed' | 'failed'
      }]
    },
    currentStep: number,
    totalSteps: number,
    startedAt: string,
    estimatedCompletionAt?: string
  }
}
""",
    "orchestrate.read": """\
{
  orchestration: {
    id: string,
    status: string,
    plan: { steps: [...] },
    currentStep: number,
    totalSteps: number,
    completedSteps: number,
    failedSteps: number,
    results: Record<string, any>,  // Step results keyed by stepId
    startedAt: string,
    completedAt?: string,
    error?: any
  }
}
""",
    "orchestrate.list": """\
{
  orchestrations: [{ id, status, totalSteps, completedSteps, startedAt, completedAt }],
  total: number,
  hasMore: boolean
}
""",
    "orchestrate.pause": """\
{
  orchestrationId: string,
  status: 'paused',
  pausedAt: string,
  currentStep: number
}
""",
    "orchestrate.resume": """\
{
  orchestrationId: string,
  status: 'running',
  resumedAt: string,
  currentStep: number
}
""",
    "orchestrate.cancel": """\
{
  orchestrationId: string,
  status: 'cancelled',
  cancelledAt: string,
  completedSteps: number,
  cancelledSteps: number
}
""",
    "orchestrate.retry_step": """\
{
  orchestrationId: string,
  step: {
    stepId: string,
    status: 'running' | 'completed' | 'failed',
    retryCount: number,
    result?: any
  }
}
""",
    "orchestrate.delete": """\
{
  success: boolean,
  deletedOrchestrationId: string
}
""",
}

SUPABASE_QUERY_REQUEST = """\
{
  mode: 'tool',
  action: 'execute',
  agentSlug: 'supabase-agent',
  toolName: 'supabase-query',
  input: {
    query: {
      table: 'financial_transactions',
      select: ['date', 'amount', 'category'],
      where: { date_gte: '2025-01-01' },
      orderBy: 'date DESC'
    }
  }
}
"""

SUPABASE_QUERY_RESULT = """\
{
  toolName: 'supabase-query',
  output: {
    rows: [
      { date: '2025-03-31', amount: 1500.00, category: 'Revenue' },
      // ... more rows
    ],
    count: 145
  },
  executionTimeMs: 234,
  metadata: { mcpServer: 'supabase-mcp', rowsReturned: 145 }
}
"""

ORCHESTRATION_REQUEST = """\
{
  mode: 'orchestrate',
  action: 'create',
  agentSlug: 'finance-manager',
  message: 'Generate Q1 2025 financial report with charts'
}
"""

ORCHESTRATION_RESULT = """\
{
  orchestration: {
    id: 'orch-001',
    status: 'running',
    plan: {
      steps: [
        { stepId: 'step-001', agentSlug: 'supabase-query', mode: 'tool', action: 'execute', dependsOn: [], status: 'completed' },
        { stepId: 'step-002', agentSlug: 'chart-generator', mode: 'tool', action: 'execute', dependsOn: ['step-001'], status: 'running' },
        { stepId: 'step-003', agentSlug: 'report-compiler', mode: 'build', action: 'create', dependsOn: ['step-001', 'step-002'], status: 'pending' }
      ]
    },
    currentStep: 2,
    totalSteps: 3,
    startedAt: '2025-10-04T18:00:00Z'
  }
}
"""

ERROR_RESPONSE = """\
{
  taskId: 'task-466',
  conversationId: 'conv-123',
  status: 'failed',
  error: {
    code: 'CAPABILITY_NOT_FOUND',
    message: 'Agent blog_post_writer does not have capability: merge_plan_versions',
    details: {
      agentSlug: 'blog_post_writer',
      requestedCapability: 'merge_plan_versions'
    }
  },
  startedAt: '2025-10-04T18:30:00Z',
  completedAt: '2025-10-04T18:30:01Z'
}
"""

ERROR_CODES = """\
| Code | Status | Description |
|------|--------|-------------|
| `INVALID_MODE` | 400 | Unsupported mode |
| `INVALID_ACTION` | 400 | Action not supported for mode |
| `MISSING_REQUIRED_PARAM` | 400 | Required parameter missing |
| `CAPABILITY_NOT_FOUND` | 403 | Agent lacks A2A capability |
| `PLAN_NOT_FOUND` | 404 | No plan exists |
| `DELIVERABLE_NOT_FOUND` | 404 | No deliverable exists |
| `VERSION_NOT_FOUND` | 404 | Version doesn't exist |
| `CONVERSATION_NOT_FOUND` | 404 | Conversation doesn't exist |
| `LLM_EXECUTION_FAILED` | 500 | LLM execution error |
| `TOOL_EXECUTION_FAILED` | 500 | MCP tool error |
| `DATABASE_ERROR` | 500 | Database operation failed |
"""

MATRIX = """\
| Mode | Actions | Total |
|------|---------|-------|
| **plan** | create, read, list, edit, set_current, delete_version, merge_versions, copy_version, delete | **9** |
| **build** | create, read, list, edit, rerun, set_current, delete_version, merge_versions, copy_version, delete | **10** |
| **converse** | read_conversation, delete_conversation, export_conversation | **3** |
| **tool** | execute, read, list | **3** |
| **orchestrate** | create, read, list, pause, resume, cancel, retry_step, delete | **8** |
| | **TOTAL** | **33** |
"""

SDK = """\
// Clean API for frontend to use
class Agent2AgentAPI {
  // PLAN mode
  async createPlan(conversationId, agentSlug, message, forceNew?)
  async readPlan(conversationId, agentSlug, versionId?)
  async listPlanVersions(conversationId, agentSlug, limit?, offset?)
  async editPlan(conversationId, agentSlug, editedContent, editNotes?)
  async setCurrentPlanVersion(conversationId, agentSlug, versionId)
  async deletePlanVersion(conversationId, agentSlug, versionId, confirm?)
  async mergePlanVersions(conversationId, agentSlug, versionIds, mergePrompt, llmConfig?)
  async copyPlanVersion(conversationId, agentSlug, versionId, setCurrent?)
  async deletePlan(conversationId, agentSlug, confirm)

  // BUILD mode
  async createDeliverable(conversationId, agentSlug, message?, planVersionId?, forceNew?)
  async readDeliverable(conversationId, agentSlug, versionId?)
  async listDeliverableVersions(conversationId, agentSlug, limit?, offset?)
  async editDeliverable(conversationId, agentSlug, editedContent, editNotes?)
  async rerunDeliverable(conversationId, agentSlug, sourceVersionId?, rerunConfig?, message?)
  async setCurrentDeliverableVersion(conversationId, agentSlug, versionId)
  async deleteDeliverableVersion(conversationId, agentSlug, versionId, confirm?)
  async mergeDeliverableVersions(conversationId, agentSlug, versionIds, mergePrompt, llmConfig?)
  async copyDeliverableVersion(conversationId, agentSlug, versionId, setCurrent?)
  async deleteDeliverable(conversationId, agentSlug, confirm)

  // CONVERSE mode
  async readConversation(conversationId, agentSlug, limit?, offset?, includeSystem?)
  async deleteConversation(conversationId, agentSlug, confirm, deleteArtifacts)
  async exportConversation(conversationId, agentSlug, format, includeArtifacts?)

  // TOOL mode (Phase 4)
  async executeTool(conversationId, agentSlug, toolName, input, timeoutMs?)
  async readToolResult(conversationId, agentSlug, executionId)
  async listToolExecutions(conversationId, agentSlug, toolName?, limit?, offset?)

  // ORCHESTRATE mode (Phase 6)
  async createOrchestration(conversationId, agentSlug, message, config?)
  async readOrchestration(conversationId, agentSlug, orchestrationId?)
  async listOrchestrations(conversationId, agentSlug, status?, limit?, offset?)
  async pauseOrchestration(conversationId, agentSlug)
  async resumeOrchestration(conversationId, agentSlug)
  async cancelOrchestration(conversationId, agentSlug, confirm?)
  async retryOrchestrationStep(conversationId, agentSlug, stepId)
  async deleteOrchestration(conversationId, agentSlug, confirm)
}
"""
