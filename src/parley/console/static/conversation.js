// Reloads a conversation when its run has ended: there may be a new message or version.
document.querySelector(".under-way")?.addEventListener("run-changed", ({ detail }) => {
  if (["completed", "failed", "canceled", "rejected"].includes(detail.state)) location.reload();
});
