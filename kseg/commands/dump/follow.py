"""``kseg dump --follow``: the rows of growing segments, and of new segments after them.

File sizes are polled a few times per second, since inotify does not work on every file system. Only files that have grown
are opened.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile, zip_longest
from typing import Any

from kseg.commands.dump.dump_items import FileStart
from kseg.format.sidefiles.log_end import LogEnd, last_valid_batch
from kseg.format.storage.interrupts import Interrupted
from kseg.format.storage.naming import base_offset_of, is_snapshot
from kseg.format.storage.segment_files import find_segments, once_each
from kseg.format.storage.source import local_size

#: Seconds between two polls.
INTERVAL = 0.2


@dataclass(frozen=True, slots=True)
class _FilePosition:
    """The rows are written up to this byte of the segment with this base offset; the file had ``size`` bytes then."""

    base_offset: int = 0
    position: int = 0
    size: int = 0


class Follower:
    """Follows the segments of paths, those of each partition in their order.

    ``show`` returns the rows of the bytes ``start`` to ``end`` of a file, a FileStart first; ``tell`` prints a message.
    """

    def __init__(
        self, paths: Sequence[str], show: Callable[[str, int, int], Iterator[Any]], tell: Callable[[str], None]
    ) -> None:
        self._paths = paths
        self._show = show
        self._tell = tell
        self._places: defaultdict[str, _FilePosition] = defaultdict(_FilePosition)
        self._shown = ""

    def begin_at(self, path: str, position: int) -> None:
        """Begin the partition of a segment at a byte of this segment, not with its first segment."""
        self._places[os.path.dirname(path)] = _FilePosition(base_offset_of(path) or 0, position)

    def rows(self) -> Iterator[Any]:
        """Yield rows without an end; None as long as the files have not grown. Raises UnreadableError and UsageError."""
        while True:
            folders: defaultdict[str, list[str]] = defaultdict(list)
            for file in once_each(chain.from_iterable(map(find_segments, self._paths))):
                if not is_snapshot(file.path):
                    folders[os.path.dirname(file.path)].append(file.path)
            for folder, files in folders.items():
                for path, start, end in self._grown(folder, files):
                    for row in self._show(path, start, end):
                        if not (isinstance(row, FileStart) and path == self._shown):
                            yield row
                    self._shown = path
            yield None

    def _grown(self, folder: str, files: list[str]) -> Iterator[tuple[str, int, int]]:
        """Yield the new byte ranges of a folder's files; of the last file, which a broker may write, whole batches."""
        for path, behind in zip_longest(files, files[1:]):
            base, size, place = base_offset_of(path) or 0, local_size(path), self._places[folder]
            if size is None or base < place.base_offset:
                continue  # deleted or already written
            start = place.position if base == place.base_offset else 0
            if size < start:
                self._tell(f"{path}: truncated from {start:,} to {size:,} bytes: rows after that byte no longer exist")
                start = size
            end = size
            if not behind:
                unchanged = base == place.base_offset and size == place.size
                end = (
                    start if unchanged else max(start, last_valid_batch(path, size, known=LogEnd(base, start)).position)
                )
            if end > start:
                yield path, start, end
            self._places[folder] = _FilePosition(base, end, size)


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
    finally:
        # Readers that wait are closed here: at the end of the process the modules that they need can be gone.
        if isinstance(rows, Generator):
            rows.close()
