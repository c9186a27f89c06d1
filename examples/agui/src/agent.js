// An agent of Parley for @ag-ui/client. Its streams survive a dropped connection, a lost tab and a restart of the server.

import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

const ENDS = ["RUN_FINISHED", "RUN_ERROR"];

export class ParleyAgent extends HttpAgent {
  constructor({ patience = 60_000, retry = 500, ...config }) {
    super(config);
    this.lastEventId = null;
    this.task = null;
    this.fetch = (url, init) => this.resume(url, init, patience, retry);
  }

  // Follows a task from its beginning, or after the last event received: `await agent.follow(task)`.
  follow(task, subscriber) {
    if (task !== this.task) this.lastEventId = null;
    this.task = task;
    this.pendingInterrupts = [];
    this.abortController = new AbortController();
    return this.connectAgent({}, subscriber);
  }

  connect() {
    const url = `${this.url}/${encodeURIComponent(this.task)}`;
    const headers = { ...this.headers, Accept: "text/event-stream" };
    if (this.lastEventId) headers["Last-Event-ID"] = this.lastEventId;
    const request = () => this.fetch(url, { headers, signal: this.abortController.signal });
    return transformHttpEventStream(runHttpRequest(request), this.debugLogger);
  }

  // Answers a request as fetch does, with one body for as many connections as it takes. The request may be repeated,
  // because a run id names one run.
  async resume(url, init, patience, retry) {
    const stream = new Stream(this, url, init, patience, retry);
    const first = await stream.connect();
    return first.ok ? new Response(stream.body(first), { headers: first.headers }) : first;
  }
}

class Stream {
  constructor(agent, url, init, patience, retry) {
    Object.assign(this, { agent, url, init, patience, retry, last: null, ended: false });
  }

  // Connects, and tries again while the server cannot be reached.
  async connect() {
    const deadline = Date.now() + this.patience;
    for (;;) {
      try {
        const headers = { ...this.init.headers, ...(this.last && { "Last-Event-ID": this.last }) };
        const response = await fetch(this.url, { ...this.init, headers });
        if (response.status < 500) return response;
      } catch (error) {
        if (this.init.signal?.aborted || Date.now() > deadline) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, this.retry));
    }
  }

  body(first) {
    const encoder = new TextEncoder();
    const frames = this.frames(first);
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await frames.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(value));
      },
      cancel: () => frames.return(),
    });
  }

  // Yields whole events only: what is left of one when a connection breaks comes again.
  async *frames(response) {
    for (;;) {
      try {
        yield* this.received(response);
      } catch (error) {
        if (this.init.signal?.aborted) throw error;
      }
      if (this.ended) return;
      response = await this.connect();
      if (!response.ok) throw new Error(`HTTP ${response.status}: ${await response.text()}`);
    }
  }

  async *received(response) {
    let rest = "";
    for await (const piece of pieces(response.body)) {
      const frames = (rest + piece).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) yield this.noted(frame);
    }
  }

  noted(frame) {
    const id = /^id: (.*)$/m.exec(frame);
    const data = /^data: (.*)$/m.exec(frame);
    if (data) {
      const event = JSON.parse(data[1]);
      this.ended = ENDS.includes(event.type);
      if (event.type === "RUN_STARTED") this.agent.task = event.metadata.parley.task;
    }
    if (id) this.agent.lastEventId = this.last = id[1];
    return `${frame}\n\n`;
  }
}

async function* pieces(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
