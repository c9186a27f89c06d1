// Submits forms without leaving the page. The response is HTML that the server rendered and escaped.
const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

export async function post(form, submitter = null) {
  const data = new FormData(form, submitter);
  const reply = await fetch(form.action, {
    method: "POST",
    body: form.enctype === "multipart/form-data" ? data : new URLSearchParams(data),
    headers: { "X-Requested-With": "parley", "X-CSRF-Token": csrf },
  });
  return { ok: reply.ok, html: reply.status === 204 ? "" : await reply.text() };
}

export function fragment(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// Shows the error notice after the form that was refused.
export function complain(form, html) {
  form.parentElement.querySelector(":scope > .notice")?.remove();
  const notice = fragment(html).querySelector(".notice");
  if (notice) form.after(notice);
}
