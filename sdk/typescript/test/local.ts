/** A small server whose answers a test writes itself, for what the wire can do to a client. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export interface Asked {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
}

export type Answer = (response: ServerResponse, asked: Asked) => void;

export interface Local {
  url: string;
  asked: Asked[];
}

/** Answers one after another; the last one goes on for ever. */
export async function local(context: TestContext, ...answers: Answer[]): Promise<Local> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => (body += text));
    request.on("end", () => {
      const one = { method: request.method ?? "", path: request.url ?? "", headers: request.headers, body };
      asked.push(one);
      answers[Math.min(asked.length, answers.length) - 1]?.(response, one);
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

export function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(value));
  };
}

/** Cuts the connection before there is an answer. */
export const cut: Answer = (response) => void response.destroy();

/** Never answers. */
export const silence: Answer = () => undefined;

/** Sends pieces of a stream; then it ends well, breaks, or stays open and says nothing. */
export function stream(pieces: string[], then: "end" | "cut" | "stay" = "end"): Answer {
  return (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    const last = (): void => {
      if (then === "end") response.end();
      // Not at once: what was written would be thrown away with the connection.
      if (then === "cut") setTimeout(() => response.destroy(), 20);
    };
    const write = ([piece, ...rest]: string[]): void => {
      if (piece === undefined) last();
      else response.write(piece, () => setImmediate(write, rest));
    };
    write(pieces);
  };
}
