// <live-orchestration>: recolours the graph and replaces changed steps as events arrive; zooms, searches and jumps.
import { complain, fragment, post } from "./ask.js";
import { follow } from "./stream.js";
import { tellTimes } from "./times.js";

const LEAST = 0.1;
const MOST = 2;
const READABLE = 0.5;

class LiveOrchestration extends HTMLElement {
  #stop = () => {};
  #zoom = 1;

  connectedCallback() {
    this.addEventListener("submit", (event) => this.#submitted(event));
    this.addEventListener("click", ({ target }) => {
      const how = target.closest("[data-zoom]")?.dataset.zoom;
      if (how) this.#zoomBy(how);
    });
    this.querySelector(".graph-box").addEventListener("keydown", (event) => {
      const how = { "+": "in", "=": "in", "-": "out", 0: "fit" }[event.key];
      if (!how || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.#zoomBy(how);
    });
    this.querySelector(".step-search").addEventListener("input", () => this.#search());
    addEventListener("hashchange", () => this.#jump());
    for (const tools of this.querySelectorAll(".graph-tools, .step-tools")) tools.hidden = false;
    this.#zoomBy("begin");
    this.#jump();
    if (!("still" in this.dataset)) {
      this.#stop = follow(this.dataset.src, this.dataset.after, (told) => this.#heard(told));
    }
  }

  disconnectedCallback() {
    this.#stop();
  }

  #heard(told) {
    if (told.graph) {
      this.querySelector(".graph-box").replaceChildren(fragment(told.graph));
      this.#zoomBy("begin");
    }
    if (told.steps) this.#put(".step-list", told.steps);
    for (const [number, html] of Object.entries(told.rows ?? {})) {
      document.getElementById(`step-${number}`)?.replaceWith(fragment(html.trim()).firstElementChild);
    }
    for (const [number, status] of Object.entries(told.colours ?? {})) {
      const node = document.getElementById(`node-${number}`);
      if (node) node.dataset.status = status;
    }
    for (const [number, [x, width, critical]] of Object.entries(told.bars ?? {})) {
      const row = document.getElementById(`step-${number}`);
      const bar = row?.querySelector(".step-bar rect");
      bar?.setAttribute("x", x);
      bar?.setAttribute("width", width);
      row?.toggleAttribute("data-critical", critical);
      document.getElementById(`node-${number}`)?.toggleAttribute("data-critical", critical);
    }
    this.#put(".panel-slot", told.panel);
    if (this.querySelector(".step-search").value) this.#search();
    tellTimes(this);
  }

  // Unchanged content is not replaced, so that it keeps the focus.
  #put(where, html) {
    const slot = this.querySelector(where);
    const made = document.createElement("div");
    made.append(fragment(html));
    if (made.innerHTML !== slot.innerHTML) slot.replaceChildren(...made.childNodes);
  }

  #zoomBy(how) {
    const box = this.querySelector(".graph-box");
    const graph = box.querySelector("svg.graph");
    if (!graph) return;
    const { width, height } = graph.viewBox.baseVal;
    const wide = Math.min(1, (box.clientWidth - 24) / width);
    const fit = Math.min(wide, (innerHeight * 0.7 - 24) / height);
    const wanted = { begin: Math.max(wide, READABLE), fit, in: this.#zoom * 1.25, out: this.#zoom / 1.25 }[how];
    this.#zoom = Math.min(MOST, Math.max(LEAST, wanted));
    graph.setAttribute("width", width * this.#zoom);
    graph.setAttribute("height", height * this.#zoom);
    this.querySelector(".zoom").textContent = `${Math.round(this.#zoom * 100)} %`;
  }

  #search() {
    const asked = this.querySelector(".step-search").value.trim().toLowerCase();
    let found = 0;
    for (const row of this.querySelectorAll(".step-row")) {
      const fits = row.textContent.toLowerCase().includes(asked);
      found += fits;
      row.hidden = !fits;
      document.getElementById(row.id.replace("step-", "node-"))?.classList.toggle("dimmed", !fits);
    }
    this.querySelector(".found").textContent = asked ? `${found} found` : "";
  }

  // The row is scrolled to by the browser; the graph follows.
  #jump() {
    const [, number] = location.hash.match(/^#step-(\d+)$/) ?? [];
    for (const node of this.querySelectorAll(".node.chosen")) node.classList.remove("chosen");
    const node = number && document.getElementById(`node-${number}`);
    if (!node) return;
    node.classList.add("chosen");
    const box = this.querySelector(".graph-box");
    const [inner, outer] = [node.getBoundingClientRect(), box.getBoundingClientRect()];
    box.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
    box.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 2;
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
