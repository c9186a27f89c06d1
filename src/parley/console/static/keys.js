// Keyboard shortcuts: they work outside of fields, without modifiers, and can be switched off.
const PLACES = { i: "inbox", r: "runs", a: "agents", c: "conversations", o: "orchestrations", u: "usage" };
const ROWS = "li.run-row > a, tr.run-row th a, .agent-table th a, .step-row, .questions article footer a, .timeline .entry, .talk .entry";
const OFF = "shortcuts:off";
const WAIT_MS = 1200;
let went = 0;

function rows() {
  return [...document.querySelectorAll(ROWS)].filter((row) => row.offsetParent !== null);
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const here = all.findIndex((row) => row.contains(document.activeElement));
  const row = all[Math.min(all.length - 1, Math.max(0, here === -1 ? (by > 0 ? 0 : all.length - 1) : here + by))];
  if (!row.matches("a")) row.setAttribute("tabindex", "-1");
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

function search() {
  const field = document.querySelector('main input[type="search"], main [name="q"], main #say, main .answer textarea');
  field?.focus();
  return Boolean(field);
}

export function useKeys() {
  const dialog = document.getElementById("keys");
  if (!dialog) return;
  const on = document.getElementById("keys-on");
  const button = document.getElementById("show-keys");
  on.checked = !localStorage.getItem(OFF);
  on.addEventListener("change", () => (on.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")));
  button.hidden = false;
  button.addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const typing = target.closest("input, textarea, select, [contenteditable], dialog");
    if (!on.checked || typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const place = went && Date.now() - went < WAIT_MS ? PLACES[key] : undefined;
    went = 0;
    let done = true;
    if (place) location.href = `/console/${place}`;
    else if (key === "g") went = Date.now();
    else if (key === "?") dialog.showModal();
    else if (key === "/") done = search();
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "e") scrollTo(0, document.documentElement.scrollHeight);
    else done = false;
    if (done) event.preventDefault();
  });
}
