import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent2AgentAPI, NetworkError, type ConnectionOptions } from "../src/index.js";
import { cut, json, local, stream, type Asked, type Local } from "./local.js";

const DONE = { taskId: "t", conversationId: "c", status: "completed", startedAt: "", completedAt: "", result: {} };

function api(at: Local, options: Partial<ConnectionOptions> = {}): Agent2AgentAPI {
  return new Agent2AgentAPI({ baseUrl: at.url, delayMs: () => 1, ...options });
}

function keys({ asked }: Local): unknown[] {
  return asked.map(({ headers }) => headers["idempotency-key"]);
}

function body(asked: Asked | undefined): unknown {
  return JSON.parse(asked?.body ?? "");
}

test("a call that changes something has a key, and keeps it when it is made again", async (context) => {
  const at = await local(context, cut, json(503, {}), json(200, DONE));
  await api(at).editPlan("c", "writer", "text");
  const [first, ...others] = keys(at);
  assert.match(String(first), /^[0-9a-f]{32}$/);
  assert.deepEqual(others, [first, first]);
  await api(at).editPlan("c", "writer", "text");
  assert.notEqual(keys(at)[3], first);
});

test("a key of one's own is used; without any nothing is tried twice", async (context) => {
  const at = await local(context, cut);
  const mine = api(at, { retries: 1 }).editPlan("c", "a", "text", undefined, { idempotencyKey: "mine" });
  await assert.rejects(mine, NetworkError);
  const none = api(at).createPlan("c", "a", "text", false, { idempotencyKey: null });
  await assert.rejects(none, NetworkError);
  assert.deepEqual(keys(at), ["mine", "mine", undefined]);
});

test("a call that reads needs no key to be made again", async (context) => {
  const at = await local(context, cut, json(200, DONE));
  await api(at).readPlan("c", "writer");
  assert.deepEqual(keys(at), [undefined, undefined]);
});

test("arguments are named as the contract has them, and what is left out is not sent", async (context) => {
  const at = await local(context, json(200, DONE));
  await api(at).createDeliverable("a/b c", "writer", undefined, "v1", undefined, { respondAsync: true });
  await api(at).mergePlanVersions("c", "writer", ["v1", "v2"], "Shorter.", { temperature: 0 });
  const [first, second] = at.asked;
  assert.equal(first?.path, "/api/agent2agent/conversations/a%2Fb%20c/tasks");
  assert.equal(first?.headers["prefer"], "respond-async");
  assert.deepEqual(body(first), { mode: "build", action: "create", agentSlug: "writer", planVersionId: "v1" });
  assert.equal(second?.headers["prefer"], undefined);
  assert.deepEqual(body(second), {
    mode: "plan", action: "merge_versions", agentSlug: "writer", versionIds: ["v1", "v2"], mergePrompt: "Shorter.",
    llmConfig: { temperature: 0 },
  });
});

test("a conversation is begun once, however often that is asked for", async (context) => {
  const begun = { ...DONE, result: { conversation: { id: "c" } } };
  const at = await local(context, cut, json(201, begun));
  assert.deepEqual(await api(at).createConversation("writer"), { id: "c" });
  assert.deepEqual(body(at.asked[0]), body(at.asked[1]));
  await api(at).createConversation("writer", { id: "mine" });
  assert.deepEqual(body(at.asked[2]), { agentSlug: "writer", id: "mine" });
});

test("a task that failed is thrown where it was asked for, and told where it was read", async (context) => {
  const failed = { ...DONE, status: "failed", error: { code: "TASK_CANCELED", message: "Canceled." } };
  const at = await local(context, json(200, failed));
  const canceled = { name: "ExecutionError", code: "TASK_CANCELED", taskId: "t" };
  await assert.rejects(api(at).createPlan("c", "writer", "text"), canceled);
  assert.equal((await api(at).readTask("t")).status, "failed");
});

test("what was made and is gone again is not found; what a read does not find is null", async (context) => {
  const at = await local(context, json(200, { ...DONE, result: null }));
  const gone = { name: "NotFoundError", code: "VERSION_NOT_FOUND" };
  await assert.rejects(api(at).createPlan("c", "writer", "text"), gone);
  assert.equal((await api(at).readPlan("c", "writer")).result, null);
});

test("what is no task is not taken for one", async (context) => {
  const at = await local(context, json(200, {}), stream(["id: 1\ndata: hello\n\n"]));
  await assert.rejects(api(at).readPlan("c", "writer"), { code: "INVALID_RESPONSE" });
  await assert.rejects(api(at).events("t").next(), { code: "INVALID_RESPONSE" });
});

test("a task that goes on is awaited, and what it fails with is thrown", async (context) => {
  const running = { taskId: "t", conversationId: "c", status: "running", startedAt: "" } as const;
  const last = (task: object): string => `id: 3\ndata: ${JSON.stringify({ type: "task", task })}\n\n`;
  const first = 'id: 1\ndata: {"type":"status","taskId":"t","status":"pending"}\n\n';
  const good = await local(context, stream([first], "cut"), stream([last(DONE)]));
  assert.deepEqual(await api(good).completed(running), DONE);
  const failed = { ...DONE, status: "failed", error: { code: "LLM_EXECUTION_FAILED", message: "Broken." } };
  const bad = await local(context, stream([last(failed)]));
  const expected = { name: "ExecutionError", code: "LLM_EXECUTION_FAILED", taskId: "t", status: 0 };
  await assert.rejects(api(bad).completed(running), expected);
});

test("methods carry their names", () => {
  assert.equal(Agent2AgentAPI.prototype.createPlan.name, "createPlan");
});

test("the compiler knows what a method takes and gives", () => {
  async function neverCalled(api: Agent2AgentAPI): Promise<void> {
    const plan = await api.createPlan("c", "writer", "text", true, { timeoutMs: 1 });
    if (plan.status === "completed") plan.result.plan.id satisfies string;
    (await api.completed(plan)).result.version.versionNumber satisfies number;
    (await api.readPlan("c", "writer")).result?.currentVersion.content satisfies string | undefined;
    (await api.editPlan("c", "writer", "text")).result.version.id satisfies string;
    // @ts-expect-error -- a plan needs a message
    await api.createPlan("c", "writer");
    // @ts-expect-error -- versions are named by their ids
    await api.setCurrentPlanVersion("c", "writer", 2);
    // @ts-expect-error -- one that is still worked on has no result yet
    plan.result.plan;
    // @ts-expect-error -- there may be no plan
    (await api.readPlan("c", "writer")).result.plan;
    // @ts-expect-error -- no such format
    await api.exportConversation("c", "writer", "doc");
  }
  assert.ok(neverCalled);
});
