// <live-topology>: recolours nodes, draws a line when one calls another, and checks access after clicks on two nodes.
import { fragment } from "./ask.js";
import { follow } from "./stream.js";
import { tellTimes } from "./times.js";

const LINES = 50;
const SHOWN_MS = 2_500;
const SVG = "http://www.w3.org/2000/svg";

class LiveTopology extends HTMLElement {
  #stop = () => {};
  #caller = null;
  #timer = 0;

  connectedCallback() {
    this.addEventListener("click", (event) => this.#chosen(event.target.closest(".tree .node")));
    this.addEventListener("keydown", (event) => {
      const node = event.target.closest?.(".tree .node");
      if (node && (event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        this.#chosen(node);
      }
    });
    this.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      this.#ask(form.get("caller"), form.get("target"));
    });
    this.#stop = follow(this.dataset.src, this.dataset.after, (told) => this.#heard(told));
  }

  disconnectedCallback() {
    this.#stop();
    clearTimeout(this.#timer);
  }

  #node(id) {
    return this.querySelector(`.node[data-node="${CSS.escape(id)}"]`);
  }

  #heard(told) {
    const node = this.#node(told.node);
    if (node && told.status) node.dataset.status = told.status;
    if (told.anew || (!node && told.status)) this.#timer ||= setTimeout(() => this.#redraw(), 300);
    if (told.between) this.#call(...told.between);
    if (told.line) {
      const list = this.querySelector(".happened");
      list.prepend(fragment(told.line));
      while (list.children.length > LINES) list.lastElementChild.remove();
      tellTimes(list);
    }
  }

  async #redraw() {
    this.#timer = 0;
    const reply = await fetch(this.dataset.tree, { headers: { "X-Requested-With": "parley" } });
    if (reply.ok) this.querySelector(".graph-box").replaceChildren(fragment(await reply.text()));
  }

  #call(from, to) {
    const [one, two] = [this.#node(from), this.#node(to)].map((node) => node?.querySelector("rect").getBBox());
    if (!one || !two) return;
    const line = document.createElementNS(SVG, "path");
    const [x1, y1, x2, y2] = [one, two].flatMap((box) => [box.x + box.width / 2, box.y + box.height / 2]);
    line.setAttribute("d", `M${x1},${y1} Q${(x1 + x2) / 2 + 40},${(y1 + y2) / 2} ${x2},${y2}`);
    line.setAttribute("class", "call");
    this.querySelector(".calls").append(line);
    setTimeout(() => line.remove(), SHOWN_MS);
  }

  #chosen(node) {
    if (!node) return;
    const before = this.#caller;
    if (!before?.isConnected) {
      this.#caller = node;
      node.setAttribute("aria-pressed", "true");
      return;
    }
    before.setAttribute("aria-pressed", "false");
    this.#caller = null;
    this.#ask(before.dataset.node, node.dataset.node);
  }

  async #ask(caller, target) {
    const address = new URL(this.dataset.access, location.href);
    address.search = new URLSearchParams({ caller, target });
    const reply = await fetch(address, { headers: { "X-Requested-With": "parley" } });
    this.querySelector(".access-slot").replaceChildren(fragment(await reply.text()));
    this.querySelector('[name="caller"]').value = caller;
    this.querySelector('[name="target"]').value = target;
  }
}
customElements.define("live-topology", LiveTopology);
