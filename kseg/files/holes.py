"""Holes of a file: stretches that read as zeros and have no blocks on disk, since nothing was written there."""

from __future__ import annotations

import errno
import os


def hole_bytes(handle: int, begin: int, end: int) -> int | None:
    """How many of the bytes ``begin`` to ``end`` of an open local file lie in holes; None where the system can't say.

    What is read next stays what it was. A file system that knows no holes has none (lseek(2)).
    """
    if not hasattr(os, "SEEK_DATA"):
        return None
    position = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        holes, at = 0, begin
        while at < end:
            data = _next_data(handle, at, end)
            holes += data - at
            at = end if data >= end else os.lseek(handle, data, os.SEEK_HOLE)
    except OSError:
        return None
    finally:
        os.lseek(handle, position, os.SEEK_SET)
    return holes


def _next_data(handle: int, at: int, end: int) -> int:
    try:
        return min(os.lseek(handle, at, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to the file's end
            return end
        raise
