// <live-orchestration>: the graph takes on the colours of what happens; panel and steps are told anew.
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

  // What has not changed keeps its place, and the focus that may be in it.
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
      // It goes on as another run.
      location.reload();
    }
  }
}
customElements.define("live-orchestration", LiveOrchestration);
