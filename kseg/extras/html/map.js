// The map: a row for each partition, a mark for each segment.
const SIGNS = ["", "i", "!", "?", "\u2715"];
const MOST_CELLS = 3000, FIRST_PARTITIONS = 12, MOST_PARTITIONS = 200, LONG_PARTITION = 100, LONG_RUN = 12;

function cell(file) {
  const what = file.path + ": " + LEVELS[file.level] +
    (file.groups.length ? ", " + file.groups.map((group) => group.rule.name + " \u00d7" + group.total).join(", ") : "");
  return make("button", {
    type: "button", class: "cell " + LEVELS[file.level] + (file.side ? " side" : ""), title: what, "aria-label": what,
    click: () => show(file),
  }, SIGNS[file.level]);
}

function partitionRow(partition) {
  const [, segments, sideFiles, held, records, unlisted] = partition.columns;
  const folder = nameOf(partition.columns), cut = folder.lastIndexOf("/") + 1;
  const counts = [count(segments, "segment"), count(sideFiles, "side file"), count(records, "record"), sizeText(held)];
  const marks = partition.files.length > LONG_PARTITION ? folded(partition.files) : partition.files.map(cell);
  const cells = make("div", { class: "cells" }, marks.slice(0, MOST_CELLS));
  const hidden = marks.slice(MOST_CELLS);
  if (hidden.length) cells.append(more(count(hidden.length, "more mark"), (event) => event.target.replaceWith(...hidden)));
  if (unlisted) cells.append(make("span", { class: "faint" }, "and " + count(unlisted, "more file")));
  return make("div", { class: "partition" },
    make("div", { class: "name mono" }, make("span", { class: "faint" }, folder.slice(0, cut)), folder.slice(cut),
      make("small", { class: "faint" }, counts.join(", "))),
    cells);
}

// In a long partition, many valid segments in a row are one mark, which a click opens.
function folded(files) {
  const marks = [];
  let at = 0;
  while (at < files.length) {
    let end = at;
    while (end < files.length && !files[end].level) end++;
    const run = files.slice(at, end);
    if (run.length > LONG_RUN) marks.push(make("button", { type: "button", class: "run valid",
      click: (event) => event.target.replaceWith(...run.map(cell)) }, number(run.length) + " valid"));
    else marks.push(...run.map(cell));
    if (end < files.length) marks.push(cell(files[end]));
    at = end + 1;
  }
  return marks;
}

function more(text, action) {
  return make("button", { type: "button", click: action }, "Show " + text);
}

function buildMap() {
  const home = byId("map");
  if (!home) return;
  const partitions = data.partitions.map((columns) => ({ columns, files: [], level: 0 }));
  for (const file of files) {
    partitions[file.partition].files.push(file);
    partitions[file.partition].level = Math.max(partitions[file.partition].level, file.level);
  }
  const order = new Intl.Collator("en", { numeric: true });
  for (const one of partitions) one.files.sort((a, b) => order.compare(a.name, b.name));
  partitions.sort((a, b) => b.level - a.level || order.compare(a.columns[0], b.columns[0]));
  const rows = make("div", { class: "partitions" });
  const find = make("input", { type: "search", placeholder: "Find a partition", "aria-label": "Find a partition", input: update });
  const only = make("input", { type: "checkbox", change: update });
  const told = make("span", { class: "faint", role: "status" });
  function update() {
    const wanted = find.value.toLowerCase();
    list(partitions.filter((one) => (!only.checked || one.level > 1) && one.columns[0].toLowerCase().includes(wanted)), 0);
  }
  function list(shown, from) {
    if (!from) rows.replaceChildren();
    let cells = 0, at = from;
    while (at < shown.length && cells < MOST_CELLS && at - from < (from ? MOST_PARTITIONS : FIRST_PARTITIONS)) {
      cells += Math.min(shown[at].files.length, MOST_CELLS);
      rows.append(partitionRow(shown[at++]));
    }
    told.textContent = shown.length < partitions.length ? number(shown.length) + " of " + count(partitions.length, "partition") : "";
    next.replaceChildren(...(at < shown.length ? [more(count(shown.length - at, "more partition"), () => list(shown, at))] : []));
  }
  const next = make("p");
  const legend = make("ul", { class: "legend", "aria-label": "Legend" }, LEVELS.map((name, level) =>
    make("li", null, make("span", { class: "cell " + name, "aria-hidden": "true" }, SIGNS[level]), name)),
    make("li", null, make("span", { class: "cell info side", "aria-hidden": "true" }, "i"), "side file with findings"));
  const tools = make("div", { class: "toolbar" }, find, make("label", null, only, "only with warnings or damage"), told);
  home.append(make("p", { class: "faint" }, "Each mark is a file. Click it to see its bytes, offsets and findings."), legend,
    partitions.length > 6 ? tools : "", rows, next);
  home.hidden = false;
  update();
}
