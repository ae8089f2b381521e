"""The frame of a page: its head, its style and script, and the parts that all pages use, plots among them.

A content security policy allows the page's own style and script only, by their hashes, and no requests. Content of files is
escaped in the text and in the data of the script. The page is ASCII with character references, so it is correct in every
encoding. Plots are SVG, with their numbers as text, so that they need neither colours nor a pointer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from itertools import count
from string import Template
from typing import NamedTuple, TextIO

from kseg.format.compress.codecs import codec_name
from kseg.format.segment.outline import Outline
from kseg.report.formats import Run
from kseg.report.tables import TableColumn
from kseg.report.wording import Prose, printable
from kseg.text import count_of, iso_time, size_text

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-$style_hash'; \
script-src 'sha256-$script_hash'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>$style</style>
</head>
<body>
$head
$sections
<dialog id="segment" aria-labelledby="segment-name"></dialog>
<footer><p>Made by kseg. Bytes are positions in a file. Offsets are record numbers. A..B contains both. Times are UTC.</p>
</footer>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body>
</html>
""")

_HEADER = Template("""<header class="$level">
<p class="command">$command</p>
<h1><span class="verdict">$verdict</span> $title</h1>
<p class="lead">$lead</p>
$facts</header>
""")


#: The files of the script in their order.
_SCRIPTS = ("data.js", "map.js", "segment.js", "findings.js", "start.js")
_CODE = re.compile("`([^`]+)`")


class PageSection(NamedTuple):
    """A part of a page: its id, its heading as text, and its markup. A section without markup is left out."""

    name: str
    title: str
    content: str


def write_page(out: TextIO, title: str, head: str, sections: Iterable[PageSection], data: object = None) -> None:
    """Write a page with a head (see ``header``).

    ``data`` is for the script and becomes JSON; its texts have passed ``printable``.
    """
    style, script = _asset("page.css"), "".join(('"use strict";\n{\n', *map(_asset, _SCRIPTS), "}\n"))
    page = _PAGE.substitute(
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        title=text(title),
        head=head,
        sections="".join(_sections([one for one in sections if one.content])),
        data=as_json({} if data is None else data),
    )
    out.write(page.encode("ascii", "xmlcharrefreplace").decode("ascii"))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("ascii")


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def as_json(data: object) -> str:
    """Return JSON that neither ends its element nor begins a comment."""
    written = json.dumps(data, separators=(",", ":"))
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def text(value: object) -> str:
    """Return a value as text of a page."""
    return escape(printable(str(value)))


def prose(value: str) -> str:
    """Return a value as text in which `code` is set as code."""
    return _CODE.sub(r"<code>\1</code>", text(value))


def header(level: str, verdict: str, title: str, lead: str, run: Run | None, command: str) -> str:
    """Return the head of a page: the verdict with its colour (``level``), a sentence, and the run."""
    return _HEADER.substitute(
        level=level, verdict=text(verdict), title=text(title), lead=text(lead), facts=_facts(run), command=text(command)
    )


def _facts(run: Run | None) -> str:
    if run is None:
        return ""
    shown = [
        ("Checked", ", ".join("standard input" if path == "-" else path for path in run.paths)),
        ("On host", run.host),
        ("At", iso_time(run.started)),
        ("By", f"kseg {run.version}"),
        ("Command", run.command),
    ]
    if run.settings:
        shown.append(("Settings file", ", ".join(run.settings)))
    items = "".join(f"<div><dt>{name}</dt><dd>{text(value)}</dd></div>" for name, value in shown)
    return f'<dl class="facts">{items}</dl>\n'


def tiles(counts: Iterable[tuple[str, str, str]]) -> str:
    """Return (name, value, class) as a row of numbers."""
    shown = (f'<div class="{level}"><dt>{text(name)}</dt><dd>{text(value)}</dd></div>' for name, value, level in counts)
    return f'<dl class="tiles">{"".join(shown)}</dl>\n'


def _sections(shown: list[PageSection]) -> Iterator[str]:
    if len(shown) > 1:
        links = "".join(f'<li><a href="#{one.name}">{text(one.title)}</a></li>' for one in shown)
        yield f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
    yield "<main>\n"
    for one in shown:
        yield f'<section id="{one.name}"><h2>{text(one.title)}</h2>\n{one.content}</section>\n'
    yield "</main>\n"


#: The rows of a folded table that are open, and the commands of a folded list.
OPEN_ROWS = 10


def folded(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[object]],
    noun: str,
    *,
    left_out: int = 0,
    most: int | None = None,
) -> str:
    """Return a table whose first rows are open, and the others in a part that a click opens.

    A line has the number of rows that are ``left_out``, and of those after the first ``most``.
    """
    rows, left_out = rows[:most], left_out + len(rows[most:] if most is not None else ())
    hidden = rows[OPEN_ROWS:]
    title = count_of(len(hidden), f"more {noun}")
    shown = table(columns, rows[:OPEN_ROWS]) + (details(title, table(columns, hidden)) if hidden else "")
    return shown + more(left_out, noun)


def grouped(
    columns: Sequence[TableColumn], groups: Sequence[Sequence[object]], rows: Sequence[Sequence[object]], noun: str
) -> str:
    """Return a table of ``groups`` of equal rows, of which a click opens each row; just the rows if no two are equal."""
    if len(groups) >= len(rows):
        return folded(columns, rows, noun)
    return table(columns, groups) + details(f"Each {noun}", table(columns, rows))


def details(title: str, content: str) -> str:
    """Return a part of a page that a click on its title opens. ``content`` is markup."""
    return f"<details><summary>{text(title)}</summary>\n{content}</details>\n"


def commands(lines: Sequence[str]) -> str:
    """Return commands as a list in which each one can be selected with a click; many are folded. ``# text`` is prose."""
    shown, hidden = ("".join(map(_command, part)) for part in (lines[:OPEN_ROWS], lines[OPEN_ROWS:]))
    listed = f'<ol class="commands">\n{shown}</ol>\n' if shown else ""
    start = f'<ol class="commands" start="{OPEN_ROWS + 1}">\n{hidden}</ol>\n'
    return listed + (details(count_of(len(lines) - OPEN_ROWS, "more command"), start) if hidden else "")


def _command(line: str) -> str:
    shown = text(line[2:3].upper() + line[3:]) if line.startswith("# ") else f"<code>{text(line)}</code>"
    return f"<li>{shown}</li>\n"


def table(columns: Sequence[TableColumn], rows: Iterable[Sequence[object]], level: str = "", anchor: str = "") -> str:
    """Return a table of plain text, with the columns of a table on a terminal; empty without rows.

    With ``anchor`` each row has an id for links: the anchor and the number of the row, from 0 on.
    """
    names = [text(column.name[:1].upper() + column.name[1:].replace("_", " ")) for column in columns]
    kinds = [' class="number"' if one.right else ' class="wrap"' if one.text else ' class="fixed"' for one in columns]
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in zip(names, kinds, strict=True))
    ids = (f' id="{anchor}-{number}"' if anchor else "" for number in count())
    body = "".join(f"<tr{name}>{_cells(row, kinds, names)}</tr>\n" for row, name in zip(rows, ids))  # noqa: B905
    if not body:
        return ""
    head = f"<thead><tr>{head}</tr></thead>"
    return f'<div class="scroll"><table class="{level}">{head}<tbody>\n{body}</tbody></table></div>\n'


def _cells(row: Sequence[object], kinds: Sequence[str], names: Sequence[str]) -> str:
    cells = zip(row, kinds, names, strict=True)
    return "".join(
        f'<td{kind} data-name="{name}">{prose(value) if isinstance(value, Prose) else text(value)}</td>'
        for value, kind, name in cells
    )


def more(count: int, noun: str) -> str:
    """Return a line about rows that a table leaves out; empty if there are none."""
    return f'<p class="faint">{count_of(count, f"more {noun}")} not listed here.</p>\n' if count > 0 else ""


_MOST_BARS = 10
#: Fewer values than this are bars: their columns would be too wide.
_FEWEST_COLUMNS = 6

_FIGURE = Template("<figure><figcaption>$title</figcaption>\n$content</figure>\n")
_BAR = Template("""<tr><th scope="row">$label</th><td class="bar"><svg viewBox="0 0 100 1" preserveAspectRatio="none" \
aria-hidden="true"><rect width="$share" height="1"/></svg></td><td class="number">$value</td></tr>
""")
_COLUMNS = Template("""<svg class="columns" role="img" aria-label="$label" viewBox="0 0 $count 100" \
preserveAspectRatio="none">$columns</svg>
<div class="ends"><span>$first</span><span>$last</span></div>
""")
_COLUMN = Template('<rect x="$x" y="$y" width="0.9" height="$height"><title>$title</title></rect>')


def figure(title: str, content: str) -> str:
    """Return a plot with its title; empty without content."""
    return _FIGURE.substitute(title=text(title), content=content) if content else ""


def plots(*drawn: str) -> str:
    return f'<div class="plots">\n{"".join(drawn)}</div>\n'


def bars(
    title: str, values: Sequence[tuple[str, int]], shown: Callable[[int], str], *, largest_first: bool = True
) -> str:
    """Return a bar for each of the largest (name, value), and one for the sum of the others."""
    ordered = sorted(values, key=lambda pair: -pair[1]) if largest_first else list(values)
    largest, others = ordered[:_MOST_BARS], ordered[_MOST_BARS:]
    if others:
        largest.append((f"{len(others):,} others", sum(value for _, value in others)))
    longest = max((value for _, value in largest), default=0)
    rows = "".join(
        _BAR.substitute(
            label=text(name), share=f"{100 * value / longest:.1f}" if longest else 0, value=text(shown(value))
        )
        for name, value in largest
    )
    return figure(title, f'<table class="bars"><tbody>{rows}</tbody></table>\n' if rows else "")


def columns(title: str, values: Sequence[tuple[str, int]], shown: Callable[[int], str], ends: tuple[str, str]) -> str:
    """Return a histogram of (name, value), or bars of a few values. ``ends`` is the text below its ends."""
    highest = max((value for _, value in values), default=0)
    if not highest:
        return ""
    if len(values) < _FEWEST_COLUMNS:
        return bars(title, values, shown, largest_first=False)
    drawn = "".join(
        _COLUMN.substitute(
            x=at, y=f"{100 - 100 * value / highest:.1f}", height=f"{100 * value / highest:.1f}",
            title=text(f"{name}: {shown(value)}"),
        )
        for at, (name, value) in enumerate(values)
        if value
    )  # fmt: skip
    label = f"{title}: {count_of(len(values), 'column')} from {ends[0]} to {ends[1]}, at most {shown(highest)}"
    plot = _COLUMNS.substitute(
        label=text(label), count=len(values), columns=drawn, first=text(ends[0]), last=text(ends[1])
    )
    return figure(title, plot)


#: The most producers and time slots that are counted, and the columns of a plot over time.
_MOST_PRODUCERS = 4096
_MOST_SLOTS = 2048
_TIME_COLUMNS = 60


class RunContent:
    """The sums of the outlines of all segments."""

    def __init__(self) -> None:
        self._sizes: Counter[int] = Counter()
        self._codecs: Counter[int] = Counter()
        self._producers: Counter[int] = Counter()
        # Bytes by time: the width of a slot in milliseconds doubles when there are too many slots.
        self._slots: Counter[int] = Counter()
        self._width = 1000
        self._times: list[int] = []

    def add(self, outline: Outline) -> None:
        self._sizes.update(dict(enumerate(outline.sizes)))
        self._codecs.update(dict(enumerate(outline.bytes_by_codec)))
        for producer, size in outline.producers:
            self._producers[producer] += size
        if len(self._producers) > _MOST_PRODUCERS:
            self._producers = Counter(dict(self._producers.most_common(_MOST_PRODUCERS // 2)))
        for time, size in zip(outline.times, outline.codec_bytes, strict=True):
            if time >= 0 and size:
                self._add_time(time, size)

    def _add_time(self, time: int, size: int) -> None:
        self._times = [min(time, *self._times), max(time, *self._times)] if self._times else [time, time]
        self._slots[time // self._width] += size
        while len(self._slots) > _MOST_SLOTS:
            self._width *= 2
            self._slots = _halved(self._slots)

    def plots(self, partitions: list[tuple[str, int]]) -> str:
        """Return the plots as markup. ``partitions`` are (name, bytes); a single one is not worth a plot."""
        powers = [power for power, count in self._sizes.items() if count]
        first, last = min(powers, default=0), max(powers, default=-1) + 1
        sizes = [(f"{size_text(1 << power)} and more", self._sizes[power]) for power in range(first, last)]
        codecs = [(codec_name(codec), size) for codec, size in self._codecs.items() if size]
        producers = [(f"producer {producer}", size) for producer, size in self._producers.items()]
        drawn = (
            bars("File sizes by partition", partitions, size_text) if len(partitions) > 1 else "",
            self._by_time(),
            columns(
                "Batches by size", sizes, lambda count: count_of(count, "batch"),
                (size_text(1 << first), size_text(1 << last)),
            ),
            bars("Bytes by codec", codecs, size_text),
            bars("Bytes by producer", producers, size_text),
        )  # fmt: skip
        return plots(*drawn) if any(drawn) else ""

    def _by_time(self) -> str:
        slots, width = self._slots, self._width
        if not slots:
            return ""
        while max(slots) - min(slots) >= _TIME_COLUMNS:
            slots, width = _halved(slots), 2 * width
        first, last = min(slots), max(slots) + 1
        # The first slot begins before the first timestamp, and the last one ends after the last, possibly in the future.
        oldest, newest = self._times
        values = [(_second(max(slot * width, oldest)), slots[slot]) for slot in range(first, last)]
        return columns("Bytes by timestamp", values, size_text, (_second(oldest), _second(newest)))


def _second(timestamp: int) -> str:
    return iso_time(timestamp // 1000 * 1000).replace(".000Z", "Z")


def _halved(slots: Counter[int]) -> Counter[int]:
    halved = Counter[int]()
    for slot, size in slots.items():
        halved[slot // 2] += size
    return halved
