"""Write logs batch by batch."""

from __future__ import annotations

from pathlib import Path

from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch


def batch(number: int) -> bytes:
    records = [
        PlainRecord(number * 4 + i, key=b"k", value=bytes([number % 251]) * 90, timestamp=1_700_000_000_000 + number * 1000)
        for i in range(4)
    ]  # fmt: skip
    return build_batch(records, base_offset=number * 4)


def write(folder: Path, batches: list[bytes], *, first: int = 0, index: bool = True) -> Path:
    """Write a segment, and its indexes as a broker would have written them."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{first * 4:020d}.log"
    path.write_bytes(b"".join(batches))
    if index:
        with path.with_suffix(".index").open("wb") as offsets, path.with_suffix(".timeindex").open("wb") as times:
            builder = IndexBuilder(first * 4, offsets, times)
            with SegmentReader(open_source(path)) as reader:
                for window in reader.windows():
                    builder.add(window.batches, 0, window.batches.count)
            builder.finish()
    return path
