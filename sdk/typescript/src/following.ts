/** A stream of events that outlives its connections: nothing is lost, nothing comes twice. */

import { Agent2AgentError, NetworkError, isTransient } from "./errors.js";
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

/** Numbered is a frame whose id is its place in the log. */
export interface Numbered extends Frame {
  seq: number;
}

/** The frames of a log, up to the one that `isLast`, over as many connections as that takes. */
export class Following {
  readonly #http: Http;
  readonly #path: string;
  readonly #options: FollowOptions;
  readonly #isLast: (frame: Frame) => boolean;
  #seq: number;
  #failures = 0;

  constructor(http: Http, path: string, isLast: (frame: Frame) => boolean, options: FollowOptions) {
    this.#http = http;
    this.#path = path;
    this.#isLast = isLast;
    this.#options = options;
    this.#seq = options.lastEventId ?? 0;
  }

  async *frames(): AsyncGenerator<Numbered, void, undefined> {
    for (;;) {
      const broken = yield* this.#connection();
      if (broken === undefined) return;
      if (this.#failures >= (this.#options.retries ?? RETRIES) || !isTransient(broken)) throw broken;
      await this.#rest(Math.max(broken.retryAfterMs ?? 0, this.#http.delay(this.#failures++)));
    }
  }

  /** What one connection brings; returns why it broke, or nothing when it brought the last frame. */
  async *#connection(): AsyncGenerator<Numbered, Agent2AgentError | undefined, undefined> {
    const limit = new Limit(this.#options.signal, this.#options.silenceMs ?? SILENCE_MS, silent);
    try {
      const response = await this.#open(limit.signal);
      for await (const frame of this.#fresh(response, limit)) {
        yield frame;
        if (this.#isLast(frame)) return undefined;
      }
      return new NetworkError({ code: "NETWORK_ERROR", message: "The stream ended before the task did." });
    } catch (error) {
      if (error instanceof Agent2AgentError && !this.#options.signal?.aborted) return error;
      throw error;
    } finally {
      limit.end(true);
    }
  }

  async #open(signal: AbortSignal): Promise<Response> {
    const headers = { accept: "text/event-stream", "last-event-id": String(this.#seq) };
    const response = await this.#http.send({ method: "GET", path: this.#path, headers, repeatable: true }, signal);
    if (response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    const message = "The server answered with something that is not a stream of events.";
    throw new Agent2AgentError({ code: "INVALID_RESPONSE", message, status: response.status });
  }

  /** Frames that were not there before. */
  async *#fresh(response: Response, limit: Limit): AsyncGenerator<Numbered, void, undefined> {
    const frames = new Frames();
    for await (const text of texts(response, limit)) {
      this.#failures = 0;
      for (const frame of frames.take(text)) {
        const seq = Number(frame.id);
        if (!(seq > this.#seq)) continue;
        this.#seq = seq;
        yield { ...frame, seq };
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
