// <pair-watch>: counts down until the code expires, and turns green when the runtime attaches.
import { fragment } from "./ask.js";
import { tellTimes } from "./times.js";

const EVERY_MS = 1500;

class PairWatch extends HTMLElement {
  #timers = [];

  connectedCallback() {
    const began = performance.now();
    if ("left" in this.dataset) {
      this.#count(began);
      this.#timers.push(setInterval(() => this.#count(began), 1000));
    }
    this.#timers.push(setInterval(() => this.#look(), EVERY_MS));
  }

  disconnectedCallback() {
    this.#timers.forEach(clearInterval);
  }

  #count(began) {
    const left = Math.max(0, Math.round(Number(this.dataset.left) - (performance.now() - began) / 1000));
    const place = this.querySelector(".left");
    place.textContent = left ? `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` : "0:00 (expired)";
    this.classList.toggle("expired", left === 0);
  }

  async #look() {
    if (document.hidden) return;
    let html;
    try {
      const reply = await fetch(this.dataset.src, { headers: { "X-Requested-With": "parley" } });
      if (!reply.ok) return;
      html = await reply.text();
    } catch {
      return;
    }
    const made = fragment(html);
    const runtime = made.querySelector(".runtime");
    const slot = this.querySelector(".runtime-slot");
    const shown = slot.querySelector(".runtime");
    if (runtime.dataset.runtime !== shown.dataset.runtime || runtime.dataset.kind !== shown.dataset.kind) {
      slot.replaceChildren(made);
      tellTimes(slot);
    }
    if (runtime.dataset.runtime && runtime.dataset.runtime !== this.dataset.runtime) this.classList.add("attached");
  }
}
customElements.define("pair-watch", PairWatch);
