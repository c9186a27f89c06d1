/** How long to wait, and when to stop waiting. */

const FIRST_DELAY_MS = 250;
const LONGEST_DELAY_MS = 8_000;

/** The pause before attempt `attempt + 1`: twice as long each time, of which half is chance, so that clients spread. */
export function backoff(attempt: number, chance: number = Math.random()): number {
  const whole = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt);
  return whole / 2 + (chance * whole) / 2;
}

/** Milliseconds that a `Retry-After` asks for, which is a number of seconds or a date. */
export function retryAfter(header: string | null, now: number = Date.now()): number | undefined {
  if (header === null) return undefined;
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** Resolves after some time; rejects with the signal's reason as soon as it is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
  });
}

/**
 * One signal out of the caller's and a time limit. `AbortSignal.any` is missing in the first releases of Node 20, and
 * this one can be put back: the limit of a stream starts anew with each byte.
 */
export class Limit {
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #ms: number | undefined;
  readonly #late: () => unknown;
  readonly #follow = (): void => this.#controller.abort(this.#caller?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(caller: AbortSignal | undefined, ms: number | undefined, late: () => unknown) {
    this.#caller = caller;
    this.#ms = ms;
    this.#late = late;
    if (caller?.aborted) this.#follow();
    caller?.addEventListener("abort", this.#follow, { once: true });
    this.restart();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  restart(): void {
    this.stop();
    if (this.#ms === undefined || this.signal.aborted) return;
    this.#timer = setTimeout(() => this.#controller.abort(this.#late()), this.#ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Forget the caller's signal and the clock; with `abort` also end what still goes on under this signal. */
  end(abort = false): void {
    this.stop();
    this.#caller?.removeEventListener("abort", this.#follow);
    if (abort) this.#controller.abort();
  }
}
