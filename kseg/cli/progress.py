"""A progress bar on stderr for work that takes more than a second: bytes, rate, time left. Only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kseg.findings import do_nothing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.segment_files import SegmentFile
from kseg.report import terminal

#: Seconds before the bar appears, and between its updates.
DELAY = 1.0
INTERVAL = 0.2


@contextmanager
def progress_bar(total: int | None) -> Iterator[Progress]:
    """Yield a function that adds processed bytes; ``total`` is the number of bytes in all, None if unknown."""
    if not _is_shown():
        yield do_nothing
        return
    bar = _Bar(total)
    thread = threading.Thread(target=bar.run, daemon=True)
    thread.start()
    try:
        yield bar.add
    finally:
        bar.finished.set()
        thread.join()


def _is_shown() -> bool:
    """Return whether there is a terminal for the bar."""
    return sys.stderr.isatty()


def index_sizes(files: Iterable[SegmentFile]) -> dict[str, int]:
    """Return the bytes on disk of the indexes that are checked with segments, by path; empty if no bar is shown.

    The holes of preallocated indexes are not read, so they do not count.
    """
    sizes: dict[str, int] = {}
    if _is_shown():
        for path in (path for file in files for path in file.indexes or ()):
            with suppress(OSError):
                found = os.stat(path)
                sizes[path] = min(found.st_size, 512 * getattr(found, "st_blocks", found.st_size))
    return sizes


class _Bar:
    def __init__(self, total: int | None) -> None:
        self.finished = threading.Event()
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count

    def run(self) -> None:
        """Wait for DELAY seconds before importing rich: short work does not need a bar."""
        began = time.monotonic()
        if self.finished.wait(DELAY):
            return
        rich = terminal.progress
        columns = (rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
        console = terminal.Console(stderr=True)
        bar = rich.Progress(*columns, console=console, transient=True, auto_refresh=False)
        task = bar.add_task("", total=self._total, completed=self._done)
        bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - began)
        while True:
            bar.update(task, completed=self._done)
            with terminal.screen.drawing(bar) as visible:
                if visible:
                    bar.refresh()
            if self.finished.wait(INTERVAL):
                break
        terminal.screen.hide()
