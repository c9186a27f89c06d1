/** Tools against a real server, and a real server of tools. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Agent2AgentError, ExecutionError, NotFoundError } from "../../src/index.js";
import { api, begun } from "./given.js";

const AGENT = "supabase-agent";
const TOOL = "supabase-query";
const query = { table: "financial_transactions", select: ["amount"], where: { date_gte: "2025-01-01" } };

// Each has a conversation of its own.
describe("tools", { concurrency: true }, () => {
  test("executeTool calls a tool, and readToolResult finds what came of it", async () => {
    const conversation = await begun(AGENT);
    const { result, taskId } = await api().executeTool(conversation, AGENT, TOOL, { query }, 20_000);
    assert.equal(result.toolName, TOOL);
    assert.deepEqual(result.metadata, { executionId: taskId, mcpServer: "supabase-mcp", rowsReturned: 6 });
    const { execution } = (await api().readToolResult(conversation, AGENT, taskId)).result;
    assert.deepEqual([execution.status, execution.input, execution.output], ["completed", { query }, result.output]);
  });

  test("a tool that fails is an error that says where to read of it", async () => {
    const conversation = await begun(AGENT);
    const failed = await api()
      .executeTool(conversation, AGENT, TOOL, { query: { table: "nothing" } })
      .then(() => assert.fail("It did not fail."), (error: unknown) => error);
    assert.ok(failed instanceof ExecutionError);
    assert.equal(failed.code, "TOOL_EXECUTION_FAILED");
    assert.match(failed.message, /There is no table/);
    const { executionId } = failed.details as { executionId: string };
    const { execution } = (await api().readToolResult(conversation, AGENT, executionId)).result;
    assert.equal(execution.status, "failed");
  });

  test("listToolExecutions shows the latest first", async () => {
    const conversation = await begun(AGENT);
    await api().executeTool(conversation, AGENT, TOOL, { query });
    const latest = await api().executeTool(conversation, AGENT, TOOL, { query: { ...query, limit: 1 } });
    const { result } = await api().listToolExecutions(conversation, AGENT, TOOL, 1);
    assert.deepEqual(result.executions.map(({ id }) => id), [latest.taskId]);
    assert.deepEqual([result.total, result.hasMore], [2, true]);
  });

  test("what is not there is not found", async () => {
    const conversation = await begun(AGENT);
    await assert.rejects(api().executeTool(conversation, AGENT, "dance", {}), NotFoundError);
    const read = api().readToolResult(conversation, AGENT, "none");
    await assert.rejects(read, (error: Agent2AgentError) => error.code === "EXECUTION_NOT_FOUND");
  });
});
