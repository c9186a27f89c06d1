// A chat with an agent over AG-UI: `?agent=SLUG` names the agent, `?server=URL` its server.

import { ParleyAgent } from "./agent.js";

const query = new URLSearchParams(location.search);
const slug = query.get("agent") ?? "chat";
const server = query.get("server") ?? "http://127.0.0.1:8200";
const remembered = JSON.parse(localStorage.getItem(slug) ?? "{}");
const agent = new ParleyAgent({ url: `${server}/agents/${slug}/agui`, threadId: remembered.thread });
const find = (id) => document.getElementById(id);
let question = null;
let turn = 0;

agent.subscribe({
  onRunStartedEvent: () => {
    localStorage.setItem(slug, JSON.stringify({ thread: agent.threadId, task: agent.task }));
    ask(null);
  },
  onMessagesChanged: ({ messages }) => find("messages").replaceChildren(...messages.filter(shown).map(item)),
  onCustomEvent: ({ event }) => {
    if (event.name === "parley.question") ask(event.value);
    if (event.name === "parley.artifact") find("artifacts").append(entry(event.value));
  },
  onStateChanged: ({ state }) => { find("state").textContent = JSON.stringify(state); },
  onRunErrorEvent: ({ event }) => { if (event.code !== "abort") find("trouble").textContent = event.message; },
});

const shown = (message) => typeof message.content === "string" && message.content !== "";

function item(message) {
  const made = document.createElement("li");
  made.className = message.role;
  made.textContent = message.content;
  return made;
}

function entry(artifact) {
  const made = document.createElement("li");
  made.textContent = `${artifact.name ?? artifact.artifactId}: ${JSON.stringify(artifact.parts)}`;
  return made;
}

// Shows the buttons of a question with choices; any other question is answered in the text field.
function ask(asked) {
  question = asked;
  find("choices").replaceChildren(...(asked?.choices ?? []).map((choice) => {
    const button = document.createElement("button");
    button.textContent = choice;
    button.onclick = () => go(() => answer(choice));
    return button;
  }));
}

function answer(payload) {
  const resume = [{ interruptId: question.id, status: "resolved", payload }];
  return agent.runAgent({ resume });
}

function say(text) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  return agent.runAgent();
}

// Runs one thing at a time; afterwards follows the task, because its question may be answered elsewhere.
async function go(work) {
  const mine = ++turn;
  agent.abortRun();
  await agent.detachActiveRun();
  find("trouble").textContent = "";
  try {
    await work();
    while (question && mine === turn) await agent.follow(agent.task);
  } catch (error) {
    if (mine === turn) find("trouble").textContent = error.message;
  }
}

find("agent").textContent = slug;
find("form").onsubmit = (event) => {
  event.preventDefault();
  const text = find("text").value;
  find("form").reset();
  go(() => (question ? answer(text) : say(text)));
};
find("send").disabled = false;
if (remembered.task) go(() => agent.follow(remembered.task));
