"""The frame of a page: its head, its style and script, and the parts that all pages use.

A content security policy allows the page's own style and script only, by their hashes, and no requests. Content of files is
escaped in the text and in the data of the script. The page is ASCII with character references, so it is correct in every
encoding.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import NamedTuple, TextIO

from kseg.report.run import Run
from kseg.report.tables import TableColumn
from kseg.report.wording import Prose, printable
from kseg.text import count_of, iso_time

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
<footer><p>Made by kseg. Bytes are positions in a file, with an exclusive end. Offsets are record numbers. Times are UTC.</p>
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


class Section(NamedTuple):
    """A part of a page: its id, its heading as text, and its markup. A section without markup is left out."""

    name: str
    title: str
    content: str


def write_page(out: TextIO, title: str, head: str, sections: Iterable[Section], data: object = None) -> None:
    """Write a page with a head (see ``header``).

    ``data`` is for the script and becomes JSON; its texts have passed ``printable``.
    """
    style, script = _asset("page.css"), _script()
    page = _PAGE.substitute(
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        title=text(title),
        head=head,
        sections="".join(_sections([one for one in sections if one.content])),
        data=_json({} if data is None else data),
    )
    out.write(page.encode("ascii", "xmlcharrefreplace").decode("ascii"))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("ascii")


@cache
def _script() -> str:
    return "".join(('"use strict";\n{\n', *map(_asset, _SCRIPTS), "}\n"))


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _json(data: object) -> str:
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
    shown = "".join(
        f'<div class="{level}"><dt>{text(name)}</dt><dd>{text(value)}</dd></div>' for name, value, level in counts
    )
    return f'<dl class="tiles">{shown}</dl>\n'


def _sections(shown: list[Section]) -> Iterator[str]:
    if len(shown) > 1:
        links = "".join(f'<li><a href="#{one.name}">{text(one.title)}</a></li>' for one in shown)
        yield f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
    yield "<main>\n"
    for one in shown:
        yield f'<section id="{one.name}"><h2>{text(one.title)}</h2>\n{one.content}</section>\n'
    yield "</main>\n"


def table(columns: Sequence[TableColumn], rows: Iterable[Sequence[object]], level: str = "") -> str:
    """Return a table of plain text, with the columns of a table on a terminal; empty without rows."""
    names = [text(column.name[:1].upper() + column.name[1:].replace("_", " ")) for column in columns]
    kinds = [' class="number"' if one.right else ' class="wrap"' if one.text else ' class="fixed"' for one in columns]
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in zip(names, kinds, strict=True))
    body = "".join(f"<tr>{_cells(row, kinds, names)}</tr>\n" for row in rows)
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
