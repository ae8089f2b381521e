"""Read the output of a conversion back and compare it with the source, record by record."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from kseg.errors import KsegError
from kseg.format.record import equality
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.segment.records_chunk import Chunk
from kseg.format.writer import conversion_kinds
from kseg.format.writer.batch_runs import payload_of, runs_of


class ReadBackError(KsegError):
    """The output differs from its source, and is deleted."""


class _Records:
    """The valid records of a segment, run by run: ``records`` from ``at`` to ``end`` of the current run remain."""

    def __init__(self, chunks: Iterator[Chunk], target: int) -> None:
        self._runs = self._all_runs(chunks, target)
        self.data: Any = b""
        self.records = RecordColumns(1)
        self.batches = BatchColumns(1)
        self.at = 0
        self.end = 0

    def more(self) -> bool:
        """Read until at least one record remains; return False at the end."""
        return self.at < self.end or next(self._runs, False)

    def close(self) -> None:
        """Close the generator of chunks, since an unfinished one and this object refer to each other."""
        self._runs.close()

    def _all_runs(self, chunks: Iterator[Chunk], target: int) -> Generator[bool, None, None]:
        for chunk in chunks:
            self.records, self.batches = chunk.records, chunk.batches
            for run in runs_of(chunk, target, copies=False):
                if run.kind in (conversion_kinds.PLAIN, conversion_kinds.PACKED) and run.end > run.i:
                    self.data = payload_of(chunk, run.row)
                    self.at, self.end = run.i, run.end
                    yield True


def compare(source: Iterator[Chunk], result: Iterator[Chunk], target: int, expected: int) -> None:
    """Raise ReadBackError unless ``result`` has the ``expected`` records of ``source``.

    Compares offset, timestamp and its type, key, value and headers, as far as version ``target`` can contain them.
    """
    with closing(_Records(source, target)) as left, closing(_Records(result, target)) as right:
        _compare(left, right, target, expected)


def _compare(left: _Records, right: _Records, target: int, expected: int) -> None:
    done = 0
    while right.more():
        if not left.more():
            raise ReadBackError(f"the result has more than the {done:,} records of the source")
        count = min(left.end - left.at, right.end - right.at)
        same = equality.count_same(
            left.data, left.records, left.batches, left.at,
            right.data, right.records, right.batches, right.at, count, target,
        )  # fmt: skip
        if same < count:
            offset = left.records.offset[left.at + same]
            raise ReadBackError(f"after reading back, the record at offset {offset} differs from the source")
        left.at += count
        right.at += count
        done += count
    if done != expected:
        raise ReadBackError(f"could only read back {done:,} of {expected:,} records")
    if left.more():
        raise ReadBackError(f"the source has more than the {done} records of the result")
