// <definition-file>: puts a file of this computer into the text field, where it can still be changed.
const MOST = 256 * 1024;

class DefinitionFile extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    const input = this.querySelector("input");
    const text = this.closest("form").querySelector("textarea");
    input.addEventListener("change", async () => {
      const [file] = input.files;
      if (file && file.size <= MOST) text.value = await file.text();
      input.setCustomValidity(file && file.size > MOST ? "A definition has at most 256 kB." : "");
      input.reportValidity();
    });
  }
}
customElements.define("definition-file", DefinitionFile);
