import assert from "node:assert/strict";
import { test } from "node:test";

import { backoff, pause, retryAfter } from "../src/timing.js";

test("pauses double up to a bound, and half of each is chance", () => {
  const shortest = [0, 1, 2, 3, 4, 5, 9].map((attempt) => backoff(attempt, 0));
  const longest = [0, 1, 2, 3, 4, 5, 9].map((attempt) => backoff(attempt, 1));
  assert.deepEqual(shortest, [125, 250, 500, 1000, 2000, 4000, 4000]);
  assert.deepEqual(longest, [250, 500, 1000, 2000, 4000, 8000, 8000]);
});

test("Retry-After is a number of seconds or a date", () => {
  assert.equal(retryAfter("2"), 2000);
  assert.equal(retryAfter(new Date(90_000).toUTCString(), 60_000), 30_000);
  assert.equal(retryAfter(new Date(0).toUTCString(), 60_000), 0);
  assert.equal(retryAfter("soon"), undefined);
  assert.equal(retryAfter(null), undefined);
});

test("a pause ends with the reason of an abort", async () => {
  const reason = new Error("enough");
  await assert.rejects(pause(60_000, AbortSignal.abort(reason)), reason);
  const controller = new AbortController();
  const paused = pause(60_000, controller.signal);
  controller.abort(reason);
  await assert.rejects(paused, reason);
});
