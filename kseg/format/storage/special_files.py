"""Open files without blocking: a FIFO, a socket or a device can have the name of a file.

In a folder such files are skipped with a warning. If a user names one, it is read if it can end.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterable

from kseg.errors import UnreadableError, UsageError, VanishedError
from kseg.format.storage import (
    archive,  # few runs read archives
    file_access,
)
from kseg.format.storage.naming import may_be_in_archive

#: Names that the warning about one folder lists.
NAMES_SHOWN = 8


_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)
# Without O_NONBLOCK, opening a FIFO waits for a writer, and opening a device can wait without end.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class SpecialFileError(UnreadableError):
    """The path is a FIFO, a socket or a device."""


def special_kind(mode: int) -> str | None:
    """Return what kind of special file an ``st_mode`` belongs to, as "a FIFO"; None for files, folders and links."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), None)


def special_kind_at(path: str | os.PathLike[str]) -> str | None:
    """Return what kind of special file is at ``path``, links followed; None for anything else, also for nothing."""
    try:
        return special_kind(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None


def skip_special(folder: str | os.PathLike[str], names: Iterable[str]) -> list[str]:
    """Return ``names`` without those of special files in ``folder``, which are reported in one warning."""
    kept: list[str] = []
    special: list[str] = []
    for name in names:
        kind = special_kind_at(os.path.join(folder, name))
        if kind is None:
            kept.append(name)
        else:
            special.append(f"{name} ({kind.partition(' ')[2]})")
    if special:
        more = f" and {len(special) - NAMES_SHOWN} more" if len(special) > NAMES_SHOWN else ""
        count = "1 special file" if len(special) == 1 else f"{len(special)} special files"
        file_access.current().warn(f"{os.fspath(folder)}: skipped {count}: {', '.join(special[:NAMES_SHOWN])}{more}")
    return kept


def check_regular(path: str) -> None:
    """Raise UsageError if ``path`` is a special file or in an archive: the command reads its source twice."""
    kind = special_kind_at(path)
    if kind:
        raise UsageError(f"{path} is {kind}, which cannot be read twice: copy it to a file first")
    if may_be_in_archive(path) and not os.path.isdir(path) and archive.find(path):
        raise UsageError(f"{path}: this command does not read archives: unpack it first")


def open_file(path: str, *, named: bool) -> io.FileIO | archive.MemberFile:
    """Open a local file, or a member of an archive, for reading, without waiting for it; then its reads may wait.

    ``named``: a user gave this path. Then a FIFO is waited for and read, as is what ends: a pipe, a block device and
    the null device. Raises SpecialFileError for other special files, VanishedError and UnreadableError.
    """
    try:
        kind = special_kind_at(path)
        if named and kind == "a FIFO":
            return io.FileIO(path, "rb")
        handle = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError) as error:
        member = archive.open_member(path) if may_be_in_archive(path) else None
        if member is not None:
            return member
        if may_be_in_archive(path) and archive.find(path):
            raise UnreadableError(f"{path}: the archive has no such file") from error
        if isinstance(error, NotADirectoryError):
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        if os.path.islink(path):
            raise UnreadableError(f"{path}: a symbolic link to {os.readlink(path)}, which does not exist") from error
        raise VanishedError(f"{path}: {error.strerror or error}") from error
    except OSError as error:
        if kind:  # a socket cannot be opened
            raise SpecialFileError(f"{path} is {kind}, not a file") from error
        if error.errno == errno.ELOOP:
            raise UnreadableError(f"{path}: a symbolic link to itself") from error
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UnreadableError(f"{path!r}: {error}") from error
    return _checked(path, handle, named)


def read_file(path: str) -> bytes:
    """Return all bytes of a regular file. Raises SpecialFileError, VanishedError and UnreadableError."""
    with open_file(path, named=False) as file:
        try:
            return file.readall()
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error


def _checked(path: str, handle: int, named: bool) -> io.FileIO:
    """Return the open file after checking the kind of the opened file, not of the path."""
    try:
        kind = special_kind(os.fstat(handle).st_mode)
        if kind and not (named and (kind == "a block device" or _is_null(handle))):
            raise SpecialFileError(f"{path} is {kind}, not a file")
        if kind and sys.platform != "win32":
            os.set_blocking(handle, True)
        return io.FileIO(handle, "rb")
    except OSError as error:  # a folder
        os.close(handle)
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    except SpecialFileError:
        os.close(handle)
        raise


def _is_null(handle: int) -> bool:
    return os.path.samestat(os.fstat(handle), os.stat(os.devnull))
