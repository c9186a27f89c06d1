import assert from "node:assert/strict";
import { test } from "node:test";

import { NetworkError, NotFoundError } from "../src/errors.js";
import { Following, type FollowOptions } from "../src/following.js";
import { Http } from "../src/http.js";
import { cut, json, local, silence, stream, type Local } from "./local.js";

function event(seq: number, data = `${seq}`): string {
  return `id: ${seq}\ndata: ${data}\n\n`;
}

type Read = [seq: number, data: string];

function following(at: Local, options: FollowOptions = {}, over = false): AsyncGenerator<Read, void, undefined> {
  const source = {
    path: "/stream",
    read: ({ data }: { data: string }, seq: number): Read => [seq, data],
    isLast: ([, data]: Read) => data === "end",
    isOver: async () => over,
  };
  return new Following(new Http({ baseUrl: at.url, delayMs: () => 1 }), source, options).events();
}

async function read(at: Local, options: FollowOptions = {}, over = false): Promise<Read[]> {
  const read: Read[] = [];
  for await (const event of following(at, options, over)) read.push(event);
  return read;
}

function cursors(at: Local): unknown[] {
  return at.asked.map(({ headers }) => headers["last-event-id"]);
}

test("events are given up to the last one", async (context) => {
  const at = await local(context, stream([event(1), ": keep-alive\n", event(2), event(3, "end")], "stay"));
  assert.deepEqual(await read(at), [[1, "1"], [2, "2"], [3, "end"]]);
  assert.deepEqual(cursors(at), [undefined]);
});

test("a stream that breaks, or ends too early, goes on after the last whole event", async (context) => {
  const at = await local(
    context,
    stream([event(1), event(2), "id: 3\ndata: 3"], "cut"),
    cut,
    stream([event(3)], "end"),
    json(503, { error: { code: "BUSY", message: "Later." } }),
    stream([event(4, "end")]),
  );
  assert.deepEqual(await read(at), [[1, "1"], [2, "2"], [3, "3"], [4, "end"]]);
  assert.deepEqual(cursors(at), [undefined, "2", "2", "3", "3"]);
});

test("what a server repeats is not given twice", async (context) => {
  const at = await local(context, stream([event(1), event(2)], "cut"), stream([event(1), event(2), event(3, "end")]));
  assert.deepEqual(await read(at), [[1, "1"], [2, "2"], [3, "end"]]);
});

test("characters that two pieces share come out whole", async (context) => {
  const bytes = Buffer.from(event(1, "grüße 🌍") + event(2, "end"));
  const at = await local(context, (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const write = (from: number): void => {
      if (from >= bytes.length) return void response.end();
      response.write(bytes.subarray(from, from + 1), () => setImmediate(write, from + 1));
    };
    write(0);
  });
  assert.deepEqual((await read(at))[0], [1, "grüße 🌍"]);
});

test("one begins where one likes", async (context) => {
  const at = await local(context, stream([event(8, "end")]));
  assert.deepEqual(await read(at, { lastEventId: 7 }), [[8, "end"]]);
  assert.deepEqual(cursors(at), ["7"]);
});

test("who begins after the last event is told that there are none", async (context) => {
  const at = await local(context, stream([]));
  assert.deepEqual(await read(at, { lastEventId: 9 }, true), []);
  assert.deepEqual(cursors(at), ["9", "9"]);
});

test("what came between a stream that a stopping server ended and the end of the task is not lost", async (context) => {
  const at = await local(context, stream([event(1)]), stream([]), stream([event(2), event(3, "end")]));
  assert.deepEqual(await read(at, {}, true), [[1, "1"], [2, "2"], [3, "end"]]);
});

test("a stream that ends before its task does, again and again, is given up", async (context) => {
  const at = await local(context, stream([]));
  await assert.rejects(read(at, { retries: 2 }), NetworkError);
  assert.equal(at.asked.length, 3);
});

test("a connection without a sign of life is given up", async (context) => {
  const at = await local(context, stream([event(1)], "stay"), silence, stream([event(2, "end")]));
  assert.deepEqual(await read(at, { silenceMs: 100 }), [[1, "1"], [2, "end"]]);
});

test("who takes long to read is not taken for a silent connection", async (context) => {
  const at = await local(context, stream([event(1), event(2), event(3, "end")], "stay"));
  for await (const [seq] of following(at, { silenceMs: 100 })) {
    if (seq === 1) await new Promise((resolve) => setTimeout(resolve, 250));
  }
  assert.equal(at.asked.length, 1);
});

test("what will not pass is told at once", async (context) => {
  const failed = { taskId: "t", error: { code: "TASK_NOT_FOUND", message: "No such task." } };
  const at = await local(context, json(404, failed));
  await assert.rejects(read(at), NotFoundError);
  assert.equal(at.asked.length, 1);
  const wrong = await local(context, json(200, {}));
  await assert.rejects(read(wrong), { code: "INVALID_RESPONSE" });
});

test("a server that stays away is given up, and a sign of life counts", async (context) => {
  const away = await local(context, cut);
  await assert.rejects(read(away, { retries: 2 }), NetworkError);
  assert.equal(away.asked.length, 3);
  const alive = stream([": keep-alive\n"], "cut");
  const at = await local(context, alive, alive, alive, stream([event(1, "end")]));
  assert.deepEqual(await read(at, { retries: 1 }), [[1, "end"]]);
});

test("nobody waits for an hour", async (context) => {
  const busy = { error: { code: "UNAVAILABLE", message: "Later." } };
  const at = await local(context, json(503, busy, { "retry-after": "3600" }));
  await assert.rejects(read(at), { code: "UNAVAILABLE", retryAfterMs: 3_600_000 });
});

test("leaving the loop closes the connection", async (context) => {
  const closed = new Promise<void>((resolve) => {
    void local(context, (response) => {
      response.on("close", resolve);
      stream([event(1)], "stay")(response, { method: "", path: "", headers: {}, body: "" });
    }).then(async (at) => {
      for await (const [seq] of following(at)) if (seq === 1) break;
    });
  });
  await closed;
});

test("an abort ends it with its reason, also while it waits to try again", async (context) => {
  const reason = new Error("enough");
  const busy = json(503, { error: { code: "BUSY", message: "Later." } }, { "retry-after": "30" });
  for (const answer of [stream([event(1)], "stay"), busy]) {
    const at = await local(context, answer);
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), 60);
    await assert.rejects(read(at, { signal: controller.signal }), reason);
  }
});
