"""Tables of results. Small ones, one per file or folder, can be thousands in a log dir.

On a terminal rich draws them, with colours and wrapping. A pipe has neither colours nor a width: there this module lays
out a small table itself, in a hundredth of rich's 3 ms.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TextIO

from kseg.report.rich_parts import Table, Text, box, console
from kseg.text import escape_controls

#: The cells of a row, with content of files already escaped, and the style of the first cell.
Row = tuple[Sequence[str], str]

#: The smallest width of a column whose text is wrapped.
_WRAPPED = 24


def print_cells(
    out: TextIO,
    columns: Mapping[str, Mapping[str, Any]],
    rows: Iterable[Row],
    *,
    heading: str | None = None,
    row_styles: bool = False,
) -> None:
    """Print a table with rich. ``columns`` has the names and rich's options of the columns.

    The ``heading`` is a line above the table. With ``row_styles`` the style of a row is that of all its cells.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, options in columns.items():
        table.add_column(Text(escape_controls(name)), **options)
    for (first, *others), style in rows:
        table.add_row(Text(first, style), *map(Text, others), style=style if row_styles else None)
    console(out).print(*(() if heading is None else (Text(heading),)), table)


def print_table(out: TextIO, title: str, names: Sequence[str], rows: Sequence[Row], wrapped: Collection[str]) -> None:
    """Print a title and a table; on a terminal the columns in ``wrapped`` can take several lines per row."""
    if out.isatty():
        kept = [at for at, name in enumerate(names) if name in wrapped or any(cells[at] for cells, _ in rows)]
        names, rows = [names[at] for at in kept], [([cells[at] for at in kept], style) for cells, style in rows]
        fitting = _fitting(names, rows, wrapped, console(out).width)
        if fitting < len(names):
            _print_with_lines_below(out, title, names, rows, fitting)
            return
        columns = {name: {"no_wrap": name not in wrapped, "overflow": "fold"} for name in names}
        print_cells(out, columns, rows, heading=title)
        return
    lines = _lines(names, [cells for cells, _ in rows])
    out.write("\n".join([title, "", *lines, "", ""]))


def _fitting(names: Sequence[str], rows: Sequence[Row], wrapped: Collection[str], width: int) -> int:
    """Return how many columns fit into ``width``; one in ``wrapped`` needs at most ``_WRAPPED`` characters."""
    used = 2
    for at, name in enumerate(names):
        longest = max(len(name), *(len(cells[at]) for cells, _ in rows))
        used += (min(longest, _WRAPPED) if name in wrapped else longest) + 3 * (at > 0)
        if used > width:
            return at
    return len(names)


def _print_with_lines_below(out: TextIO, title: str, names: Sequence[str], rows: Sequence[Row], fitting: int) -> None:
    """Print a table of the first ``fitting`` columns; each other cell is a line below its row."""
    shown = console(out)
    head, rule, *lines = _lines(names[:fitting], [cells[:fitting] for cells, _ in rows])
    shown.print(Text(title), Text(), Text(head, "bold"), Text(rule), sep="\n")
    for line, (cells, style) in zip(lines, rows, strict=True):
        text = Text(line)
        text.stylize(style, 1, 1 + len(cells[0]))
        shown.print(text)
        for name, cell in zip(names[fitting:], cells[fitting:], strict=True):
            if cell:
                print_note(out, f"{name}: {cell}", 4)
    shown.print()


def _lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return [
        _line(names, widths),
        " " + "─" * (sum(widths) + 3 * len(widths) - 2),
        *(_line(row, widths) for row in rows),
    ]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return f" {'   '.join(padded)}".rstrip()


def print_note(out: TextIO, text: str, indent: int) -> None:
    """Print a line below a table with an indent; a terminal shows it dimmed and wrapped."""
    if not out.isatty():
        out.write(" " * indent + text + "\n")
        return
    lines = textwrap.wrap(text, max(console(out).width - indent, 20), break_on_hyphens=False)
    console(out).print(Text(textwrap.indent("\n".join(lines), " " * indent), "dim"))
