"""Output of ``kseg tier``: fetched partitions, and the problems of a bucket, as rows or tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from kseg.commands.tier.fetch import target_of
from kseg.commands.tier.fetch_plan import FetchedPartition
from kseg.commands.tier.reconcile import PROBLEMS, TierCheck, TierProblem
from kseg.report.ranking import common_text, fold, names_text
from kseg.report.row_formats import RowSet
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Column, Row, RowKind, names_of, row_maker
from kseg.text import count_of, escape_controls


@dataclass(frozen=True, slots=True)
class Fetched:
    """Partitions and the folder in which they are."""

    partitions: Sequence[FetchedPartition]
    target: str


_FETCHED = (
    Column("kind", "text", "fetched"),
    Column("topic", "text", "name of the topic"),
    Column("topic_id", "text", "its id"),
    Column("partition", "count", "number of the partition"),
    Column("folder", "text", "the folder that was written"),
    Column("segments", "count", "number of segments"),
    Column("first_offset", "count?", "first offset; null without a segment"),
    Column("log_end", "count?", "offset after the last record"),
    Column("bytes", "count", "bytes of the segments"),
    Column("holes", "texts", "offsets between segments that no segment has, such as `10..19`"),
    Column("left_out", "texts", "segments that were not written, with the reason"),
)
_PROBLEM = (
    Column("kind", "text", "tier_problem"),
    Column("problem", "text", "what is wrong", "problem", values=tuple(PROBLEMS)),
    Column("topic", "text", "name of the topic", "topic"),
    Column("topic_id", "text", "its id", "place.topic_id"),
    Column("partition", "count", "number of the partition", "place.partition"),
    Column("segment_id", "text?", "id of the remote segment; null for a hole and a dead topic", "segment_id"),
    Column("first_offset", "count?", "first offset of the segment or the hole", "first_offset"),
    Column("last_offset", "count?", "last offset; null if it is not known", "last_offset"),
    Column("free_bytes", "count", "bytes that a deletion of the objects would free, else 0", "size"),
    Column("path", "text?", "an object, or the folder of a dead topic", "path"),
    Column("message", "text", "what was expected and found", "message"),
)
_SUMMARY = (
    Column("kind", "text", "summary"),
    Column("segments", "count", "segments in the metadata, without those that were deleted"),
    Column("stored", "count", "segments in the bucket"),
    Column("bytes", "count", "bytes of their objects"),
    Column("recent", "count", "segments that are not in the metadata and younger than a day: uploads in progress"),
    Column("free_bytes", "count", "bytes that deletions would free"),
    Column("problems", "map", "number of problems by kind", of=(Column("", "count", "problems"),)),
    Column("faults", "texts", "why problems can be missing or wrong"),
)
ROW_KINDS = (
    RowKind("tier", "Fetched partitions", _FETCHED, "`kseg tier fetch`"),
    RowKind("tier", "Problems of tiered storage", _PROBLEM, "`kseg tier check`"),
    RowKind("tier", "Summary of tiered storage", _SUMMARY, "the last row of `kseg tier check`"),
)


def fetched_rows(found: Fetched) -> RowSet:
    """Return a row per partition."""
    return RowSet(_fetched(found), _FETCHED, names_of(_FETCHED))


def _fetched(found: Fetched) -> Iterator[Row]:
    for one in found.partitions:
        yield {
            "kind": "fetched",
            "topic": one.topic,
            "topic_id": one.topic_id,
            "partition": one.partition,
            "folder": target_of(one, found.target),
            "segments": len(one.pieces),
            "first_offset": one.pieces[0].first if one.pieces else None,
            "log_end": one.pieces[-1].end if one.pieces else None,
            "bytes": one.size,
            "holes": [f"{first}..{last}" for first, last in one.holes],
            "left_out": [f"{part.path}: {part.why}" for part in one.left_out],
        }


def check_rows(found: TierCheck) -> RowSet:
    """Return a row per problem, the worst first, and a summary."""
    return RowSet(_checked(found), _PROBLEM, names_of(_PROBLEM), "tier_problem")


def _checked(found: TierCheck) -> Iterator[Row]:
    yield from map(row_maker(_PROBLEM), found.problems)
    yield {
        "kind": "summary",
        "segments": found.segments,
        "stored": found.stored,
        "bytes": found.size,
        "recent": found.recent,
        "free_bytes": found.free,
        "problems": dict(Counter(one.problem for one in found.problems)),
        "faults": found.faults,
    }


FETCHED_COLUMNS = (
    TableColumn("partition", text="wrap"),
    TableColumn("segments", right=True, priority=2),
    TableColumn("offsets", right=True),
    TableColumn("bytes", right=True, priority=1),
    TableColumn("missing offsets", text="wrap"),
    TableColumn("left out", right=True, priority=3),
)
PROBLEM_COLUMNS = (
    TableColumn("problem"),
    TableColumn("partition", text="wrap"),
    TableColumn("offsets", right=True),
    TableColumn("bytes to free", right=True),
    TableColumn("message", text="wrap", priority=1),
    TableColumn("object", text="wrap", priority=2),
)


def write_fetched(found: Fetched, out: TextIO, *, detail: int = 0) -> None:
    """Write a line per partition, of many equal ones together, and the sums."""
    groups = fold(found.partitions, lambda one: (bool(one.holes), bool(one.left_out)), whole=detail > 0)
    if detail >= 0:
        print_cells(out, FETCHED_COLUMNS, [(_fetched_cells(group), "") for group in groups])
    size = sum(one.size for one in found.partitions)
    segments = sum(len(one.pieces) for one in found.partitions)
    counts = (
        f"{count_of(len(found.partitions), 'partition')}, {count_of(segments, 'segment')}, {count_of(size, 'byte')}"
    )
    print_text(out, f"written to {escape_controls(found.target)}: {counts}", indent=2)


def _fetched_cells(group: Sequence[FetchedPartition]) -> list[str]:
    holes = [f"{one.name}: {first}..{last}" for one in group for first, last in one.holes]
    return [
        names_text(one.name for one in group),
        f"{sum(len(one.pieces) for one in group):,}",
        f"{sum(one.pieces[-1].end - one.pieces[0].first for one in group if one.pieces):,}",
        f"{sum(one.size for one in group):,}",
        names_text(holes) if holes else "",
        f"{sum(len(one.left_out) for one in group):,}",
    ]


def write_check(found: TierCheck, out: TextIO, *, detail: int = 0) -> None:
    """Write the answer, and a line per problem, the worst first; of many those of one kind are one line."""
    print_text(out, summary_line(found), indent=2)
    groups = fold(found.problems, lambda one: (one.problem, one.partition), whole=detail > 0)
    if groups and detail >= 0:
        print_cells(out, PROBLEM_COLUMNS, [(_problem_cells(group), "") for group in groups])


def _problem_cells(group: Sequence[TierProblem]) -> list[str]:
    first = group[0]
    begin, end = first.first_offset, first.last_offset
    offsets = "" if begin is None else f"{begin}.." if end is None else f"{begin}..{end}"
    return [
        common_text(one.problem for one in group),
        names_text(dict.fromkeys(one.partition for one in group)),
        offsets if len(group) == 1 else f"{len(group):,} segments",
        f"{sum(one.size for one in group):,}",
        escape_controls(first.message if len(group) == 1 else common_text(PROBLEMS[one.problem] for one in group)),
        escape_controls(first.path or "") + (f" and {len(group) - 1:,} more" if len(group) > 1 else ""),
    ]


def summary_line(found: TierCheck) -> str:
    """Return the answer in one line."""
    counts = Counter(one.problem for one in found.problems)
    none = "no problem in what was read" if found.faults else "no problem"
    problems = ", ".join(f"{counts[name]:,} {name}" for name in PROBLEMS if counts[name]) or none
    stored = f"{count_of(found.segments, 'segment')} in the metadata, {found.stored:,} in the bucket"
    free = f"; deletions would free {count_of(found.free, 'byte')}" if found.free else ""
    recent = f"; {count_of(found.recent, 'upload')} in progress" if found.recent else ""
    return f"{problems}: {stored} ({count_of(found.size, 'byte')}){free}{recent}"
