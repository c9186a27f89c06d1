/** Server-sent events as the HTML standard reads them. */

export interface Frame {
  /** The last id so far; an event without one of its own repeats it. */
  id: string;
  event: string;
  data: string;
}

/**
 * Takes text in whatever pieces it comes and gives the events that are complete. What a broken connection cut off is
 * never given: it comes whole when the stream is resumed.
 */
export class Frames {
  #rest: string[] = [];
  #id = "";
  #event = "";
  #data: string[] = [];

  *take(text: string): Generator<Frame> {
    this.#rest.push(text);
    // A long line comes in many pieces, which are put together once.
    if (!/[\r\n]/.test(text) && !this.#rest.at(-2)?.endsWith("\r")) return;
    const whole = this.#rest.join("");
    let start = 0;
    // A carriage return at the very end may be the first half of a line break.
    for (const found of whole.matchAll(/\r\n|\n|\r(?!$)/g)) {
      const frame = this.#line(whole.slice(start, found.index));
      if (frame) yield frame;
      start = found.index + found[0].length;
    }
    this.#rest = [whole.slice(start)];
  }

  #line(line: string): Frame | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #dispatch(): Frame | undefined {
    const frame = { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") };
    const empty = this.#data.length === 0;
    this.#event = "";
    this.#data = [];
    return empty ? undefined : frame;
  }
}
