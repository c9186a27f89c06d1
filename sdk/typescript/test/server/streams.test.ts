/** Tasks that nobody waits for, and connections that break. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { NetworkError, TimeoutError } from "../../src/index.js";
import { all, LONG, text, type Seen } from "./following.js";
import { api, begun, done, URL_OF_SERVER } from "./given.js";
import { Proxy } from "./proxy.js";

// Each has a conversation of its own.
describe("streams", { concurrency: true }, () => {
  test("a call whose answer is lost is made again and done once", async (context) => {
    const proxy = await Proxy.before(context, URL_OF_SERVER);
    const flaky = api({ baseUrl: proxy.url, delayMs: () => 10 });
    const conversation = await begun();
    proxy.answersToCut = 2;
    const plan = done(await flaky.createPlan(conversation, "chat", "One."));
    proxy.cut();
    proxy.answersToCut = 1;
    await flaky.editPlan(conversation, "chat", "Two.");
    proxy.cut();
    proxy.answersToCut = 3;
    const { versions } = (await flaky.listPlanVersions(conversation, "chat")).result;
    assert.deepEqual(versions.map(({ versionNumber }) => versionNumber), [2, 1]);
    assert.equal(versions[1]?.id, plan.result.version.id);
    assert.ok(proxy.connections >= 9);
  });

  test("without a key a call whose answer is lost is not made again", async (context) => {
    const proxy = await Proxy.before(context, URL_OF_SERVER);
    const conversation = await begun();
    proxy.answersToCut = 1;
    const lost = api({ baseUrl: proxy.url }).createPlan(conversation, "chat", "One.", false, { idempotencyKey: null });
    await assert.rejects(lost, NetworkError);
    assert.equal((await api().listPlanVersions(conversation, "chat")).result.total, 1);
  });

  test("a task that nobody waits for is followed to its end", async () => {
    const conversation = await begun();
    const task = await api().createPlan(conversation, "chat", LONG, false, { respondAsync: true });
    assert.equal(task.status, "pending");
    const events = await all(api().events(task.taskId));
    assert.deepEqual(events.map(({ id }) => id), [...new Set(events.map(({ id }) => id))].sort((a, b) => a - b));
    const last = events.at(-1);
    assert.ok(last?.type === "task" && last.task.status === "completed");
    const { result } = await api().completed(task);
    assert.equal(text(events), result.version.content);
    assert.deepEqual((await api().readTask(task.taskId)).result, result);
    assert.deepEqual(await all(api().events(task.taskId, { lastEventId: 2 })), events.filter(({ id }) => id > 2));
    assert.deepEqual(await all(api().events(task.taskId, { lastEventId: last.id })), []);
  });

  test("connections that break lose nothing and repeat nothing", async (context) => {
    const proxy = await Proxy.before(context, URL_OF_SERVER);
    const conversation = await begun();
    const task = await api().createPlan(conversation, "chat", LONG, false, { respondAsync: true });
    const seen: Seen = [];
    for await (const event of api({ baseUrl: proxy.url, delayMs: () => 10 }).events(task.taskId)) {
      seen.push(event);
      if (event.type === "text" && seen.length % 5 === 0) proxy.cut();
    }
    assert.ok(proxy.connections > 2);
    assert.deepEqual(seen, await all(api().events(task.taskId)));
  });

  test("a question is told, and the task stays open", async () => {
    const conversation = await begun("asker");
    const task = await api().createPlan(conversation, "asker", "Begin.");
    assert.deepEqual([task.status, task.result], ["running", { question: "Which colour?", needs: "input" }]);
    for await (const event of api().events(task.taskId)) {
      if (event.type === "question") return assert.equal(event.question, "Which colour?");
    }
    assert.fail("There was no question.");
  });

  test("an abort and a time limit end the call, not the task", async () => {
    const conversation = await begun("sleeper");
    const controller = new AbortController();
    const reason = new Error("never mind");
    const idempotencyKey = crypto.randomUUID();
    const { signal } = controller;
    const waiting = api().createPlan(conversation, "sleeper", "Sleep.", false, { signal, idempotencyKey });
    setTimeout(() => controller.abort(reason), 200);
    await assert.rejects(waiting, reason);
    const late = api().createPlan(conversation, "sleeper", "Sleep.", false, { timeoutMs: 200, idempotencyKey });
    await assert.rejects(late, TimeoutError);
    const later = { respondAsync: true, idempotencyKey };
    const task = await api().createPlan(conversation, "sleeper", "Sleep.", false, later);
    assert.equal(task.status, "running");
    const events = api().events(task.taskId, { signal: AbortSignal.timeout(200) });
    await assert.rejects(all(events), { name: "TimeoutError" });
  });
});
