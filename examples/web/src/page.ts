/** A conversation with an agent that writes a plan: its messages, a box to say more, and the answer as it is written. */

import { Agent2AgentAPI, type Unfinished } from "@parley/agent2agent";

const asked = new URLSearchParams(location.search);
const agent = asked.get("agent") ?? "chat";
const api = new Agent2AgentAPI({ baseUrl: asked.get("server") ?? "http://127.0.0.1:8200" });

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** The conversation's id is in the address, so that the page can be reloaded or shared. */
async function conversation(): Promise<string> {
  if (!location.hash) location.hash = (await api.createConversation(agent)).id;
  return decodeURIComponent(location.hash.slice(1));
}

async function show(id: string): Promise<void> {
  const { messages } = (await api.readConversation(id, agent)).result;
  element("messages").replaceChildren(
    ...messages.map(({ role, content }) => Object.assign(document.createElement("li"), { className: role, textContent: content })),
  );
  const plan = (await api.readPlan(id, agent)).result;
  if (!plan) return;
  element("version").textContent = `version ${plan.currentVersion.versionNumber}`;
  element("plan").textContent = plan.currentVersion.content;
}

/** What is under way is kept in the browser: a page that is loaded again goes on with it, from its first event. */
const pending = {
  key: (id: string) => `pending ${id}`,
  get: (id: string) => sessionStorage.getItem(pending.key(id)),
  set: (id: string, task: string) => sessionStorage.setItem(pending.key(id), task),
  clear: (id: string) => sessionStorage.removeItem(pending.key(id)),
};

async function follow(id: string, taskId: string): Promise<void> {
  const live = element("live");
  live.hidden = false;
  live.textContent = "…";
  let text = "";
  for await (const event of api.events(taskId)) {
    if (event.type === "text") {
      text = event.reset ? event.text : text + event.text;
      live.textContent = text;
    } else if (event.type === "task" && event.task.error) {
      element("trouble").textContent = event.task.error.message;
    }
  }
  pending.clear(id);
  live.hidden = true;
  await show(id);
}

async function send(id: string, text: string): Promise<void> {
  const task = await api.createPlan(id, agent, text, false, { respondAsync: true });
  pending.set(id, task.taskId);
  await follow(id, (task as Unfinished<unknown>).taskId);
}

async function tried(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    element("trouble").textContent = error instanceof Error ? error.message : String(error);
  }
}

async function main(): Promise<void> {
  element("agent").textContent = agent;
  const id = await conversation();
  element<HTMLFormElement>("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const box = element<HTMLInputElement>("text");
    element("trouble").textContent = "";
    void tried(send(id, box.value));
    box.value = "";
  });
  // Before this the form would be sent as a form is, and the page be loaded anew.
  element<HTMLButtonElement>("send").disabled = false;
  await show(id);
  const left = pending.get(id);
  if (left) await follow(id, left);
}

await tried(main());
