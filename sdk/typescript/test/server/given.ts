/** What the Python tests tell about the server that they started. */

import { Agent2AgentAPI, type ConnectionOptions } from "../../src/index.js";

export const URL_OF_SERVER = given("PARLEY_URL");
export const KEY = given("PARLEY_KEY");

export function given(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set.`);
  return value;
}

export function api(options: Partial<ConnectionOptions> = {}): Agent2AgentAPI {
  return new Agent2AgentAPI({ baseUrl: URL_OF_SERVER, apiKey: KEY, ...options });
}

/** A conversation of its own for each test. */
export async function begun(agentSlug = "chat"): Promise<string> {
  return (await api().createConversation(agentSlug)).id;
}

/** What somebody worked on until it was done. */
export function done<T extends { status: string }>(task: T): Extract<T, { status: "completed" }> {
  if (task.status !== "completed") throw new Error(`The task is ${task.status}.`);
  return task as Extract<T, { status: "completed" }>;
}
