// <run-list>: follows the list, and selects runs for the buttons above it.
import { liveList } from "./live.js";

class RunList extends HTMLElement {
  #stop = () => {};

  connectedCallback() {
    const all = this.querySelector(".pick-all");
    all.hidden = false;
    all.addEventListener("change", ({ target }) => {
      for (const box of this.#boxes()) box.checked = target.checked;
    });
    this.addEventListener("change", () => this.#count());
    this.#count();
    if ("still" in this.dataset) return;
    const keep = (before, after) => {
      after.querySelector(".pick input").checked = before.querySelector(".pick input").checked;
    };
    const busy = (row) => row.contains(document.activeElement) && document.activeElement.matches("a");
    this.#stop = liveList(this.dataset.src, this.querySelector("tbody"), { keep, busy, heard: () => this.#count() });
  }

  disconnectedCallback() {
    this.#stop();
  }

  #boxes() {
    return [...this.querySelectorAll("tbody .pick input")];
  }

  #count() {
    const count = this.#boxes().filter((box) => box.checked).length;
    const every = this.querySelector(".pick-every input")?.checked;
    this.querySelector(".picked").textContent = every ? "" : count ? `${count} selected` : "";
    this.querySelector(".bulk").classList.toggle("some", every || count > 0);
    for (const button of this.querySelectorAll(".bulk button")) button.disabled = !every && !count;
  }
}
customElements.define("run-list", RunList);
