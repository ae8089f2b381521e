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
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import TextIO

from kseg.report.run import Run
from kseg.report.wording import printable
from kseg.text import iso_time

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
$body
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


_CODE = re.compile("`([^`]+)`")


def write_page(out: TextIO, title: str, body: Iterable[str], data: object) -> None:
    """Write a page. ``body`` is markup; ``data`` is for the script and becomes JSON, escaped by ``printable`` before."""
    style, script = _asset("page.css"), _asset("page.js")
    page = _PAGE.substitute(
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        title=text(title),
        body="".join(body),
        data=_json(data),
    )
    out.write(page.encode("ascii", "xmlcharrefreplace").decode("ascii"))


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("ascii")


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
    """Return the head of a page: the verdict with its colour (``level``), a sentence, and what was checked when."""
    return _HEADER.substitute(
        level=level, verdict=text(verdict), title=text(title), lead=text(lead), facts=_facts(run), command=text(command)
    )


def _facts(run: Run | None) -> str:
    if run is None:
        return ""
    shown = [
        ("Checked", ", ".join(run.paths)),
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


def section(name: str, title: str, content: str) -> str:
    """Return a section with a heading; empty without content."""
    return f'<section id="{name}"><h2>{text(title)}</h2>\n{content}</section>\n' if content else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], level: str = "") -> str:
    """Return a table of plain text. A column whose name ends with ``#`` has numbers."""
    numbers = [" class=number" if name.endswith("#") else "" for name in columns]
    head = "".join(
        f'<th scope="col"{kind}>{text(name.rstrip("#"))}</th>' for name, kind in zip(columns, numbers, strict=True)
    )
    names = [text(name.rstrip("#")) for name in columns]
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{kind} data-name="{name}">{text(value)}</td>'
            for value, kind, name in zip(row, numbers, names, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return f'<table class="{level}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n' if body else ""
