/** What a real server refuses, by kind and code. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import * as sdk from "../../src/index.js";
import { api, begun, done } from "./given.js";

type Kind = new (...given: never[]) => sdk.Agent2AgentError;

async function refused(work: Promise<unknown>, kind: Kind, code: sdk.ErrorCode, status: number): Promise<unknown> {
  let details: unknown;
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof kind, String(error));
    assert.deepEqual([error.code, error.status], [code, status]);
    assert.ok(error.taskId);
    details = error.details;
    return true;
  });
  return details;
}

// Each has a conversation of its own.
describe("errors", { concurrency: true }, () => {
  test("what is not there", async () => {
    const conversation = await begun();
    await refused(api().editPlan(conversation, "chat", "x"), sdk.NotFoundError, "PLAN_NOT_FOUND", 404);
    await refused(api().deleteDeliverable(conversation, "chat", true), sdk.NotFoundError, "DELIVERABLE_NOT_FOUND", 404);
    await refused(api().readPlan(conversation, "chat", "none"), sdk.NotFoundError, "VERSION_NOT_FOUND", 404);
    await refused(api().readPlan("no-such", "chat"), sdk.NotFoundError, "CONVERSATION_NOT_FOUND", 404);
    await refused(api().readPlan(conversation, "nobody"), sdk.NotFoundError, "AGENT_NOT_FOUND", 404);
    await refused(api().readTask("none"), sdk.NotFoundError, "TASK_NOT_FOUND", 404);
    await refused(api().events("none").next(), sdk.NotFoundError, "TASK_NOT_FOUND", 404);
  });

  test("what is not as it must be", async () => {
    const conversation = await begun();
    for (const work of [api().deletePlan(conversation, "chat", false), api().createPlan(conversation, "chat", "")]) {
      await refused(work, sdk.InvalidRequestError, "MISSING_REQUIRED_PARAM", 400);
    }
  });

  test("what the agent does not offer", async () => {
    const conversation = await begun("reader");
    const work = api().mergePlanVersions(conversation, "reader", ["a", "b"], "Both.");
    const details = (await refused(work, sdk.ForbiddenError, "CAPABILITY_NOT_FOUND", 403)) as Record<string, unknown>;
    assert.deepEqual(
      [details["agentSlug"], details["requestedCapability"]],
      ["reader", "merge_plan_versions"],
    );
  });

  test("what cannot be done as things are", async () => {
    const conversation = await begun();
    const { version } = done(await api().createPlan(conversation, "chat", "One.")).result;
    const current = api().deletePlanVersion(conversation, "chat", version.id);
    await refused(current, sdk.ConflictError, "INVALID_STATE", 409);
    await api().editPlan(conversation, "chat", "Two.", undefined, { idempotencyKey: "once" });
    const other = api().editPlan(conversation, "chat", "Three.", undefined, { idempotencyKey: "once" });
    await refused(other, sdk.ConflictError, "INVALID_STATE", 409);
  });

  test("what an agent fails at, also when it was not waited for", async () => {
    const conversation = await begun("broken");
    const work = api().createPlan(conversation, "broken", "Try.");
    await refused(work, sdk.ExecutionError, "LLM_EXECUTION_FAILED", 500);
    const task = await api().createPlan(conversation, "broken", "Try again.", false, { respondAsync: true });
    await refused(api().completed(task), sdk.ExecutionError, "LLM_EXECUTION_FAILED", 0);
    const { status, error } = await api().readTask(task.taskId);
    assert.deepEqual([status, error?.code], ["failed", "LLM_EXECUTION_FAILED"]);
  });

  test("who has no good key", async () => {
    await refused(api({ apiKey: "wrong" }).readPlan("c", "chat"), sdk.UnauthorizedError, "UNAUTHORIZED", 401);
    await refused(api({ apiKey: undefined }).createConversation("chat"), sdk.UnauthorizedError, "UNAUTHORIZED", 401);
  });
});
