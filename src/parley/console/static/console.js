// Shared by all pages: the menu, relative times, copy buttons and the connection status.
import { keepTimes } from "./times.js";
import { watchConnection } from "./connection.js";
import { sendOnEnter } from "./enter.js";
import { copyCode } from "./copy.js";
import { useKeys } from "./keys.js";
import { tellWaiting } from "./live.js";

const button = document.querySelector(".menu-button");
const body = document.getElementById("nav");
button?.addEventListener("click", () => {
  const open = body.classList.toggle("open");
  button.setAttribute("aria-expanded", String(open));
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && body?.classList.contains("open")) {
    body.classList.remove("open");
    button.setAttribute("aria-expanded", "false");
    button.focus();
  }
});
keepTimes();
sendOnEnter();
copyCode();
useKeys();
watchConnection(tellWaiting);
