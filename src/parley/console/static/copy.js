// <copy-text>: a text and a button that copies it.
class CopyText extends HTMLElement {
  connectedCallback() {
    this.querySelector("button").addEventListener("click", () => this.#copy());
  }

  async #copy() {
    const code = this.querySelector("code, pre");
    const label = this.querySelector("button span");
    const before = label.textContent;
    try {
      await navigator.clipboard.writeText(code.textContent);
      this.classList.add("copied");
      label.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      label.textContent = "Selected. Copy with your keyboard.";
    }
    setTimeout(() => {
      this.classList.remove("copied");
      label.textContent = before;
    }, 2000);
  }
}
customElements.define("copy-text", CopyText);
