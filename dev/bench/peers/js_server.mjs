// The JavaScript SDK of A2A serving a trivial agent, set up the way its documentation shows.

import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const { values: given } = parseArgs({
  options: { port: { type: "string" }, packages: { type: "string" }, database: { type: "string" } },
});
const require = createRequire(`${given.packages}/package.json`);
const { default: express } = await import(require.resolve("express"));
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = await import(require.resolve("@a2a-js/sdk/server"));
const { UserBuilder, jsonRpcHandler } = await import(require.resolve("@a2a-js/sdk/server/express"));
const { Role, TaskState } = await import(require.resolve("@a2a-js/sdk"));

const text = (value) => ({ content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "" });
const status = (state) => ({ state, message: undefined, timestamp: new Date().toISOString() });

const hello = {
  async execute(context, bus) {
    const { taskId, contextId, userMessage } = context;
    const update = (state) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state) }));
    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: status(TaskState.TASK_STATE_SUBMITTED),
        artifacts: [],
        history: [userMessage],
        metadata: undefined,
      }),
    );
    update(TaskState.TASK_STATE_WORKING);
    bus.publish(
      AgentEvent.artifactUpdate({
        taskId,
        contextId,
        artifact: {
          artifactId: randomUUID(), name: "", description: "", parts: [text("hello")], metadata: undefined, extensions: [],
        },
        append: false,
        lastChunk: true,
        metadata: undefined,
      }),
    );
    update(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  },
  async cancelTask() {},
};

const card = {
  name: "hello",
  description: "Answers hello.",
  version: "1.0.0",
  supportedInterfaces: [
    { url: `http://127.0.0.1:${given.port}/`, protocolBinding: "JSONRPC", tenant: "", protocolVersion: "1.0" },
  ],
  provider: undefined,
  capabilities: { streaming: true, pushNotifications: false, extensions: [] },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ["text/plain"],
  defaultOutputModes: ["text/plain"],
  skills: [],
  signatures: [],
};

// SQLite with a write-ahead log, and every commit on disk before it is answered.
async function sqlite(path) {
  const tool = require.resolve("@a2a-js/sdk").replace(/dist.*/, "dist/cli/a2a_db.js");
  execFileSync(process.execPath, [tool, "upgrade", "--url", `sqlite:${path}`], { cwd: given.packages, stdio: "ignore" });
  const { default: Database } = await import(require.resolve("better-sqlite3"));
  const { Kysely, SqliteDialect } = await import(require.resolve("kysely"));
  const { DatabaseTaskStore } = await import(require.resolve("@a2a-js/sdk/server/database"));
  const database = new Database(path);
  database.pragma("journal_mode = WAL");
  database.pragma("synchronous = FULL");
  return new DatabaseTaskStore(new Kysely({ dialect: new SqliteDialect({ database }) }));
}

const store = given.database ? await sqlite(given.database) : new InMemoryTaskStore();
const requestHandler = new DefaultRequestHandler(card, store, hello);
const app = express();
app.use("/", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(given.port), "127.0.0.1");
process.on("SIGTERM", () => process.exit(0));
