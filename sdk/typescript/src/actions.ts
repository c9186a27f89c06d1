/** The actions of the contract, one row each: the methods of the client are made of them. */

import type { Actions } from "./types.js";

export type Key = keyof Actions;

/** What a read finds may be nothing. What was made and is gone again is an error to who asked for it. */
export type Result<K extends Key, M extends Manner> = M extends "reads"
  ? Actions[K]["result"]
  : NonNullable<Actions[K]["result"]>;

type Widened<T> = {
  [Name in keyof T]: T[Name] extends true | null | undefined ? boolean | Exclude<T[Name], true> : T[Name];
};

/** What a request has beside mode, action and agent. That a `confirm` must be true is for the server to say. */
export type Params<K extends Key> = Widened<Omit<Actions[K]["request"], "mode" | "action" | "agentSlug" | "metadata">>;

/** What creating and editing a document take beside the parameters of the contract; they are given as options. */
export type Further<K extends Key> = K extends "plan.create" | "build.create"
  ? Pick<Actions[K]["request"], "expectedVersionId" | "format">
  : K extends "plan.edit" | "build.edit"
    ? Pick<Actions[K]["request"], "expectedVersionId">
    : unknown;

/**
 * How an action is asked for.
 * - `reads` changes nothing, so it can always be asked again;
 * - `writes` is done at once;
 * - `works` takes an agent and its time, and may be answered before it is done.
 */
export type Manner = "reads" | "writes" | "works";

export interface Row<K extends Key, Given extends unknown[], M extends Manner> {
  key: K;
  manner: M;
  params: (...given: Given) => Params<K>;
}

function row<M extends Manner>(manner: M) {
  return function <K extends Key, G extends unknown[]>(key: K, params: (...given: G) => Params<K>): Row<K, G, M> {
    return { key, manner, params };
  };
}

const [reads, writes, works] = [row("reads"), row("writes"), row("works")];

type Llm = Actions["plan.merge_versions"]["request"]["llmConfig"];
type Rerun = Actions["build.rerun"]["request"]["rerunConfig"];
type Orchestrating = Actions["orchestrate.create"]["request"]["config"];
type Ended = Actions["orchestrate.list"]["request"]["status"];
type Format = Actions["converse.export_conversation"]["request"]["format"];

// What plans and deliverables are asked with alike.
const any = (versionId?: string) => ({ versionId });
const one = (versionId: string) => ({ versionId });
const page = (limit?: number, offset?: number) => ({ limit, offset });
const edited = (editedContent: string, editNotes?: string) => ({ editedContent, editNotes });
const removed = (versionId: string, confirm?: boolean) => ({ versionId, confirm });
const merged = (versionIds: string[], mergePrompt: string, llmConfig?: Llm) => ({ versionIds, mergePrompt, llmConfig });
const copied = (versionId: string, setCurrent?: boolean) => ({ versionId, setCurrent });
const confirmed = (confirm: boolean) => ({ confirm });

const planned = (message: string, forceNew?: boolean) => ({ message, forceNew });
const built = (message?: string, planVersionId?: string, forceNew?: boolean) => ({ message, planVersionId, forceNew });
const rerun = (sourceVersionId?: string, rerunConfig?: Rerun, message?: string) => {
  return { sourceVersionId, rerunConfig, message };
};
const messages = (limit?: number, offset?: number, includeSystem?: boolean) => ({ limit, offset, includeSystem });
const forgotten = (confirm: boolean, deleteArtifacts: boolean) => ({ confirm, deleteArtifacts });
const exported = (format: Format, includeArtifacts?: boolean) => ({ format, includeArtifacts });
const executed = (toolName: string, input: Record<string, unknown>, timeoutMs?: number) => {
  return { toolName, input, timeoutMs };
};
const execution = (executionId: string) => ({ executionId });
const executions = (toolName?: string, limit?: number, offset?: number) => ({ toolName, limit, offset });
const orchestrated = (message: string, config?: Orchestrating) => ({ message, config });
const which = (orchestrationId?: string) => ({ orchestrationId });
const answered = (taskId: string, message: string) => ({ taskId, message });
const replied = (message: string, stepId?: string, orchestrationId?: string) => ({ message, stepId, orchestrationId });
const runs = (status?: Ended, limit?: number, offset?: number) => ({ status, limit, offset });
const canceled = (confirm?: boolean, orchestrationId?: string) => ({ confirm, orchestrationId });
const retried = (stepId: string, orchestrationId?: string) => ({ stepId, orchestrationId });
const dropped = (confirm: boolean, orchestrationId?: string) => ({ confirm, orchestrationId });

export const actions = {
  /** Writes a plan, or refines the one there is; with `forceNew` without looking at it. */
  createPlan: works("plan.create", planned),
  /** Answers the question of a task that waits, which then writes the plan. */
  answerPlan: works("plan.create", answered),
  /** The current version of the plan, or another; null when there is no plan. */
  readPlan: reads("plan.read", any),
  /** The versions of the plan, the newest first. */
  listPlanVersions: reads("plan.list", page),
  /** Makes what somebody wrote the current version of the plan. */
  editPlan: writes("plan.edit", edited),
  /** Makes another version of the plan the current one. */
  setCurrentPlanVersion: writes("plan.set_current", one),
  /** Deletes a version of the plan that is not the current one. */
  deletePlanVersion: writes("plan.delete_version", removed),
  /** Writes a new version of the plan out of two or more. */
  mergePlanVersions: works("plan.merge_versions", merged),
  /** Copies a version of the plan to a new one. */
  copyPlanVersion: writes("plan.copy_version", copied),
  /** Deletes the plan with all its versions; `confirm` must be true. */
  deletePlan: writes("plan.delete", confirmed),

  /** Builds the deliverable from the plan, the message or both, or refines the one there is. */
  createDeliverable: works("build.create", built),
  /** Answers the question of a task that waits, which then writes the deliverable. */
  answerDeliverable: works("build.create", answered),
  /** The current version of the deliverable, or another; null when there is no deliverable. */
  readDeliverable: reads("build.read", any),
  /** The versions of the deliverable, the newest first. */
  listDeliverableVersions: reads("build.list", page),
  /** Makes what somebody wrote the current version of the deliverable. */
  editDeliverable: writes("build.edit", edited),
  /** Asks again for what led to a version, perhaps of another model or with more to say. */
  rerunDeliverable: works("build.rerun", rerun),
  /** Makes another version of the deliverable the current one. */
  setCurrentDeliverableVersion: writes("build.set_current", one),
  /** Deletes a version of the deliverable that is not the current one. */
  deleteDeliverableVersion: writes("build.delete_version", removed),
  /** Writes a new version of the deliverable out of two or more. */
  mergeDeliverableVersions: works("build.merge_versions", merged),
  /** Copies a version of the deliverable to a new one. */
  copyDeliverableVersion: writes("build.copy_version", copied),
  /** Deletes the deliverable with all its versions; `confirm` must be true. */
  deleteDeliverable: writes("build.delete", confirmed),

  /** The messages of the conversation, the oldest first. */
  readConversation: reads("converse.read_conversation", messages),
  /** Deletes the conversation, with or without its plan and deliverable; `confirm` must be true. */
  deleteConversation: writes("converse.delete_conversation", forgotten),
  /** Makes a file of the conversation, at an address that works for a while. */
  exportConversation: reads("converse.export_conversation", exported),

  /** Calls a tool of the agent; what comes of it is kept under `metadata.executionId`. */
  executeTool: writes("tool.execute", executed),
  /** A call of a tool that has ended, well or not. */
  readToolResult: reads("tool.read", execution),
  /** The calls of the conversation that have ended, the latest first. */
  listToolExecutions: reads("tool.list", executions),

  /** Has the agent plan, and begins to carry the plan out; answers when there is one. */
  createOrchestration: works("orchestrate.create", orchestrated),
  /** How an orchestration stands; the current one of the conversation if none is named. */
  readOrchestration: reads("orchestrate.read", which),
  /** The orchestrations of the conversation, the newest first. */
  listOrchestrations: reads("orchestrate.list", runs),
  /** Lets no further step begin. */
  pauseOrchestration: writes("orchestrate.pause", which),
  /** Lets it go on. */
  resumeOrchestration: writes("orchestrate.resume", which),
  /** Answers the question of its checkpoint; with `stepId` that of a step, whose task waits. */
  answerOrchestration: writes("orchestrate.resume", replied),
  /** Ends it for good, with everything that it has under way. */
  cancelOrchestration: writes("orchestrate.cancel", canceled),
  /** Tries a failed step again, and goes on from there. */
  retryOrchestrationStep: writes("orchestrate.retry_step", retried),
  /** Deletes one that is not at work; `confirm` must be true. */
  deleteOrchestration: writes("orchestrate.delete", dropped),
};
