// <try-box>: sends a message to an agent and shows its run below, live.
import { complain, fragment, post } from "./ask.js";
import { tellTimes } from "./times.js";

class TryBox extends HTMLElement {
  connectedCallback() {
    const form = this.querySelector("form");
    const text = this.querySelector("textarea");
    const out = this.querySelector(".try-out");
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      const { ok, html } = await post(form);
      button.disabled = false;
      if (!ok) return complain(form, html);
      complain(form, "");
      text.value = "";
      out.replaceChildren(fragment(html));
      out.hidden = false;
      tellTimes(out);
    });
  }
}
customElements.define("try-box", TryBox);
