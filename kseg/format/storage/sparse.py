"""Holes of sparse files, ranges that read as zeros without blocks on disk, and long runs of stored zeros."""

from __future__ import annotations

import errno
import os

#: The bytes of one sample in a run of stored zeros: a page.
SAMPLE = 4096


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


def end_of_zeros(handle: int, begin: int, end: int) -> tuple[int, int]:
    """Return (the end of the zeros from ``begin`` on, the bytes read to find it) for an open local file of ``end`` bytes.

    Zeros precede ``begin``. The end of a hole is exact. Stored zeros are taken to reach the end of the file if samples at
    doubling distances from both ends are zeros. So bytes other than zeros are seen unless they are fewer than the zeros
    before them and the zeros after them. The result is ``begin`` where nothing is known without reading. The file
    position does not change.
    """
    position = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        data = _next_data(handle, begin, end) if hasattr(os, "SEEK_DATA") else begin
        if data > begin:
            return data, 0
        sampled = 0
        for at in _sample_positions(begin, end):
            os.lseek(handle, at, os.SEEK_SET)
            sample = os.read(handle, min(SAMPLE, end - at))
            sampled += len(sample)
            if sample.strip(b"\0"):
                return begin, sampled
        return end, sampled
    except OSError:
        return begin, 0
    finally:
        os.lseek(handle, position, os.SEEK_SET)


def _sample_positions(begin: int, end: int) -> list[int]:
    """Return the positions at distances of 0, SAMPLE, 2 * SAMPLE, 4 * SAMPLE and so on from both ends of a range."""
    last = max(begin, end - SAMPLE)
    distances = [0, *(SAMPLE << n for n in range(((last - begin) // SAMPLE).bit_length()))]
    return sorted({at for far in distances for at in (begin + far, last - far) if begin <= at <= last})
