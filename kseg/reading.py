"""The library's front door: open a segment, iterate over its batches or its records, or over what is in other files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from kseg.commands.dump import framed
from kseg.errors import UnreadableError, UsageError
from kseg.findings import Report, ignore_finding
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT, DeepIterator
from kseg.format.segment.objects import Record, RecordBatch, record_batch
from kseg.format.segment.reader import SegmentReader, Window
from kseg.format.segment.records_chunk import Chunk
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage.source import SegmentFile, open_source
from kseg.format.wire.framings import FRAMINGS


class Segment:
    """An open segment, read once from front to back by one of its iterators. A context manager.

    What is wrong goes to ``report`` as it is met; reading goes on behind it. Iterators raise NotASegmentError when
    the file holds no entry at all, and UnreadableError when the first read fails.
    """

    def __init__(self, reader: SegmentReader, report: Report, decompression_limit: int) -> None:
        self.name = reader.name
        self._reader = reader
        self._report = report
        self._limit = decompression_limit
        self._used = False

    def batches(self) -> Iterator[RecordBatch]:
        """Shallow iteration: each entry, also those whose CRC is bad (``crc_valid`` False)."""
        for window in self.windows():
            for row in range(window.batches.count):
                yield record_batch(window.batches, row)

    def records(self) -> Iterator[Record]:
        """Deep iteration: each record of each entry that can be opened."""
        for chunk in self.chunks():
            for i in range(chunk.records.count):
                yield chunk.record(i)

    def windows(self) -> Iterator[Window]:
        """Entries in columns; a window is valid until the next is asked for. Raises UsageError the second time."""
        if self._used:
            raise UsageError(f"{self.name}: a segment is read once; open it again")
        self._used = True
        return self._reader.windows()

    def chunks(self) -> Iterator[Chunk]:
        """Records in columns; a chunk is valid until the next is asked for."""
        opener = DeepIterator(self._report, limit=self._limit)
        for window in self.windows():
            yield from opener.chunks(window)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_segment(
    path: str | os.PathLike[str] | BinaryIO,
    *,
    report: Report = ignore_finding,
    verify_crc: bool = True,
    decompression_limit: int = DECOMPRESSION_LIMIT,
) -> Segment:
    """Open a segment: a local path, ``-`` for standard input, an fsspec URL, or a binary file object.

    ``verify_crc=False`` reads as a consumer with check.crcs=false does; ``decompression_limit`` is what one entry may
    inflate to, in bytes. Raises UnreadableError when it can't be opened.
    """
    reader = SegmentReader(open_source(path), report=report, verify_crc=verify_crc)
    return Segment(reader, report, decompression_limit)


def framed_rows(
    path: str | os.PathLike[str],
    framing: str,
    *,
    requests: str | os.PathLike[str] | None = None,
    report: Report = ignore_finding,
    verify_crc: bool = True,
) -> Iterator[dict[str, Any]]:
    """The rows of ``kseg dump --as FRAMING --deep``, their bytes as they are; ``requests`` is what responses answer.

    Raises UsageError for an unknown framing, UnreadableError and NotASegmentError.
    """
    if framing not in FRAMINGS:
        raise UsageError(f"{framing!r} is no framing: {', '.join(FRAMINGS)}")
    requested = None if requests is None else os.fspath(requests)
    file = SegmentFile(os.fspath(path), framing=framing, requests=requested)
    return framed.framed_rows(file, report, deep=True, verify_crc=verify_crc)


def side_entries(path: str | os.PathLike[str], report: Report = ignore_finding) -> Iterator[Any]:
    """The entries of a file beside the log, known by its name: ``OffsetEntry``, ``ProducerState``, ``LeaderEpoch``, …

    Raises UnreadableError.
    """
    name = os.fspath(path)
    known = recognise(name)
    if known is None:
        raise UnreadableError(f"{name}: by its name no file that stands beside a log")
    with open_source(name) as source:
        for _, entry in known.side.walk(source, known.base_offset, report):
            yield entry
