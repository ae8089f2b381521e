"""Output of ``kseg convert``: the summary of each segment, as text or rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TextIO

from kseg.commands.convert.conversion import ConvertResult
from kseg.commands.convert.transcode import LOSSES, Conversion
from kseg.report.tables import print_text
from kseg.schema import Column, Row, RowKind
from kseg.text import count_of, inclusive_range

_LOSS = (
    Column("count", "count", "number of them"),
    Column("first_offset", "int", "first offset concerned"),
    Column("last_offset", "int", "last offset concerned"),
)
_BATCHES = (Column("", "count", "batches"),)
FIELDS = RowKind("convert", "Converted segments", "a row per segment").of(
    "conversion",
    Column("source", "text", "the segment"),
    Column("target", "text", "the result"),
    Column("entries_before", "count", "batches of the source"),
    Column("entries_after", "count", "batches of the result"),
    Column("copied", "count", "batches that already had the version"),
    Column("skipped", "count", "damaged batches that are not in the result"),
    Column("records", "count", "records, read back and compared"),
    Column("bytes_before", "count", "bytes of the source"),
    Column("bytes_after", "count", "bytes of the result"),
    Column("lost_bytes", "count", "bytes of skipped batches and of data that is not a batch"),
    Column("largest_before", "count", "bytes of the largest batch of the source"),
    Column("largest_after", "count", "bytes of the largest batch of the result"),
    Column("codecs_before", "map", "batches of the source by codec", of=_BATCHES),
    Column("codecs_after", "map", "batches of the result by codec", of=_BATCHES),
    Column("lost", "map", "data that the version cannot have: wrapper-keys, headers, timestamps, …", of=_LOSS),
    Column("leader_epochs", "json", "[epoch, first offset, last offset] of the written batches"),
    Column(
        "epochless_bytes", "count?", "byte of the result before which no batch had a leader epoch; null if none had one"
    ),
    Column("transactional", "bool", "whether a written batch belongs to a transaction"),
    Column("first_offset", "int?", "first offset of the result"),
    Column("last_offset", "int?", "last offset of the result"),
)
ROW_KINDS = (FIELDS,)


def rows(result: ConvertResult) -> Iterator[Row]:
    return FIELDS.rows(result.segments)


def write_text(result: ConvertResult, out: TextIO, *, detail: int = 0) -> None:
    """Write the total, and the segments that lost something; with ``detail`` 1 all segments, with -1 the total only."""
    several = len(result.segments) > 1
    if several:
        total = Conversion("", f"total of {count_of(len(result.segments), 'segment')}")
        for one in result.segments:
            total.merge(one)
        _write_lines(total, out, offsets=len({os.path.dirname(one.target) for one in result.segments}) == 1)
    for one in result.segments if detail >= 0 or not several else ():
        if detail > 0 or not several or one.skipped or one.lost_bytes:
            _write_lines(one, out)


def _write_lines(one: Conversion, out: TextIO, *, offsets: bool = True) -> None:
    """Write a result; without ``offsets``, those of several partitions, which say nothing together, are left out."""
    lines = [
        one.target,
        f"  batches  {one.entries_before:,} -> {one.entries_after:,}, {one.copied:,} of them copied unchanged",
        f"  records  {one.records:,}, read back and compared",
        f"  bytes    {one.bytes_before:,} -> {one.bytes_after:,}",
        f"  codecs   {_counts(one.codecs_before)} -> {_counts(one.codecs_after)}",
    ]
    if one.skipped or one.lost_bytes:
        lost = f"{count_of(one.lost_bytes, 'byte')} lost in total"
        lines.append(f"  skipped  {count_of(one.skipped, 'damaged batch')}; {lost}")
    for kind, loss in one.lost.items():
        where = f", {inclusive_range('offset', loss.first_offset, loss.last_offset)}" if offsets else ""
        noun, more = LOSSES[kind]
        lines.append(f"  lost     {kind}: {count_of(loss.count, noun)}{more}{where}")
    for line in lines:
        print_text(out, line, indent=11)


def _counts(codecs: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(codecs.items())) or "none"
