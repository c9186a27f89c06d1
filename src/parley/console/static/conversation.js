// A conversation is shown anew when its run has come to an end: there may be a message, or a version, more.
document.querySelector(".under-way")?.addEventListener("run-changed", ({ detail }) => {
  if (["completed", "failed", "canceled", "rejected"].includes(detail.state)) location.reload();
});
