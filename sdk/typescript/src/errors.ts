/** Everything that can go wrong, by code. */

import type { Envelope, Fault } from "./types.js";

/** What this package itself finds: no connection, no answer in time, an answer that is not the contract's. */
export type OwnCode = "NETWORK_ERROR" | "TIMEOUT" | "INVALID_RESPONSE";

/** Known codes, for completion and `switch`; a newer server may send others. */
export type ErrorCode = Fault["code"] | OwnCode | (string & {});

export interface Failure {
  code: ErrorCode;
  message: string;
  status?: number;
  details?: unknown;
  taskId?: string | undefined;
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** The ground of all of them: catch this one and look at `code`, or catch a kind. */
export class Agent2AgentError extends Error {
  // Written out for each: those who shorten names of classes would shorten these too.
  override name = "Agent2AgentError";
  readonly code: ErrorCode;
  /** Of the answer that said so; 0 when no answer did, but the connection, the clock or a task's last event. */
  readonly status: number;
  readonly details: unknown;
  readonly taskId: string | undefined;
  /** How long the server asked to wait. */
  readonly retryAfterMs: number | undefined;

  constructor(failure: Failure) {
    super(failure.message, failure.cause === undefined ? undefined : { cause: failure.cause });
    this.code = failure.code;
    this.status = failure.status ?? 0;
    this.details = failure.details;
    this.taskId = failure.taskId;
    this.retryAfterMs = failure.retryAfterMs;
  }
}

/** The request is not as the contract has it. */
export class InvalidRequestError extends Agent2AgentError {
  override name = "InvalidRequestError";
}
/** Credentials are missing or not good. */
export class UnauthorizedError extends Agent2AgentError {
  override name = "UnauthorizedError";
}
/** The agent does not offer this, or it is not for this caller. */
export class ForbiddenError extends Agent2AgentError {
  override name = "ForbiddenError";
}
/** There is no such conversation, agent, plan, deliverable, version or task. */
export class NotFoundError extends Agent2AgentError {
  override name = "NotFoundError";
}
/** It cannot be done in this state, or the idempotency key stands for another request. */
export class ConflictError extends Agent2AgentError {
  override name = "ConflictError";
}
/** It was begun and came to nothing: a model, a tool or the store failed, or the task was canceled or rejected. */
export class ExecutionError extends Agent2AgentError {
  override name = "ExecutionError";
}
/** Too many requests, or nobody there to take them: later it may work. */
export class UnavailableError extends Agent2AgentError {
  override name = "UnavailableError";
}
/** The server was not reached, or the connection broke. */
export class NetworkError extends Agent2AgentError {
  override name = "NetworkError";
}
/** `timeoutMs` passed. What the server began goes on there. */
export class TimeoutError extends Agent2AgentError {
  override name = "TimeoutError";
}

type Kind = new (failure: Failure) => Agent2AgentError;

const BY_CODE: Record<Fault["code"], Kind> = {
  INVALID_MODE: InvalidRequestError,
  INVALID_ACTION: InvalidRequestError,
  INVALID_REQUEST: InvalidRequestError,
  MISSING_REQUIRED_PARAM: InvalidRequestError,
  METHOD_NOT_ALLOWED: InvalidRequestError,
  PAYLOAD_TOO_LARGE: InvalidRequestError,
  UNSUPPORTED_MEDIA_TYPE: InvalidRequestError,
  STALE_CURSOR: InvalidRequestError,
  UNAUTHORIZED: UnauthorizedError,
  FORBIDDEN: ForbiddenError,
  CAPABILITY_NOT_FOUND: ForbiddenError,
  NOT_FOUND: NotFoundError,
  AGENT_NOT_FOUND: NotFoundError,
  CONVERSATION_NOT_FOUND: NotFoundError,
  DELIVERABLE_NOT_FOUND: NotFoundError,
  EXECUTION_NOT_FOUND: NotFoundError,
  ORCHESTRATION_NOT_FOUND: NotFoundError,
  PLAN_NOT_FOUND: NotFoundError,
  STEP_NOT_FOUND: NotFoundError,
  TASK_NOT_FOUND: NotFoundError,
  TOOL_NOT_FOUND: NotFoundError,
  VERSION_NOT_FOUND: NotFoundError,
  INVALID_STATE: ConflictError,
  STALE_VERSION: ConflictError,
  DATABASE_ERROR: ExecutionError,
  INTERNAL_ERROR: ExecutionError,
  LLM_EXECUTION_FAILED: ExecutionError,
  TASK_CANCELED: ExecutionError,
  TASK_REJECTED: ExecutionError,
  TOOL_EXECUTION_FAILED: ExecutionError,
  RATE_LIMITED: UnavailableError,
  UNAVAILABLE: UnavailableError,
};

const BUSY = new Set([429, 502, 503, 504]);

/** What a proxy, or a newer server, answers is known by its status. */
function byStatus(status: number): Kind {
  if (status === 401) return UnauthorizedError;
  if (status === 403) return ForbiddenError;
  if (status === 404) return NotFoundError;
  if (status === 409) return ConflictError;
  if (BUSY.has(status)) return UnavailableError;
  return status >= 500 ? ExecutionError : InvalidRequestError;
}

/** The error of its kind. */
export function errorOf(failure: Failure & { status: number }): Agent2AgentError {
  const kinds: Record<string, Kind | undefined> = BY_CODE;
  return new (kinds[failure.code] ?? byStatus(failure.status))(failure);
}

/** The error of a task that was not asked for but read. */
export function failureOf({ taskId, error }: Envelope): Agent2AgentError {
  const said = error ?? { code: "INTERNAL_ERROR", message: "The task failed and does not say why." };
  return errorOf({ ...said, taskId, status: 0 });
}

/** Whether the same request may work a little later. */
export function isTransient(error: unknown): boolean {
  return error instanceof NetworkError || (error instanceof Agent2AgentError && BUSY.has(error.status));
}
