/** The client. */

import { actions, type Further, type Key, type Manner, type Result, type Row } from "./actions.js";
import { Agent2AgentError, NotFoundError, failureOf } from "./errors.js";
import { Following, type FollowOptions, type Source } from "./following.js";
import { Http, decoded, type Call, type ConnectionOptions } from "./http.js";
import type { ConversationBegun, ConversationShown, Envelope, TaskStreamEvent, Waiting } from "./types.js";

const PREFIX = "/api/agent2agent";

export interface WaitOptions {
  /** Ends the call with the signal's reason. What the server began goes on there. */
  signal?: AbortSignal | undefined;
  /** How long the call may take with all its attempts. */
  timeoutMs?: number | undefined;
}

export interface BeginOptions extends WaitOptions {
  /** What the conversation is to be called. */
  id?: string | undefined;
}

export interface CallOptions extends WaitOptions {
  /**
   * The same key leads to the same task. One is made up for each call that changes something; null sends none, and then
   * a call that broke off is not made again.
   */
  idempotencyKey?: string | null | undefined;
  /** Be answered as soon as the task is kept, while an agent works on it. */
  respondAsync?: boolean | undefined;
}

type Told = Pick<Envelope, "taskId" | "conversationId" | "startedAt" | "metadata">;

/** A task that is done. */
export interface Completed<R> extends Told {
  status: "completed";
  result: R;
  completedAt: string;
}

/** A task that somebody still works on; one with a `result` waits for the answer to a question. */
export interface Unfinished<R> extends Told {
  status: "pending" | "running";
  result?: Waiting;
  /** Never there: it only says what the result will be. */
  readonly [expected]?: R;
}

declare const expected: unique symbol;

/** What a call is answered with; a task that failed is thrown. */
export type Task<R> = Completed<R> | Unfinished<R>;

/** An event of a task, and its number in the task's log. */
export type Numbered<Event> = Event & { id: number };
export type Events = AsyncGenerator<Numbered<TaskStreamEvent>, void, undefined>;

type Answer<K extends Key, M extends Manner> = M extends "works" ? Task<Result<K, M>> : Completed<Result<K, M>>;
type Method<R> = R extends Row<infer K, infer Given, infer M>
  ? (
      conversationId: string, agentSlug: string, ...given: [...Given, options?: CallOptions & Further<K>]
    ) => Promise<Answer<K, M>>
  : never;
type Methods = { [Name in keyof typeof actions]: Method<(typeof actions)[Name]> };

/** The methods of the table. They are put on the class below, so that there is one line for each and not three. */
export interface Agent2AgentAPI extends Methods {}

/** Plans, deliverables and conversations of agents. */
export class Agent2AgentAPI {
  readonly #http: Http;

  constructor(options: ConnectionOptions) {
    this.#http = new Http(options);
  }

  /** Begins a conversation with an agent. An `id` of one's own finds the conversation again. */
  async createConversation(agentSlug: string, options: BeginOptions = {}): Promise<ConversationShown> {
    // With an id it is begun once, however often it is asked for.
    const { id = newKey(), signal, timeoutMs } = options;
    const path = `${PREFIX}/conversations`;
    const call = { method: "POST", path, body: { agentSlug, id }, repeatable: true, signal, timeoutMs } as const;
    return (successOf(await this.#task(call)) as Completed<ConversationBegun>).result.conversation;
  }

  /** What has become of a task; one that failed is told, not thrown. */
  async readTask(taskId: string, { signal, timeoutMs }: WaitOptions = {}): Promise<Envelope> {
    const path = `${PREFIX}/tasks/${encodeURIComponent(taskId)}`;
    return this.#task({ method: "GET", path, repeatable: true, signal, timeoutMs });
  }

  /**
   * What happens to a task, from its first event, or after `lastEventId`, to its last, which is of type `task`. Broken
   * connections and restarts of the server are bridged: nothing is lost, nothing comes twice.
   */
  async *events(taskId: string, options: FollowOptions = {}): Events {
    const source: Source<Numbered<TaskStreamEvent>> = {
      path: `${PREFIX}/tasks/${encodeURIComponent(taskId)}/stream`,
      read: (frame, id) => ({ id, ...(decoded(frame.data, 200) as TaskStreamEvent) }),
      isLast: (event) => event.type === "task",
      isOver: async (signal) => isEnded(await this.readTask(taskId, { signal })),
    };
    yield* new Following(this.#http, source, options).events();
  }

  /** The task when it is done, however long that takes; its error is thrown. */
  async completed<R>(task: Task<R>, options: FollowOptions = {}): Promise<Completed<R>> {
    if (task.status === "completed") return task;
    for await (const event of this.events(task.taskId, options)) {
      if (event.type === "task") return made(successOf(event.task)) as Completed<R>;
    }
    return made(successOf(await this.readTask(task.taskId, options))) as Completed<R>;
  }

  async #act(row: Row<Key, unknown[], Manner>, given: unknown[]): Promise<Task<unknown>> {
    const [conversationId, agentSlug, ...rest] = given as [string, string, ...unknown[]];
    const [mode, action] = row.key.split(".");
    // As many as the row names, given or not; then the options.
    const count = row.params.length;
    const options = rest[count] as (CallOptions & Further<"plan.create">) | undefined;
    const { expectedVersionId, format } = options ?? {};
    const body = { mode, action, agentSlug, expectedVersionId, format, ...row.params(...rest.slice(0, count)) };
    const path = `/conversations/${encodeURIComponent(conversationId)}/tasks`;
    return this.#post(path, body, row.manner, options);
  }

  async #post<R>(path: string, body: object, manner: Manner, options: CallOptions = {}): Promise<Task<R>> {
    const { signal, timeoutMs, respondAsync } = options;
    const key = options.idempotencyKey === undefined && manner !== "reads" ? newKey() : options.idempotencyKey;
    const headers: Record<string, string> = {};
    if (key) headers["idempotency-key"] = key;
    if (respondAsync) headers["prefer"] = "respond-async";
    const repeatable = manner === "reads" || Boolean(key);
    const call = { method: "POST", path: PREFIX + path, body, headers, repeatable, signal, timeoutMs } as const;
    const task = successOf(await this.#task(call));
    return (manner === "reads" ? task : made(task)) as Task<R>;
  }

  async #task(call: Call): Promise<Envelope> {
    const task = (await this.#http.json(call)) as Envelope | null;
    if (typeof task?.taskId === "string" && typeof task.status === "string") return task;
    const message = "The server answered with something that is no task.";
    throw new Agent2AgentError({ code: "INVALID_RESPONSE", message });
  }

  static {
    for (const [name, row] of Object.entries(actions) as [string, Row<Key, unknown[], Manner>][]) {
      const method = { [name](this: Agent2AgentAPI, ...given: unknown[]) { return this.#act(row, given); } }[name];
      Object.defineProperty(this.prototype, name, { value: method, writable: true, configurable: true });
    }
  }
}

function isEnded(task: Envelope): boolean {
  return task.status === "completed" || task.status === "failed";
}

function successOf(task: Envelope): Envelope {
  if (task.status === "failed") throw failureOf(task);
  return task;
}

/** The same call again, by its key, may come after somebody has deleted what it made. */
function made(task: Envelope): Envelope {
  if (task.status !== "completed" || task.result != null) return task;
  const message = "What this task made has been deleted since.";
  throw new NotFoundError({ code: "VERSION_NOT_FOUND", message, taskId: task.taskId });
}

/** Not `randomUUID`, which browsers offer only to pages that came over HTTPS. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
