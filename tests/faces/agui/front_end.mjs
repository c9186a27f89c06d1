// A front end with @ag-ui/client: does what its arguments say, and prints what came of it as JSON.
//   front_end.mjs URL THREAD (say TEXT [RUN] | ask TEXT ANSWER | follow TASK | tool TEXT RESULT)

import { ParleyAgent } from "../../../examples/agui/src/agent.js";

const [url, threadId, what, ...given] = process.argv.slice(2);
const events = [];
const agent = new ParleyAgent({ url, threadId, retry: 50, initialState: { zoom: 3 } });
agent.subscribe({
  onEvent: ({ event }) => {
    events.push(event);
    if (process.env.TOLD) console.log(`${event.type} ${event.delta ?? ""}`);
  },
});
const say = (content) => agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
const tools = [{ name: "show_map", description: "Shows a map.", parameters: { type: "object" } }];

switch (what) {
  case "say":
    say(given[0]);
    await agent.runAgent({ runId: given[1] });
    break;
  case "ask":
    say(given[0]);
    await agent.runAgent();
    await agent.runAgent({ resume: [{ interruptId: agent.pendingInterrupts[0].id, status: "resolved", payload: given[1] }] });
    break;
  case "follow":
    await agent.follow(given[0]);
    break;
  case "tool": {
    say(given[0]);
    await agent.runAgent({ tools });
    const called = events.find((event) => event.type === "TOOL_CALL_START");
    agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: called.toolCallId, content: given[1] });
    await agent.runAgent({ tools });
    break;
  }
}
const { messages, state, task, lastEventId, pendingInterrupts } = agent;
console.log(JSON.stringify({ events, messages, state, task, lastEventId, pendingInterrupts }));
