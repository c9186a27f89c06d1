// <usage-progress>: loads the page again until all runs of the period are added up, unless a filter is being changed.
const AGAIN_MS = 2_000;

class UsageProgress extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    this.#timer = setInterval(() => {
      if (!document.hidden && !document.activeElement.closest(".usage-filters")) location.reload();
    }, AGAIN_MS);
  }

  disconnectedCallback() {
    clearInterval(this.#timer);
  }
}
customElements.define("usage-progress", UsageProgress);
