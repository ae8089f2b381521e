"""Output of ``kseg diff``: the verdict and the differences, as a table or as JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from kseg.commands.diff.comparison import truncations
from kseg.commands.diff.differences import COUNTED, KINDS, VERDICTS, Comparison, Difference, DifferencePlace
from kseg.commands.diff.replica import Replica, ReplicaSummary
from kseg.commands.diff.replica_pairs import NOT_COMPARED
from kseg.report.diff_advice import advice, together_text
from kseg.report.row_formats import RowSet
from kseg.report.tables import FOLDED, TableColumn, cell_rows, extent, print_cells, print_note, print_text
from kseg.report.wording import first_text, grouped, times
from kseg.schema import Column, Row, RowKind, row_maker
from kseg.text import count_of

_PLACE_FIELDS = (
    Column("file", "text", "the segment"),
    Column("position", "count", "first byte of the batch"),
    Column("leader_epoch", "int?", "leader epoch of the batch; null in v0 and v1"),
)
_DIFFERENCE = (
    Column("first_offset", "int", "first different offset"),
    Column("last_offset", "int", "last different offset"),
    Column("lacking", "text?", "the replica that lacks these offsets; null if both have them", values=("a", "b")),
    Column(
        "count", "count", "number of records, or of batches for leader-epoch and batching, or of places for unopened"
    ),
    Column("a", "object?", "the first batch in replica a", of=_PLACE_FIELDS),
    Column("b", "object?", "the first batch in replica b", of=_PLACE_FIELDS),
    Column("detail", "text", "description of the first difference"),
    Column("difference", "text", "kind of the difference", "kind", values=tuple(KINDS)),
)
_BY_KIND = tuple(Column(kind, "count", meaning) for kind, meaning in KINDS.items())
_RANGES = (
    Column("first_offset", "int", "first offset"),
    Column("last_offset", "int", "last offset"),
    Column("records", "count", "number of records"),
    Column("file", "text", "segment with the first of them"),
    Column("position", "count", "first byte of its batch"),
)
_TOGETHER = (
    Column("whole", "bool?", "whether each lost offset is in one of them; null if headers do not show it"),
    Column("first_offset", "int?", "first offset of both"),
    Column("last_offset", "int?", "last offset of both"),
    Column(
        "lost_in_both", "objects", "the first ranges that neither can read",
        of=(
            Column("first_offset", "int?", "null if the start is not known", "first"),
            Column("last_offset", "int?", "null if the end is not known", "last"),
        ),
    ),
    Column("lost_in_both_ranges", "count", "number of all such ranges"),
    Column("only_in_a", "objects", "the first ranges that b has lost", of=_RANGES),
    Column("only_in_a_ranges", "count", "number of all such ranges"),
    Column("only_in_b", "objects", "the first ranges that a has lost", of=_RANGES),
    Column("only_in_b_ranges", "count", "number of all such ranges"),
)  # fmt: skip
_REPLICA = (
    Column("path", "text", "the replica"),
    Column("segments", "count", "number of segments"),
    Column("batches", "count", "number of batches", "batch_count"),
    Column("first_offset", "int?", "first offset"),
    Column("last_offset", "int?", "last offset"),
    Column("end_offset", "int", "log end offset"),
    Column(
        "leader_epochs", "objects", "its leader epochs", "lineage.entries",
        of=(Column("epoch", "int", "the epoch"), Column("start_offset", "int", "its first offset")),
    ),
)  # fmt: skip
_OUTCOME = (
    Column("verdict", "text", "over all differences", "result.verdict", values=VERDICTS),
    Column("first_difference", "int?", "first offset with different records", "result.first_difference.first_offset"),
    Column(
        "leader_epochs", "object", "leader epochs at the first different offset", "result.leader_epochs",
        of=(Column("a", "int?", "in a"), Column("b", "int?", "in b")),
    ),
    Column("stale", "text?", "the replica with the older of them", "result.stale", values=("a", "b")),
    Column("last_common_offset", "int?", "last offset with equal records before it", "result.last_common_offset"),
    Column(
        "truncation_offset", "object", "where each would truncate under the other; null if leader epochs do not decide it",
        lambda found: truncations(found["a"], found["b"]), of=(Column("a", "int?", "a"), Column("b", "int?", "b")),
    ),
    Column("stretches", "object", "ranges by kind", lambda found: _by_kind(found["result"].stretches), of=_BY_KIND),
    Column("counts", "object", "records, batches or places", lambda found: _by_kind(found["result"].counts), of=_BY_KIND),
    Column(
        "damaged_places", "object", "places that cannot be read", lambda found: found,
        of=(Column("a", "count", "in a", "a.damage"), Column("b", "count", "in b", "b.damage")),
    ),
    Column("together", "object", "offsets that the replicas have together", lambda found: _together(**found), of=_TOGETHER),
    Column("a", "object", "replica a", of=_REPLICA),
    Column("b", "object", "replica b", of=_REPLICA),
)  # fmt: skip
PLACE = (
    Column("topic", "[text]", "of log directories: the topic"),
    Column("partition", "[int32]", "of log directories: the partition"),
)
_UNREAD = RowKind("diff", "Partitions that were not compared", "of log directories").of(
    "diff",
    Column("topic", "text", "the topic"),
    Column("partition", "int32", "the partition"),
    Column("verdict", "text", "why it was not compared", values=NOT_COMPARED),
    Column("reason", "text", "the reason in words"),
    Column("a", "object?", "the folder", of=(Column("path", "text", "path of the folder"),)),
    Column("b", "object?", "the folder", of=(Column("path", "text", "path of the folder"),)),
)
_SUMMARY = RowKind("diff", "Summary of log directories", "of log directories, the last row").of(
    "summary",
    Column("partitions", "count", "number of partitions"),
    Column("verdicts", "map", "partitions by verdict", of=(Column("", "count", "partitions"),)),
)
_LISTED = (Column("kind", "text", "difference"), *_DIFFERENCE)
#: The columns of partitions of log directories, compared or not.
PARTITION_COLUMNS = (Column("kind", "text", "diff"), *PLACE, _OUTCOME[0], _UNREAD.columns[4], *_OUTCOME[1:])
ROW_KINDS = (
    RowKind("diff", "Differences").of("difference", *PLACE, *_DIFFERENCE),
    RowKind("diff", "Compared partitions", "a row per two replicas").of("diff", *PLACE, *_OUTCOME),
    _UNREAD,
    _SUMMARY,
)


def difference_row(difference: Difference) -> Row:
    return {"kind": "difference", **_difference(difference)}


def outcome_row(result: Comparison, a: ReplicaSummary, b: ReplicaSummary) -> Row:
    """Return the last row: the verdict, the first difference, and the offset a follower would truncate to."""
    return {"kind": "diff", **_outcome({"result": result, "a": a, "b": b})}


_difference, _outcome = row_maker(_DIFFERENCE), row_maker(_OUTCOME)


def _by_kind(counts: Mapping[str, int]) -> dict[str, int]:
    return {kind: counts.get(kind, 0) for kind in KINDS}


def _together(result: Comparison, a: ReplicaSummary, b: ReplicaSummary) -> Row:
    """Return the offsets of all replicas: null for ``whole`` if that is not known, and the first ranges of each kind."""
    union = result.union
    firsts = [one.first_offset for one in (a, b) if one.first_offset is not None]
    lasts = [one.last_offset for one in (a, b) if one.last_offset is not None]
    row: Row = {
        "whole": result.whole,
        "first_offset": min(firsts, default=None),
        "last_offset": max(lasts, default=None),
        "lost_in_both": union.unread,
        "lost_in_both_ranges": union.unread_count,
    }
    for name in _REPLICAS:
        row[f"only_in_{name}"] = union.only_in[name]
        row[f"only_in_{name}_ranges"] = union.only_in_count[name]
    return row


def rows(listed: Iterable[Difference], result: Comparison, a: Replica, b: Replica) -> RowSet:
    """Return the differences, then the outcome. CSV has the differences."""
    return RowSet.of(_LISTED, _rows(listed, result, a, b))


def _rows(listed: Iterable[Difference], result: Comparison, a: Replica, b: Replica) -> Iterator[Row]:
    yield from map(difference_row, listed)
    yield outcome_row(result, a.summary(), b.summary())


def write_table(
    listed: Iterable[Difference], result: Comparison, a: Replica, b: Replica, out: TextIO, *, detail: int = 0
) -> None:
    """Write the verdict, the replicas, what to do, and a table of the first differences.

    With ``detail`` 1 each listed difference has a row, with -1 the table of differences is left out.
    """
    differences = list(listed)
    row, replicas = outcome_row(result, a.summary(), b.summary()), []
    for name, other in (_REPLICAS, _REPLICAS[::-1]):
        only = sum(count for (_, replica), count in result.lacking.items() if replica == other)
        replicas.append({"name": name, "damaged": row["damaged_places"][name], "only": only, **row[name]})
    print_text(out, answer(row, result))
    styled = cell_rows(_REPLICA_COLUMNS, replicas, lambda one: "red" if one["damaged"] else "")
    print_cells(out, _REPLICA_COLUMNS, styled, title="")
    for text in _as_followers(row, detail):
        print_text(out, text)
    for text in advice(row, result):
        print_text(out, f"What to do: {text}")
    if differences and detail >= 0:
        _print_table(differences, result, out, len(differences) + 1 if detail else FOLDED)


def answer(row: Row, result: Comparison) -> str:
    """Return the verdict with its meaning, and what each replica lacks, as one line of text."""
    return "; ".join(_answer(row, result))


def _answer(row: Row, result: Comparison) -> Iterator[str]:
    verdict = row["verdict"]
    damaged = damaged_texts(row)
    first, last = result.first_difference, row["last_common_offset"]
    if first is not None:
        equal = "" if last is None else f", equal up to offset {last}"
        count = result.counts["content"]
        what = "records" if count else "producers of empty batches"
        yield f"{verdict}: different {what} from offset {first.first_offset} on{equal}"
        if count:
            yield f"{count_of(count, 'record')} {'differs' if count == 1 else 'differ'}"
        if result.stale:
            yield stale_text(result)
        yield from damaged
    elif damaged:
        yield f"{verdict}: {' and '.join(damaged)}; all other records are equal"
    elif not row["a"]["batches"] and not row["b"]["batches"]:
        yield f"{verdict}: neither replica has a batch; `kseg validate` shows whether their segments were ever written"
    else:
        yield f"{verdict}: {_MEANINGS[verdict]}"
    for (kind, replica), count in result.lacking.items():
        yield f"{replica} lacks {count_of(count, 'record')}{_LACKING[kind]}"
    if text := together_text(row):
        yield text
    if result.counts.get("unopened"):
        yield f"{count_of(result.counts['unopened'], 'place')} with different batches, whose records were not compared"


def damaged_texts(row: Row) -> list[str]:
    """Return which replicas are damaged in how many places."""
    return [
        f"{name} is damaged in {count_of(count, 'place')}" for name, count in row["damaged_places"].items() if count
    ]


def stale_text(result: Comparison) -> str:
    """Return which replica has the records of a former leader, and the leader epochs at the first difference."""
    own, other = sorted(epoch for epoch in result.leader_epochs.values() if epoch is not None)
    return f"{result.stale} is stale: leader epoch {own} instead of {other}"


_REPLICAS = ("a", "b")
_MEANINGS = {
    "identical": "both replicas have the same batches",
    "same": "both replicas have the same records, in other batches or with other leader epochs",
    "consistent": "all offsets that both replicas have are equal",
    "disjoint": "the replicas have no common offset",
    "undetermined": "the headers do not show whether the records are equal",
}
_LACKING = {
    "starts-later": " at its start",
    "ends-earlier": " at its end",
    "missing": " in between",
    "damaged": " that the other replica has",
}


def _some(count: int, noun: str) -> str:
    return count_of(count, noun) if count else "-"


_REPLICA_COLUMNS = (
    TableColumn("replica", cell=lambda one: one["name"]),
    TableColumn("path", text="wrap", cell=lambda one: one["path"]),
    TableColumn("offsets", right=True, cell=lambda one: extent(one["first_offset"], one["last_offset"])),
    TableColumn("damaged", right=True, cell=lambda one: _some(one["damaged"], "place")),
    TableColumn("only here", right=True, priority=2, cell=lambda one: _some(one["only"], "record")),
    TableColumn("batches", right=True, priority=3, cell=lambda one: one["batches"]),
    TableColumn("segments", right=True, priority=4, cell=lambda one: one["segments"]),
)


def _as_followers(row: Row, detail: int) -> Iterator[str]:
    """Yield what each replica would do with its log as a follower of the other one; without ``detail`` only changes."""
    first = row["first_difference"]
    for name, leader in (_REPLICAS, _REPLICAS[::-1]):
        offset, end = row["truncation_offset"][name], row[name]["end_offset"]
        text = f"As a follower of {leader}, {name} would"
        if offset is None and (first is not None or detail > 0):
            yield f"{text} truncate to its high watermark: the leader epochs do not decide it."
        elif offset is not None and offset < end:
            yield f"{text} truncate to offset {offset} and lose {count_of(end - offset, 'offset')}."
        elif offset is not None and detail > 0:
            yield f"{text} keep its whole log, to the end offset {end}."
        if first is not None and offset is not None and offset > first:
            yield f"It would keep the difference at offset {first}: replication does not correct it."


#: The columns of a difference, or of several of one kind: their range, and the places of the first.
_COLUMNS = (
    TableColumn(
        "difference", cell=lambda ones: times(" ".join(filter(None, (ones[0].lacking, ones[0].kind))), len(ones))
    ),
    TableColumn("offsets", cell=lambda ones: f"{ones[0].first_offset}..{max(one.last_offset for one in ones)}"),
    TableColumn("count", right=True, priority=1, cell=lambda ones: sum(one.count for one in ones)),
    TableColumn("a", text="wrap", cell=lambda ones: _place(ones[0].a)),
    TableColumn("b", text="wrap", cell=lambda ones: _place(ones[0].b)),
    TableColumn("detail", text="wrap", cell=lambda ones: first_text(ones[0].detail, len(ones))),
)


def _print_table(listed: list[Difference], result: Comparison, out: TextIO, folded: int) -> None:
    """Print the listed differences; from ``folded`` of one kind on, they are one row."""
    parts: list[list[Difference]] = []
    for equal in grouped(listed, lambda one: (one.kind, one.lacking)).values():
        parts += [equal] if len(equal) >= folded else [[one] for one in equal]
    print_cells(out, _COLUMNS, cell_rows(_COLUMNS, parts), title="")
    for kind, meaning in KINDS.items():
        if count := result.stretches.get(kind):
            more = count - sum(one.kind == kind for one in listed)
            omitted = f", {more:,} of them not listed (see --limit)" if more else ""
            counted = count_of(result.counts[kind], COUNTED[kind])
            print_note(out, f"{kind}: {counted} in {count_of(count, 'range')}{omitted}: {meaning}")


def _place(place: DifferencePlace | None) -> str:
    if place is None:
        return "-"
    epoch = "" if place.leader_epoch is None else f", leader epoch {place.leader_epoch}"
    return f"{os.path.basename(place.file)} at byte {place.position}{epoch}"
