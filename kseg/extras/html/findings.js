// The list of findings: folded, filtered, and drawn as far as it is looked at.
const FIRST_ROWS = 12, MORE_ROWS = 200, MOST_FINDINGS = 100;

function findingTable(shown, alone) {
  const names = ["Severity", "Rule", ...(alone ? [] : ["File"]), "Where", "Finding"];
  return make("table", { class: "findings" },
    make("thead", null, make("tr", null, names.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", null, shown.map((group) => findingRow(group, alone))));
}

function findingRow(group, alone) {
  const first = group.findings.length ? group.findings[0].message : "not listed";
  const td = (name, ...children) => make("td", { "data-name": name }, make("div", null, children));
  const open = make("button", { type: "button", class: "link", "aria-expanded": "false", click: toggle },
    group.rule.code + " " + group.rule.name, group.total > 1 ? " \u00d7" + number(group.total) : "");
  const row = make("tr", null,
    td("Severity", badge(group.level, severity(group.level)), group.known ? " known" : ""),
    td("Rule", open),
    alone ? "" : td("File", make("button", { type: "button", class: "link", click: () => show(group.file) }, group.file.path)),
    td("Where", make("span", { class: "place" }, placeOf(group) || "-")),
    td("Finding", group.total > 1 ? "The first: " : "", first));
  let details = null;
  function toggle() {
    if (details) { details.remove(); details = null; } else row.after(details = detailsRow(group, row.cells.length));
    open.setAttribute("aria-expanded", String(details !== null));
  }
  return row;
}

function detailsRow(group, columns) {
  const home = make("td", { colspan: columns });
  const wrap = make("div");
  home.append(wrap);
  if (group.rule.broker) wrap.append(make("p", { class: "advice" }, "Broker: ", prose(group.rule.broker)),
    make("p", { class: "advice" }, "What to do: ", prose(group.rule.remedy)));
  const items = make("ol", { class: "several" });
  function list(from) {
    items.append(...group.findings.slice(from, from + MOST_FINDINGS).map((finding) =>
      make("li", null, make("span", { class: "place" }, place(finding)), " ", finding.message)));
    const hidden = group.findings.length - from - MOST_FINDINGS;
    next.replaceChildren(...(hidden > 0 ? [more(count(hidden, "more finding"), () => list(from + MOST_FINDINGS))] : []));
  }
  const next = make("p");
  if (group.id !== null) wrap.append(make("p", null, make("a", { href: "#finding-" + group.id }, "Link to this finding")));
  if (group.total > 1) {
    wrap.append(items, next);
    list(0);
    const unlisted = group.total - group.findings.length;
    const where = group.unlisted ? placeOfAll([group.unlisted]) : "";
    if (unlisted > 0) wrap.append(make("p", { class: "faint" }, count(unlisted, "more finding") + " not listed (--limit)" +
      (where && ": within " + where)));
  }
  return make("tr", { class: "expanded" }, home);
}

function buildSearch() {
  const home = byId("search");
  if (!home || !groups.length) return;
  const select = (all, names) => make("select", { "aria-label": all, change: update }, make("option", { value: "" }, all),
    names.map((name) => make("option", { value: name }, name)));
  const find = make("input", { type: "search", placeholder: "Search in rules, files and messages", "aria-label": "Search findings",
    input: update });
  const levels = [4, 3, 2, 1].filter((level) => groups.some((group) => group.level === level));
  const boxes = new Map(levels.map((level) => [level, make("input", { type: "checkbox", checked: true, change: update })]));
  const rule = select("All rules", [...new Set(groups.map((group) => group.rule.name))].sort());
  const folder = (group) => nameOf(data.partitions[group.file.partition]);
  const partition = select("All partitions", [...new Set(groups.map(folder))].sort());
  const results = make("div", { id: "results" }), next = make("p"), told = make("p", { class: "faint", role: "status" });
  const sum = (shown) => shown.reduce((total, group) => total + group.total, 0);
  function update() {
    const wanted = find.value.toLowerCase();
    const shown = groups.filter((group) => boxes.get(group.level).checked && (!rule.value || rule.value === group.rule.name) &&
      (!partition.value || partition.value === folder(group)) && (!wanted || matches(group, wanted)));
    told.textContent = count(sum(shown), "finding") + " in " + count(shown.length, "row") +
      (shown.length < groups.length ? ", of " + number(sum(groups)) : "");
    const table = findingTable(shown.slice(0, FIRST_ROWS), false);
    results.replaceChildren(shown.length ? table : make("p", null, "No finding matches."));
    let at = FIRST_ROWS;
    function extend() {
      table.tBodies[0].append(...shown.slice(at, at + MORE_ROWS).map((group) => findingRow(group, false)));
      at += MORE_ROWS;
      offer();
    }
    const offer = () => next.replaceChildren(...(at < shown.length ? [more(count(shown.length - at, "more row"), extend)] : []));
    offer();
  }
  home.append(make("div", { class: "toolbar" }, find, levels.map((level) => make("label", null, boxes.get(level), severity(level))),
    rule, partition), told, results, next);
  home.hidden = false;
  home.addEventListener("all", update);
  byId("listed").hidden = true;
  update();
}

// Show the row of one finding, opened, alone in the list: an address that ends with #finding- and a number leads to it.
function showFinding(group) {
  const table = findingTable([group], false), results = byId("results");
  results.replaceChildren(table, make("p", null, more(count(groups.length, "row"), () => byId("search").dispatchEvent(new Event("all")))));
  table.querySelector("button.link").click();
  results.scrollIntoView();
}

function matches(group, wanted) {
  const named = group.rule.code + " " + group.rule.name + " " + group.file.path;
  return named.toLowerCase().includes(wanted) || group.findings.some((one) => one.message.toLowerCase().includes(wanted));
}
