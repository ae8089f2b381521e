"""Output of ``kseg diff`` for two log directories: rows, or a table of the partitions that differ and a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TextIO

from kseg.commands.diff.differences import COUNTED, KINDS
from kseg.commands.diff.log_dirs import PairOutcome
from kseg.commands.diff.replica import ReplicaSummary
from kseg.report.diff import difference_row, outcome_row
from kseg.report.diff_advice import together_text
from kseg.report.tables import TableColumn, print_pages, print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls

#: Verdicts that the table only counts.
_SAME = ("identical", "same")


@dataclass(slots=True)
class Total:
    """Partitions by verdict, complete after the last one."""

    verdicts: Counter[str] = field(default_factory=Counter)

    def counted(self, outcomes: Iterable[PairOutcome]) -> Iterator[PairOutcome]:
        for outcome in outcomes:
            self.verdicts[outcome.verdict] += 1
            yield outcome


def rows(outcomes: Iterable[PairOutcome], total: Total) -> Iterator[Row]:
    """Yield per partition the ``kind="difference"`` rows and a ``kind="diff"`` row, then a ``kind="summary"`` row."""
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
    TableColumn("partition", text="wrap"),
    TableColumn("verdict"),
    TableColumn("offsets a", priority=1),
    TableColumn("offsets b", priority=1),
    TableColumn("differences", text="wrap"),
)


def write_table(outcomes: Iterable[PairOutcome], total: Total, out: TextIO, *, detail: int = 0) -> None:
    """Write the partitions that differ, with ``detail`` 1 all, with -1 none; then the number of partitions by verdict."""
    listed = (outcome for outcome in outcomes if detail > 0 or (not detail and outcome.verdict not in _SAME))
    print_pages(out, _COLUMNS, ((_cells(outcome), "") for outcome in listed))
    print_text(out, summary_line(total), indent=2)


def summary_line(total: Total) -> str:
    """Return the number of partitions by verdict as one line of text."""
    verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in total.verdicts.most_common())
    return f"{count_of(total.verdicts.total(), 'partition')}: {verdicts}"


def _cells(outcome: PairOutcome) -> list[str]:
    pair = outcome.pair
    name = f"{pair.topic}-{pair.partition}"
    extents = (_extent(outcome.a), _extent(outcome.b))
    return [*map(escape_controls, (name, outcome.verdict, *extents, outcome.reason or _differences(outcome)))]


def _extent(replica: ReplicaSummary | None) -> str:
    if replica is None or replica.last_offset is None:
        return "-"
    return f"{'?' if replica.first_offset is None else replica.first_offset}..{replica.last_offset}"


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
    damaged = [
        f"{name} is damaged in {count_of(replica.damage, 'place')}"
        for name, replica in (("a", outcome.a), ("b", outcome.b))
        if replica.damage
    ]
    together = together_text(outcome_row(result, outcome.a, outcome.b))
    return ", ".join([*found, *damaged, *([together] if together else [])])
