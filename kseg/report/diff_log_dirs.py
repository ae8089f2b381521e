"""Output of ``kseg diff`` for log directories: rows, or a table of the partitions that differ and a line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from kseg.commands.diff.differences import COUNTED, KINDS, VERDICTS
from kseg.commands.diff.replica_pairs import NOT_COMPARED, PairOutcome
from kseg.report.diff_advice import together_text
from kseg.report.diff_report import PARTITION_COLUMNS, damaged_texts, difference_row, outcome_row, stale_text
from kseg.report.row_formats import RowSet
from kseg.report.tables import TableColumn, extent, print_pages, print_text
from kseg.report.wording import fold, names_text
from kseg.schema import Row
from kseg.text import count_of

#: Verdicts that the table only counts.
_SAME = ("identical", "same")
_FROM_BEST = (*VERDICTS, *NOT_COMPARED)


@dataclass(slots=True)
class LogDirDiffTotal:
    """Partitions by verdict, complete after the last one. ``log_dirs`` are the log directories."""

    log_dirs: Sequence[str]
    verdicts: Counter[str] = field(default_factory=Counter)

    def counted(self, by_partition: Iterable[list[PairOutcome]]) -> Iterator[PairOutcome]:
        """Yield the outcomes of each partition, and count its worst verdict: that of the worst pair."""
        for outcomes in by_partition:
            self.verdicts[max((outcome.verdict for outcome in outcomes), key=_FROM_BEST.index)] += 1
            yield from outcomes


def rows(outcomes: Iterable[PairOutcome], total: LogDirDiffTotal) -> RowSet:
    """Return the rows of differences and a ``kind="diff"`` row for each pair of replicas, then a ``kind="summary"`` row."""
    return RowSet.of(PARTITION_COLUMNS, _rows(outcomes, total))


def _rows(outcomes: Iterable[PairOutcome], total: LogDirDiffTotal) -> Iterator[Row]:
    for outcome in outcomes:
        pair, result = outcome.pair, outcome.comparison
        place = {"topic": pair.topic, "partition": pair.partition}
        for difference in outcome.differences:
            row = difference_row(difference)
            yield {"kind": row.pop("kind"), **place, **row}
        row = {"kind": "diff", "verdict": outcome.verdict}
        if result is None or outcome.a is None or outcome.b is None:
            paths = {name: path and {"path": path} for name, path in (("a", pair.a), ("b", pair.b))}
            row |= {"reason": outcome.reason, **paths}
        else:
            row = outcome_row(result, outcome.a, outcome.b)
        yield {"kind": row.pop("kind"), **place, **row}
    yield {"kind": "summary", "partitions": total.verdicts.total(), "verdicts": dict(sorted(total.verdicts.items()))}


_COLUMNS = (
    TableColumn("partition", text="wrap", least=20),
    TableColumn("verdict"),
    TableColumn("offsets a", priority=1),
    TableColumn("offsets b", priority=1),
    TableColumn("differences", text="wrap"),
)
_LOG_DIRS = (TableColumn("a", text="wrap"), TableColumn("b", text="wrap"))


def write_table(outcomes: Iterable[PairOutcome], total: LogDirDiffTotal, out: TextIO, *, detail: int = 0) -> None:
    """Write the partitions that differ, the worst first; with ``detail`` 1 all, with -1 none; then a line with the sums.

    Of more than two log directories, each row names the two that it compares.
    """
    listed = (outcome for outcome in outcomes if detail > 0 or (not detail and outcome.verdict not in _SAME))
    named = len(total.log_dirs) > 2
    columns = (*_COLUMNS[:1], *(_LOG_DIRS if named else ()), *_COLUMNS[1:])
    worst = ""
    if detail >= 0 and not named:
        print_text(out, "a: {}, b: {}".format(*total.log_dirs))
    if detail > 0:
        print_pages(out, columns, ((_cells(outcome, named), "") for outcome in listed))
    else:
        ranked = sorted((-_FROM_BEST.index(outcome.verdict), _cells(outcome, named)) for outcome in listed)
        # What differs without its place in the segments: a range, a number of records.
        groups = fold(ranked, lambda one: (one[0], one[1][-1].partition(" ")[0]))
        print_pages(out, columns, ((_folded_cells([cells for _, cells in group]), "") for group in groups))
        worst = f"; the worst: {ranked[0][1][0]}" if len(ranked) > 1 else ""
    print_text(out, summary_line(total) + worst)


def _folded_cells(group: list[list[str]]) -> list[str]:
    """Return the cells of partitions that differ in the same way: those of the first, and the number of the others."""
    first = group[0]
    if len(group) == 1:
        return first
    common = [cells[0] if len(set(cells)) == 1 else "-" for cells in zip(*group, strict=True)]
    return [names_text(cells[0] for cells in group), *common[1:-1], "the first: " + first[-1]]


def summary_line(total: LogDirDiffTotal) -> str:
    """Return the number of partitions by verdict as one line of text."""
    if not any(count for verdict, count in total.verdicts.items() if verdict not in _SAME):
        return f"no difference in {count_of(total.verdicts.total(), 'partition')}"
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in total.verdicts.most_common())
    return f"{count_of(total.verdicts.total(), 'partition')}: {verdicts}"


def _cells(outcome: PairOutcome, named: bool) -> list[str]:
    pair = outcome.pair
    name = f"{pair.topic}-{pair.partition}"
    log_dirs = [os.path.dirname(folder) if folder else "-" for folder in (pair.a, pair.b)] if named else []
    extents = [extent(one.first_offset, one.last_offset) if one else "-" for one in (outcome.a, outcome.b)]
    return [name, *log_dirs, outcome.verdict, *extents, outcome.reason or _differences(outcome)]


def _differences(outcome: PairOutcome) -> str:
    """Return the kinds of difference with their counts, and where each begins."""
    result = outcome.comparison
    if result is None or outcome.a is None or outcome.b is None:
        return ""
    begins: dict[str, str] = {}
    for difference in outcome.differences:
        begins.setdefault(difference.kind, f" from offset {difference.first_offset}")
    found = [
        f"{kind}: {count_of(result.counts[kind], COUNTED[kind])}{begins.get(kind, '')}"
        for kind in KINDS
        if kind in result.counts
    ]
    row = outcome_row(result, outcome.a, outcome.b)
    stale = stale_text(result) if result.stale else ""
    return ", ".join(filter(None, [*found, stale, *damaged_texts(row), together_text(row)]))
