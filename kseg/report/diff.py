"""Output of ``kseg diff``: the differences in offset order, then the outcome, as a table or as JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from kseg.commands.diff.diff import truncations
from kseg.commands.diff.differences import COUNTED, KINDS, Comparison, Difference, DifferencePlace
from kseg.commands.diff.replica import ReplicaSummary
from kseg.report.rows import write_jsonl
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls, inclusive_range


def difference_row(difference: Difference) -> Row:
    """Return a difference as a row of JSON Lines."""
    row = asdict(difference)
    row["difference"] = row.pop("kind")
    return {"kind": "difference", **row}


def outcome_row(result: Comparison, a: ReplicaSummary, b: ReplicaSummary) -> Row:
    """Return the last row: the verdict, the first difference, and the offset a follower would truncate to."""
    first = result.first_difference
    return {
        "kind": "diff",
        "verdict": result.verdict,
        "first_difference": None if first is None else first.first_offset,
        "last_common_offset": result.last_common_offset,
        "truncation_offset": truncations(a, b),
        "stretches": {kind: result.stretches.get(kind, 0) for kind in KINDS},
        "counts": {kind: result.counts.get(kind, 0) for kind in KINDS},
        "damaged_places": {"a": a.damage, "b": b.damage},
        "a": _replica_row(a),
        "b": _replica_row(b),
    }


def _replica_row(replica: ReplicaSummary) -> Row:
    return {
        "path": replica.path,
        "segments": replica.segments,
        "batches": replica.batch_count,
        "first_offset": replica.first_offset,
        "last_offset": replica.last_offset,
        "end_offset": replica.end_offset,
        "leader_epochs": [entry._asdict() for entry in replica.lineage.entries],
    }


class JsonLinesWriter:
    """Writes one ``kind="difference"`` row per difference and one ``kind="diff"`` row at the end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write_difference(self, difference: Difference) -> None:
        write_jsonl([difference_row(difference)], self._out)

    def finish(self, result: Comparison, a: ReplicaSummary, b: ReplicaSummary) -> None:
        write_jsonl([outcome_row(result, a, b)], self._out)


class TableWriter:
    """Writes a table of the first differences, then the outcome as text."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._listed: list[Difference] = []

    def write_difference(self, difference: Difference) -> None:
        self._listed.append(difference)

    def finish(self, result: Comparison, a: ReplicaSummary, b: ReplicaSummary) -> None:
        if self._listed:
            _print_table(self._listed, self._out)
        for line in _outcome_lines(outcome_row(result, a, b), result):
            print_text(self._out, escape_controls(line), indent=2)


_COLUMNS = (
    TableColumn("difference"),
    TableColumn("offsets"),
    TableColumn("count", right=True, priority=1),
    TableColumn("a", text="wrap"),
    TableColumn("b", text="wrap"),
    TableColumn("detail", text="wrap"),
)


def _print_table(reported: list[Difference], out: TextIO) -> None:
    rows = []
    for one in reported:
        kind = one.kind if one.lacking is None else f"{one.lacking} {one.kind}"
        offsets = f"{one.first_offset}..{one.last_offset}"
        cells = (kind, offsets, str(one.count), _place(one.a), _place(one.b), one.detail)
        rows.append(([*map(escape_controls, cells)], ""))
    print_cells(out, _COLUMNS, rows)


def _place(place: DifferencePlace | None) -> str:
    if place is None:
        return "-"
    epoch = "" if place.leader_epoch is None else f", leader epoch {place.leader_epoch}"
    return f"{os.path.basename(place.file)} at byte {place.position}{epoch}"


def _outcome_lines(row: Row, result: Comparison) -> Iterator[str]:
    for name in ("a", "b"):
        one = row[name]
        damaged = row["damaged_places"][name]
        yield (
            f"{name}: {one['path']}: {_extent(one)}, {count_of(one['batches'], 'batch')} in "
            + count_of(one["segments"], "segment")
            + (f", damaged in {count_of(damaged, 'place')}" if damaged else "")
        )
    for kind, meaning in KINDS.items():
        if row["stretches"][kind]:
            yield (
                f"  {kind}: {count_of(row['counts'][kind], COUNTED[kind])} in "
                f"{count_of(row['stretches'][kind], 'range')}: {meaning}"
            )
    first = result.first_difference
    if first is not None:
        epochs = f"leader epoch {_epoch(first.a)} in a, {_epoch(first.b)} in b"
        yield f"first difference: offset {first.first_offset} ({first.detail}), {epochs}"
    yield f"last common offset: {_number(row['last_common_offset'])}"
    yield from _truncation_lines(row)
    yield row["verdict"]


def _truncation_lines(row: Row) -> Iterator[str]:
    first = row["first_difference"]
    for follower, leader in (("a", "b"), ("b", "a")):
        offset = row["truncation_offset"][follower]
        end = row[follower]["end_offset"]
        if offset is None:
            why = "the leader epochs do not decide it"
            yield f"with {leader} as leader, {follower} would truncate to its high watermark ({why})"
        elif offset < end:
            lost = count_of(end - offset, "offset")
            yield f"with {leader} as leader, {follower} would truncate to offset {offset} and lose {lost}"
        else:
            yield f"with {leader} as leader, {follower} would keep its whole log, to the end offset {end}"
        if first is not None and offset is not None and offset > first:
            yield f"  it would keep the difference at offset {first}: replication does not correct it"


def _extent(one: Row) -> str:
    if one["last_offset"] is None:
        return "no batches"
    first, last = one["first_offset"], one["last_offset"]
    return f"offsets up to {last}" if first is None else inclusive_range("offset", first, last)


def _epoch(place: DifferencePlace | None) -> str:
    return "-" if place is None else _number(place.leader_epoch)


def _number(value: int | None) -> str:
    return "none" if value is None else str(value)
