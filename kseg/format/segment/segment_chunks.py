"""Iterate over the records of one segment, and close it also when the iteration is left early.

It is a module of its own because it must not be compiled: a generator that is compiled against Python's stable ABI runs no
``finally`` and leaves no ``with`` when it is dropped (Cython needs ``tp_finalize``, which that ABI has since Python 3.15).
"""

from __future__ import annotations

from collections.abc import Iterator

from kseg.findings import Report, do_nothing
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source


def chunks_of(source: Source, report: Report = do_nothing, *, verify_crc: bool = True) -> Iterator[Chunk]:
    """Yield the records of a segment in columns, and close it. A chunk is valid until the next one is requested.

    ``verify_crc`` is that of ``SegmentReader``. Raises UnreadableError and NotASegmentError.
    """
    opener = DeepIterator(report)
    with SegmentReader(source, report=report, verify_crc=verify_crc) as reader:
        for window in reader.windows():
            yield from opener.chunks(window)
