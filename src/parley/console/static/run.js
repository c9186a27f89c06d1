// <run-timeline>: adds entries and text as they arrive, and replaces the run's panel when its state changes.
import "./answer.js";
import { complain, fragment, post } from "./ask.js";
import { follow } from "./stream.js";
import { tellTimes } from "./times.js";

const NEAR = 120;

class RunTimeline extends HTMLElement {
  #stop = () => {};

  connectedCallback() {
    this.addEventListener("submit", (event) => this.#submitted(event));
    this.addEventListener("click", (event) => this.#clicked(event));
    if ("still" in this.dataset) return;
    this.#stop = follow(this.dataset.src, this.dataset.after, (told, id) => this.#heard(told, id));
  }

  disconnectedCallback() {
    this.#stop();
  }

  #heard(told, id) {
    const root = document.scrollingElement;
    const pinned = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR;
    for (const change of told.changes) this.#change(change);
    if (told.panel) {
      this.dataset.state = told.state;
      this.querySelector(".panel-slot").replaceChildren(fragment(told.panel));
      document.querySelector(".run-state")?.replaceChildren(this.querySelector(".panel .badge").cloneNode(true));
    }
    this.dataset.after = id;
    tellTimes(this);
    // Scroll only if the reader is at the end; a reader further up keeps the position.
    if (pinned && root.scrollHeight > root.clientHeight) root.scrollTop = root.scrollHeight;
    this.dispatchEvent(new CustomEvent("run-changed", { bubbles: true, detail: told }));
  }

  #change({ key, html, grow }) {
    const before = this.querySelector(`#${CSS.escape(key)}`);
    if (grow !== undefined) {
      before?.querySelector(".growing .tail")?.append(grow);
      return;
    }
    const made = fragment(html);
    if (before) {
      const open = before.querySelector("details")?.open;
      if (open) made.querySelector("details")?.setAttribute("open", "");
      before.replaceWith(made);
    } else {
      this.querySelector(".entries").append(made);
    }
  }

  // An entry's event is shown below it. With a modifier key the link opens its page, as links do.
  async #clicked(event) {
    const link = event.target.closest(".show-event");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const entry = link.closest(".entry");
    const shown = entry.querySelector(":scope > .raw-event");
    if (shown) return shown.remove();
    const reply = await fetch(link.href, { headers: { "X-Requested-With": "parley" } }).catch(() => null);
    if (reply?.ok) entry.append(fragment(await reply.text()));
    else location.assign(link.href);
  }

  async #submitted(event) {
    const form = event.target;
    if (!("quiet" in form.dataset) || form.closest("answer-box")) return;
    event.preventDefault();
    form.querySelector("button").disabled = true;
    const { ok, html } = await post(form);
    if (!ok) {
      form.querySelector("button").disabled = false;
      complain(form, html);
    }
  }
}
customElements.define("run-timeline", RunTimeline);

// <run-bars>: shows the bars again while the run changes, at most once a second.
class RunBars extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    document.addEventListener("run-changed", () => {
      this.#timer ||= setTimeout(() => this.#load(), 1000);
    });
  }

  async #load() {
    const reply = await fetch(this.dataset.src, { headers: { "X-Requested-With": "parley" } }).catch(() => null);
    this.#timer = 0;
    if (reply?.ok) this.replaceChildren(fragment(await reply.text()));
  }
}
customElements.define("run-bars", RunBars);
