// The data of the page, and the functions that all parts use. The data is JSON in the element "data"; its columns are those of
// collected.py. All text is set as text, never as markup. page.py joins the files of the script into one block.
const data = JSON.parse(document.getElementById("data").textContent);
const LEVELS = ["valid", "info", "warning", "undetermined", "damaged"];
const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

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

const files = (data.files || []).map(([partition, name, level, side, bytes, batches, records, lost, unread], id) => ({
  id, partition, name, level, bytes, batches, records, lost, unread, groups: [], side: side > 0,
  path: data.partitions[partition][0] + name,
}));
const rules = (data.rules || []).map(([code, name, broker, remedy]) => ({ code, name, broker, remedy }));
// The CRC covers the offsets, too: those of a batch with a wrong one are uncertain.
const toFinding = (rule, [position, end, offset, last, message]) => ({ position, end, offset, last, message,
  uncertain: rule.name === "crc-mismatch" && (offset !== null || last !== null) });
const groups = (data.groups || []).map(([file, rule, level, known, total, findings, rest], id) => ({
  id, file: files[file], rule: rules[rule], level, known, total,
  unlisted: rest && toFinding(rules[rule], rest), findings: findings.map((columns) => toFinding(rules[rule], columns)),
}));
const UNREAD = { code: "", name: "could not be read", broker: "", remedy: "" };
const unread = files.filter((file) => file.unread).map((file) => ({
  id: null, file, rule: UNREAD, level: 3, known: 0, total: 1, unlisted: null,
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
  return last === null || last === first ? "offset " + number(first) : "offsets " + number(first) + ".." + number(last);
}
function bytes(position, end) {
  if (position === null) return "";
  return "byte " + number(position) + (end > position ? " (" + count(end - position, "byte") + ")" : "");
}
const place = (one) => [bytes(one.position, one.end), offsets(one.offset, one.last)].filter(Boolean).join(", ") +
  (one.uncertain ? " (if the header is right)" : "");
// The range of the findings of a group that are not listed, and the listed findings.
const withRest = (group) => [].concat(group.unlisted || [], group.findings);
const placeOf = (group) => group.total === 1 && group.findings.length ? place(group.findings[0]) : placeOfAll(withRest(group));
function placeOfAll(findings) {
  const ends = (one, other) => {
    const known = findings.flatMap((found) => [found[one], found[other]]).filter((at) => at !== null);
    known.sort((a, b) => Number(a) - Number(b));
    return known.length ? [known[0], known[known.length - 1]] : [null, null];
  };
  const [first, last] = ends("position", "end");
  return [first === null ? "" : "bytes " + number(first) + ".." + number(Math.max(first, last - 1)), offsets(...ends("offset", "last"))]
    .filter(Boolean).join(", ") + (findings.some((one) => one.uncertain) ? " (if the headers are right)" : "");
}
