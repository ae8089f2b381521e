"""Small tables, one per file or folder; a log dir can have thousands of them.

On a terminal rich draws them, with colours and wrapping. A pipe has neither colours nor a width: there this module lays
out the same table, in a hundredth of rich's 3 ms, and without its import of 0.1 s.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from typing import TextIO

from kseg.report.rich_parts import Table, Text, box, console

#: The cells of a row, with content of files already escaped, and the style of the first cell.
Row = tuple[Sequence[str], str]


def print_table(out: TextIO, title: str, names: Sequence[str], rows: Sequence[Row], wrapped: Collection[str]) -> None:
    """Print a title and a table; on a terminal the columns in ``wrapped`` can take several lines per row."""
    if out.isatty():
        _print_rich(out, title, names, rows, wrapped)
        return
    widths = [max(map(len, column)) for column in zip(names, *(cells for cells, _ in rows), strict=True)]
    lines = [_line(names, widths), " " + "─" * (sum(widths) + 3 * len(widths) - 2)]
    lines += [_line(cells, widths) for cells, _ in rows]
    out.write("\n".join([title, "", *lines, "", ""]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
    return f" {'   '.join(padded)}".rstrip()


def _print_rich(out: TextIO, title: str, names: Sequence[str], rows: Sequence[Row], wrapped: Collection[str]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=Text(title), title_justify="left", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=name not in wrapped, overflow="fold")
    for (first, *others), style in rows:
        table.add_row(Text(first, style), *map(Text, others))
    console(out).print(table)


def print_note(out: TextIO, text: str, indent: int) -> None:
    """Print a line below a table with an indent; a terminal shows it dimmed and wrapped."""
    if not out.isatty():
        out.write(" " * indent + text + "\n")
        return
    lines = textwrap.wrap(text, max(console(out).width - indent, 20), break_on_hyphens=False)
    console(out).print(Text(textwrap.indent("\n".join(lines), " " * indent), "dim"))
