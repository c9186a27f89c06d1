/** Servers that die and come back. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { all, LONG, type Seen } from "./following.js";
import { api, begun, given } from "./given.js";

test("a stream goes on when its server is killed, and when it is stopped", async () => {
  const conversation = await begun();
  const task = await api().createPlan(conversation, "chat", LONG, false, { respondAsync: true });
  const seen: Seen = [];
  for await (const event of api({ delayMs: () => 100 }).events(task.taskId, { retries: 100 })) {
    seen.push(event);
    const way = { 6: "kill", 12: "stop" }[seen.length];
    if (way) await fetch(`${given("PARLEY_RESTART")}/${way}`, { method: "POST" });
  }
  assert.ok(seen.length > 12);
  assert.deepEqual(seen, await all(api().events(task.taskId)));
  const last = seen.at(-1);
  assert.ok(last?.type === "task" && last.task.status === "completed");
});
