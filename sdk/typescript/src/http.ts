/** Requests, tried again where that is safe. */

import { Agent2AgentError, NetworkError, TimeoutError, errorOf, isTransient } from "./errors.js";
import { checkOptions } from "./options.js";
import { Limit, backoff, pause, retryAfter } from "./timing.js";

const RETRIES = 4;
const LONGEST_RETRY_AFTER_MS = 60_000;

export interface ConnectionOptions {
  /** Where the server is, such as `https://parley.example`; in a page also a path, or "" for its own server. */
  baseUrl: string;
  /** Sent as a bearer token; a function is asked before each request, so that tokens can be renewed. */
  apiKey?: string | (() => string | Promise<string>) | undefined;
  /** Sent with each request. */
  headers?: Record<string, string> | undefined;
  /** Another `fetch`, for cookies, proxies or tests. */
  fetch?: typeof globalThis.fetch | undefined;
  /** How often a request is tried again after it failed for a reason that may pass; 4. */
  retries?: number | undefined;
  /** The pause in milliseconds before each of these, counted from 0; it doubles from 250 ms up to 8 s, with chance. */
  delayMs?: ((attempt: number) => number) | undefined;
  /** How long a call may take with all its attempts; without it there is no limit but the server's. */
  timeoutMs?: number | undefined;
}

export interface Call {
  method: "GET" | "POST";
  path: string;
  headers?: Record<string, string>;
  body?: unknown;
  /** Whether doing it twice is doing it once. */
  repeatable: boolean;
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
}

export class Http {
  readonly #options: ConnectionOptions;
  readonly #base: string;

  constructor(options: ConnectionOptions) {
    // A wrong option is told here, and not taken for a server that cannot be reached.
    checkOptions(options);
    this.#options = options;
    this.#base = options.baseUrl.replace(/\/+$/, "");
  }

  /** The JSON of an answer with a status below 400, tried again as long as that may help and is safe. */
  async json(call: Call): Promise<unknown> {
    const ms = call.timeoutMs ?? this.#options.timeoutMs;
    let last: unknown;
    const limit = new Limit(call.signal, ms, () => tooLate(ms, last));
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          return await parsed(await this.send(call, limit.signal), limit.signal);
        } catch (error) {
          last = error;
          if (!call.repeatable) throw error;
          await pause(this.wait(error, attempt, this.#options.retries ?? RETRIES), limit.signal);
        }
      }
    } finally {
      limit.end();
    }
  }

  /** One attempt: an answer with a status below 400, its body yet unread. */
  async send(call: Call, signal: AbortSignal): Promise<Response> {
    const headers = { ...this.#options.headers, ...(await this.#credentials()), ...call.headers };
    const request: RequestInit = { method: call.method, headers, signal, cache: "no-store" };
    if (call.body !== undefined) {
      request.body = JSON.stringify(call.body);
      headers["content-type"] = "application/json";
    }
    const fetch = this.#options.fetch ?? globalThis.fetch;
    const response = await reached(fetch(this.#base + call.path, request), signal);
    if (response.status >= 400) throw await refusal(response, signal);
    return response;
  }

  async #credentials(): Promise<Record<string, string>> {
    const { apiKey } = this.#options;
    if (apiKey === undefined) return {};
    return { authorization: `Bearer ${typeof apiKey === "string" ? apiKey : await apiKey()}` };
  }

  /** How long to wait before the next attempt; throws the error when there is to be none. */
  wait(error: unknown, attempt: number, retries: number): number {
    if (attempt >= retries || !isTransient(error)) throw error;
    const asked = (error as Agent2AgentError).retryAfterMs ?? 0;
    if (asked > LONGEST_RETRY_AFTER_MS) throw error;
    return Math.max(asked, (this.#options.delayMs ?? backoff)(attempt));
  }
}

function tooLate(ms: number | undefined, cause: unknown): TimeoutError {
  return new TimeoutError({ code: "TIMEOUT", message: `There was no answer within ${ms} ms.`, cause });
}

/** What the network refuses is told as such; who aborted gets the reason that was given. */
export async function reached<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    if (signal.aborted) throw signal.reason;
    const message = "The server was not reached, or the connection broke.";
    throw new NetworkError({ code: "NETWORK_ERROR", message, cause });
  }
}

async function parsed(response: Response, signal: AbortSignal): Promise<unknown> {
  return decoded(await reached(response.text(), signal), response.status);
}

export function decoded(text: string, status: number): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message = "The server sent something that is not JSON.";
    throw new Agent2AgentError({ code: "INVALID_RESPONSE", message, status, cause });
  }
}

/** The error in an answer: the task's, if it is one, and else what the status says. */
async function refusal(response: Response, signal: AbortSignal): Promise<Agent2AgentError> {
  const { status } = response;
  const retryAfterMs = retryAfter(response.headers.get("retry-after"));
  const text = await reached(response.text(), signal);
  const task = taskIn(text);
  if (task !== undefined) return errorOf({ ...task.error, status, taskId: task.taskId, retryAfterMs });
  const message = `The server answered ${status} without a task.`;
  return errorOf({ code: "INVALID_RESPONSE", message, status, retryAfterMs });
}

interface FailedTask {
  taskId?: string;
  error: { code: string; message: string; details?: unknown };
}

function taskIn(text: string): FailedTask | undefined {
  try {
    const value = JSON.parse(text) as Partial<FailedTask> | null;
    return typeof value?.error?.code === "string" ? (value as FailedTask) : undefined;
  } catch {
    return undefined;
  }
}
