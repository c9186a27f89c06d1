/** Plans and deliverables against a real server, method by method. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { NotFoundError, type DocumentVersion } from "../../src/index.js";
import { api, begun, done } from "./given.js";

type Numbers = Pick<DocumentVersion, "versionNumber" | "createdByType" | "isCurrent">;

function numbers({ versionNumber, createdByType, isCurrent }: DocumentVersion): Numbers {
  return { versionNumber, createdByType, isCurrent };
}

// Each has a conversation of its own.
describe("plans and deliverables", { concurrency: true }, () => {
  test("createPlan writes a plan and then refines it", async () => {
    const conversation = await begun();
    const first = done(await api().createPlan(conversation, "chat", "# Lisbon\nThree days."));
    assert.equal(first.conversationId, conversation);
    assert.equal(first.result.plan.currentVersionId, first.result.version.id);
    assert.deepEqual(numbers(first.result.version), {
      versionNumber: 1, createdByType: "conversation_task", isCurrent: true,
    });
    assert.match(first.result.version.content, /Lisbon/);
    const second = done(await api().createPlan(conversation, "chat", "Four days.", true));
    assert.equal(second.result.plan.id, first.result.plan.id);
    assert.equal(second.result.version.versionNumber, 2);
  });

  test("readPlan finds nothing, the current version, or another", async () => {
    const conversation = await begun();
    assert.equal((await api().readPlan(conversation, "chat")).result, null);
    const { version } = done(await api().createPlan(conversation, "chat", "One.")).result;
    await api().editPlan(conversation, "chat", "Two.");
    assert.equal((await api().readPlan(conversation, "chat")).result?.currentVersion.content, "Two.");
    assert.equal((await api().readPlan(conversation, "chat", version.id)).result?.currentVersion.id, version.id);
  });

  test("listPlanVersions pages through them, the newest first", async () => {
    const conversation = await begun();
    done(await api().createPlan(conversation, "chat", "One."));
    await api().editPlan(conversation, "chat", "Two.");
    const all = (await api().listPlanVersions(conversation, "chat")).result;
    assert.deepEqual([all.total, all.hasMore, all.versions.map((one) => one.versionNumber)], [2, false, [2, 1]]);
    const page = (await api().listPlanVersions(conversation, "chat", 1, 0)).result;
    assert.deepEqual([page.total, page.hasMore, page.versions.length], [2, true, 1]);
    assert.equal(page.versions[0]?.contentPreview, "Two.");
  });

  test("editPlan keeps what somebody wrote", async () => {
    const conversation = await begun();
    done(await api().createPlan(conversation, "chat", "One."));
    const { version } = (await api().editPlan(conversation, "chat", "By hand: ä 🌍", "Shorter.")).result;
    assert.deepEqual(numbers(version), { versionNumber: 2, createdByType: "manual_edit", isCurrent: true });
    assert.equal(version.content, "By hand: ä 🌍");
  });

  test("create and edit refuse a write that expects another version, and take a format", async () => {
    const conversation = await begun();
    const first = done(await api().createPlan(conversation, "chat", "One.", false, { format: "text" })).result.version;
    assert.equal(first.format, "text");
    const expectedVersionId = first.id;
    const second = (await api().editPlan(conversation, "chat", "Two.", undefined, { expectedVersionId })).result.version;
    assert.equal(second.metadata["basedOn"], first.id);
    const stale = { name: "ConflictError", code: "STALE_VERSION", status: 409 };
    await assert.rejects(api().editPlan(conversation, "chat", "Three.", undefined, { expectedVersionId }), stale);
    await assert.rejects(api().createPlan(conversation, "chat", "Three.", false, { expectedVersionId }), stale);
    done(await api().createDeliverable(conversation, "chat", "One.", undefined, true, { format: "html" }));
    const build = api().createDeliverable(conversation, "chat", "Two.", undefined, true, { expectedVersionId });
    await assert.rejects(build, stale);
  });

  test("setCurrentPlanVersion goes back, deletePlanVersion deletes what is not current", async () => {
    const conversation = await begun();
    const first = done(await api().createPlan(conversation, "chat", "One.")).result.version;
    const second = (await api().editPlan(conversation, "chat", "Two.")).result.version;
    const pointed = (await api().setCurrentPlanVersion(conversation, "chat", first.id)).result;
    assert.deepEqual(
      [pointed.previousVersionId, pointed.newVersionId, pointed.plan.currentVersionId],
      [second.id, first.id, first.id],
    );
    const deleted = (await api().deletePlanVersion(conversation, "chat", second.id, true)).result;
    assert.deepEqual(deleted, { success: true, deletedVersionId: second.id, remainingVersionCount: 1 });
  });

  test("mergePlanVersions makes one of two, with a model of one's choice", async () => {
    const conversation = await begun();
    const first = done(await api().createPlan(conversation, "chat", "One.")).result.version;
    const second = (await api().editPlan(conversation, "chat", "Two.")).result.version;
    const ids = [first.id, second.id];
    const merged = done(await api().mergePlanVersions(conversation, "chat", ids, "Keep both.", { model: "offline" }));
    assert.deepEqual(numbers(merged.result.version), {
      versionNumber: 3, createdByType: "merge_operation", isCurrent: true,
    });
    const { mergedFrom, mergePrompt } = merged.result.version.metadata;
    assert.deepEqual([mergedFrom, mergePrompt], [ids, "Keep both."]);
  });

  test("copyPlanVersion copies, and makes it current if told so", async () => {
    const conversation = await begun();
    const first = done(await api().createPlan(conversation, "chat", "One.")).result.version;
    const aside = (await api().copyPlanVersion(conversation, "chat", first.id)).result.version;
    assert.deepEqual(numbers(aside), { versionNumber: 2, createdByType: "copy_operation", isCurrent: false });
    const copy = (await api().copyPlanVersion(conversation, "chat", first.id, true)).result.version;
    assert.deepEqual([copy.content, copy.isCurrent], [first.content, true]);
  });

  test("deletePlan deletes all of it", async () => {
    const conversation = await begun();
    const { plan } = done(await api().createPlan(conversation, "chat", "One.")).result;
    await api().editPlan(conversation, "chat", "Two.");
    const { result } = await api().deletePlan(conversation, "chat", true);
    assert.deepEqual(result, { success: true, deletedPlanId: plan.id, versionsDeleted: 2 });
    assert.equal((await api().readPlan(conversation, "chat")).result, null);
    await assert.rejects(api().listPlanVersions(conversation, "chat"), NotFoundError);
  });

  test("createDeliverable builds from a plan without a message, or from a message", async () => {
    const conversation = await begun();
    const plan = done(await api().createPlan(conversation, "chat", "A lighthouse.")).result.version;
    const built = done(await api().createDeliverable(conversation, "chat", undefined, plan.id)).result;
    assert.equal(built.deliverable.currentVersionId, built.version.id);
    assert.match(built.version.content, /lighthouse/);
    const refined = done(await api().createDeliverable(conversation, "chat", "Higher.", undefined, false)).result;
    assert.deepEqual([refined.deliverable.id, refined.version.versionNumber], [built.deliverable.id, 2]);
  });

  test("readDeliverable and listDeliverableVersions", async () => {
    const conversation = await begun();
    assert.equal((await api().readDeliverable(conversation, "chat")).result, null);
    const { deliverable, version } = done(await api().createDeliverable(conversation, "chat", "One.")).result;
    const current = (await api().readDeliverable(conversation, "chat")).result;
    assert.deepEqual(current, { deliverable, currentVersion: version });
    const read = (await api().readDeliverable(conversation, "chat", version.id)).result;
    assert.equal(read?.currentVersion.id, version.id);
    const list = (await api().listDeliverableVersions(conversation, "chat", 10, 0)).result;
    assert.deepEqual([list.deliverableId, list.total, list.versions[0]?.id], [deliverable.id, 1, version.id]);
  });

  test("editDeliverable, setCurrentDeliverableVersion and deleteDeliverableVersion", async () => {
    const conversation = await begun();
    const first = done(await api().createDeliverable(conversation, "chat", "One.")).result.version;
    const second = (await api().editDeliverable(conversation, "chat", "Two.", "Why not.")).result.version;
    assert.equal(second.createdByType, "manual_edit");
    const pointed = (await api().setCurrentDeliverableVersion(conversation, "chat", first.id)).result;
    assert.equal(pointed.deliverable.currentVersionId, first.id);
    const deleted = (await api().deleteDeliverableVersion(conversation, "chat", second.id)).result;
    assert.deepEqual([deleted.deletedVersionId, deleted.remainingVersionCount], [second.id, 1]);
  });

  test("rerunDeliverable asks again, of another model, with more to say", async () => {
    const conversation = await begun();
    const first = done(await api().createDeliverable(conversation, "chat", "A lighthouse.")).result.version;
    const config = { model: "offline", temperature: 0.5, maxTokens: 40 };
    const again = done(await api().rerunDeliverable(conversation, "chat", first.id, config, "In red."));
    assert.equal(again.result.version.createdByType, "llm_rerun");
    const { rerunFrom, rerunConfig } = again.result.version.metadata;
    assert.deepEqual([rerunFrom, rerunConfig], [first.id, config]);
    assert.equal(done(await api().rerunDeliverable(conversation, "chat")).result.version.versionNumber, 3);
  });

  test("mergeDeliverableVersions, copyDeliverableVersion and deleteDeliverable", async () => {
    const conversation = await begun();
    const { deliverable, version } = done(await api().createDeliverable(conversation, "chat", "One.")).result;
    const copy = (await api().copyDeliverableVersion(conversation, "chat", version.id, true)).result.version;
    assert.equal(copy.createdByType, "copy_operation");
    const merged = done(await api().mergeDeliverableVersions(conversation, "chat", [version.id, copy.id], "Both."));
    assert.equal(merged.result.version.createdByType, "merge_operation");
    const { result } = await api().deleteDeliverable(conversation, "chat", true);
    assert.deepEqual(result, { success: true, deletedDeliverableId: deliverable.id, versionsDeleted: 3 });
  });
});
