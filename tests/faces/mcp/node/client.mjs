// The official client of MCP 2025-11-25: does what its arguments say, and prints what came of it as JSON.
//   client.mjs URL (call TOOL MESSAGE [ANSWER] | get TASK | result TASK [ANSWER] | list | cancel TASK)

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema, TaskStatusNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, what, ...given] = process.argv.slice(2);
const answer = { call: given[2], result: given[1] }[what];
const capabilities = answer === undefined ? {} : { elicitation: { form: {} } };
const client = new Client({ name: "test", version: "1" }, { capabilities });
const asked = [];
const told = [];
if (answer !== undefined) {
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params);
    return answer === "no" ? { action: "decline" } : { action: "accept", content: JSON.parse(answer) };
  });
}
client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => { told.push(params.status); });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const tasks = client.experimental.tasks;

async function done() {
  switch (what) {
    case "call": {
      const messages = [];
      await client.listTools();
      const params = { name: given[0], arguments: { message: given[1] } };
      for await (const message of tasks.callToolStream(params, CallToolResultSchema, { task: { ttl: 60_000 } })) {
        messages.push(message.error ? { type: "error", error: message.error.message } : message);
      }
      return messages;
    }
    case "get": return tasks.getTask(given[0]);
    case "result": return tasks.getTaskResult(given[0], CallToolResultSchema);
    case "list": return tasks.listTasks();
    case "cancel": return tasks.cancelTask(given[0]);
  }
}

let reply;
try {
  reply = await done();
} catch (error) {
  reply = { error: error.message, code: error.code };
}
console.log(JSON.stringify({ reply, asked, told, capabilities: client.getServerCapabilities() }));
await client.close();
