import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent2AgentAPI, type ConnectionOptions } from "../src/index.js";

const WRONG: [unknown, RegExp][] = [
  [undefined, /^options must be an object with a baseUrl, not undefined\.$/],
  ["http://a.example", /^options must be an object with a baseUrl, not a string\.$/],
  [{}, /^options\.baseUrl must be .*, not undefined\.$/],
  [{ baseUrl: 7 }, /^options\.baseUrl must be .*, not a number\.$/],
  [{ baseUrl: "parley.example" }, /^options\.baseUrl must be .*, not "parley\.example"\.$/],
  [{ baseUrl: "localhost:8200" }, /^options\.baseUrl must be /],
  [{ baseUrl: "ftp://parley.example" }, /^options\.baseUrl must be /],
  [{ baseUrl: "", apiKey: 7 }, /^options\.apiKey must be a string or a function, not a number\.$/],
  [{ baseUrl: "", apiKey: null }, /^options\.apiKey must be a string or a function, not null\.$/],
  [{ baseUrl: "", headers: ["a"] }, /^options\.headers must be an object of strings, not an array\.$/],
  [{ baseUrl: "", headers: { a: 1 } }, /^options\.headers must be an object of strings, not an object\.$/],
  [{ baseUrl: "", fetch: {} }, /^options\.fetch must be a function/],
  [{ baseUrl: "", retries: "4" }, /^options\.retries must be a number that is not negative, not a string\.$/],
  [{ baseUrl: "", retries: -1 }, /^options\.retries must be/],
  [{ baseUrl: "", delayMs: 5 }, /^options\.delayMs must be a function/],
  [{ baseUrl: "", timeoutMs: Number.NaN }, /^options\.timeoutMs must be .*, not NaN\.$/],
];

for (const [options, message] of WRONG) {
  test(`options ${JSON.stringify(options)} are refused with their name`, () => {
    assert.throws(() => new Agent2AgentAPI(options as ConnectionOptions), { name: "TypeError", message });
  });
}

test("options that are right are taken", () => {
  for (const baseUrl of ["", "/parley", "http://127.0.0.1:8200", "https://parley.example/"]) {
    new Agent2AgentAPI({ baseUrl, apiKey: () => "k", headers: {}, retries: 0, timeoutMs: 5, delayMs: () => 1 });
  }
});
