"""A time index entry is judged by Kafka's look-ups, which read the offset index, too."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import pytest

from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.folders import rules

BEGIN = 1_700_000_000_000
#: The largest timestamps of batches of two records: some are equal, some decrease.
TIMES = [BEGIN + n for n in (0, 5, 3, 5, 9, 1, 9, 2, 14, 8, 14, 3)]
BATCHES = [
    build_batch([PlainRecord(2 * n, b"k", b"v", BEGIN), PlainRecord(2 * n + 1, b"k", b"v", time)])
    for n, time in enumerate(TIMES)
]
POSITIONS = list(accumulate(map(len, BATCHES[:-1]), initial=0))
#: (timestamp, offset) of the time index, and the batches with an entry in the offset index.
TIME_ENTRIES = [(BEGIN + 5, 3), (BEGIN + 9, 9), (BEGIN + 14, 17)]
INDEXED = {"sparse": (2, 5, 9), "dense": range(1, len(BATCHES))}


def first_found(times: list[tuple[int, int]], offsets: list[tuple[int, int]], wanted: int) -> int | None:
    """Return the position of the batch that ``LogSegment.findOffsetByTimestamp`` finds for a timestamp."""
    row = bisect_right([timestamp for timestamp, _ in times], wanted)
    offset = times[row - 1][1] if row else 0
    row = bisect_right([last for last, _ in offsets], offset)
    position = offsets[row - 1][1] if row else 0
    later = zip(POSITIONS, TIMES, strict=True)
    return next((begin for begin, time in later if begin >= position and time >= wanted), None)


@pytest.mark.slow
@pytest.mark.parametrize("indexed", INDEXED)
def test_an_entry_with_which_a_look_up_skips_records_is_reported(tmp_path: Path, indexed: str) -> None:
    """Each entry is moved to each offset between its neighbours, and given earlier timestamps. Followers before 2025, which
    write one offset entry for an append, are those with the last offset of a later batch.
    """
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(BATCHES))
    index = folder / f"{0:020}.timeindex"
    offsets = [(2 * n + 1, POSITIONS[n]) for n in INDEXED[indexed]]
    followers = [(2 * n + 3, POSITIONS[n]) for n in INDEXED["sparse"]]
    skipped = 0
    for entries in (offsets, followers):
        index.with_suffix(".index").write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))
        index.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in TIME_ENTRIES))
        assert rules(folder) == {}
        for row, (timestamp, _) in enumerate(TIME_ENTRIES):
            before, after = ([(BEGIN, 0), *TIME_ENTRIES, (BEGIN + 20, 24)][at] for at in (row, row + 2))
            for earlier in range(min(3, timestamp - before[0])):
                for offset in range(before[1], after[1]):
                    times = [*TIME_ENTRIES]
                    times[row] = timestamp - earlier, offset
                    index.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in times))
                    right = (first_found([], [], wanted) for wanted in range(BEGIN, BEGIN + 16))
                    if list(right) != [first_found(times, entries, wanted) for wanted in range(BEGIN, BEGIN + 16)]:
                        skipped += 1
                        assert rules(folder) == {index.name: ["time-index-mismatch"]}, times
    assert skipped > 20
