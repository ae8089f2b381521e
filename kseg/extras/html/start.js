// Start: the pages of stats, recovery and transactions have no data.
function showHash() {
  const [, kind, id] = /^#(file|finding)-(\d+)$/.exec(location.hash) || [];
  if (kind === "file" && files[id]) show(files[id]);
  const group = kind === "finding" && groups.find((one) => String(one.id) === id);
  if (group) showFinding(group);
}

buildMap();
buildSearch();
const dialog = byId("segment");
dialog.addEventListener("close", () => history.replaceState(null, "", "#segments"));
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
addEventListener("hashchange", showHash);
showHash();
