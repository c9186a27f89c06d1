// Reloads a conversation when its run has ended: there may be a new message or version. Begins at the latest message.
const ENDED = ["completed", "failed", "canceled", "rejected"];
const run = document.querySelector(".under-way");
const reloadAt = (state) => ENDED.includes(state) && location.reload();
run?.addEventListener("run-changed", ({ detail }) => reloadAt(detail.state));
// It may have ended before this script was loaded.
reloadAt(run?.querySelector("run-timeline").dataset.state);

const query = new URLSearchParams(location.search);
if (!location.hash && !query.has("before") && !query.has("exported")) {
  document.querySelector(".under-way .panel, .talk .composer")?.scrollIntoView({ block: "end" });
}
