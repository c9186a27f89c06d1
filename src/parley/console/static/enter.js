// Enter sends the form of a text field, Shift+Enter adds a line. Code and documents are edited with plain Enter.
export function sendOnEnter() {
  document.addEventListener("keydown", (event) => {
    const text = event.target;
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.defaultPrevented) return;
    if (!(text instanceof HTMLTextAreaElement) || text.classList.contains("code") || !text.form) return;
    event.preventDefault();
    text.form.requestSubmit();
  });
}
