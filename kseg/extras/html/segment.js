// The dialog of one segment: strips by byte and by offset, plots, and its findings.
function strip(kind, label, width, ...children) {
  return draw("svg", { class: "strip " + kind, viewBox: "0 0 " + width + " 100", preserveAspectRatio: "none", role: "img",
    "aria-label": label }, children);
}
const ends = (first, last) => make("div", { class: "ends" }, make("span", null, first), make("span", null, last));
const titled = (element, text) => { element.append(draw("title", null, text)); return element; };

// The marks of findings between two positions or offsets. A mark has a minimum width, and its height shows its severity.
// Findings that are not listed are one pale mark.
function marks(file, low, high, first, last, step) {
  const drawn = [], seen = new Set(), size = Math.max(high - low, 1);
  for (const group of [...file.groups].reverse()) {
    for (const finding of withRest(group)) {
      if (finding[first] === null && finding[last] === null) continue;
      const begin = Number(finding[first] === null ? finding[last] : finding[first]);
      const end = Math.max(finding[last] === null ? begin : Number(finding[last]) + step, begin);
      if (end <= low || begin >= high) continue;
      const width = Math.min(Math.max((end - begin) / size * 1000, 3), 1000);
      const x = Math.min(Math.max((begin - low) / size * 1000, 0), 1000 - width);
      const height = [0, 35, 65, 65, 100][group.level], where = [height, Math.round(x), Math.round(width)].join();
      const rest = finding === group.unlisted;
      if (seen.has(where)) continue;
      seen.add(where);
      drawn.push(titled(draw("rect", { class: LEVELS[group.level] + (rest ? " rest" : ""), x: x.toFixed(2), y: 100 - height,
        width: width.toFixed(2), height }), group.rule.code + " " + group.rule.name + ": " + (rest ?
        count(group.total - group.findings.length, "more finding") + " within " + placeOfAll([finding]) : place(finding))));
    }
  }
  return drawn;
}

function byBytes(file, outline) {
  const size = Math.max(file.bytes, ...file.groups.flatMap((group) => withRest(group).map((found) => Number(found.end || 0))));
  const found = marks(file, 0, size, "position", "end", 0);
  if (!size || !(found.length || outline)) return [];
  const parts = [make("h3", null, outline ? "By byte: findings, and below them codecs" : "By byte"), strip("marks", count(found.length, "mark") + " of findings by byte", 1000, found)];
  if (outline) parts.push(codecStrip(outline, outline.codecs.map((codec, at) =>
    [at * outline.width, Math.min((at + 1) * outline.width, size), codec]), size));
  parts.push(ends("byte 0", "byte " + number(size)));
  return parts;
}

function byOffsets(file, outline) {
  const covered = outline ? outline.offsets.filter((pair) => pair[0] !== null) : [];
  const found = file.groups.flatMap(withRest).filter((one) => one.offset !== null && one.last !== null);
  const range = (known) => known.reduce(([a, b], at) => [Math.min(a, Number(at)), Math.max(b, Number(at) + 1)], [Infinity, -Infinity]);
  const own = range(covered.flat()), all = range([...covered.flat(), ...found.flatMap((one) => [one.offset, one.last])]);
  // Offsets of damaged headers can be far away: they would hide all others.
  const [low, high] = covered.length && all[1] - all[0] > 4 * (own[1] - own[0]) ? own : all;
  if (low > high) return [];
  const drawn = marks(file, low, high, "offset", "last", 1);
  const parts = [make("h3", null, covered.length ? "By offset: findings, and below them codecs" : "By offset"), strip("marks", count(drawn.length, "mark") + " of findings by offset", 1000, drawn)];
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
