// <live-orchestration>: recolours the graph and replaces panel and steps as events arrive.
import { complain, fragment, post } from "./ask.js";
import { follow } from "./stream.js";
import { tellTimes } from "./times.js";

class LiveOrchestration extends HTMLElement {
  #stop = () => {};

  connectedCallback() {
    this.addEventListener("submit", (event) => this.#submitted(event));
    if (!("still" in this.dataset)) {
      this.#stop = follow(this.dataset.src, this.dataset.after, (told) => this.#heard(told));
    }
  }

  disconnectedCallback() {
    this.#stop();
  }

  #heard(told) {
    if (told.graph) this.querySelector(".graph-box").replaceChildren(fragment(told.graph));
    for (const [number, status] of Object.entries(told.colours)) {
      const node = document.getElementById(`node-${number}`);
      if (node) node.dataset.status = status;
    }
    this.#put(".panel-slot", told.panel);
    this.#put(".steps-slot", told.steps);
    tellTimes(this);
  }

  // Unchanged content is not replaced, so that it keeps the focus.
  #put(where, html) {
    const slot = this.querySelector(where);
    const made = document.createElement("div");
    made.append(fragment(html));
    if (made.innerHTML.trim() !== slot.innerHTML.trim()) slot.replaceChildren(...made.childNodes);
  }

  async #submitted(event) {
    const form = event.target;
    if (!("quiet" in form.dataset)) return;
    event.preventDefault();
    form.querySelector("button").disabled = true;
    const { ok, html } = await post(form);
    if (!ok) {
      form.querySelector("button").disabled = false;
      complain(form, html);
    } else if (html) {
      // The orchestration continues as another run.
      location.reload();
    }
  }
}
customElements.define("live-orchestration", LiveOrchestration);
