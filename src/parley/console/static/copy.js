// <copy-text>: a text and a button that copies it. Code in formatted text gets such a button too.
async function copy(code, label, shown = () => {}) {
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(code.textContent);
    shown(true);
    label.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    label.textContent = "Selected. Copy with your keyboard.";
  }
  setTimeout(() => {
    shown(false);
    label.textContent = before;
  }, 2000);
}

export function copyCode() {
  const add = () => {
    for (const code of document.querySelectorAll(".words:not(.growing) > pre:not([data-copied])")) {
      code.dataset.copied = "";
      const button = document.createElement("button");
      button.type = "button";
      button.className = "quiet copy-code";
      button.textContent = "Copy code";
      button.addEventListener("click", () => copy(code, button));
      code.before(button);
    }
  };
  add();
  new MutationObserver(add).observe(document.body, { childList: true, subtree: true });
}

class CopyText extends HTMLElement {
  connectedCallback() {
    this.querySelector("button").addEventListener("click", () => this.#copy());
  }

  #copy() {
    const shown = (copied) => this.classList.toggle("copied", copied);
    return copy(this.querySelector("code, pre"), this.querySelector("button span"), shown);
  }
}
customElements.define("copy-text", CopyText);
