"""Holes of sparse files: ranges that read as zeros without blocks on disk."""

from __future__ import annotations

import errno
import os


def hole_bytes(handle: int, begin: int, end: int) -> int | None:
    """Return the bytes in holes among ``begin`` to ``end`` of an open local file; None if the system does not report them.

    The file position does not change. File systems without holes report none (lseek(2)).
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
        if error.errno == errno.ENXIO:  # a hole up to the end of the file
            return end
        raise
