// Lists that the server sends again when runs change: rows are added, replaced, reordered and removed by their ids.
import { fragment } from "./ask.js";
import { follow } from "./stream.js";
import { tellTimes } from "./times.js";

export function tellWaiting(count) {
  const link = document.querySelector('.side nav a[href$="/inbox"]');
  if (!link || count === undefined) return;
  let mark = link.querySelector(".count");
  if (!count) return mark?.remove();
  if (!mark) {
    mark = document.createElement("span");
    mark.className = "count";
    mark.dataset.count = "inbox";
    link.append(mark);
  }
  const hidden = document.createElement("span");
  hidden.className = "visually-hidden";
  hidden.textContent = " waiting";
  mark.replaceChildren(String(count < 100 ? count : "99+"), hidden);
}

// `keep(before, after)` carries what the reader has entered from an old row to the new one; `busy(row, stays)` protects
// a row from being replaced (`stays`) or removed.
export function liveList(url, body, { keep = () => {}, busy = () => false, heard = () => {} } = {}) {
  let first = true;
  return follow(url, "", (told) => {
    for (const [key, html] of Object.entries(told.rows)) {
      const made = fragment(html.trim()).firstElementChild;
      const before = document.getElementById(key);
      if (before && busy(before, true)) continue;
      if (before) {
        keep(before, made);
        before.replaceWith(made);
      } else {
        if (!first) made.classList.add("fresh");
        body.append(made);
      }
    }
    const wanted = new Set(told.order);
    for (const row of [...body.children]) if (!wanted.has(row.id) && !busy(row, false)) row.remove();
    const rows = () => [...body.children].filter((row) => wanted.has(row.id));
    told.order.forEach((key, place) => {
      const row = document.getElementById(key);
      const there = rows()[place];
      if (row && there !== row) body.insertBefore(row, there ?? null);
    });
    first = false;
    tellTimes(body);
    tellWaiting(told.waiting);
    heard(told);
  });
}
