/** Conversations against a real server. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { NotFoundError } from "../../src/index.js";
import { api, begun, done } from "./given.js";

// Each has a conversation of its own.
describe("conversations", { concurrency: true }, () => {
  test("createConversation begins one, or finds the one of that name", async () => {
    const id = `mine-${crypto.randomUUID()}`;
    const first = await api().createConversation("chat", { id });
    assert.deepEqual([first.id, first.agentName], [id, "chat"]);
    assert.deepEqual(await api().createConversation("chat", { id }), first);
  });

  test("readConversation pages through its messages, the oldest first", async () => {
    const conversation = await begun();
    done(await api().createPlan(conversation, "chat", "A lighthouse."));
    const { result } = await api().readConversation(conversation, "chat");
    assert.equal(result.conversation.id, conversation);
    assert.deepEqual(result.messages.map(({ role }) => role).slice(0, 2), ["user", "assistant"]);
    const page = (await api().readConversation(conversation, "chat", 1, 0, true)).result;
    assert.equal(page.messages.length, 1);
    assert.equal(page.hasMore, page.total > 1);
  });

  for (const format of ["json", "markdown", "pdf", "html"] as const) {
    test(`exportConversation makes a file of type ${format} that can be fetched`, async () => {
      const conversation = await begun();
      done(await api().createPlan(conversation, "chat", "A lighthouse."));
      const { result } = await api().exportConversation(conversation, "chat", format, true);
      assert.deepEqual([result.format, result.metadata.artifactsIncluded > 0], [format, true]);
      const file = await (await fetch(result.exportUrl)).arrayBuffer();
      assert.equal(file.byteLength, result.fileSize);
    });
  }

  test("deleteConversation deletes it with its artifacts", async () => {
    const conversation = await begun();
    done(await api().createPlan(conversation, "chat", "A lighthouse."));
    const { result } = await api().deleteConversation(conversation, "chat", true, true);
    assert.equal(result.deletedConversationId, conversation);
    assert.deepEqual(result.artifactsDeleted, { plans: 1, deliverables: 0 });
    await assert.rejects(api().readConversation(conversation, "chat"), NotFoundError);
  });
});
