import assert from "node:assert/strict";
import { test } from "node:test";

import { Frames, type Frame } from "../src/sse.js";

function read(...pieces: string[]): Frame[] {
  const frames = new Frames();
  return pieces.flatMap((piece) => [...frames.take(piece)]);
}

const TWO = "id: 1\ndata: one\n\nid: 2\nevent: end\ndata: two\n\n";
const READ: Frame[] = [
  { id: "1", event: "message", data: "one" },
  { id: "2", event: "end", data: "two" },
];

test("events are read however their text is cut", () => {
  for (let at = 0; at <= TWO.length; at++) assert.deepEqual(read(TWO.slice(0, at), TWO.slice(at)), READ);
  assert.deepEqual(read(...TWO), READ);
});

test("lines may end as the standard allows", () => {
  assert.deepEqual(read(TWO.replaceAll("\n", "\r\n")), READ);
  assert.deepEqual(read(...TWO.replaceAll("\n", "\r\n")), READ);
  assert.deepEqual(read(TWO.replaceAll("\n", "\r") + ":"), READ);
});

test("comments and unknown fields say nothing", () => {
  assert.deepEqual(read(": keep-alive\n", "retry: 10\nfoo: bar\n", TWO), READ);
});

test("lines of data are joined, and one space after the colon is dropped", () => {
  assert.deepEqual(read("data:a\ndata:  b\ndata\n\n"), [{ id: "", event: "message", data: "a\n b\n" }]);
});

test("an event that was cut off is not given", () => {
  assert.deepEqual(read("id: 1\ndata: one\n\nid: 2\ndata: tw"), READ.slice(0, 1));
  assert.deepEqual(read("id: 1\ndata: one\n\nid: 2\ndata: two\n"), READ.slice(0, 1));
});

test("a long line that comes in many pieces is looked through once", () => {
  const piece = "x".repeat(64 * 1024);
  const began = performance.now();
  const [frame] = read("data: ", ...Array.from({ length: 160 }, () => piece), "\n\n");
  assert.equal(frame?.data.length, 160 * piece.length);
  assert.ok(performance.now() - began < 2000);
});
