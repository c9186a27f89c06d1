// Shows on every page if the server answers. Streams report it; a page without a stream polls the server.
const EVERY_MS = 15_000;
const WORDS = { on: "Connected", again: "Connecting…", off: "No connection" };
let heard = Date.now();
let told = () => {};

export function tellConnection(state) {
  if (state === "on") heard = Date.now();
  const element = document.getElementById("connection");
  if (!element || element.dataset.state === state) return;
  element.dataset.state = state;
  element.querySelector(".connection-word").textContent = WORDS[state];
}

async function look() {
  if (document.hidden || Date.now() - heard < EVERY_MS) return;
  try {
    const reply = await fetch("/console/inbox/count", { cache: "no-store" });
    tellConnection(reply.ok || reply.redirected ? "on" : "off");
    if (reply.ok && !reply.redirected) told((await reply.json()).waiting);
  } catch {
    tellConnection("off");
  }
}

// `count` is called with the number of open questions, which the same request brings.
export function watchConnection(count) {
  told = count;
  setInterval(look, EVERY_MS / 3);
  addEventListener("offline", () => tellConnection("off"));
  addEventListener("online", look);
}
