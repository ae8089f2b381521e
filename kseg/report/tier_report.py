"""Output of ``kseg tier``: fetched partitions, and the problems of a bucket, as rows or tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TextIO

from kseg.commands.tier.fetch import target_of
from kseg.commands.tier.fetch_plan import FetchedPartition
from kseg.commands.tier.reconcile import PROBLEMS, TierCheck, TierProblem
from kseg.report.row_formats import RowSet
from kseg.report.tables import TableColumn, cell_rows, print_cells, print_text
from kseg.report.wording import common_text, fold, names_text
from kseg.schema import Column, RowKind
from kseg.text import count_of

_FETCHED = RowKind("tier", "Fetched partitions", "`kseg tier fetch`").of(
    "fetched",
    Column("topic", "text", "name of the topic", "one.topic"),
    Column("topic_id", "text", "its id", "one.topic_id"),
    Column("partition", "count", "number of the partition", "one.partition"),
    Column("folder", "text", "the folder that was written"),
    Column("segments", "count", "number of segments", lambda found: len(found["one"].pieces)),
    Column("first_offset", "count?", "first offset; null without a segment", lambda found: _ends(found["one"])[0]),
    Column("log_end", "count?", "offset after the last record", lambda found: _ends(found["one"])[1]),
    Column("bytes", "count", "bytes of the segments", "one.size"),
    Column(
        "holes", "texts", "offsets between segments that no segment has, such as `10..19`",
        lambda found: _holes(found["one"]),
    ),
    Column(
        "left_out", "texts", "segments that were not written, with the reason",
        lambda found: [f"{part.path}: {part.why}" for part in found["one"].left_out],
    ),
)  # fmt: skip
_PROBLEM = RowKind("tier", "Problems of tiered storage", "`kseg tier check`").of(
    "tier_problem",
    Column("problem", "text", "what is wrong", values=tuple(PROBLEMS)),
    Column("topic", "text", "name of the topic"),
    Column("topic_id", "text", "its id", "place.topic_id"),
    Column("partition", "count", "number of the partition", "place.partition"),
    Column("segment_id", "text?", "id of the remote segment; null for a hole and a dead topic"),
    Column("first_offset", "count?", "first offset of the segment or the hole"),
    Column("last_offset", "count?", "last offset; null if it is not known"),
    Column("free_bytes", "count", "bytes that a deletion of the objects would free, else 0", "size"),
    Column("path", "text?", "an object, or the folder of a dead topic"),
    Column("message", "text", "what was expected and found"),
)
_SUMMARY = RowKind("tier", "Summary of tiered storage", "the last row of `kseg tier check`").of(
    "summary",
    Column("segments", "count", "segments in the metadata, without those that were deleted"),
    Column("stored", "count", "segments in the bucket"),
    Column("bytes", "count", "bytes of their objects", "size"),
    Column("recent", "count", "segments that are not in the metadata and younger than a day: uploads in progress"),
    Column("free_bytes", "count", "bytes that deletions would free", "free"),
    Column(
        "problems", "map", "number of problems by kind", lambda found: dict(_by_kind(found)),
        of=(Column("", "count", "problems"),),
    ),
    Column("faults", "texts", "why problems can be missing or wrong"),
)  # fmt: skip
ROW_KINDS = (_FETCHED, _PROBLEM, _SUMMARY)


def fetched_rows(found: Sequence[FetchedPartition], target: str) -> RowSet:
    return RowSet.made(_FETCHED.columns, ({"one": one, "folder": target_of(one, target)} for one in found))


def check_rows(found: TierCheck) -> RowSet:
    """Return a row per problem, the worst first, and a summary."""
    return RowSet.of(_PROBLEM.columns, chain(_PROBLEM.rows(found.problems), [_SUMMARY.maker()(found)]))


def _ends(one: FetchedPartition) -> tuple[int | None, int | None]:
    return (one.pieces[0].first, one.pieces[-1].end) if one.pieces else (None, None)


def _holes(one: FetchedPartition) -> list[str]:
    return [f"{first}..{last}" for first, last in one.holes]


def _by_kind(found: TierCheck) -> Counter[str]:
    return Counter(one.problem for one in found.problems)


def _problem_offsets(group: Sequence[TierProblem]) -> str:
    begin, end = group[0].first_offset, group[0].last_offset
    if len(group) > 1:
        return f"{len(group):,} segments"
    return "" if begin is None else f"{begin}.." if end is None else f"{begin}..{end}"


def _message(group: Sequence[TierProblem]) -> str:
    return group[0].message if len(group) == 1 else common_text(PROBLEMS[one.problem] for one in group)


#: The columns of a partition or a problem, or of several equal ones.
FETCHED_COLUMNS = (
    TableColumn("partition", text="wrap", cell=lambda group: names_text(one.name for one in group)),
    TableColumn("segments", right=True, priority=2, cell=lambda group: sum(len(one.pieces) for one in group)),
    TableColumn(
        "offsets",
        right=True,
        cell=lambda group: sum(one.pieces[-1].end - one.pieces[0].first for one in group if one.pieces),
    ),
    TableColumn("bytes", right=True, priority=1, cell=lambda group: sum(one.size for one in group)),
    TableColumn(
        "missing offsets",
        text="wrap",
        cell=lambda group: names_text(f"{one.name}: {hole}" for one in group for hole in _holes(one)),
    ),
    TableColumn("left out", right=True, priority=3, cell=lambda group: sum(len(one.left_out) for one in group)),
)
PROBLEM_COLUMNS = (
    TableColumn("problem", cell=lambda group: common_text(one.problem for one in group)),
    TableColumn("partition", text="wrap", cell=lambda group: names_text(dict.fromkeys(one.partition for one in group))),
    TableColumn("offsets", right=True, cell=_problem_offsets),
    TableColumn("bytes to free", right=True, cell=lambda group: sum(one.size for one in group)),
    TableColumn("message", text="wrap", priority=1, cell=_message),
    TableColumn("object", text="wrap", priority=2, cell=lambda group: names_text(one.path or "" for one in group)),
)


def write_fetched(found: Sequence[FetchedPartition], target: str, out: TextIO, *, detail: int = 0) -> None:
    """Write a line per partition, of many equal ones together, and the sums."""
    if detail >= 0:
        groups = fold(found, lambda one: (bool(one.holes), bool(one.left_out)), whole=detail > 0)
        print_cells(out, FETCHED_COLUMNS, cell_rows(FETCHED_COLUMNS, groups))
    segments = count_of(sum(len(one.pieces) for one in found), "segment")
    size = count_of(sum(one.size for one in found), "byte")
    print_text(out, f"written to {target}: {count_of(len(found), 'partition')}, {segments}, {size}")


def write_check(found: TierCheck, out: TextIO, *, detail: int = 0) -> None:
    """Write the answer, and a line per problem, the worst first; of many those of one kind are one line."""
    print_text(out, summary_line(found))
    if found.problems and detail >= 0:
        groups = fold(found.problems, lambda one: (one.problem, one.partition), whole=detail > 0)
        print_cells(out, PROBLEM_COLUMNS, cell_rows(PROBLEM_COLUMNS, groups))


def summary_line(found: TierCheck) -> str:
    counts = _by_kind(found)
    none = "no problem in what was read" if found.faults else "no problem"
    problems = ", ".join(f"{counts[name]:,} {name}" for name in PROBLEMS if counts[name]) or none
    stored = f"{count_of(found.segments, 'segment')} in the metadata, {found.stored:,} in the bucket"
    free = f"; deletions would free {count_of(found.free, 'byte')}" if found.free else ""
    recent = f"; {count_of(found.recent, 'upload')} in progress" if found.recent else ""
    return f"{problems}: {stored} ({count_of(found.size, 'byte')}){free}{recent}"
