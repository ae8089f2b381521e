"""The lines of ``kseg grep``: a line for each record, with the matches in colour on a terminal.

``FILE:OFFSET:KEY:VALUE`` for a match, ``FILE-OFFSET-KEY:VALUE`` for a record next to one. On a terminal the file is a
heading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TextIO

from kseg.commands.dump.dump_items import Item, RecordsItem
from kseg.commands.dump.record_lines import field
from kseg.format.record.columns import CRC_BAD
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.record.layout import ABORTED, OPEN, UNKNOWN
from kseg.report.dump_table import MOST_PIPED_BYTES
from kseg.report.formats import View
from kseg.report.row_formats import CellContent, content_text
from kseg.report.tables import may_colour, styled
from kseg.text import escape_controls, to_json

#: The characters of a text that are shown on a terminal, and how many of them are before the first match.
_MOST_CHARACTERS, _BEFORE_MATCH = 400, 80
_WRONG_CRC = " (wrong CRC)"
#: The state of a transaction -> the end of a line.
_MARKS: Mapping[str | None, str] = {
    ABORTED: " (aborted)",
    OPEN: " (open transaction)",
    UNKNOWN: " (transaction state unknown)",
}


def write_text(dumped: Iterable[Item], out: TextIO, view: View) -> None:
    """Write a line per record; ``--`` is between groups of records that are not next to each other."""
    lines = _Lines(out, view)
    for item in dumped:
        if isinstance(item, RecordsItem):
            for i in item.kept:
                lines.write(item, i)


def write_matches(dumped: Iterable[Item], out: TextIO, view: View) -> None:
    """Write a line ``FILE:OFFSET:FIELD:TEXT`` for each match."""
    lines = _Lines(out, view)
    for item in dumped:
        if isinstance(item, RecordsItem) and item.search:
            for i in item.kept:
                if i in item.neighbours:
                    continue
                for name, text in item.search.matches(item.chunk, i):
                    prefix = lines.prefix(item.file, item.chunk.lists.offset[i], ":")
                    out.write(f"{prefix}{name}:{lines.styled(escape_controls(text), 'bold red')}\n")


class _Lines:
    """Writes lines, and on a terminal the file before its first line."""

    def __init__(self, out: TextIO, view: View) -> None:
        self._out = out
        self._view = view
        self._colour = view.terminal and may_colour()
        self._file = ""
        self._any_written = False

    def styled(self, text: str, style: str) -> str:
        """Return a text in a style of ``tables.STYLES``."""
        return styled(text, style, self._colour)

    def prefix(self, file: str, offset: int, mark: str) -> str:
        """Return the beginning of a line. On a terminal, write the file first, if it is another one."""
        if not self._view.terminal:
            return f"{escape_controls(file)}{mark}{offset}{mark}"
        if file != self._file:
            self._out.write("\n" * bool(self._file) + self.styled(escape_controls(file), "cyan") + "\n")
            self._file = file
        return self.styled(str(offset), "yellow") + mark

    def write(self, item: RecordsItem, i: int) -> None:
        matched, offset = item.matched(i), item.chunk.lists.offset[i]
        if self._any_written and i in item.group_starts:
            self._out.write("--\n")
        self._any_written = True
        line = self.prefix(item.file, offset, "-" if matched is None else ":")
        line += ":".join(self._shown(item, i, name, matched or ()) for name in ("key", "value"))
        if matched and any(name.startswith("header") for name in matched):
            line += f" {self._headers(item, i)}"
        wrong = item.chunk.batches.crc_state[item.row] == CRC_BAD
        mark = _WRONG_CRC if wrong else _MARKS.get(item.transaction[0], "")
        self._out.write(line + (self.styled(mark, "red") if mark else "") + "\n")

    def _shown(self, item: RecordsItem, i: int, name: str, matched: Sequence[str]) -> str:
        lists = item.chunk.lists
        at, size = (lists.key_at, lists.key_size) if name == "key" else (lists.value_at, lists.value_size)
        data = field(item.chunk.payload(item.row), at[i], size[i])
        contents = item.contents(i)
        decoded = contents[name == "value"] if contents else None
        if decoded and decoded.kind and not decoded.error:
            shown = decoded.value if isinstance(decoded.value, str) else to_json(decoded.value)
            return self._highlighted(item, escape_controls(shown), name in matched)
        return self._marked(item, data, name in matched)

    def _headers(self, item: RecordsItem, i: int) -> str:
        shown = islice(item.chunk.header_fields(i), MAX_HEADERS)
        cells = (f"{self._marked(item, key, True)}={self._marked(item, value, True)}" for key, value in shown)
        return f"[{', '.join(cells)}]"

    def _marked(self, item: RecordsItem, data: memoryview | None, matched: bool) -> str:
        """Return a field as text, with its matches in colour."""
        content = None if data is None else CellContent(bytes(data[:MOST_PIPED_BYTES]), len(data))
        return self._highlighted(item, content_text(content, self._view.encoding), matched)

    def _highlighted(self, item: RecordsItem, text: str, matched: bool) -> str:
        """Return a text with its matches in colour; a terminal shows the part with the first match."""
        if not self._view.terminal:
            return text
        spans = sorted(item.search.spans(text)) if matched and item.search else []
        begin = end = 0
        if len(text) > _MOST_CHARACTERS and not self._view.full:
            begin = max(min(spans[0][0] - _BEFORE_MATCH if spans else 0, len(text) - _MOST_CHARACTERS), 0)
            end = begin + _MOST_CHARACTERS
        end = end or len(text)
        marked = "".join(self._parts(text, begin, end, spans))
        return "…" * bool(begin) + marked + "…" * (end < len(text))

    def _parts(self, text: str, at: int, end: int, spans: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Yield the parts of ``text[at:end]``; those in the spans, which can overlap, in bold red."""
        for first, stop in spans:
            if max(first, at) < min(stop, end):
                yield text[at : max(first, at)]
                yield self.styled(text[max(first, at) : min(stop, end)], "bold red")
                at = min(stop, end)
        yield text[at:end]


def write_files(found: Iterable[tuple[str, int]], out: TextIO, *, counts: bool) -> None:
    """Write each file that has matches, with ``counts`` as ``FILE:COUNT``."""
    for file, count in found:
        out.write(escape_controls(file) + (f":{count}" if counts else "") + "\n")
