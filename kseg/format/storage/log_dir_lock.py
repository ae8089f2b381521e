"""Whether a broker on this machine is running on a log dir."""

from __future__ import annotations

import os
import struct
import sys

from kseg.format.storage import file_access

# struct flock of Linux, 64 bit: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")


def is_in_use(log_dir: str) -> bool:
    """Whether another process holds the lock of a log dir (``.lock``, Kafka's ``FileLock``), as every broker does.

    The lock is queried (F_GETLK), never taken. False if it is unknown: without a ``.lock``, for a broker on another
    machine, and on systems other than Linux, where a warning says so.
    """
    if sys.platform != "linux":
        if os.path.exists(os.path.join(log_dir, ".lock")):
            file_access.current().warn(
                f"{log_dir}: kseg detects a running broker on Linux only: with one, findings about checkpoints can "
                "disappear within seconds"
            )
        return False
    try:
        import fcntl  # Windows has no such module
    except ImportError:
        return False
    try:
        handle = os.open(os.path.join(log_dir, ".lock"), os.O_RDONLY)
    except OSError:
        return False
    try:
        requested = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, requested))[0]
    except (OSError, struct.error):
        return False
    finally:
        os.close(handle)
    return bool(kind != fcntl.F_UNLCK)
