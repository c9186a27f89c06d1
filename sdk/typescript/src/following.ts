/** A stream of events that outlives its connections: nothing is lost, nothing comes twice. */

import { Agent2AgentError, NetworkError } from "./errors.js";
import { reached, type Http } from "./http.js";
import { Frames, type Frame } from "./sse.js";
import { Limit, pause } from "./timing.js";

const RETRIES = 10;
const SILENCE_MS = 15_000;

export interface FollowOptions {
  /** Go on after this event; 0, and nothing given, begin with the first. */
  lastEventId?: number | undefined;
  signal?: AbortSignal | undefined;
  /** How often in a row a connection may fail, or end, without a sign of life; 10, which is about a minute. */
  retries?: number | undefined;
  /** After how long without a sign of life a connection counts as broken; 15 s. The server gives one every 3 s. */
  silenceMs?: number | undefined;
}

/** What is followed: where it is, how its events read, and when it is over. */
export interface Source<Event> {
  path: string;
  read(frame: Frame, seq: number): Event;
  isLast(event: Event): boolean;
  /** Asked when a stream ended well and brought nothing: it was at its end, or the server was stopped. */
  isOver(signal: AbortSignal): Promise<boolean>;
}

/** The events of a log, up to the last one, over as many connections as that takes. */
export class Following<Event> {
  readonly #http: Http;
  readonly #source: Source<Event>;
  readonly #options: FollowOptions;
  #seq: number;
  #failures = 0;
  #over = false;

  constructor(http: Http, source: Source<Event>, options: FollowOptions) {
    this.#http = http;
    this.#source = source;
    this.#options = options;
    this.#seq = options.lastEventId ?? 0;
  }

  async *events(): AsyncGenerator<Event, void, undefined> {
    for (;;) {
      const broken = yield* this.#connection();
      if (broken === undefined) return;
      await this.#rest(this.#http.wait(broken, this.#failures++, this.#options.retries ?? RETRIES));
    }
  }

  /** What one connection brings; returns why it broke, or nothing when nothing can follow. */
  async *#connection(): AsyncGenerator<Event, Agent2AgentError | undefined, undefined> {
    const limit = new Limit(this.#options.signal, this.#options.silenceMs ?? SILENCE_MS, silent);
    const before = this.#seq;
    try {
      const response = await this.#open(limit.signal);
      for await (const event of this.#fresh(response, limit)) {
        yield event;
        if (this.#source.isLast(event)) return undefined;
      }
      if (this.#seq === before && (await this.#ended(limit))) return undefined;
      return new NetworkError({ code: "NETWORK_ERROR", message: "The stream ended before the task did." });
    } catch (error) {
      if (error instanceof Agent2AgentError && !this.#options.signal?.aborted) return error;
      throw error;
    } finally {
      limit.end(true);
    }
  }

  /** Only a stream that was opened after the end, and brought nothing, proves that there is nothing more. */
  async #ended(limit: Limit): Promise<boolean> {
    const proven = this.#over;
    limit.restart();
    this.#over ||= await this.#source.isOver(limit.signal);
    return proven;
  }

  async #open(signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    // Without a cursor a task whose log is forgotten still tells how it ended.
    if (this.#seq > 0) headers["last-event-id"] = String(this.#seq);
    const { path } = this.#source;
    const response = await this.#http.send({ method: "GET", path, headers, repeatable: true }, signal);
    if (response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    const message = "The server answered with something that is not a stream of events.";
    throw new Agent2AgentError({ code: "INVALID_RESPONSE", message, status: response.status });
  }

  /** What was not there before. */
  async *#fresh(response: Response, limit: Limit): AsyncGenerator<Event, void, undefined> {
    const frames = new Frames();
    for await (const text of texts(response, limit)) {
      this.#failures = 0;
      for (const frame of frames.take(text)) {
        const seq = Number(frame.id);
        if (!(seq > this.#seq)) continue;
        this.#seq = seq;
        yield this.#source.read(frame, seq);
      }
    }
  }

  #rest(ms: number): Promise<void> {
    return pause(ms, this.#options.signal ?? new AbortController().signal);
  }
}

/** The text of a body as it comes. The clock stands still while the reader is busy with what it got. */
async function* texts(response: Response, limit: Limit): AsyncGenerator<string, void, undefined> {
  const reader = (response.body ?? new ReadableStream<Uint8Array>()).getReader();
  const decoder = new TextDecoder();
  for (;;) {
    limit.restart();
    const { done, value } = await reached(reader.read(), limit.signal);
    limit.stop();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}

function silent(): NetworkError {
  return new NetworkError({ code: "NETWORK_ERROR", message: "Nothing came over the connection any more." });
}
