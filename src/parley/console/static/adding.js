// <definition-file>: loads a local file into the text field, where it can still be edited.
const MOST = 256 * 1024;

class DefinitionFile extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    const input = this.querySelector("input");
    const text = this.closest("form").querySelector("textarea");
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (file && file.size <= MOST) text.value = await file.text();
      input.setCustomValidity(file && file.size > MOST ? "The file is too large: a definition may have at most 256 kB." : "");
      input.reportValidity();
    });
  }
}
customElements.define("definition-file", DefinitionFile);
