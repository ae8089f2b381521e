"""Output of ``kseg diff`` for copies of the metadata log: what they do not have alike, and which one is newest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TextIO

from kseg.commands.diff.metadata_copies import CHANGES, MetadataCopy, MetadataDifference, newest
from kseg.report.row_formats import RowSet, table_of
from kseg.report.tables import TableColumn, cell_rows, cells_of, print_cells, print_text
from kseg.report.wording import fold
from kseg.schema import Column, Row, RowKind
from kseg.text import to_json

_COPY = RowKind("diff", "Copies of the metadata log", "of folders `__cluster_metadata-0`").of(
    "metadata-copy",
    Column("path", "text", "the folder", shown=TableColumn("copy", text="wrap", least=18)),
    Column("log_end", "int", "the offset after its last record", shown=TableColumn("log end", right=True)),
    Column("leader_epoch", "int", "leader epoch of its last batch", shown=TableColumn("epoch", right=True)),
    Column("whole", "bool", "whether a controller can load it to its end"),
    Column("faults", "texts", "why not", lambda one: list(one.faults), shown=TableColumn(
        "state", text="wrap", least=14, cell=lambda one: "; ".join(one.faults) or "whole")),
)  # fmt: skip
_DIFFERENCE = RowKind("diff", "Differences of metadata").of(
    "metadata-difference",
    Column("path", "text", "the copy that is compared with the first one"),
    Column("change", "text", "from the first copy to this one", shown=TableColumn("change"), values=CHANGES),
    Column("entity", "text", "such as topic, partition, config, broker", shown=TableColumn("entity")),
    Column("name", "text", "the topic, the partition, the setting", shown=TableColumn("name", text="wrap", least=14)),
    Column("fields", "texts", "the fields that changed", lambda one: list(one.fields)),
    Column("a", "json", "the value of the first copy; null without one",
        shown=TableColumn("a", text="cut", cell=lambda one: _value(one, one.a))),
    Column("b", "json", "the value of the other copy; null without one",
        shown=TableColumn("b", text="cut", cell=lambda one: _value(one, one.b))),
)  # fmt: skip
_SUMMARY = RowKind("diff", "Comparison of metadata", "the last row").of(
    "metadata-diff",
    Column("newest", "text", "the copy with the highest leader epoch and log end"),
    Column("newest_whole", "text?", "the newest of those that a controller can load"),
    Column("differences", "map", "their number by kind of item", of=(Column("", "count", "items"),)),
)
ROW_KINDS = (_COPY, _DIFFERENCE, _SUMMARY)
_COPY_COLUMNS, COLUMNS = table_of(_COPY.columns), table_of(_DIFFERENCE.columns)


def rows(copies: Sequence[MetadataCopy], differences: Sequence[MetadataDifference]) -> RowSet:
    """Return a row per copy, one per difference from the first one, and a summary. CSV has the differences."""
    return RowSet.of(_DIFFERENCE.columns, _rows(copies, differences))


def _rows(copies: Sequence[MetadataCopy], differences: Sequence[MetadataDifference]) -> Iterator[Row]:
    yield from _COPY.rows(copies)
    yield from _DIFFERENCE.rows(differences)
    last, whole = newest(copies), newest(copies, whole=True)
    counts = Counter(one.entity for one in differences)
    paths = {"newest": last.path if last else "", "newest_whole": whole.path if whole else None}
    yield _SUMMARY.maker()({**paths, "differences": dict(sorted(counts.items()))})


def write_table(
    copies: Sequence[MetadataCopy], differences: Sequence[MetadataDifference], out: TextIO, *, detail: int = 0
) -> None:
    """Write the copies, the differences (of many, equal changes as one row unless ``detail`` is 1), and the answer."""
    print_cells(out, _COPY_COLUMNS, cell_rows(_COPY_COLUMNS, copies, lambda one: "" if one.whole else "red"))
    for copy in copies[1:] if detail >= 0 else ():
        listed = [one for one in differences if one.path == copy.path]
        groups = fold(listed, lambda one: (one.entity, one.change, one.fields), whole=detail > 0)
        if groups:
            title = f"a: {copies[0].path}, b: {copy.path}"
            print_cells(out, COLUMNS, [(_folded_cells(group), "") for group in groups], title=title)
    print_text(out, answer(copies, differences))


def _folded_cells(group: Sequence[MetadataDifference]) -> list[str]:
    cells = [*cells_of(COLUMNS, group[0])]
    if len(group) > 1:
        cells[2] += f" and {len(group) - 1:,} more"
    return cells


def answer(copies: Sequence[MetadataCopy], differences: Sequence[MetadataDifference]) -> str:
    """Return which copy is newest and whole, and how many items are not alike."""
    last, whole = newest(copies), newest(copies, whole=True)
    assert last is not None
    equal = [one for one in copies if one.rank == last.rank and one.whole == last.whole]
    counts = Counter(one.entity for one in differences)
    listed = ", ".join(f"{count:,} {entity}" for entity, count in counts.most_common())
    differ = f"not alike: {listed}" if counts else "all say the same"
    if whole is None:
        return f"no copy is whole, the newest is {last.path}; {differ}"
    if len(equal) == len(copies):
        return f"{len(equal)} copies are equally new and whole; {differ}"
    if whole is last:
        return f"newest and whole: {last.path}; {differ}"
    behind = f"{last.log_end - whole.log_end:,} offsets before the newest, {last.path}"
    return f"the newest whole copy: {whole.path}, {behind}; {differ}"


def _value(one: MetadataDifference, data: object) -> str:
    """Return the changed fields of a value, or the whole value."""
    if data is None:
        return "-"
    shown = {name: data.get(name) for name in one.fields} if one.fields and isinstance(data, dict) else data
    return to_json(shown)
