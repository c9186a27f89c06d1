// <try-box>: sends messages to an agent and shows its runs above the form, live. All are one conversation.
import "./message.js";
import { complain, fragment, post } from "./ask.js";
import { tellTimes } from "./times.js";

class TryBox extends HTMLElement {
  connectedCallback() {
    const form = this.querySelector("form");
    const out = this.querySelector(".try-out");
    const memory = this.querySelector(".try-memory");
    const field = form.elements.conversation;
    form.addEventListener("submit", async (event) => {
      if (event.defaultPrevented) return;
      event.preventDefault();
      const button = form.querySelector("button.primary");
      const sent = post(form);
      button.disabled = true;
      const { ok, html } = await sent;
      button.disabled = false;
      if (!ok) return complain(form, html);
      complain(form, "");
      form.reset();
      const made = fragment(html);
      field.value = made.querySelector("[data-conversation]").dataset.conversation;
      memory.querySelector("a").href = `/console/conversations/${encodeURIComponent(field.value)}`;
      out.append(made);
      out.hidden = memory.hidden = false;
      tellTimes(out);
    });
    memory.querySelector("button").addEventListener("click", () => {
      field.value = "";
      out.replaceChildren();
      out.hidden = memory.hidden = true;
      form.elements.text.focus();
    });
  }
}
customElements.define("try-box", TryBox);
