"""Write the groups of a carving: a folder each, with segments whose batches are byte-equal to those in the images."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from kseg.commands.carve.carving import CarvedGroup, Carving
from kseg.commands.carve.image_scan import Image
from kseg.commands.carve.runs import CarvedRun
from kseg.errors import UnreadableError
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.atomic_write import NewFile, sync_folder, whole_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.source import open_source

#: ``log.segment.bytes`` by default.
_SEGMENT_BYTES = 1 << 30
_COPIED = 1 << 20
EVIDENCE = "evidence.jsonl"


def write_groups(carving: Carving, target: Path, evidence: Callable[[IO[bytes]], object], progress: Progress) -> None:
    """Write a folder per group and the file EVIDENCE into the new folder ``target``, all or nothing.

    ``evidence`` writes the content of that file, ``progress`` is called with the bytes written. Raises KsegError.
    """
    with whole_folder(target, replace=False) as folder, writing(target):
        for group in carving.groups:
            _write_group(carving.images, group, folder / group.name, progress)
        with NewFile(folder / EVIDENCE) as out:
            evidence(out.file)
            out.sync()


def _write_group(images: list[Image], group: CarvedGroup, folder: Path, progress: Progress) -> None:
    folder.mkdir()
    for run, first in group.parts:
        for begin, end in _segments(run, first):
            with NewFile(folder / f"{_base_offset(images, run, begin):020d}.log") as out:
                start = run.starts[begin]
                stop = run.starts[end] if end < len(run.starts) else run.size
                for data in _bytes_of(images, run, start, stop):
                    out.file.write(data)
                    progress(len(data))
                out.sync()
    sync_folder(folder)


def _segments(run: CarvedRun, first: int) -> Iterator[tuple[int, int]]:
    """Yield the batches of each segment as (first, after the last): a broker's segment has limits of size and offsets."""
    while first < len(run.starts):
        base = run.first if not first else run.lasts[first - 1] + 1
        end = min(
            bisect_right(run.starts, run.starts[first] + _SEGMENT_BYTES), bisect_right(run.lasts, base + INT32_MAX)
        )
        yield first, (end := max(end, first + 1))
        first = end


def _base_offset(images: list[Image], run: CarvedRun, batch: int) -> int:
    """Return the name of the segment that begins with a batch: no offset in it is lower."""
    if batch:
        return run.lasts[batch - 1] + 1
    if not run.magics & 3 or not run.codecs & ~1:
        return run.first
    # The header of a compressed message set of v0 and v1 has its last offset.
    data = b"".join(_bytes_of(images, run, 0, run.starts[1] if len(run.starts) > 1 else run.size))
    with SegmentReader(open_source(io.BytesIO(data))) as reader:
        for window in reader.windows():
            for chunk in DeepIterator().chunks(window):
                return int(chunk.records.offset[0])
    return run.first


def _bytes_of(images: list[Image], run: CarvedRun, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes ``start`` to ``stop`` of a run."""
    at = 0
    for piece in run.pieces:
        begin, end = max(start, at), min(stop, at + piece.size)
        while begin < end:
            data = images[piece.image].read(piece.position + begin - at, min(_COPIED, end - begin))
            if not data:
                raise UnreadableError(
                    f"{images[piece.image].path}: byte {piece.position + begin - at:,} cannot be read again"
                )
            yield data
            begin += len(data)
        at += piece.size
