/** What the tests of streams share. */

import type { Numbered, TaskStreamEvent } from "../../src/index.js";

export type Seen = Numbered<TaskStreamEvent>[];

/** Takes the offline model a second to repeat. */
export const LONG = Array.from({ length: 40 }, (_, number) => `word${number}`).join(" ");

export async function all(events: AsyncIterable<Numbered<TaskStreamEvent>>): Promise<Seen> {
  const seen: Seen = [];
  for await (const event of events) seen.push(event);
  return seen;
}

/** The answer as a reader puts it together. */
export function text(events: TaskStreamEvent[]): string {
  return events.reduce((before, one) => (one.type === "text" ? (one.reset ? "" : before) + one.text : before), "");
}
