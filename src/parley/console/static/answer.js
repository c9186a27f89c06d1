// <answer-box>: Enter sends, Shift+Enter is a new line. Its draft survives a reload of the page.
import { complain, post } from "./ask.js";

class AnswerBox extends HTMLElement {
  connectedCallback() {
    const form = this.querySelector("form");
    const text = this.querySelector("textarea");
    const place = `draft:${form.getAttribute("action")}`;
    text.value ||= sessionStorage.getItem(place) ?? "";
    text.addEventListener("input", () => sessionStorage.setItem(place, text.value));
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.addEventListener("submit", async (event) => {
      if (!("quiet" in form.dataset)) return sessionStorage.removeItem(place);
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      const { ok, html } = await post(form);
      button.disabled = false;
      if (ok) {
        sessionStorage.removeItem(place);
        text.value = "";
      } else {
        complain(form, html);
      }
    });
  }
}
customElements.define("answer-box", AnswerBox);
