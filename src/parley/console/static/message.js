// <message-box>: shows the files that were chosen, with a preview of images, and takes files that are pasted or dropped.
const EDGE = 96;

class MessageBox extends HTMLElement {
  #urls = 0;

  connectedCallback() {
    const form = this.querySelector("form");
    const input = form.querySelector('input[type="file"]');
    const text = form.querySelector("textarea");
    input.addEventListener("change", () => this.#show(input));
    form.addEventListener("reset", () => setTimeout(() => this.#show(input)));
    form.addEventListener("input", () => text.setCustomValidity(""));
    form.addEventListener("submit", (event) => {
      if (text.value.trim() || input.files.length) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      text.setCustomValidity("Write a message or attach a file first.");
      text.reportValidity();
    });
    this.addEventListener("paste", (event) => this.#add(input, event.clipboardData?.files, event));
    this.addEventListener("dragover", (event) => event.preventDefault());
    this.addEventListener("drop", (event) => this.#add(input, event.dataTransfer?.files, event));
  }

  #add(input, files, event) {
    if (!files?.length) return;
    event.preventDefault();
    const all = new DataTransfer();
    for (const file of [...input.files, ...files]) all.items.add(file);
    input.files = all.files;
    this.#show(input);
  }

  #show(input) {
    const list = this.querySelector(".chosen");
    const round = ++this.#urls;
    list.hidden = !input.files.length;
    list.replaceChildren(
      ...[...input.files].map((file) => {
        const row = document.createElement("li");
        const name = document.createElement("bdi");
        name.textContent = file.name;
        const remove = document.createElement("button");
        remove.type = "button";
        remove.className = "quiet";
        remove.textContent = "Remove";
        remove.setAttribute("aria-label", `Remove ${file.name}`);
        remove.addEventListener("click", () => {
          const rest = new DataTransfer();
          for (const one of input.files) if (one !== file) rest.items.add(one);
          input.files = rest.files;
          this.#show(input);
        });
        row.append(name, remove);
        if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
          preview(file).then((canvas) => canvas && round === this.#urls && row.prepend(canvas));
        }
        return row;
      }),
    );
  }
}
customElements.define("message-box", MessageBox);

// A canvas, because the policy of the pages allows images only from this server.
async function preview(file) {
  const image = await createImageBitmap(file).catch(() => null);
  if (!image) return null;
  const scale = Math.min(1, EDGE / Math.max(image.width, image.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Preview of ${file.name}`);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  image.close();
  return canvas;
}
