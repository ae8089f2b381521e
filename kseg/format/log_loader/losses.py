"""Count the records in a byte range of a log that a broker would truncate or skip."""

from __future__ import annotations

from kseg.errors import NotASegmentError
from kseg.findings import Finding, do_nothing
from kseg.format.checks.claimed_offsets import ClaimedOffsets
from kseg.format.log_loader import batch_rows
from kseg.format.log_loader.plan import Lost
from kseg.format.record import columns
from kseg.format.record.layout import CODEC_MASK, INT64_MAX
from kseg.format.segment.reader import SegmentReader
from kseg.format.storage.source import open_range


def loss_of_range(path: str, begin: int, end: int) -> Lost:
    """Return the readable records in bytes ``begin`` to ``end`` of a log, also after damage. Raises UnreadableError."""
    zeros = 0

    def report(finding: Finding) -> None:
        nonlocal zeros
        if finding.rule == "zero-tail":
            zeros += int(finding.facts["bytes"])

    records = 0
    first: int | None = None
    last: int | None = None
    with SegmentReader(open_range(path, begin, end), report=report) as reader:
        offsets = ClaimedOffsets(path, do_nothing)
        try:
            for window in reader.windows():
                claimed = offsets.update(window.batches)
                counted, lowest, highest = -1, 0, 0
                if not claimed:
                    counted, lowest, highest = batch_rows.count_records(window.batches)
                if counted < 0:
                    counted, lowest, highest = _count_slowly(window.batches, last, claimed)
                records += counted
                if lowest != INT64_MAX:
                    first = lowest if first is None else min(first, lowest)
                    last = highest if last is None else max(last, highest)
        except NotASegmentError:
            zeros = end - begin if _all_zeros(path, begin, end) else 0
    return Lost(end - begin - zeros, records, first, last)


def _count_slowly(batches: columns.BatchColumns, last: int | None, claimed: set[int]) -> tuple[int, int, int]:
    """Count like ``count_records``. A compressed message set has the offsets after those before it; ``last`` is the last.

    The offsets of the batches at the positions ``claimed`` are not used.
    """
    records, first = 0, INT64_MAX
    for row in range(batches.count):
        if batches.crc_state[row] != columns.CRC_GOOD:
            continue
        if batches.position[row] in claimed:
            records += _records(batches, row, None)
            continue
        records += _records(batches, row, last)
        first = min(first, batches.base_offset[row])
        last = max(batches.last_offset[row], -1 if last is None else last)
    return records, first, -1 if last is None else last


def _records(batches: columns.BatchColumns, row: int, before: int | None) -> int:
    if batches.magic[row] >= 2:
        return max(0, batches.record_count[row])
    if before is None or not batches.attributes[row] & CODEC_MASK:
        return 1
    return max(1, batches.last_offset[row] - before)


def _all_zeros(path: str, begin: int, end: int) -> bool:
    buffer = memoryview(bytearray(1 << 16))
    with open_range(path, begin, end) as source:
        while count := source.readinto(buffer):
            if any(buffer[:count]):
                return False
    return True
