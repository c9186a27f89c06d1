/** Orchestrations against a real server: a workflow of two steps, the second of which waits for the first. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ConflictError, NotFoundError } from "../../src/index.js";
import { all } from "./following.js";
import { api, begun, done } from "./given.js";

const AGENT = "flow";
const SLEEPS = "sleepy-flow";

/** How a task ends that is followed to its end. */
async function ending(taskId: string): Promise<string | undefined> {
  const last = (await all(api().events(taskId))).at(-1);
  return last?.type === "task" ? last.task.status : undefined;
}

// Each has a conversation of its own.
describe("orchestrations", { concurrency: true }, () => {
  test("createOrchestration begins one that can be followed, read and listed", async () => {
    const conversation = await begun(AGENT);
    const { orchestration } = done(await api().createOrchestration(conversation, AGENT, "Say it.")).result;
    assert.deepEqual(orchestration.plan.steps.map(({ stepId }) => stepId), ["first", "second"]);
    assert.equal(await ending(orchestration.id), "completed");
    const read = (await api().readOrchestration(conversation, AGENT, orchestration.id)).result.orchestration;
    assert.deepEqual([read.status, read.completedSteps], ["completed", 2]);
    const { result } = await api().listOrchestrations(conversation, AGENT, "completed", 1);
    assert.deepEqual([result.orchestrations[0]?.id, result.total], [orchestration.id, 1]);
    const deleted = (await api().deleteOrchestration(conversation, AGENT, true)).result;
    assert.equal(deleted.deletedOrchestrationId, orchestration.id);
    await assert.rejects(api().readOrchestration(conversation, AGENT), NotFoundError);
  });

  test("pause, resume and cancel steer it", async () => {
    const conversation = await begun(SLEEPS);
    const { orchestration } = done(await api().createOrchestration(conversation, SLEEPS, "Sleep.")).result;
    assert.equal((await api().pauseOrchestration(conversation, SLEEPS)).result.status, "paused");
    assert.equal((await api().resumeOrchestration(conversation, SLEEPS)).result.status, "running");
    await assert.rejects(api().deleteOrchestration(conversation, SLEEPS, true), ConflictError);
    const { result } = await api().cancelOrchestration(conversation, SLEEPS, true, orchestration.id);
    assert.deepEqual([result.status, result.cancelledSteps], ["cancelled", 1]);
  });

  test("retryOrchestrationStep tries a step that failed", async () => {
    const conversation = await begun("broken-flow");
    const { orchestration } = done(await api().createOrchestration(conversation, "broken-flow", "Break.")).result;
    assert.equal(await ending(orchestration.id), "failed");
    const { result } = await api().retryOrchestrationStep(conversation, "broken-flow", "only");
    assert.deepEqual([result.orchestrationId, result.step.retryCount], [orchestration.id, 1]);
  });
});
