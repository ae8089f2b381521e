// Start: the pages of stats, recovery and transactions have no data.
function showHash() {
  const match = /^#file-(\d+)$/.exec(location.hash);
  if (match && files[match[1]]) show(files[match[1]]);
}

buildMap();
buildSearch();
const dialog = byId("segment");
dialog.addEventListener("close", () => history.replaceState(null, "", "#segments"));
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
addEventListener("hashchange", showHash);
showHash();
