"""``kseg dump --follow``: the rows of growing segments, and of new segments after them.

File sizes are polled a few times per second, since inotify does not work on every file system. Only files that have grown
are opened.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, takewhile, zip_longest
from typing import Any

from kseg.commands.dump.dump_items import FileStart
from kseg.findings import do_nothing
from kseg.format.record.layout import RECORD_BATCH_OVERHEAD
from kseg.format.segment.segment_reader import batch_at, read_range
from kseg.format.sidefiles.log_end import LogEnd, last_valid_batch
from kseg.format.storage.interrupts import Interrupted, settled
from kseg.format.storage.naming import base_offset_of, is_snapshot, leftover_of
from kseg.format.storage.resting_logs import is_at_rest
from kseg.format.storage.segment_files import SegmentFile, find_segments, once_each
from kseg.format.storage.source import Stamp, local_size, stamp_of
from kseg.text import inclusive_range

#: Seconds between two polls.
INTERVAL = 0.2

_START = LogEnd(0, 0)


@dataclass(frozen=True, slots=True)
class _Written:
    """The rows of a partition are written up to ``end``, in the file with this path and stamp, in the folder ``home``."""

    end: LogEnd = _START
    path: str = ""
    stamp: Stamp = None
    home: Any = None

    @property
    def base_offset(self) -> int:
        """The base offset of the file."""
        return base_offset_of(self.path) or 0


class Follower:
    """Follows the segments of paths, those of each partition in their order.

    ``show`` returns the rows of the bytes ``start`` to ``end`` of a file, a FileStart first; ``tell`` prints a message.
    ``replaced`` is called when bytes that were read are no longer there: what was read of them, such as markers of
    transactions, is of the past.
    """

    def __init__(
        self,
        paths: Sequence[str],
        show: Callable[[str, int, int], Iterator[Any]],
        tell: Callable[[str], None],
        replaced: Callable[[], None] = do_nothing,
    ) -> None:
        self._paths = paths
        self._show = show
        self._tell = tell
        self._replaced = replaced
        self._paths_of: dict[str, list[str]] = {}
        self._written: defaultdict[str, _Written] = defaultdict(_Written)
        self._shown = ""

    def begin_at(self, path: str, position: int) -> None:
        """Begin the partition of a segment at a byte of this segment, not with its first segment."""
        if (stamp := stamp_of(path)) is not None:
            end = last_valid_batch(path, stamp[0], before=position)
            folder = _partition(path)
            self._written[folder] = _Written(replace(end, position=position), path, stamp, _home(folder))

    def rows(self) -> Iterator[Any]:
        """Yield rows without an end; None as long as the files have not grown. Raises UnreadableError and UsageError."""
        for look in count():
            folders: defaultdict[str, list[SegmentFile]] = defaultdict(list)
            for file in once_each(chain.from_iterable(map(find_segments, self._paths))):
                folder = _partition(file.path)
                renamed = look and folder not in self._written and leftover_of(os.path.basename(folder))
                if not (renamed or is_snapshot(file.path)):  # the rows of a deleted topic were shown
                    folders[folder].append(file)
            for folder, files in folders.items():
                for path, start, end in self._grown(folder, files):
                    for row in self._show(path, start, end):
                        if not (isinstance(row, FileStart) and path == self._shown):
                            yield row
                    self._shown = path
            yield None

    def _grown(self, folder: str, files: list[SegmentFile]) -> Iterator[tuple[str, int, int]]:
        """Yield the new byte ranges of a folder's files; of the last file, which a broker may write, whole batches."""
        paths = [file.path for file in files]
        if (home := _home(folder)) != self._written[folder].home:
            if self._written.pop(folder).path:
                self._replaced()
                self._tell(f"{folder}: deleted and made again: all its rows follow")
            self._written[folder] = _Written(home=home)
        if paths != self._paths_of.get(folder):
            if files[0].listed and not is_at_rest(folder, paths):
                return  # a file that is being replaced can be missing for a moment
            self._paths_of[folder] = paths
            self._tell_deleted(folder, base_offset_of(paths[0]) or 0)
        for path, following in zip_longest(paths, paths[1:]):
            written, until = self._written[folder], base_offset_of(following) or 0 if following else None
            if path != written.path and until is not None and until <= written.base_offset:
                continue  # already written
            stamp = stamp_of(path)
            if local_size(path) is None or stamp is None:
                return  # deleted, or merged into another file: the next listing shows it
            size = stamp[0]
            start = self._start(path, stamp, written, merged=until is not None)
            if until is not None:
                # Merged since it was listed, a file has more records. Without indexes it is not one that a broker cleans.
                indexed = local_size(path.removesuffix(".log") + ".index")
                end = LogEnd(until if indexed is None else max(until, last_valid_batch(path, size).offset), size)
            elif start is written.end and size == (written.stamp or stamp)[0] and _is_blank(path, start, size):
                end = start
            else:
                end = last_valid_batch(path, size, known=start)
            if end.position > start.position:
                yield path, start.position, end.position
            self._written[folder] = _Written(end, path, stamp, home)

    def _tell_deleted(self, folder: str, log_start: int) -> None:
        """Report the offsets that a broker deleted before they were shown. A cleaner keeps the name of the first segment."""
        written = self._written[folder]
        expected = written.end.offset
        if written.path and log_start > expected:
            gone = inclusive_range("offset", expected, log_start - 1)
            self._tell(f"{folder}: deleted before they were shown: {gone}")
            self._written[folder] = replace(written, end=LogEnd(log_start, 0))

    def _start(self, path: str, stamp: tuple[int, int, int | str], written: _Written, *, merged: bool) -> LogEnd:
        """Return where the rows that are not written begin in a file, which can be another one than before.

        A log cleaner merges the records of several segments into a new file, never those of the last one: ``merged`` is
        whether it can have made this one. A follower truncates its log, and can have written others by the next look.
        """
        size, base, end = stamp[0], base_offset_of(path) or 0, written.end
        in_place = (path, stamp[2]) == (written.path, (written.stamp or stamp)[2])
        if path != written.path:
            if base > written.base_offset or not written.path:
                return LogEnd(base, 0)
        elif stamp == written.stamp or (
            _is_there(path, end, size) if end.begin >= 0 else in_place and size >= end.position
        ):
            return end
        self._replaced()
        if in_place and size < end.position:
            self._tell(
                f"{path}: truncated from {end.position:,} to {size:,} bytes: rows after that byte no longer exist"
            )
            return LogEnd(last_valid_batch(path, size).offset, size)
        if in_place or not merged:
            self._tell(
                f"{path}: truncated and written again: below offset {end.offset} can be other rows, which are not shown"
            )
        return last_valid_batch(path, size, below=end.offset)


def _is_there(path: str, end: LogEnd, size: int) -> bool:
    """Return whether the last batch of the written rows is still where it was."""
    batch = batch_at(path, end.begin, size)
    return batch is not None and batch.crc[0] == end.crc and size >= end.position


def _home(folder: str) -> Any:
    """Return the identity of a partition folder: its inode. None for a log of another name."""
    return (stamp_of(folder) or (None,))[-1] if os.path.isdir(folder) else None


def _is_blank(path: str, end: LogEnd, size: int) -> bool:
    """Return whether a log has only zeros after its end: with ``log.preallocate`` brokers write batches over zeros."""
    return not any(read_range(path, end.position, min(size, end.position + RECORD_BATCH_OVERHEAD)))


def _partition(path: str) -> str:
    """Return the folder of a segment. A file with another name is a log by itself."""
    return path if base_offset_of(path) is None else os.path.dirname(path)


def write_until_interrupted(rows: Iterable[Any], write: Callable[[Iterable[Any], bool], None]) -> None:
    """Write rows up to each pause, then wait, until Ctrl-C or the end. ``write`` gets whether it is the first call.

    Raises Interrupted for another signal.
    """
    first = True
    rows = iter(rows)
    try:
        for row in rows:
            if row is None:
                time.sleep(INTERVAL)
                continue
            write(chain((row,), takewhile(lambda row: row is not None, rows)), first)
            first = False
    except KeyboardInterrupt as error:
        if isinstance(error, Interrupted) and not error.ctrl_c:
            raise
        settled()
    finally:
        # Readers that wait are closed here: at the end of the process the modules that they need can be gone.
        if isinstance(rows, Generator):
            rows.close()
