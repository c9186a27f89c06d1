// A stream that loses no event: it resumes after the last event it saw, also after a server restart.
import { tellConnection } from "./connection.js";

const FIRST_MS = 500;
const MOST_MS = 8_000;

// `on(data, id)` gets each event's JSON; `follow` returns a function that closes the stream. `event: end` closes it too.
export function follow(url, after, on, ended = () => {}) {
  let source = null;
  let timer = 0;
  let wait = FIRST_MS;
  let last = after;

  function open() {
    const address = new URL(url, location.href);
    address.searchParams.set("after", last);
    source = new EventSource(address);
    source.onopen = () => {
      wait = FIRST_MS;
      tellConnection("on");
    };
    source.onmessage = (event) => {
      tellConnection("on");
      on(JSON.parse(event.data), event.lastEventId);
      if (event.lastEventId) last = event.lastEventId;
    };
    source.addEventListener("end", () => {
      stop();
      ended();
    });
    source.onerror = () => {
      // The browser reconnects by itself, but not after a response that is not a stream (a server that is starting).
      source.close();
      tellConnection("again");
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, MOST_MS);
    };
  }

  function stop() {
    clearTimeout(timer);
    source?.close();
  }

  open();
  addEventListener("pagehide", stop, { once: true });
  return stop;
}
