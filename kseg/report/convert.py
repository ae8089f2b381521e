"""Output of ``kseg convert``: the summary of each segment, as text or rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TextIO

from kseg.commands.convert.convert import ConvertResult
from kseg.commands.convert.result import LOSSES, Conversion
from kseg.report.tables import print_text
from kseg.schema import Row
from kseg.text import count_of, escape_controls, inclusive_range


def rows(result: ConvertResult) -> Iterator[Row]:
    """Yield a row per segment."""
    return ({"kind": "conversion", **conversion.as_row()} for conversion in result.segments)


def write_text(result: ConvertResult, out: TextIO, *, detail: int = 0) -> None:
    """Write the total, and the segments that lost something; with ``detail`` 1 all segments, with -1 the total only."""
    several = len(result.segments) > 1
    if several:
        total = Conversion("", f"total of {count_of(len(result.segments), 'segment')}")
        for one in result.segments:
            total.merge(one)
        _write_lines(total, out)
    for one in result.segments if detail >= 0 or not several else ():
        if detail > 0 or not several or one.skipped or one.lost_bytes or one.lost:
            _write_lines(one, out)


def _write_lines(one: Conversion, out: TextIO) -> None:
    lines = [
        one.target,
        f"  batches  {one.entries_before:,} -> {one.entries_after:,}, {one.copied:,} of them copied unchanged",
        f"  records  {one.records:,}, read back and compared",
        f"  bytes    {one.bytes_before:,} -> {one.bytes_after:,}",
        f"  codecs   {_counts(one.codecs_before)} -> {_counts(one.codecs_after)}",
    ]
    if one.skipped or one.lost_bytes:
        lines.append(
            f"  skipped  {count_of(one.skipped, 'damaged batch')}; {count_of(one.lost_bytes, 'byte')} lost in total"
        )
    for kind, loss in one.lost.items():
        offsets = inclusive_range("offset", loss.first_offset, loss.last_offset)
        noun, more = LOSSES[kind]
        lines.append(f"  lost     {kind}: {count_of(loss.count, noun)}{more}, {offsets}")
    for line in lines:
        print_text(out, escape_controls(line), indent=11)


def _counts(codecs: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(codecs.items())) or "none"
