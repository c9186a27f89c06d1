// <live-organisation>: follows the run of the current task, and refreshes the page content on each event.
import { fragment } from "./ask.js";
import { follow } from "./stream.js";
import { tellTimes } from "./times.js";

const PAUSE_MS = 250;
const LOOK_MS = 3_000;

class LiveOrganisation extends HTMLElement {
  #stop = () => {};
  #followed = "";
  #timer = 0;

  connectedCallback() {
    this.#follow();
    // No stream reports a new task, so the page polls for one.
    this.looking = setInterval(() => this.#followed || this.#soon(), LOOK_MS);
  }

  disconnectedCallback() {
    this.#stop();
    clearInterval(this.looking);
    clearTimeout(this.#timer);
  }

  #follow() {
    const now = this.querySelector(".org-now");
    const run = now.dataset.follow ? now.dataset.run : "";
    if (run === this.#followed) return;
    this.#stop();
    this.#followed = run;
    if (run) this.#stop = follow(now.dataset.follow, now.dataset.after, () => this.#soon(), () => this.#soon());
  }

  #soon() {
    this.#timer ||= setTimeout(() => this.#look(), PAUSE_MS);
  }

  async #look() {
    this.#timer = 0;
    let reply;
    try {
      reply = await fetch(this.dataset.src, { headers: { "X-Requested-With": "parley" } });
    } catch {
      return; // The stream or the next poll tries again.
    }
    if (!reply.ok) return;
    const made = document.createElement("div");
    made.append(fragment(await reply.text()));
    tellTimes(made);
    if (made.innerHTML.trim() === this.innerHTML.trim()) return;
    const box = this.querySelector(".graph-box");
    const [left, top] = [box?.scrollLeft ?? 0, box?.scrollTop ?? 0];
    this.replaceChildren(...made.childNodes);
    this.querySelector(".graph-box")?.scrollTo(left, top);
    this.#follow();
  }
}
customElements.define("live-organisation", LiveOrganisation);
