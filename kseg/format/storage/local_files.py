"""Files on disk, in archives and at URLs: status and names, opening without blocking, holes of sparse files.

A FIFO, a socket or a device can have the name of a file.

In a folder such files are skipped with a warning. If a user names one, it is read if it can end.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kseg.errors import UnreadableError, UsageError, VanishedError
from kseg.format.storage import (
    file_access,
    remote_files,  # few runs read URLs
)
from kseg.format.storage.naming import archive, is_missing, is_url, may_be_in_archive, tiered_parts

if TYPE_CHECKING:
    from kseg.extras import archive_formats, tiered_view


def status(path: str | os.PathLike[str]) -> os.stat_result | archive_formats.Status:
    """Return the status of a file or folder, symbolic links followed, or of a member of an archive. Raises OSError."""
    if is_url(name := os.fspath(path)):
        return remote_files.status(name)
    try:
        return os.stat(path)
    except OSError:
        member = archive.member_at(os.fspath(path)) if may_be_in_archive(os.fspath(path)) else None
        if member is None:
            raise
        return member.status


def absolute(path: str) -> str:
    """Return an absolute path; a URL is one."""
    return path if is_url(path) else os.path.abspath(path)


#: The errors of a look-up of an absent file, or a folder that may not be searched: listing it reports that.
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EACCES, errno.EPERM)


def _mode(path: str | os.PathLike[str]) -> int:
    """Return the ``st_mode`` of a path on disk, links followed, 0 if there is nothing. Raises UnreadableError."""
    try:
        return os.stat(path).st_mode
    except ValueError:
        return 0
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise UnreadableError(f"{os.fspath(path)}: {error.strerror or error}") from error


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether a file or folder exists. Raises UnreadableError if a disk or a store fails to answer."""
    if is_url(name := os.fspath(path)):
        return remote_files.kind_of(name) is not None
    return bool(_mode(path)) or is_file(path) or is_folder(path)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a file on disk, in an archive or at a URL. Raises UnreadableError as ``exists``."""
    if is_url(name := os.fspath(path)):
        return remote_files.kind_of(name) == "file"
    if mode := _mode(path):
        return stat.S_ISREG(mode)
    return may_be_in_archive(name) and archive.member_at(name) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder on disk or at a URL, an archive, or a folder in one.

    Raises UnreadableError as ``exists``.
    """
    if is_url(name := os.fspath(path)):
        return remote_files.kind_of(name) == "folder"
    if stat.S_ISDIR(_mode(path)):
        return True
    return is_in_archive(name)


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files and folders in a folder. Raises VanishedError and UnreadableError.

    The folder that the end of an incomplete archive cuts cannot be listed: it is unknown what else it has.
    """
    name = os.fspath(folder) or "."
    if is_url(name):
        return [entry for entry, _ in remote_files.entries(name)]
    with _unreadable(name):
        try:
            return os.listdir(name)
        except (FileNotFoundError, NotADirectoryError):
            if not is_in_archive(name):
                raise
        archive.check_folder(name)
        return archive.names_in(name)


def entries(folder: str) -> list[tuple[str, str]]:
    """Return the name and the kind of each entry of a folder: "file", "folder" or "other".

    Raises VanishedError and UnreadableError as ``names_in``.
    """
    if is_url(folder):
        return remote_files.entries(folder)
    with _unreadable(folder):
        try:
            with os.scandir(folder) as found:
                return [(one.name, _kind_of(one)) for one in found]
        except (FileNotFoundError, NotADirectoryError):
            if not is_in_archive(folder):
                raise
        archive.check_folder(folder)
        return [(name, "folder" if is_folder(f"{folder}/{name}") else "file") for name in archive.names_in(folder)]


def _kind_of(entry: os.DirEntry[str]) -> str:
    try:
        return "file" if entry.is_file() else "folder" if entry.is_dir() else "other"
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link to itself
            return "other"
        raise


def is_in_archive(path: str) -> bool:
    """Return whether a path is an archive, or a folder in one."""
    return may_be_in_archive(path) and archive.is_folder(path)


@contextmanager
def _unreadable(path: str) -> Iterator[None]:
    """Raise the error of a system call as one of kseg's."""
    try:
        yield
    except FileNotFoundError as error:
        raise VanishedError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error


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


def check_no_url_folder(path: str) -> None:
    """Raise UsageError for a folder at a URL. Raises UnreadableError as ``remote_files.kind_of`` does."""
    if is_url(path) and remote_files.kind_of(path) == "folder":
        raise UsageError(f"{path} is a folder at a URL: give one of its segments, or copy it to a disk first")


def check_regular(path: str) -> None:
    """Raise UsageError if ``path`` is a special file, in an archive, or a folder at a URL.

    The commands that ask for it read their source twice, and write a folder in one step.
    """
    check_no_url_folder(path)
    kind = special_kind_at(path)
    if kind:
        raise UsageError(f"{path} is {kind}, which cannot be read twice: copy it to a file first")
    if (inside := tiered_parts(path)) and not os.path.isdir(path):
        raise UsageError(
            f"{inside[0]} has objects of remote storage: make a folder of it first: kseg tier fetch {inside[0]} -o DIR"
        )
    if may_be_in_archive(path) and not os.path.isdir(path) and archive.find(path):
        raise UsageError(f"{path}: this command does not read archives: unpack it first")


def open_file(
    path: str, *, named: bool
) -> io.FileIO | archive.MemberFile | tiered_view.DecodedFile | remote_files.RemoteFile:
    """Open a local file, a member of an archive or a URL for reading, without waiting for it; then its reads may wait.

    ``named``: a user gave this path. Then a FIFO is waited for and read, as is what ends: a pipe, a block device and
    the null device. Raises SpecialFileError for other special files, VanishedError and UnreadableError.
    """
    if is_url(path):
        return remote_files.open_file(path, again=named)
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
            if is_missing(path):
                archive.check_complete(path)
            raise VanishedError(f"{path}: the archive has no such file") from error
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


#: The most bytes of a text that a person writes: a statement, a configuration.
MOST_TEXT = 16 << 20


def read_text(path: str) -> str:
    """Return a text in UTF-8 that a person wrote, from a file, a pipe or ``-``, the standard input.

    Raises UnreadableError, also for more than MOST_TEXT bytes, and UnicodeDecodeError.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MOST_TEXT + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MOST_TEXT + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    if len(data) > MOST_TEXT:
        raise UnreadableError(f"{path}: larger than {MOST_TEXT:,} bytes")
    return data.decode()


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


#: The bytes of one sample in a run of stored zeros: a page.
SAMPLE = 4096


def hole_bytes(handle: int, begin: int, end: int) -> int | None:
    """Return the bytes in holes among ``begin`` to ``end`` of an open local file; None if the system does not report them.

    The file position does not change. File systems without holes report none (lseek(2)).
    """
    stored = stored_ranges(handle, begin, end)
    return None if stored is None else max(0, end - begin) - sum(stop - first for first, stop in stored)


def stored_ranges(handle: int, begin: int, end: int) -> list[tuple[int, int]] | None:
    """Return the ranges among ``begin`` to ``end`` of an open local file that are no holes, as ``hole_bytes``."""
    if not hasattr(os, "SEEK_DATA"):
        return None
    position = os.lseek(handle, 0, os.SEEK_CUR)
    found, at = [], begin
    try:
        while (first := _next_data(handle, at, end) if at < end else end) < end:
            at = min(os.lseek(handle, first, os.SEEK_HOLE), end)
            found.append((first, at))
    except OSError:
        return None
    finally:
        os.lseek(handle, position, os.SEEK_SET)
    return found


def _next_data(handle: int, at: int, end: int) -> int:
    try:
        return min(os.lseek(handle, at, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a hole up to the end of the file
            return end
        raise


def hole_at(handle: int, begin: int, end: int) -> int:
    """Return the size of the hole at byte ``begin`` of an open local file, up to ``end``; 0 without a hole."""
    if not hasattr(os, "SEEK_DATA") or begin >= end:
        return 0
    try:
        return _next_data(handle, begin, end) - begin
    except OSError:  # the file system does not report holes
        return 0


def end_of_zeros(handle: int | None, begin: int, end: int, read: Callable[[int, int], bytes]) -> tuple[int, int]:
    """Return (the end of the zeros from ``begin`` on, the bytes read to find it) for an open file of ``end`` bytes.

    ``handle`` is that of a local file; ``read`` returns bytes by position and size.

    Zeros precede ``begin``. The end of a hole is exact. Stored zeros are taken to reach the end of the file if samples at
    doubling distances from both ends are zeros. So bytes other than zeros are seen unless they are fewer than the zeros
    before them and the zeros after them. The result is ``begin`` where nothing is known without reading. The file
    position changes.
    """
    try:
        if handle is not None and hasattr(os, "SEEK_DATA") and (data := _next_data(handle, begin, end)) > begin:
            return data, 0
        sampled = 0
        for at in _sample_positions(begin, end):
            sample = read(at, min(SAMPLE, end - at))
            sampled += len(sample)
            if sample.strip(b"\0"):
                return begin, sampled
        return end, sampled
    except OSError:
        return begin, 0


def _sample_positions(begin: int, end: int) -> list[int]:
    """Return the positions at distances of 0, SAMPLE, 2 * SAMPLE, 4 * SAMPLE and so on from both ends of a range."""
    last = max(begin, end - SAMPLE)
    distances = [0, *(SAMPLE << n for n in range(((last - begin) // SAMPLE).bit_length()))]
    return sorted({at for far in distances for at in (begin + far, last - far) if begin <= at <= last})
