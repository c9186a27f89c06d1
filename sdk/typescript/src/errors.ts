/** Everything that can go wrong, by code. */

import type { ErrorCode as ContractCode } from "./types.js";

/** What this package itself finds: no connection, no answer in time, an answer that is not the contract's. */
export type OwnCode = "NETWORK_ERROR" | "TIMEOUT" | "INVALID_RESPONSE";

/** Known codes, for completion and `switch`; a newer server may send others. */
export type ErrorCode = ContractCode | OwnCode | (string & {});

export interface Fault {
  code: ErrorCode;
  message: string;
  /** The HTTP status; 0 when there was no answer. */
  status?: number;
  details?: unknown;
  taskId?: string | undefined;
  /** How long the server asked to wait. */
  retryAfterMs?: number | undefined;
  cause?: unknown;
}

/** The ground of all of them: catch this one and look at `code`, or catch a kind. */
export class Agent2AgentError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly details: unknown;
  readonly taskId: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(fault: Fault) {
    super(fault.message, fault.cause === undefined ? undefined : { cause: fault.cause });
    this.name = new.target.name;
    this.code = fault.code;
    this.status = fault.status ?? 0;
    this.details = fault.details;
    this.taskId = fault.taskId;
    this.retryAfterMs = fault.retryAfterMs;
  }
}

/** The request is not as the contract has it (400). */
export class InvalidRequestError extends Agent2AgentError {}
/** Credentials are missing or not good (401). */
export class UnauthorizedError extends Agent2AgentError {}
/** The agent does not offer this, or it is not for this caller (403). */
export class ForbiddenError extends Agent2AgentError {}
/** There is no such conversation, agent, plan, deliverable, version or task (404). */
export class NotFoundError extends Agent2AgentError {}
/** It cannot be done in this state, or the idempotency key stands for something else (409). */
export class ConflictError extends Agent2AgentError {}
/** The agent, its model or the store failed (5xx). */
export class ExecutionError extends Agent2AgentError {}
/** Too many requests, or nobody is there to take them (429, 502, 503, 504): later it may work. */
export class UnavailableError extends Agent2AgentError {}
/** The server was not reached, or the connection broke. */
export class NetworkError extends Agent2AgentError {}
/** `timeoutMs` passed. What the server began goes on there. */
export class TimeoutError extends Agent2AgentError {}

const BY_STATUS: Record<number, typeof Agent2AgentError> = {
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  409: ConflictError,
  429: UnavailableError,
  502: UnavailableError,
  503: UnavailableError,
  504: UnavailableError,
};

/** The error of a kind that its status tells. */
export function errorOf(fault: Fault & { status: number }): Agent2AgentError {
  const kind = BY_STATUS[fault.status] ?? (fault.status >= 500 ? ExecutionError : InvalidRequestError);
  return new kind(fault);
}

/** Whether the same request may work a little later. */
export function isTransient(error: unknown): boolean {
  return error instanceof NetworkError || error instanceof UnavailableError;
}
