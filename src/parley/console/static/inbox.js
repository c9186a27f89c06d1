// <inbox-list>: follows the open questions. An answered question stays, with its outcome, until the page is left.
import "./answer.js";
import { fragment } from "./ask.js";
import { liveList } from "./live.js";

const FIRST_MS = 500;
const MOST_MS = 5_000;

class InboxList extends HTMLElement {
  #stop = () => {};

  connectedCallback() {
    const list = this.querySelector(".questions");
    const nothing = this.querySelector(".nothing");
    // The question leaves the list as soon as it is answered, perhaps before the response comes.
    this.addEventListener("submit", ({ target }) => (target.closest("li").dataset.sent = "1"));
    this.addEventListener("answered", ({ target }) => this.#outcome(target.closest("article")));
    if ("still" in this.dataset) return;
    const busy = (row, stays) => "sent" in row.dataset && !(stays && "again" in row.dataset);
    const heard = () => (nothing.hidden = list.children.length > 0);
    this.#stop = liveList(this.dataset.src, list, { busy, heard });
  }

  disconnectedCallback() {
    this.#stop();
  }

  async #outcome(card, wait = FIRST_MS) {
    const shown = card.querySelector(".outcome");
    if (!shown || !card.isConnected) return;
    await new Promise((done) => setTimeout(done, wait));
    const reply = await fetch(shown.dataset.src, { headers: { "X-Requested-With": "parley" } }).catch(() => null);
    if (!reply?.ok) return;
    const made = fragment((await reply.text()).trim()).firstElementChild;
    shown.replaceWith(made);
    if (!("settled" in made.dataset)) return this.#outcome(card, Math.min(wait * 1.5, MOST_MS));
    // The next question of the same run may replace this one.
    card.parentElement.dataset.again = "1";
  }
}
customElements.define("inbox-list", InboxList);
