"""Small tables for people, one for a file or a folder, of which a log dir may have thousands.

A terminal gets them from rich, coloured and wrapped. A pipe has neither colours nor a width: there the same table is
laid out here, in a hundredth of rich's 3 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TextIO

from kseg.output.formats import console

#: The cells of a row, and the style of the first. What comes from a file has been escaped.
Row = tuple[Sequence[str], str]


def print_table(out: TextIO, title: str, names: Sequence[str], rows: Sequence[Row], wrapped: Collection[str]) -> None:
    """A table under its title; on a terminal the columns ``wrapped`` may take several lines a row."""
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
    # rich costs more than reading a small file: it is loaded only once there is something to lay out.
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=Text(title), title_justify="left", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=name not in wrapped, overflow="fold")
    for (first, *others), style in rows:
        table.add_row(Text(first, style), *map(Text, others))
    console(out).print(table)


def print_note(out: TextIO, text: str) -> None:
    """A line below a table, of less weight."""
    if not out.isatty():
        out.write(text + "\n")
        return
    from rich.text import Text

    console(out).print(Text(text, "dim"))
