"""The last rows of partitions: where they begin, found from the end of each log.

The rows are counted first and shown then, so that memory does not depend on their number. The offset index shows from
which byte to count: 64 KiB before the end of a segment at first, then 16 times as many, at last the whole segment, and
then the segments before it. Without a valid index whole segments are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kseg.commands.dump.dump_items import BatchItem, FileStart, Item, RecordsItem, row_count
from kseg.commands.dump.dumped_rows import byte_range
from kseg.errors import KsegError, UsageError
from kseg.format.record.layout import INT64_MAX
from kseg.format.segment.row_filter import RowFilter
from kseg.format.sidefiles import index_reader
from kseg.format.storage.naming import base_offset_of, is_snapshot, is_url
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import local_size, stored_size

#: The bytes before the end of a segment that are counted first, and by how much they grow.
FIRST_REACH, GROWTH = 64 * 1024, 16

#: Returns the items of bytes ``start`` to ``end`` of a file; None is its end.
ItemsOf = Callable[[SegmentFile, int, int | None], Iterator[Item]]


@dataclass(frozen=True, slots=True)
class LastRows:
    """The last rows of a file: those of bytes ``start`` to ``end`` (None: its end) without the first ``skipped``."""

    file: SegmentFile
    start: int
    end: int | None
    skipped: int

    def of(self, items: Iterable[Item]) -> Iterator[Item]:
        """Return the items of these bytes without the first ``skipped`` rows."""
        return without_first(items, self.skipped)


def last_rows(files: Sequence[SegmentFile], most: int, keep: RowFilter, items: ItemsOf) -> Iterator[LastRows]:
    """Yield where the last ``most`` rows of each folder's segments are, in the order of the files.

    ``items`` reads rows to count them, with the conditions of ``keep``. A file that cannot be read is the first one of its
    folder: showing it reports the error. Raises UsageError for a pipe.
    """
    folders: dict[str, list[SegmentFile]] = {}
    for file in files:
        _check_read_twice(file.path)
        if not (file.listed and is_snapshot(file.path)):
            folders.setdefault(os.path.dirname(file.path), []).append(file)
    for segments in folders.values():
        segments.sort(key=lambda file: base_offset_of(file.path) or 0)
        found: list[LastRows] = []
        left = most
        while segments and left > 0:
            file = segments.pop()
            try:
                start, end, count = _count_from_end(file, left, keep, items)
            except UsageError:
                raise
            except KsegError:
                found.append(LastRows(file, 0, None, 0))
                break
            found.append(LastRows(file, start, end, max(0, count - left)))
            left -= count
        yield from reversed(found)


def _check_read_twice(path: str) -> None:
    if not is_url(path) and local_size(path) is None and (path == "-" or _is_special(path)):
        raise UsageError(f"{path}: --last reads a file twice: write the input to a file")


def _is_special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _count_from_end(file: SegmentFile, most: int, keep: RowFilter, items: ItemsOf) -> tuple[int, int | None, int]:
    """Return the byte range of a segment with at least ``most`` rows at its end, or all, and the number of rows in it."""
    size, reach = stored_size(file.path), FIRST_REACH
    first, end = (0, None) if size is None else byte_range(file.path, size, keep)
    while True:
        start = first if size is None or end is None else _start_before(file.path, size, end - reach, first)
        count = sum(map(row_count, items(file, start, end)))
        if start == first or count >= most:
            return start, end, count
        reach *= GROWTH


def _start_before(path: str, size: int, before: int, first: int) -> int:
    """Return the start of a batch at a position before ``before``, from the index; ``first`` without one."""
    if before <= first:
        return first
    entry = index_reader.last_entry(path, size, below=INT64_MAX, before=before)
    return max(first, entry.log_position) if entry else first


def without_first(items: Iterable[Item], skipped: int) -> Iterator[Item]:
    """Yield the items without the first ``skipped`` rows. The heading of a batch stays if a row of the batch does."""
    heading: BatchItem | None = None
    for item in items:
        if isinstance(item, BatchItem) and item.heading and skipped:
            heading = item
            continue
        if skipped and (count := row_count(item)):
            if count <= skipped:
                skipped -= count
                continue
            assert isinstance(item, RecordsItem)
            item, skipped = replace(item, kept=item.kept[skipped:]), 0
        if heading is not None and isinstance(item, RecordsItem):
            yield heading
        if not isinstance(item, FileStart):
            heading = None
        yield item
