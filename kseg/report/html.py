"""``kseg validate --format html``: one self-contained page, to read, print, mail or attach to an incident.

It contains neither scripts nor assets, and a content security policy forbids both. Colours follow
``prefers-color-scheme``. Content of files is escaped. The text is ASCII with character references, so it is correct in
every encoding.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from html import escape
from string import Template
from typing import Any, TextIO

from kseg.findings import RULES, Severity, Verdict
from kseg.report.wording import advice, omitted_findings, place, places, printable
from kseg.results import FileResult, Summary
from kseg.text import count_of

# The summary comes first on the page and is known last: until then the parts of the files are buffered, in memory up to
# this size and beyond it in an unnamed temporary file.
_SPOOL_BYTES = 8 << 20
# The units of the byte map. A mark has a minimum width: one batch of 1 GiB would be invisible.
_MAP_WIDTH, _MAP_HEIGHT, _MARK_WIDTH = 1000.0, 24, 3.0
# The height shows the severity, too, for people who do not see the colours.
_MARK_HEIGHTS = {"info": 8, "warning": 16, "error": 24}
_VERDICTS = {
    "sound": "No errors were found.",
    "damaged": "Errors were found.",
    "undetermined": "No errors were found, but some data could not be read.",
}

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1d2125; --faint: #5b636b; --line: #d4d8dc; --panel: #f5f6f8;
  --error: #b3261e; --warning: #8a5300; --info: #1f5fa8; --sound: #1a6b34; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #15181b; --text: #e6e8ea; --faint: #a3abb3;
  --line: #3a4148; --panel: #1e2226; --error: #ff8a80; --warning: #f2b34c; --info: #82b8f5; --sound: #7bd08f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1.25rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
h3, .place, .ends { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
p { margin: .25rem 0; } .faint { color: var(--faint); }
.verdict { border-left: .4rem solid; padding: .25rem .75rem; margin: 1rem 0; } .verdict strong { font-size: 1.25rem; }
.error, .damaged { color: var(--error); fill: var(--error); } .warning, .undetermined { color: var(--warning);
  fill: var(--warning); } .info { color: var(--info); fill: var(--info); } .sound { color: var(--sound); }
.counts { display: flex; flex-wrap: wrap; gap: .5rem; margin: 1rem 0; padding: 0; }
.counts div { background: var(--panel); border: 1px solid var(--line); border-radius: .35rem; padding: .4rem .8rem; }
.counts dt { color: var(--faint); font-size: .85rem; } .counts dd { margin: 0; font-size: 1.15rem; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; font-size: .925rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--faint); font-weight: 600; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; } td { overflow-wrap: anywhere; } td.fixed { white-space: nowrap; }
.place { font-size: .85rem; }
.findings th:nth-child(1) { width: 6rem; } .findings th:nth-child(2) { width: 13rem; }
.findings th:nth-child(3) { width: 15rem; } .advice { color: var(--faint); font-size: .875rem; }
section.file { border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; margin: 1rem 0; }
.map { display: block; width: 100%; height: 1.75rem; margin-top: .75rem; background: var(--panel);
  border: 1px solid var(--line); } .ends { display: flex; justify-content: space-between; font-size: .8rem; }
footer { margin-top: 3rem; color: var(--faint); font-size: .875rem; }
@media screen and (max-width: 48rem) { .findings thead { display: none; } .findings tr, .findings td { display: block; }
  .findings tr { border-top: 1px solid var(--line); padding: .4rem 0; } .findings td { border: 0; padding: .1rem 0; } }
@media print { :root { color-scheme: light; font-size: 8.5pt; } body { max-width: none; padding: 0; }
  tr, .counts div, .map { break-inside: avoid; } h2, h3, section.file > p, .map, .ends, thead { break-after: avoid; }
  .scroll { overflow: visible; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

_HEAD = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>kseg validate: $verdict</title>
<style>$style</style>
</head>
<body>
<header>
<h1>kseg validate</h1>
<div class="verdict $verdict"><strong>$verdict</strong><p>$meaning</p></div>
</header>
<main>
$counts
$rules
""")

_FILE = Template("""<section class="file" aria-labelledby="file-$number">
<h3 id="file-$number">$file</h3>
<p><strong class="$verdict">$verdict</strong> <span class="faint">$counts</span></p>
$unread$map$findings$unlisted</section>
""")

_FINDING = Template("""<tr><td class="fixed $severity"><strong>$severity</strong></td>
<td class="fixed">$code<br>$rule</td><td class="place">$place</td>
<td>$message$advice</td></tr>
""")

_MAP = Template("""<svg class="map" role="img" aria-label="$label" viewBox="0 0 $width $height"
preserveAspectRatio="none">
$marks</svg>
<div class="ends faint" aria-hidden="true"><span>byte 0</span><span>$end</span></div>
""")

_MARK = Template('<rect class="$severity" x="$x" y="$y" width="$width" height="$height"><title>$title</title></rect>\n')


def write_html(results: Iterable[FileResult], total: Summary, out: TextIO) -> None:
    """Write the page: the verdict, the counts, the rules, then each file with its byte map and findings.

    ``results`` is read once to its end; ``total`` is complete after that. Files without findings share one table at the
    end.
    """
    with _spool() as sections, _spool() as rows:
        framed = False
        for number, result in enumerate(results, 1):
            framed = framed or result.framing is not None
            lost = result.summary.lost_bytes  # an ignored rule is not listed, but its bytes are still lost
            if result.unread is None and not (lost or result.summary.rules or result.verdicts):
                rows.write(_clean_row(result))
            else:
                sections.write(_ascii(_file(number, result)))
        out.write(_ascii(_head(total, framed)))
        _put(out, "<h2>Files with findings</h2>\n", sections, "")
        _put(out, f"<h2>Files without findings</h2>\n{_CLEAN_TABLE}", rows, "</tbody></table></div>\n")
    out.write("</main>\n<footer>Made by kseg. Bytes are positions in the file, offsets are record numbers.</footer>\n")
    out.write("</body>\n</html>\n")


_Spool = tempfile.SpooledTemporaryFile[str]

_CLEAN_TABLE = """<div class="scroll"><table><thead><tr><th scope="col">File</th>
<th scope="col" class="number">Batches</th><th scope="col" class="number">Records</th>
<th scope="col" class="number">Bytes</th></tr></thead><tbody>
"""


def _spool() -> _Spool:
    return tempfile.SpooledTemporaryFile(_SPOOL_BYTES, "w+", encoding="ascii", newline="\n")


def _put(out: TextIO, before: str, spool: _Spool, after: str) -> None:
    if not spool.tell():
        return
    spool.seek(0)
    out.write(before)
    shutil.copyfileobj(spool, out)
    out.write(after)


def _ascii(text: str) -> str:
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _head(total: Summary, framed: bool) -> str:
    return _HEAD.substitute(
        verdict=total.verdict,
        style=_STYLE,
        meaning=_VERDICTS[total.verdict],
        counts=_counts(total),
        rules=_rules(total, framed),
    )


def _counts(total: Summary) -> str:
    shown: dict[str, Any] = {
        "Files": total.files,
        "Side files": total.side_files,
        "Unreadable": total.unread,
        "Batches": total.batches,
        "Records": total.records,
        "Bytes": total.bytes,
        "Errors": total.errors,
        "Warnings": total.warnings,
        "Infos": total.infos,
        "Lost bytes": total.lost_bytes,
    }
    items = "".join(f"<div><dt>{name}</dt><dd>{count:,}</dd></div>" for name, count in shown.items())
    return f'<dl class="counts">{items}</dl>'


def _rules(total: Summary, framed: bool) -> str:
    if not total.rules:
        return ""
    rows = "".join(
        f'<tr><td class="fixed">{rule.code}</td><td class="fixed">{rule.name}</td><td class="number">'
        f"{total.rules[rule.name]:,}</td><td>{_text(rule.broker_for(framed=framed) or '')}</td>"
        f"<td>{_text(rule.remedy)}</td></tr>\n"
        for rule in RULES.values()
        if total.rules[rule.name]
    )
    return (
        '<h2>Findings by rule</h2>\n<div class="scroll"><table><thead><tr><th scope="col">Code</th>'
        '<th scope="col">Rule</th><th scope="col" class="number">Findings</th>'
        '<th scope="col">What a broker does</th><th scope="col">What to do</th></tr></thead>'
        f"<tbody>\n{rows}</tbody></table></div>"
    )


def _clean_row(result: FileResult) -> str:
    summary = result.summary
    return _ascii(
        f'<tr><td>{_text(result.file)}</td><td class="number">{summary.batches:,}</td>'
        f'<td class="number">{summary.records:,}</td><td class="number">{summary.bytes:,}</td></tr>\n'
    )


def _file(number: int, result: FileResult) -> str:
    summary = result.summary
    counts = ", ".join(
        (
            count_of(summary.errors, "error"),
            count_of(summary.warnings, "warning"),
            count_of(summary.infos, "info"),
            count_of(summary.batches, "batch"),
            count_of(summary.records, "record"),
            count_of(summary.bytes, "byte"),
            f"{summary.lost_bytes:,} lost",
        )
    )
    unread = result.unread
    return _FILE.substitute(
        number=number,
        file=_text(result.file),
        verdict=summary.verdict,
        counts=counts,
        unread="" if unread is None else f'<p class="error"><strong>Could not be read:</strong> {_text(unread)}</p>\n',
        map=byte_map(result),
        findings=_findings(result.verdicts),
        unlisted="".join(
            f'<p class="faint">{count:,} more of {rule.code} {rule.name}, not listed.</p>\n'
            for rule, count in omitted_findings(result)
        ),
    )


def _findings(verdicts: tuple[Verdict, ...]) -> str:
    if not verdicts:
        return ""
    rows = "".join(
        _FINDING.substitute(
            severity=verdict.severity.label,
            code=verdict.rule.code,
            rule=verdict.rule.name,
            place="<br>".join(map(_text, places(verdict.finding))),
            message=_text(verdict.message),
            advice="".join(f'<p class="advice">{_text(line)}</p>' for line in advice(verdict)),
        )
        for verdict in verdicts
    )
    return (
        '<div class="scroll"><table class="findings"><thead><tr><th scope="col">Severity</th><th scope="col">Rule</th>'
        f'<th scope="col">Where</th><th scope="col">Finding</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n'
    )


def byte_map(result: FileResult) -> str:
    """Return an SVG bar of the file with one mark per finding with a position; empty without such a finding."""
    located = [verdict for verdict in result.verdicts if verdict.finding.position is not None]
    size = max([result.summary.bytes, *(_byte_span(verdict) for verdict in located)])
    if not located or size <= 0:
        return ""
    # The most severe findings are drawn last, on top.
    located.sort(key=lambda verdict: verdict.severity)
    worst = sum(verdict.severity >= Severity.ERROR for verdict in located)
    label = (
        f"Positions of {count_of(len(located), 'finding')} ({count_of(worst, 'error')}) in a file of "
        f"{count_of(size, 'byte')}; the table below lists them."
    )
    return _MAP.substitute(
        label=label,
        width=f"{_MAP_WIDTH:g}",
        height=_MAP_HEIGHT,
        marks="".join(_mark(verdict, size) for verdict in located),
        end=f"byte {size}",
    )


def _byte_span(verdict: Verdict) -> int:
    finding = verdict.finding
    return max(finding.position or 0, finding.end or 0)


def _mark(verdict: Verdict, size: int) -> str:
    start = max(verdict.finding.position or 0, 0)
    width = min(max((_byte_span(verdict) - start) / size * _MAP_WIDTH, _MARK_WIDTH), _MAP_WIDTH)
    severity = verdict.severity.label
    height = _MARK_HEIGHTS[severity]
    rule = verdict.rule
    return _MARK.substitute(
        severity=severity,
        x=f"{min(start / size * _MAP_WIDTH, _MAP_WIDTH - width):.2f}",
        y=_MAP_HEIGHT - height,
        width=f"{width:.2f}",
        height=height,
        title=_text(f"{rule.code} {rule.name}: {place(verdict.finding)}"),
    )
