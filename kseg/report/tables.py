"""Tables: one layout for every command, on terminals of any width and in pipes.

In a pipe a row is one line, and nothing is hidden, cut or wrapped. On a terminal a number is never cut. If a table is too
wide, names of segments lose leading zeros (``…048.log``), texts are wrapped or cut, then columns are hidden, the least
important first. ``legend`` names them after all tables. If that is not enough, each row becomes a block of lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from kseg.engine import lazy
from kseg.report import terminal
from kseg.text import escape_controls, span

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy("shutil")

#: The cells of a row, and the style of the row (a name in STYLES).
Row = tuple[Sequence[str], str]
#: A part of a line and its style (a name in STYLES), "" for none.
Piece = tuple[str, str]

#: Select Graphic Rendition codes (ECMA-48) of styles.
STYLES = {"bold": "1", "dim": "2", "red": "31", "bold red": "1;31", "yellow": "33", "cyan": "36"}
#: The width that texts keep before columns are hidden: that of a segment's name.
LEAST_TEXT = 24
#: The width of a text up to which the next column is aligned in a pipe. Longer texts are not cut, either.
MOST_PADDED = 40
MAX_WIDTH = 1000
#: Rows of one table.
PAGE_ROWS = 500
_BETWEEN = "   "
#: From this number of equal rows on, tables of answers fold them into one.
FOLDED = 4
# A folder of a path, an item of a list, a word, or spaces: the lines of a cell are broken between them, but not within a
# number such as 1,234. Those of a text are broken between words.
_PARTS = re.compile(r"(?:[^\s/,]|,(?=\d))*[/,]|(?:[^\s/,]|,(?=\d))+|\s+")
# The last number, also of a range such as 5..7: its second number may be on the next line.
_NUMBER_AT_END = re.compile(r"(?:(?<=\.\.)|(?<![-\d.,]))-?[\d,]+(?:\.[\d,]+)?$")
# What follows the last hyphen of a line: long names are broken there, if most of the line is before it.
_NAME_PART = re.compile(r"(?<=[^\W\d]-)\w{1,9}$")
_WORDS = re.compile(r"\S+|\s+")
# The zeros before the last digits of an offset of 20 digits, as in names of segments.
_LEADING_ZEROS = re.compile(r"(?<!\d)(?=\d{20}(?!\d))0{1,17}")
#: The columns that tables on the terminal have hidden, and the marks in cells that ``legend`` explains.
_hidden: dict[str, None] = {}
_marks: dict[str, None] = {}
# A mark in a range of offsets, such as ``?..7`` and ``5..7?``, and its meaning.
_MARKS = {
    re.compile(r"\?\.\.\d+"): "?..M: the first offset is not known",
    re.compile(r"\d+\.\.\d+\?"): "N..M?: if the header is right; the CRC is wrong, and covers the header, too",
}
#: What an empty cell can be.
_EMPTY = ("", "-")


class TableColumn(NamedTuple):
    """A column. ``text`` is "" for a cell that is never cut or wrapped, such as a number, "wrap" or "cut" for a text.

    A text keeps ``least`` columns of the terminal. ``right``: aligned to the right. ``priority`` 0 is a part of the
    answer and never hidden; among others the highest number is hidden first.
    ``cell`` returns the value of a result's cell; ``row_formats.table_of`` sets it for columns of fields.
    """

    name: str
    right: bool = False
    text: str = ""
    priority: int = 0
    cell: Callable[[Any], str | int | None] | None = None
    least: int = LEAST_TEXT


def cells_of(columns: Iterable[TableColumn], item: Any) -> list[str]:
    """Return the cells of a result: a number with groups of digits, ``-`` for None."""
    values = (column.cell(item) for column in columns if column.cell)
    return ["-" if value is None else value if isinstance(value, str) else f"{value:,}" for value in values]


def cell_rows(
    columns: Sequence[TableColumn], items: Iterable[Any], style: str | Callable[[Any], str] = ""
) -> Iterator[Row]:
    """Yield the row of each result, in one style or in that of the result."""
    for item in items:
        yield cells_of(columns, item), style if isinstance(style, str) else style(item)


def extent(first: int | None, last: int | None) -> str:
    """Return the cell of the offsets of a log, ``-`` without a record."""
    return "-" if last is None else span(first, last)


def number_column(name: str, number: bool, text: str = "wrap", priority: int = 0) -> TableColumn:
    """Return a column of numbers, which are on the right, or of texts."""
    return TableColumn(name, number, "" if number else text, priority)


def print_pages(out: TextIO, columns: Sequence[TableColumn], rows: Iterable[Row]) -> None:
    """Print tables of at most PAGE_ROWS rows each: the layout of a table needs all its rows in memory."""
    rows = iter(rows)
    while page := list(islice(rows, PAGE_ROWS)):
        print_cells(out, columns, page)


def print_cells(
    out: TextIO,
    columns: Sequence[TableColumn],
    rows: Iterable[Row],
    *,
    title: str | None = None,
    whole_rows: bool = False,
) -> None:
    """Print a title and a table. The style of a row is that of its first cell, or with ``whole_rows`` of all cells.

    The title "" stands for lines that were printed before.
    """
    if title:
        print_text(out, title)
    rows = [(list(map(escape_controls, cells)), style) for cells, style in rows]
    cells = [cell for cells, _ in rows for cell in cells if "?" in cell]
    _marks.update((text, None) for mark, text in _MARKS.items() if any(map(mark.fullmatch, cells)))
    if not out.isatty():
        out.write("\n" * (title is not None))
        by_column = zip(columns, _by_column(columns, rows), strict=True)
        widths = [_plain_width(column, cells, last=column is columns[-1]) for column, cells in by_column]
        out.writelines(_table_lines(columns, [cells for cells, _ in rows], widths))
        out.write("\n")
        return
    out.write("\n")
    if not _fits(columns, rows, terminal_width(out)):
        rows = [([_LEADING_ZEROS.sub("…", cell) for cell in cells], style) for cells, style in rows]
    layout = _fit(columns, rows, terminal_width(out))
    if layout is None:
        out.writelines(_blocks(columns, rows, terminal_width(out)))
        return
    shown, widths, hidden = layout
    picked = [columns[n] for n in shown]
    wrapped = [([cells[n] for n in shown], style) for cells, style in rows]
    terminal.console(out).print(_Drawn(_terminal_lines(picked, wrapped, widths, whole_rows)), end="", soft_wrap=True)
    _hidden.update(dict.fromkeys(hidden))
    out.write("\n")


@contextmanager
def legend(out: TextIO) -> Iterator[None]:
    """After the tables of this block, explain the marks in them and name the columns that they hide, once for all."""
    _marks.clear()
    _hidden.clear()
    yield
    for text in _marks:
        print_note(out, text, 1)
    if _hidden:
        print_note(out, f"hidden columns: {', '.join(_hidden)}; a wider terminal or another format shows them", 1)


def print_note(out: TextIO, text: str, indent: int = 2) -> None:
    """Print a line below a table with an indent; a terminal shows it dimmed and wrapped."""
    text = escape_controls(text)
    if not out.isatty():
        out.write(" " * indent + text + "\n")
        return
    lines = _broken(text, max(terminal_width(out) - indent, 20), _WORDS)
    out.writelines(styled(" " * indent + line, "dim", may_colour()) + "\n" for line in lines)


def print_text(out: TextIO, text: str, indent: int = 2) -> None:
    """Print a line; a terminal shows it in several lines, broken between words, with an indent from the second on."""
    out.write(text_lines(out, text, indent))


def text_lines(out: TextIO, text: str, indent: int = 0, ending: str = "") -> str:
    """Return what ``print_text`` prints; ``ending`` is added to each line that another one follows.

    A word that is longer than a line, such as a path, stays whole: so it can be copied.
    """
    text = escape_controls(text)
    if not out.isatty():
        return text + "\n"
    width = max(terminal_width(out) - len(ending), 20 + indent)
    return f"{ending}\n{' ' * indent}".join(_broken(text, width - indent, _WORDS, first=width)) + "\n"


def may_colour() -> bool:
    """Return whether a terminal may be written to in colours (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(out: TextIO) -> int:
    """Return the columns of the terminal that ``out`` is, or the variable COLUMNS."""
    try:
        found = os.get_terminal_size(out.fileno()).columns
    except (OSError, ValueError):
        found = 0
    given = os.environ.get("COLUMNS", "")
    return (int(given) if given.isdecimal() else 0) or found or shutil.get_terminal_size((80, 24)).columns


def width_of(text: str) -> int:
    """Return the columns of a text on a terminal."""
    return len(text) if text.isascii() else terminal.cell_len(text)


def _by_column(columns: Sequence[TableColumn], rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    return zip((column.name for column in columns), *(cells for cells, _ in rows), strict=True)


def _plain_width(column: TableColumn, cells: Sequence[str], *, last: bool) -> int:
    """Return the width of a column in a table in which nothing is cut.

    A few long texts do not widen it: the cells after them move to the right. Nothing follows those of the last column.
    """
    lengths = sorted(map(len, cells))
    usual = 0 if last else lengths[len(lengths) * 9 // 10]
    return min(lengths[-1], max(usual, MOST_PADDED) if column.text else MAX_WIDTH, MAX_WIDTH)


def _fits(columns: Sequence[TableColumn], rows: Sequence[Row], width: int) -> bool:
    """Return whether a table has its whole width on the terminal."""
    widths = (max(map(width_of, cells)) for cells in _by_column(columns, rows))
    return sum(widths) + len(_BETWEEN) * (len(columns) - 1) + 2 <= width


def _fit(
    columns: Sequence[TableColumn], rows: Sequence[Row], width: int
) -> tuple[list[int], list[int], list[str]] | None:
    """Return the columns to show, their widths, and the names of hidden ones with content; None if they don't fit."""
    by_column = list(_by_column(columns, rows))
    wanted = [max(map(width_of, cells)) for cells in by_column]
    filled = [not all(cell in _EMPTY for cell in cells[1:]) for cells in by_column]
    shown = [n for n, column in enumerate(columns) if filled[n] or not column.priority]
    hidden: list[str] = []
    while True:
        # The width that a column keeps before another one is hidden.
        widest = {n: max(columns[n].least, width_of(columns[n].name)) if columns[n].text else wanted[n] for n in shown}
        least = {n: min(wanted[n], most) for n, most in widest.items()}
        spare = width - 2 - sum(least.values()) - len(_BETWEEN) * (len(shown) - 1)
        if spare >= 0:
            widths = _shared_out(least, wanted, spare)
            return shown, [widths[n] for n in shown], [column.name for column in columns if column.name in hidden]
        last = max(shown, key=lambda n: (columns[n].priority, n))
        if not columns[last].priority:
            return None
        shown.remove(last)
        hidden.append(columns[last].name)


def _shared_out(least: dict[int, int], wanted: Sequence[int], spare: int) -> dict[int, int]:
    """Give the spare columns of the terminal to the texts that are cut, equal parts to each."""
    widths = dict(least)
    while spare:
        short = [n for n in widths if widths[n] < wanted[n]]
        if not short:
            break
        for n in short:
            more = min(max(spare // len(short), 1), wanted[n] - widths[n], spare)
            widths[n] += more
            spare -= more
    return widths


def _table_lines(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table in which nothing is cut; the widths are numbers of characters."""
    aligned = [f"{{:{'>' if column.right else '<'}{width}}}" for column, width in zip(columns, widths, strict=True)]
    line = (" " + _BETWEEN.join(aligned)).format
    yield line(*(column.name for column in columns)).rstrip() + "\n"
    yield " " + "─" * (sum(widths) + len(_BETWEEN) * (len(widths) - 1) + 1) + "\n"
    for cells in rows:
        yield line(*cells).rstrip() + "\n"


def _terminal_lines(
    columns: Sequence[TableColumn], rows: Sequence[Row], widths: Sequence[int], whole_rows: bool
) -> Iterator[list[Piece]]:
    """Yield the lines of a table for a terminal as pieces of text with a style."""
    names = [column.name for column in columns]
    padded = [_padded(name, width, column.right) for name, width, column in zip(names, widths, columns, strict=True)]
    yield [(f" {_BETWEEN.join(padded)}".rstrip(), "bold")]
    yield [(" " + "─" * (sum(widths) + len(_BETWEEN) * (len(widths) - 1)), "")]
    for cells, style in rows:
        lines = [_cell_lines(cell, width, column) for cell, width, column in zip(cells, widths, columns, strict=True)]
        for n in range(max(map(len, lines))):
            first, *others = (
                _padded(texts[n] if n < len(texts) else "", width, column.right)
                for texts, width, column in zip(lines, widths, columns, strict=True)
            )
            rest = _BETWEEN.join(["", *others]).rstrip()
            yield [(f" {first}".rstrip() if not rest else f" {first}", style), (rest, style if whole_rows else "")]


class _Drawn:
    """The lines of a table, as rich prints them: in the colours that the terminal has."""

    def __init__(self, lines: Iterable[list[Piece]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Any, _: Any) -> Iterator[Any]:
        # Pieces, not rich's Text, which takes ten times as long.
        for line in self._lines:
            yield from (terminal.Segment(text, console.get_style(style) if style else None) for text, style in line)
            yield terminal.Segment.line()


def _cell_lines(cell: str, width: int, column: TableColumn) -> list[str]:
    """Return a cell in lines of at most ``width`` columns."""
    if width_of(cell) <= width:
        return [cell]
    if column.text == "cut":
        return [_cut(cell, width - 1) + "…"]
    return _wrapped(cell, width)


def _wrapped(text: str, width: int) -> list[str]:
    """Return a cell in lines: words and the parts of a path stay whole where they fit."""
    return [piece for line in _broken(text, width, _PARTS) for piece in _folded(line, width)] or [""]


def _broken(text: str, width: int, parts: re.Pattern[str], first: int = 0) -> list[str]:
    """Return a text in lines of at most ``width`` columns that are broken between parts; a longer part stays whole.

    ``first`` is the width of the first line if it differs.
    """
    size = len if text.isascii() else width_of
    lines, left = [""], first or width
    for part in parts.findall(text):
        if lines[-1] and size(part.rstrip()) > left:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
            left = width
        part = part if lines[-1] or len(lines) == 1 else part.lstrip()
        lines[-1] += part
        left -= size(part)
    lines[-1] = lines[-1].rstrip()
    return lines


def _cut(text: str, width: int) -> str:
    """Return the first characters of a text that have at most ``width`` columns."""
    if text.isascii():
        return text[:width]
    kept = text[:width]
    while width_of(kept) > width:
        kept = kept[:-1]
    return kept


def _folded(text: str, width: int) -> Iterator[str]:
    while text:
        line = _cut(text, width) or text[0]
        if line[-1].isdigit() and text[len(line) : len(line) + 1].isdigit():
            line = _NUMBER_AT_END.sub("", line) or line  # the number is whole on the next line, where it fits
        elif line != text:
            line = _NAME_PART.sub("", line)
        yield line
        text = text[len(line) :]


def _padded(text: str, width: int, right: bool) -> str:
    room = " " * (width - width_of(text))
    return room + text if right else text + room


def styled(text: str, style: str, colour: bool) -> str:
    """Return a text in a style of STYLES, unchanged without ``colour``."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style else text


#: The blocks of a plot, by eighths of a line.
_BARS = " ▁▂▃▄▅▆▇█"


def bar_lines(values: Sequence[float | None], height: int = 1) -> list[str]:
    """Return a plot of numbers from 0 on in lines, the highest first: one character for each value, ``?`` for None."""
    highest = max((value for value in values if value is not None), default=0)
    eighths = [0 if not value else max(round(value / highest * 8 * height), 1) for value in values]
    return [
        "".join(
            "?" if value is None and not level else _BARS[min(max(filled - 8 * level, 0), 8)]
            for value, filled in zip(values, eighths, strict=True)
        )
        for level in range(height - 1, -1, -1)
    ]


def _blocks(columns: Sequence[TableColumn], rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yield a block of lines for each row. Empty cells are left out; ``-`` is one in columns that may be hidden."""
    names = max(len(column.name) for column in columns)
    for cells, _ in rows:
        for column, cell in zip(columns, cells, strict=True):
            if cell and (cell not in _EMPTY or not column.priority):
                first, *rest = _wrapped(cell, max(width - names - 3, LEAST_TEXT)) or [""]
                yield f" {column.name:<{names}}  {first}\n"
                yield from (f" {'':{names}}  {line}\n" for line in rest)
        yield "\n"
