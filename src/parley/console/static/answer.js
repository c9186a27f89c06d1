// <answer-box>: sends an answer without leaving the page. The draft survives a page reload.
import { complain, fragment, post } from "./ask.js";

class AnswerBox extends HTMLElement {
  connectedCallback() {
    const form = this.querySelector("form");
    const text = this.querySelector("textarea");
    const place = `draft:${form.getAttribute("action")}`;
    if (text) this.#keepDraft(text, place);
    form.addEventListener("submit", async (event) => {
      if (!("quiet" in form.dataset)) return sessionStorage.removeItem(place);
      event.preventDefault();
      // A disabled button would not be part of the form, so the form is read first.
      const sent = post(form, event.submitter);
      this.#disable(true);
      const { ok, html } = await sent;
      this.#disable(false);
      if (ok) {
        sessionStorage.removeItem(place);
        if (text) text.value = "";
        if (html) {
          this.replaceChildren(fragment(html));
          this.dispatchEvent(new CustomEvent("answered", { bubbles: true }));
        }
      } else {
        complain(form, html);
      }
    });
  }

  #disable(disabled) {
    for (const button of this.querySelectorAll("button")) button.disabled = disabled;
  }

  #keepDraft(text, place) {
    text.value ||= sessionStorage.getItem(place) ?? "";
    text.addEventListener("input", () => sessionStorage.setItem(place, text.value));
  }
}
customElements.define("answer-box", AnswerBox);
