"""Archives (tar, also compressed, and zip) as folders: their members have paths below the path of the archive.

The members of a plain tar file are ranges of it: nothing is extracted. A compressed archive is decompressed once into a
temporary file without a name, which ends with the process, also if it is killed. Names of members are data: they are only
looked up here, and never in the file system.
"""

from __future__ import annotations

import os
import stat
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import IO, Any

from kseg.errors import UnreadableError
from kseg.extras import tiered_view  # few runs read remote storage
from kseg.extras.archive_formats import (
    ZIP,
    Archive,
    Member,
    PositionedFile,
    read_members,
    record_damage,
    temporary_copy,
)
from kseg.format.compress.gzip_streams import compression_of, decompressed
from kseg.format.storage.naming import MISSING_FILES, is_archive_name, tiered_parts

_TAR_MAGIC_AT, _TAR_MAGIC = 257, b"ustar"
#: The bytes of a hole that are read at once.
_PIECE = 1 << 20
#: Why bytes of a member cannot be read that its header names.
ENDS_EARLY = "the archive lacks the rest of this file"


class MemberFile(PositionedFile):
    """A member, opened for reading. Processes share the archive's file: each read has its own position."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.size)
        self.status = member.status
        self._member = member
        ranges = member.sparse or ()
        self._starts = [position for position, _ in ranges]
        self._stored_before = [0, *accumulate(size for _, size in ranges)]

    def readinto(self, view: Any) -> int:
        wanted = min(len(view), self.size - self._position)
        if wanted <= 0:
            return 0
        begin, count, is_hole = self._extent(wanted)
        if is_hole:
            view[:count] = bytes(count)
        else:
            stored = max(0, min(count, self._member.end - begin))
            count = os.preadv(self._member.file.fileno(), [memoryview(view)[:stored]], begin)
            if not count:  # an early end of the archive is not the end of the member
                raise OSError(ENDS_EARLY)
        self._position += count
        return count

    def _extent(self, wanted: int) -> tuple[int, int, bool]:
        """Return the byte of the file, the number of bytes in the same range or hole, and whether it is a hole."""
        member, position = self._member, self._position
        if member.sparse is None:
            return member.offset + position, wanted, False
        i = bisect_right(self._starts, position) - 1
        if i >= 0:
            start, size = member.sparse[i]
            if position < start + size:
                begin = member.offset + self._stored_before[i] + position - start
                return begin, min(wanted, start + size - position), False
        end = self._starts[i + 1] if i + 1 < len(self._starts) else self.size
        return 0, min(wanted, end - position, _PIECE), True


# The archives that this process has opened, by path, with the state of the file. Forked worker processes inherit them.
_opened: dict[str, tuple[tuple[int, ...], Archive]] = {}


def find(path: str) -> tuple[Archive | tiered_view.TieredView, str] | None:
    """Return the archive or the decoded view that a path is or leads into, and the rest of the path.

    Raises UnreadableError for a view whose objects cannot be read.
    """
    if (inside := tiered_parts(path)) and (view := tiered_view.view_at(inside[0])):
        return view, inside[1]
    parts = path.split("/")
    for n in range(len(parts), 0, -1):
        if n > 1 and not is_archive_name(parts[n - 1]):
            continue  # each file of a folder is looked up several times
        known = _opened_at("/".join(parts[:n]))
        if known is not None:
            return known, "/".join(part for part in parts[n:] if part not in ("", "."))
    return None


def _opened_at(path: str) -> Archive | None:
    """Return the archive at a path, opened again if the file has changed; None without one."""
    state: tuple[int, ...] = ()
    if is_archive_name(path):
        try:
            status = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        state = status.st_ino, status.st_size, status.st_mtime_ns
    known = _opened.get(path)
    if (known is None or known[0] != state) and state:
        known = _opened[path] = state, _open(path)
    return known and known[1]


def member_at(path: str) -> Member | tiered_view.DecodedMember | None:
    """Return the member that a path leads to, None for another path."""
    found = find(path)
    return found[0].find(found[1]) if found else None


def open_member(path: str) -> MemberFile | tiered_view.DecodedFile | None:
    """Open a member for reading; return None if the path leads to none. Raises UnreadableError for a file of a view."""
    member = member_at(path)
    if member is None:
        return None
    return MemberFile(member) if isinstance(member, Member) else member.open()


def present(folder: str, names: list[str]) -> tuple[str, list[str]]:
    """Return a folder and its file names as commands see them (``tiered_view.present``)."""
    return tiered_view.present(folder, names)


def is_folder(path: str) -> bool:
    """Return whether a path is an archive or a folder in one."""
    found = find(path)
    return found is not None and found[1] in found[0].folders


def walk(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder of an archive and all folders below it in name order, each with its sorted file names.

    If the archive is incomplete, its unfinished folders have the name MISSING_FILES, or else the archive itself.
    """
    found = find(path)
    folders = [found[1]] if found else []
    lacking = [MISSING_FILES] if found and found[0].damage else []
    while found and folders:
        folder = folders.pop()
        names = sorted(found[0].folders.get(folder, ()))
        if _is_unfinished(found[0], folder):
            names.append(MISSING_FILES)
            lacking = []
        yield "/".join(filter(None, (found[0].path, folder))), names
        below = sorted(found[0].subfolders.get(folder, ()), reverse=True)
        folders += ["/".join(filter(None, (folder, name))) for name in below]
    if found and lacking:
        yield found[0].path, lacking


def names_in(path: str) -> list[str]:
    """Return the names of the files and folders in a folder of an archive."""
    found = find(path)
    if found is None:
        return []
    inside, folder = found
    return [*inside.folders.get(folder, ()), *inside.subfolders.get(folder, ())]


def check_complete(path: str) -> None:
    """Raise UnreadableError if members of an archive are missing because it is damaged or incomplete."""
    found = find(path)
    if found and found[0].damage:
        raise UnreadableError(f"{found[0].path}: {found[0].damage}")


def is_unfinished(folder: str) -> bool:
    """Return whether the end of a damaged archive cuts a folder: it can have more files."""
    found = find(folder)
    return found is not None and _is_unfinished(*found)


def _is_unfinished(archive: Archive | tiered_view.TieredView, folder: str) -> bool:
    if not archive.damage or archive.unfinished is None:
        return False
    return archive.unfinished == folder or bool(not archive.in_order and archive.folders.get(folder))


def check_folder(path: str) -> None:
    """Raise UnreadableError for an unfinished folder."""
    found = find(path)
    if found and is_unfinished(path):
        raise UnreadableError(f"{path}: files can be missing: {found[0].damage}")


def is_archive(head: bytes) -> bool:
    """Return whether a file is a tar or a zip archive by its first 512 bytes."""
    if head.startswith(ZIP):
        return True
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)


def add_stream(path: str, stream: Any, head: bytes, size: Callable[[], int | None]) -> None:
    """Read an archive from a stream into a temporary file; ``path`` becomes the path of the archive.

    ``head`` has its first bytes, which are read again. ``size`` returns the compressed bytes read so far, None if the stream
    is not compressed.
    """
    archive = Archive(path)
    _opened[path] = (), archive
    with record_damage(archive):
        file = temporary_copy(archive, stream, size)
        archive.stored = size() or os.fstat(file.fileno()).st_size
        read_members(archive, file, is_zip=head.startswith(ZIP))
    archive.warn()


def _open(path: str) -> Archive:
    archive = Archive(path)
    with record_damage(archive):
        file: IO[bytes] = open(path, "rb", buffering=0)  # noqa: SIM115
        archive.files.append(file)
        archive.stored = size = os.fstat(file.fileno()).st_size
        compression = compression_of(os.pread(file.fileno(), 4, 0))
        if compression:
            with decompressed(file, compression) as stream:
                file = temporary_copy(archive, stream, lambda: size)
        read_members(archive, file, is_zip=os.pread(file.fileno(), 4, 0).startswith(ZIP))
    archive.warn()
    return archive
