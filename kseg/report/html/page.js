"use strict";
// The map of segments, the view of one segment, and the search in the findings. The data is in the element "data"; its
// columns are those of collected.py. All text is set as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data.files) return;
  const LEVELS = ["valid", "info", "warning", "undetermined", "damaged"];
  const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  const SIGNS = ["", "i", "!", "?", "\u2715"];
  const MOST_CELLS = 3000, MOST_ROWS = 50, MOST_FINDINGS = 100, LONG_PARTITION = 100, LONG_RUN = 12;

  const byId = (id) => document.getElementById(id);
  const number = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const count = (value, noun, nouns) => number(value) + " " + (value === 1 ? noun : nouns || noun + "s");
  function sizeText(bytes) {
    let unit = 0;
    while (bytes >= 1024 && unit < UNITS.length) { bytes /= 1024; unit++; }
    return unit ? bytes.toFixed(1) + " " + UNITS[unit - 1] : count(bytes, "byte");
  }
  // Damaged timestamps can be outside of the range of Date.
  const time = (value) => Math.abs(value) > 8.64e15 ? number(value) : new Date(value).toISOString().slice(0, 19) + "Z";

  // Return an element with attributes and children; texts become text nodes.
  function make(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
  }
  function draw(tag, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== ""));
    return element;
  }

  const files = data.files.map(([partition, name, level, bytes, batches, records, lost, unread], id) => ({
    id, partition, name, level, bytes, batches, records, lost, unread, groups: [], side: !name.endsWith(".log"),
    path: data.partitions[partition][0] + name,
  }));
  const rules = data.rules.map(([code, name, broker, remedy]) => ({ code, name, broker, remedy }));
  const groups = data.groups.map(([file, rule, level, known, total, findings]) => ({
    file: files[file], rule: rules[rule], level, known, total,
    findings: findings.map(([position, end, offset, last, message]) => ({ position, end, offset, last, message })),
  }));
  const UNREAD = { code: "", name: "could not be read", broker: "", remedy: "" };
  const unread = files.filter((file) => file.unread).map((file) => ({
    file, rule: UNREAD, level: 3, known: 0, total: 1,
    findings: [{ position: null, end: null, offset: null, last: null, message: file.unread }],
  }));
  const firstBelow = groups.findIndex((group) => group.level < 4);
  groups.splice(firstBelow < 0 ? groups.length : firstBelow, 0, ...unread);
  for (const group of groups) group.file.groups.push(group);

  const nameOf = ([folder]) => folder.slice(0, -1) || folder || ".";
  const prose = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", null, part) : part));
  const severity = (level) => (level === 4 ? "error" : level === 3 ? "unreadable" : LEVELS[level]);
  const badge = (level, text) => make("span", { class: "badge " + LEVELS[level] }, text);

  // The places are worded as in wording.py; those of several findings are a range.
  function offsets(first, last) {
    if (first === null) return last === null ? "" : "offsets up to " + number(last);
    return last === null || last === first ? "offset " + number(first) : "offsets " + number(first) + " to " + number(last);
  }
  function bytes(position, end) {
    if (position === null) return "";
    return "byte " + number(position) + (end > position ? " (" + count(end - position, "byte") + ")" : "");
  }
  const place = (one) => [bytes(one.position, one.end), offsets(one.offset, one.last)].filter(Boolean).join(", ");
  function placeOf(group) {
    if (group.findings.length < 2) return group.findings.length ? place(group.findings[0]) : "";
    const ends = (one, other) => {
      const known = group.findings.flatMap((found) => [found[one], found[other]]).filter((at) => at !== null);
      known.sort((a, b) => Number(a) - Number(b));
      return known.length ? [known[0], known[known.length - 1]] : [null, null];
    };
    const [first, last] = ends("position", "end");
    return [first === null ? "" : "bytes " + number(first) + ".." + number(last), offsets(...ends("offset", "last"))]
      .filter(Boolean).join(", ");
  }

  // -- the map

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
      while (at < shown.length && cells < MOST_CELLS && at - from < 200) {
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
    home.append(make("p", { class: "faint" }, "One mark for each segment. Click it to see its bytes, offsets and findings."), legend,
      partitions.length > 6 ? tools : "", rows, next);
    home.hidden = false;
    update();
  }

  // -- one segment

  function strip(kind, label, width, ...children) {
    return draw("svg", { class: "strip " + kind, viewBox: "0 0 " + width + " 100", preserveAspectRatio: "none", role: "img",
      "aria-label": label }, children);
  }
  const ends = (first, last) => make("div", { class: "ends" }, make("span", null, first), make("span", null, last));
  const titled = (element, text) => { element.append(draw("title", null, text)); return element; };

  // The marks of findings between two positions or offsets. A mark has a minimum width, and its height shows its severity.
  function marks(file, low, high, first, last, step) {
    const drawn = [], seen = new Set(), size = Math.max(high - low, 1);
    for (const group of [...file.groups].reverse()) {
      for (const finding of group.findings) {
        if (finding[first] === null && finding[last] === null) continue;
        const begin = Number(finding[first] === null ? finding[last] : finding[first]);
        const end = Math.max(finding[last] === null ? begin : Number(finding[last]) + step, begin);
        if (end <= low || begin >= high) continue;
        const width = Math.min(Math.max((end - begin) / size * 1000, 3), 1000);
        const x = Math.min(Math.max((begin - low) / size * 1000, 0), 1000 - width);
        const height = [0, 35, 65, 65, 100][group.level], where = [height, Math.round(x), Math.round(width)].join();
        if (seen.has(where)) continue;
        seen.add(where);
        drawn.push(titled(draw("rect", { class: LEVELS[group.level], x: x.toFixed(2), y: 100 - height, width: width.toFixed(2),
          height }), group.rule.code + " " + group.rule.name + ": " + place(finding)));
      }
    }
    return drawn;
  }

  function byBytes(file, outline) {
    const size = Math.max(file.bytes, ...file.groups.flatMap((group) => group.findings.map((found) => Number(found.end || 0))));
    const found = marks(file, 0, size, "position", "end", 0);
    if (!size || !(found.length || outline)) return [];
    const parts = [make("h3", null, outline ? "By byte: findings, and below them codecs" : "By byte"), strip("marks", count(found.length, "finding") + " by byte", 1000, found)];
    if (outline) parts.push(codecStrip(outline, outline.codecs.map((codec, at) =>
      [at * outline.width, Math.min((at + 1) * outline.width, size), codec]), size));
    parts.push(ends("byte 0", "byte " + number(size)));
    return parts;
  }

  function byOffsets(file, outline) {
    const covered = outline ? outline.offsets.filter((pair) => pair[0] !== null) : [];
    const found = file.groups.flatMap((group) => group.findings).filter((one) => one.offset !== null && one.last !== null);
    const range = (known) => known.reduce(([a, b], at) => [Math.min(a, Number(at)), Math.max(b, Number(at) + 1)], [Infinity, -Infinity]);
    const own = range(covered.flat()), all = range([...covered.flat(), ...found.flatMap((one) => [one.offset, one.last])]);
    // Offsets of damaged headers can be far away: they would hide all others.
    const [low, high] = covered.length && all[1] - all[0] > 4 * (own[1] - own[0]) ? own : all;
    if (low > high) return [];
    const drawn = marks(file, low, high, "offset", "last", 1);
    const parts = [make("h3", null, covered.length ? "By offset: findings, and below them codecs" : "By offset"), strip("marks", count(drawn.length, "finding") + " by offset", 1000, drawn)];
    if (covered.length) parts.push(codecStrip(outline, outline.offsets.map((pair, at) =>
      [Number(pair[0]) - low, Number(pair[1]) + 1 - low, pair[0] === null ? null : outline.codecs[at]]), high - low));
    parts.push(ends("offset " + number(low), "offset " + number(high - 1)));
    return parts;
  }

  function codecStrip(outline, ranges, width) {
    const scale = 1000 / width;
    const used = [...new Set(outline.codecs.filter((codec) => codec !== null))];
    return [strip("codecs", "Codecs: " + used.map((codec) => data.codecs[codec]).join(", "), 1000, ranges.map(([begin, end, codec]) =>
      codec === null ? null : titled(draw("rect", { class: "k" + codec, x: begin * scale, y: 0,
        width: Math.max((end - begin) * scale, 0.5), height: 100 }), data.codecs[codec])))];
  }

  function bars(title, values, buckets, text, edges) {
    const highest = Math.max(...values);
    if (!(highest > 0)) return null;
    return make("figure", null, make("figcaption", null, title + ", at most " + text(highest)),
      strip("tall", title, buckets, values.map((value, at) => value > 0 ? titled(draw("rect", { class: "bytes", x: at,
        y: 100 - 100 * value / highest, width: 0.9, height: 100 * value / highest }), text(value)) : null)), ends(...edges));
  }

  function times(outline, buckets, edges) {
    const known = outline.times.map((value, at) => [at + 0.5, value]).filter(([, value]) => value >= 0);
    if (known.length < 2) return null;
    const low = known.reduce((a, [, value]) => Math.min(a, value), Infinity);
    const high = known.reduce((a, [, value]) => Math.max(a, value), -Infinity);
    const points = known.map(([at, value]) => at + "," + (95 - 90 * (value - low) / Math.max(high - low, 1)).toFixed(1));
    return make("figure", null, make("figcaption", null, "Timestamps, " + time(low) + " to " + time(high)),
      strip("tall", "Largest timestamp by byte", buckets, draw("polyline", { points: points.join(" ") })),
      ends(...edges));
  }

  function plots(file, outline) {
    if (!outline) return [];
    const edges = ["byte 0", "byte " + number(file.bytes)], buckets = Math.ceil(file.bytes / outline.width);
    const drawn = [times(outline, buckets, edges),
      bars("Largest batch", outline.largest, buckets, (size) => count(size, "byte"), edges),
      bars("Most records in a batch", outline.records, buckets, (total) => count(total, "record"), edges)].filter(Boolean);
    const used = [...new Set(outline.codecs.filter((codec) => codec !== null))].sort();
    const legend = make("ul", { class: "legend", "aria-label": "Codecs" }, used.map((codec) =>
      make("li", null, make("span", { class: "swatch k" + codec }), "codec " + data.codecs[codec])));
    const producers = outline.producers.length ? make("p", null, "Producers by bytes: " + outline.producers.map(([id, bytes]) =>
      id + " (" + count(bytes, "byte") + ")").join(", ")) : "";
    const shown = outline.codecs.length ? legend : "";
    return [shown, make("div", { class: "plots" }, drawn), producers];
  }

  function show(file) {
    const dialog = byId("segment");
    const outline = (data.outlines || {})[file.id];
    const counts = [count(file.bytes, "byte"), count(file.batches, "batch", "batches"),
      file.records === null ? "records not counted" : count(file.records, "record"), count(file.lost, "lost byte")];
    dialog.className = LEVELS[file.level];
    dialog.replaceChildren(
      make("div", { class: "dialog-head" },
        make("div", null, make("h2", { id: "segment-name" }, file.path),
          make("p", null, badge(file.level, LEVELS[file.level]), " ", make("span", { class: "faint" }, counts.join(", ")))),
        make("button", { type: "button", click: () => dialog.close() }, "Close")),
      make("div", { class: "dialog-body" }, byBytes(file, outline), byOffsets(file, outline), plots(file, outline),
        make("h3", null, file.groups.length ? "Findings" : "No findings"),
        file.groups.length ? findingTable(file.groups, true) : ""));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    history.replaceState(null, "", "#file-" + file.id);
  }

  // -- findings

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
    if (group.total > 1) {
      wrap.append(items, next);
      list(0);
      const unlisted = group.total - group.findings.length;
      if (unlisted > 0) wrap.append(make("p", { class: "faint" }, count(unlisted, "more finding") + " not listed (--max-per-rule)"));
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
      const table = findingTable(shown.slice(0, MOST_ROWS), false);
      results.replaceChildren(shown.length ? table : make("p", null, "No finding matches."));
      let at = MOST_ROWS;
      function extend() {
        table.tBodies[0].append(...shown.slice(at, at + 4 * MOST_ROWS).map((group) => findingRow(group, false)));
        at += 4 * MOST_ROWS;
        offer();
      }
      const offer = () => next.replaceChildren(...(at < shown.length ? [more(count(shown.length - at, "more row"), extend)] : []));
      offer();
    }
    home.append(make("div", { class: "toolbar" }, find, levels.map((level) => make("label", null, boxes.get(level), severity(level))),
      rule, partition), told, results, next);
    home.hidden = false;
    byId("listed").hidden = true;
    update();
  }

  function matches(group, wanted) {
    const named = group.rule.code + " " + group.rule.name + " " + group.file.path;
    return named.toLowerCase().includes(wanted) || group.findings.some((one) => one.message.toLowerCase().includes(wanted));
  }

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
})();
