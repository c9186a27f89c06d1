// Relative times ("2 minutes ago"). The server renders the full time; it stays in the title.
const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

function said(at, now) {
  const seconds = Math.round((at - now) / 1000);
  const past = Math.abs(seconds);
  if (past < 10) return "just now";
  if (past < 60) return words.format(seconds, "second");
  if (past < 3600) return words.format(Math.round(seconds / 60), "minute");
  if (past < 86400) return words.format(Math.round(seconds / 3600), "hour");
  if (past < 7 * 86400) return words.format(Math.round(seconds / 86400), "day");
  return day.format(at);
}

function elapsed(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function tellTimes(root = document) {
  const now = Date.now();
  for (const element of root.querySelectorAll("time[data-running]")) {
    const text = elapsed(now - Date.parse(element.dateTime));
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of root.querySelectorAll("time[data-ago]")) {
    const at = Date.parse(element.dateTime);
    element.title ||= full.format(at);
    const text = said(at, now);
    if (element.textContent !== text) element.textContent = text;
  }
}

export function keepTimes() {
  tellTimes();
  setInterval(() => tellTimes(), 1_000);
}
