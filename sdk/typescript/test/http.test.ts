import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent2AgentError, NetworkError, NotFoundError, TimeoutError, UnavailableError } from "../src/errors.js";
import { Http, type Call, type ConnectionOptions } from "../src/http.js";
import { cut, json, local, silence } from "./local.js";

const READ: Call = { method: "GET", path: "/it", repeatable: true };
const WRITE: Call = { method: "POST", path: "/it", body: { a: 1 }, repeatable: false };
const BUSY = { taskId: "t", error: { code: "BUSY", message: "Later." } };

function at(options: ConnectionOptions): Http {
  return new Http({ delayMs: () => 1, ...options });
}

test("a request that broke off is made again", async (context) => {
  const { url, asked } = await local(context, cut, json(200, { ok: true }));
  assert.deepEqual(await at({ baseUrl: url }).json(READ), { ok: true });
  assert.equal(asked.length, 2);
});

for (const status of [429, 502, 503, 504]) {
  test(`a ${status} is tried again, and also one that is no task`, async (context) => {
    const html = (response: import("node:http").ServerResponse): void => void response.writeHead(status).end("<html>");
    const { url, asked } = await local(context, html, json(status, BUSY), json(200, {}));
    await at({ baseUrl: url }).json(READ);
    assert.equal(asked.length, 3);
  });
}

test("what is not safe to repeat is not repeated", async (context) => {
  const { url, asked } = await local(context, cut);
  await assert.rejects(at({ baseUrl: url }).json(WRITE), NetworkError);
  assert.equal(asked.length, 1);
  assert.deepEqual([asked[0]?.body, asked[0]?.headers["content-type"]], ['{"a":1}', "application/json"]);
});

test("other errors are told at once, with what the task says", async (context) => {
  const failed = { taskId: "t1", error: { code: "PLAN_NOT_FOUND", message: "No plan.", details: { a: 1 } } };
  const { url, asked } = await local(context, json(404, failed));
  await assert.rejects(at({ baseUrl: url }).json(READ), (error) => {
    assert.ok(error instanceof NotFoundError && error instanceof Agent2AgentError);
    const { name, code, status, message, details, taskId } = error;
    assert.deepEqual([name, code, status], ["NotFoundError", "PLAN_NOT_FOUND", 404]);
    assert.deepEqual([message, details, taskId], ["No plan.", { a: 1 }, "t1"]);
    return true;
  });
  assert.equal(asked.length, 1);
});

test("after as many attempts as allowed the last error is told", async (context) => {
  const { url, asked } = await local(context, json(503, BUSY));
  const refused = at({ baseUrl: url, retries: 2 }).json(READ);
  await assert.rejects(refused, (error) => error instanceof UnavailableError && error.code === "BUSY");
  assert.equal(asked.length, 3);
});

test("a server that asks for patience gets it", async (context) => {
  const { url } = await local(context, json(429, BUSY, { "retry-after": "1" }), json(200, {}));
  const began = performance.now();
  await at({ baseUrl: url }).json(READ);
  assert.ok(performance.now() - began >= 990);
});

test("nobody waits for an hour", async (context) => {
  const { url, asked } = await local(context, json(503, BUSY, { "retry-after": "3600" }));
  const refused = at({ baseUrl: url }).json(READ);
  await assert.rejects(refused, (error) => error instanceof UnavailableError && error.retryAfterMs === 3_600_000);
  assert.equal(asked.length, 1);
});

test("an abort ends a request, and the pause between two", async (context) => {
  const { url, asked } = await local(context, silence);
  const controller = new AbortController();
  const reason = new Error("never mind");
  const waiting = at({ baseUrl: url }).json({ ...READ, signal: controller.signal });
  setTimeout(() => controller.abort(reason), 50);
  await assert.rejects(waiting, reason);
  assert.equal(asked.length, 1);
  const busy = await local(context, json(503, BUSY, { "retry-after": "30" }));
  const pausing = at({ baseUrl: busy.url }).json({ ...READ, signal: AbortSignal.timeout(100) });
  await assert.rejects(pausing, { name: "TimeoutError" });
  assert.equal(busy.asked.length, 1);
});

test("an abort that came before asks nothing", async (context) => {
  const { url, asked } = await local(context, json(200, {}));
  await assert.rejects(at({ baseUrl: url }).json({ ...READ, signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(asked.length, 0);
});

test("a time limit holds over all attempts and tells the last error", async (context) => {
  const { url } = await local(context, json(503, BUSY, { "retry-after": "30" }));
  await assert.rejects(at({ baseUrl: url, timeoutMs: 100 }).json(READ), (error) => {
    assert.ok(error instanceof TimeoutError && error.code === "TIMEOUT");
    return error.cause instanceof UnavailableError;
  });
});

test("an answer that is no JSON is an error of its own", async (context) => {
  const { url } = await local(context, (response) => void response.end("hello"));
  await assert.rejects(at({ baseUrl: url }).json(READ), { code: "INVALID_RESPONSE", status: 200 });
});

test("credentials and headers go with each request, and a token is asked for anew", async (context) => {
  const { url, asked } = await local(context, cut, json(200, {}));
  let token = 0;
  const http = at({ baseUrl: `${url}/`, apiKey: () => `token-${++token}`, headers: { "x-one": "1" } });
  await http.json(READ);
  assert.deepEqual(asked.map(({ path, headers }) => [path, headers.authorization, headers["x-one"]]), [
    ["/it", "Bearer token-1", "1"],
    ["/it", "Bearer token-2", "1"],
  ]);
});

test("an address that is none is refused at once", () => {
  assert.throws(() => new Http({ baseUrl: "nowhere" }), TypeError);
  assert.ok(new Http({ baseUrl: "" }));
  assert.ok(new Http({ baseUrl: "/proxied/" }));
});
