"""``kseg dump --follow``: the rows of segments as they grow, and of those that come after them.

Looked at by their sizes a few times a second: nothing is opened that has not grown, and what would tell of it (inotify)
is not there for every file system.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile, zip_longest
from typing import Any

from kseg.commands.dump.rows import FileStart
from kseg.format.sidefiles.log_end import LogEnd, last_valid_batch
from kseg.format.storage.naming import base_offset_of, is_snapshot
from kseg.format.storage.source import find_segments, local_size

#: Seconds between two looks.
INTERVAL = 0.2


@dataclass(frozen=True, slots=True)
class _FilePosition:
    """Shown up to that byte of the segment of that base offset, when the file had ``size`` bytes."""

    base_offset: int = 0
    position: int = 0
    size: int = 0


class Follower:
    """Rows of the segments of PATHs, those of each partition in their order.

    ``show`` gives the rows of bytes ``start`` to ``end`` of a file, a Beginning first; ``tell`` takes a line.
    """

    def __init__(
        self, paths: Sequence[str], show: Callable[[str, int, int], Iterator[Any]], tell: Callable[[str], None]
    ) -> None:
        self._paths = paths
        self._show = show
        self._tell = tell
        self._places: defaultdict[str, _FilePosition] = defaultdict(_FilePosition)
        self._shown = ""

    def rows(self) -> Iterator[Any]:
        """Without an end; None where there is nothing more for now. Raises UnreadableError and UsageError."""
        while True:
            folders: defaultdict[str, list[str]] = defaultdict(list)
            for file in dict.fromkeys(chain.from_iterable(map(find_segments, self._paths))):
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
        """The bytes of the folder's files that are new: of the last one, where it may be written, whole entries."""
        for path, behind in zip_longest(files, files[1:]):
            base, size, place = base_offset_of(path) or 0, local_size(path), self._places[folder]
            if size is None or base < place.base_offset:
                continue  # deleted, or shown
            start = place.position if base == place.base_offset else 0
            if size < start:
                self._tell(f"{path}: cut from {start} to {size} bytes: what was shown behind them is gone")
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
    """Have rows written up to each pause, then wait; until they end, or Ctrl-C. ``write`` is told if it is the first."""
    first = True
    rows = iter(rows)
    try:
        for row in rows:
            if row is None:
                time.sleep(INTERVAL)
                continue
            write(chain((row,), takewhile(lambda row: row is not None, rows)), first)
            first = False
    except KeyboardInterrupt:
        return
