"""Output of ``kseg diff`` for copies of the metadata log: what they do not have alike, and which one is newest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from kseg.commands.diff.metadata_copies import CHANGES, MetadataCopy, MetadataDifference, newest
from kseg.report.ranking import fold
from kseg.report.row_formats import RowSet, table_of
from kseg.report.tables import TableColumn, cells_of, print_cells, print_text
from kseg.schema import Column, Row, RowKind, names_of, row_maker
from kseg.text import escape_controls, to_json

_COPY = (
    Column("kind", "text", "metadata-copy"),
    Column("path", "text", "the folder", shown=TableColumn("copy", text="wrap", least=18)),
    Column("log_end", "int", "the offset after its last record", shown=TableColumn("log end", right=True)),
    Column("leader_epoch", "int", "leader epoch of its last batch", shown=TableColumn("epoch", right=True)),
    Column("whole", "bool", "whether a controller can load it to its end"),
    Column("faults", "texts", "why not", lambda one: list(one.faults), shown=TableColumn(
        "state", text="wrap", least=14, cell=lambda one: escape_controls("; ".join(one.faults)) or "whole")),
)  # fmt: skip
_DIFFERENCE = (
    Column("kind", "text", "metadata-difference"),
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
_SUMMARY = (
    Column("kind", "text", "metadata-diff"),
    Column("newest", "text", "the copy with the highest leader epoch and log end"),
    Column("newest_whole", "text?", "the newest of those that a controller can load"),
    Column("differences", "map", "their number by kind of item", of=(Column("", "count", "items"),)),
)
ROW_KINDS = (
    RowKind("diff", "Copies of the metadata log", _COPY, "of folders `__cluster_metadata-0`"),
    RowKind("diff", "Differences of metadata", _DIFFERENCE),
    RowKind("diff", "Comparison of metadata", _SUMMARY, "the last row"),
)
_COPY_COLUMNS, COLUMNS = table_of(_COPY), table_of(_DIFFERENCE)


class ComparedCopies(NamedTuple):
    """Copies, and the differences from the first one to each of the others."""

    copies: Sequence[MetadataCopy]
    differences: Sequence[MetadataDifference]


def rows(found: ComparedCopies) -> RowSet:
    """Return a row per copy, one per difference, and a summary. CSV has the differences."""
    return RowSet(_rows(found), _DIFFERENCE, names_of(_DIFFERENCE), kind="metadata-difference")


def _rows(found: ComparedCopies) -> Iterator[Row]:
    yield from map(row_maker(_COPY), found.copies)
    yield from map(row_maker(_DIFFERENCE), found.differences)
    last, whole = newest(found.copies), newest(found.copies, whole=True)
    counts = Counter(one.entity for one in found.differences)
    paths = {"newest": last.path if last else "", "newest_whole": whole.path if whole else None}
    yield row_maker(_SUMMARY)({**paths, "differences": dict(sorted(counts.items()))})


def write_table(found: ComparedCopies, out: TextIO, *, detail: int = 0) -> None:
    """Write the copies, the differences (of many, equal changes as one row unless ``detail`` is 1), and the answer."""
    print_cells(
        out, _COPY_COLUMNS, [(cells_of(_COPY_COLUMNS, one), "" if one.whole else "red") for one in found.copies]
    )
    for copy in found.copies[1:] if detail >= 0 else ():
        listed = [one for one in found.differences if one.path == copy.path]
        groups = fold(listed, lambda one: (one.entity, one.change, one.fields), whole=detail > 0)
        if groups:
            title = f"a: {escape_controls(found.copies[0].path)}, b: {escape_controls(copy.path)}"
            print_cells(out, COLUMNS, [(_folded_cells(group), "") for group in groups], title=title)
    print_text(out, answer(found), indent=2)


def _folded_cells(group: Sequence[MetadataDifference]) -> list[str]:
    cells = [*cells_of(COLUMNS, group[0])]
    if len(group) > 1:
        cells[2] += f" and {len(group) - 1:,} more"
    return cells


def answer(found: ComparedCopies) -> str:
    """Return which copy is newest and whole, and how many items are not alike."""
    last, whole = newest(found.copies), newest(found.copies, whole=True)
    assert last is not None
    equal = [one for one in found.copies if one.rank == last.rank and one.whole == last.whole]
    counts = Counter(one.entity for one in found.differences)
    listed = ", ".join(f"{count:,} {entity}" for entity, count in counts.most_common())
    differ = f"not alike: {listed}" if counts else "all say the same"
    if whole is None:
        return f"no copy is whole, the newest is {escape_controls(last.path)}; {differ}"
    if len(equal) == len(found.copies):
        return f"{len(equal)} copies are equally new and whole; {differ}"
    if whole is last:
        return f"newest and whole: {escape_controls(last.path)}; {differ}"
    behind = f"{last.log_end - whole.log_end:,} offsets before the newest, {escape_controls(last.path)}"
    return f"the newest whole copy: {escape_controls(whole.path)}, {behind}; {differ}"


def _value(one: MetadataDifference, data: object) -> str:
    """Return the changed fields of a value, or the whole value."""
    if data is None:
        return "-"
    shown = {name: data.get(name) for name in one.fields} if one.fields and isinstance(data, dict) else data
    return escape_controls(to_json(shown))
