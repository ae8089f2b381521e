"""Archives (tar, also compressed, and zip) as folders: their members have paths below the path of the archive.

The members of a plain tar file are ranges of it: nothing is extracted. A compressed archive is decompressed once into a
temporary file without a name, which ends with the process, also if it is killed. Names of members are data: they are only
looked up here, and never in the file system.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tarfile
import tempfile
import time
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import IO, Any, NamedTuple

from kseg.errors import UnreadableError
from kseg.format.compress.file_streams import compression_of, decompressed
from kseg.format.storage import file_access
from kseg.format.storage.naming import is_archive_name

#: An archive may expand to MOST_EXPANDED bytes, or to MOST_RATIO times its size. Logs seldom compress better than 1:20.
MOST_EXPANDED = 4 << 30
MOST_RATIO = 200
#: The most members of an archive: one takes about 300 bytes of memory. A broker has a few hundred thousand files.
MOST_MEMBERS = 1_000_000
#: The most bytes of the headers of one member: long names and sparse maps.
_MOST_HEADER = 4 << 20
_TAR_MAGIC_AT, _TAR_MAGIC, _ZIP = 257, b"ustar", b"PK\x03\x04"
_PIECE = 1 << 20
_ENCRYPTED = 1
_LATEST = 1 << 33  # seconds since 1970
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NAMES_SHOWN = 3


class _LimitError(Exception):
    """The archive exceeds a limit."""


class Status(NamedTuple):
    """The status of a member, with the names of ``os.stat``."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime: float
    st_mtime_ns: int


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file in an archive: ``stored`` bytes of ``file`` from ``offset`` on, which make ``size`` bytes.

    ``sparse`` has (position, bytes) of the stored ranges, None if everything is stored. ``number`` is unique.
    """

    file: IO[bytes]
    offset: int
    size: int
    mtime: float
    number: int
    sparse: tuple[tuple[int, int], ...] | None = None

    @property
    def status(self) -> Status:
        """The status as that of a file: mode, inode, size and time of modification."""
        return Status(stat.S_IFREG | 0o444, self.number, self.size, self.mtime, int(self.mtime * 1e9))


class Archive:
    """The members of an archive by folder. ``damage`` says why members are missing, "" if the archive is complete."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.damage = ""
        # They stay open, because processes that are forked read from them, too.
        self.files: list[IO[bytes]] = []
        self.folders: dict[str, dict[str, Member]] = {"": {}}
        self.subfolders: dict[str, set[str]] = {"": set()}
        self._count = 0
        self._expanded = 0
        self._skipped: dict[str, list[str]] = {}

    def add(self, name: str, member: Member) -> None:
        """Add a member. Names with ``..`` are skipped; of two members with one name the last one counts, as for tar."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if not parts or ".." in parts or "\0" in name:
            self.skip("with unsafe names", name)
            return
        *above, own = parts
        folder = ""
        for part in above:
            self.subfolders[folder].add(part)
            folder = f"{folder}/{part}" if folder else part
            self.folders.setdefault(folder, {})
            self.subfolders.setdefault(folder, set())
        if own in self.folders[folder]:
            self.skip("that a later member of the same name replaces", name)
        self.folders[folder][own] = member
        self._count += 1
        if self._count > MOST_MEMBERS:
            raise _LimitError(f"more than {MOST_MEMBERS:,} members")

    def find(self, name: str) -> Member | None:
        """Return the member with a name inside of the archive, None without one."""
        folder, _, own = name.rpartition("/")
        return self.folders.get(folder, {}).get(own)

    def skip(self, kind: str, name: str) -> None:
        """Record a member that is not read, for ``warn``."""
        self._skipped.setdefault(kind, []).append(name)

    def warn(self) -> None:
        """Report the skipped members, one line for each kind."""
        for kind, names in self._skipped.items():
            shown = ", ".join(names[:_NAMES_SHOWN]) + ", ..." * (len(names) > _NAMES_SHOWN)
            count = "1 member" if len(names) == 1 else f"{len(names):,} members"
            file_access.current().warn(f"{self.path}: skipped {count} {kind}: {shown}")

    def expand(self, count: int, size: int) -> None:
        """Count bytes that are not stored as such. Raises _LimitError above the limit for ``size`` stored bytes."""
        self._expanded += count
        limit = max(MOST_EXPANDED, MOST_RATIO * size)
        if self._expanded > limit:
            raise _LimitError(f"it expands to more than {limit:,} bytes")


class MemberFile(io.RawIOBase):
    """A member, opened for reading. Processes share the archive's file: each read has its own position."""

    def __init__(self, member: Member) -> None:
        self.size = member.size
        self.status = member.status
        self._member = member
        self._position = 0
        ranges = member.sparse or ()
        self._starts = [position for position, _ in ranges]
        self._stored_before = [0, *accumulate(size for _, size in ranges)]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, view: Any) -> int:
        wanted = min(len(view), self.size - self._position)
        if wanted <= 0:
            return 0
        begin, count, is_hole = self._extent(wanted)
        if is_hole:
            view[:count] = bytes(count)
        else:
            count = os.preadv(self._member.file.fileno(), [memoryview(view)[:count]], begin)
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


def find(path: str) -> tuple[Archive, str] | None:
    """Return the archive that a path is or leads into, and the rest of the path. Raises UnreadableError."""
    parts = path.split("/")
    for n in range(len(parts), 0, -1):
        candidate = "/".join(parts[:n])
        known = _opened_at(candidate) if n == 1 or is_archive_name(candidate) else None
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


def open_member(path: str) -> MemberFile | None:
    """Open a member for reading; return None if the path leads to none. Raises UnreadableError."""
    found = find(path)
    member = found[0].find(found[1]) if found else None
    return MemberFile(member) if member else None


def is_folder(path: str) -> bool:
    """Return whether a path is an archive or a folder in one. Raises UnreadableError."""
    found = find(path)
    return found is not None and found[1] in found[0].folders


def walk(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder of an archive and all folders below it in name order, each with its sorted file names."""
    found = find(path)
    folders = [found[1]] if found else []
    while found and folders:
        folder = folders.pop()
        yield "/".join(filter(None, (found[0].path, folder))), sorted(found[0].folders.get(folder, ()))
        below = sorted(found[0].subfolders.get(folder, ()), reverse=True)
        folders += ["/".join(filter(None, (folder, name))) for name in below]


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


def is_archive(head: bytes) -> bool:
    """Return whether a file is a tar or a zip archive by its first 512 bytes."""
    if head.startswith(_ZIP):
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
    with _damage_of(archive):
        file = _spool(archive, stream, size)
        _read_members(archive, file, is_zip=head.startswith(_ZIP))
    archive.warn()


def _open(path: str) -> Archive:
    archive = Archive(path)
    with _damage_of(archive):
        file: IO[bytes] = open(path, "rb", buffering=0)  # noqa: SIM115
        archive.files.append(file)
        size = os.fstat(file.fileno()).st_size
        compression = compression_of(os.pread(file.fileno(), 4, 0))
        if compression:
            with decompressed(file, compression) as stream:
                file = _spool(archive, stream, lambda: size)
        _read_members(archive, file, is_zip=os.pread(file.fileno(), 4, 0) == _ZIP)
    archive.warn()
    return archive


@contextmanager
def _damage_of(archive: Archive) -> Iterator[None]:
    """Store the reason for which an archive cannot be read to its end. The members before that place are read."""
    try:
        yield
    except _LimitError as error:
        archive.damage = f"{error}: unpack it first"
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, struct.error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        archive.damage = archive.damage or f"the archive is damaged or incomplete: {reason}"


def _spool(archive: Archive, stream: Any, size: Callable[[], int | None]) -> IO[bytes]:
    """Return a temporary file with the bytes of a stream. After damage, it has the bytes before."""
    out = _temporary_file(archive)
    with _damage_of(archive):
        _copy(archive, stream, out, size)
    return out


def _temporary_file(archive: Archive) -> IO[bytes]:
    archive.files.append(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
    return archive.files[-1]


def _copy(archive: Archive, stream: Any, out: IO[bytes], size: Callable[[], int | None]) -> int:
    """Copy a stream and return the number of bytes. Raises _LimitError if compressed bytes expand to too many."""
    total = 0
    while piece := stream.read(_PIECE):
        total += len(piece)
        stored = size()
        if stored is not None:
            archive.expand(len(piece), stored)
        out.write(piece)
        file_access.current().limit.wait_for(len(piece))
    return total


def _read_members(archive: Archive, file: IO[bytes], *, is_zip: bool) -> None:
    if is_zip:
        _read_zip(archive, file)
    else:
        _read_tar(archive, file)


class _Headers:
    """The bytes of a tar file for ``tarfile``, which limits the bytes that it reads for one member."""

    def __init__(self, file: IO[bytes]) -> None:
        self.used = 0
        self._handle = file.fileno()
        self._position = 0

    def seek(self, position: int) -> None:
        self._position = position

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        self.used += size
        if self.used > _MOST_HEADER:
            raise tarfile.ReadError(f"a header has more than {_MOST_HEADER:,} bytes")
        data = os.pread(self._handle, size, self._position)
        self._position += len(data)
        return data


def _read_tar(archive: Archive, file: IO[bytes]) -> None:
    end = os.fstat(file.fileno()).st_size
    headers: Any = _Headers(file)
    tar = tarfile.open(fileobj=headers, mode="r:")  # noqa: SIM115
    position = -1
    while (info := tar.next()) is not None:
        headers.used = 0
        tar.members = []  # type: ignore[attr-defined]  # it would keep all
        if not position < info.offset or info.size < 0:
            raise tarfile.ReadError(f"byte {info.offset}: a member with a wrong size")
        position = info.offset
        _add_tar_member(archive, file, info, end)
    last = os.pread(file.fileno(), tarfile.BLOCKSIZE, tar.offset)
    if not last:
        raise tarfile.ReadError("the mark at its end is missing")
    if any(last):
        raise tarfile.ReadError(f"byte {tar.offset}: expected the header of a member")


def _add_tar_member(archive: Archive, file: IO[bytes], info: tarfile.TarInfo, end: int) -> None:
    if info.islnk():
        parts = [part for part in info.linkname.split("/") if part not in ("", ".")]
        member = archive.find("/".join(parts))
        if member is None:
            archive.skip("that are links to files outside of the archive", info.name)
        else:
            archive.expand(member.size, end)
            archive.add(info.name, member)
    elif info.issym():
        archive.skip("that are symbolic links", info.name)
    elif info.isreg():
        ranges: Any = info.sparse
        sparse = None if ranges is None else tuple((start, size) for start, size in ranges if size)
        size = info.size if sparse is not None else min(info.size, max(end - info.offset_data, 0))
        if sparse is not None:
            if not _is_in_order(sparse, size):
                archive.skip("with a wrong map of their holes", info.name)
                return
            archive.expand(size, end)
        mtime = info.mtime if 0 <= info.mtime < _LATEST else 0.0  # not infinite or NaN
        archive.add(info.name, Member(file, info.offset_data, size, mtime, info.offset + 1, sparse))
    elif not info.isdir():
        archive.skip("that are devices, FIFOs or of unknown kinds", info.name)


def _is_in_order(sparse: tuple[tuple[int, int], ...], size: int) -> bool:
    """Return whether the stored ranges of a sparse file are in order and in the file."""
    spans = [(0, 0), *((start, start + length) for start, length in sparse), (size, size)]
    return all(end <= begin and start <= end for (start, end), (begin, _) in pairwise(spans))


def _read_zip(archive: Archive, file: IO[bytes]) -> None:
    size = os.fstat(file.fileno()).st_size
    spool = _temporary_file(archive)
    with io.FileIO(os.dup(file.fileno())) as raw, zipfile.ZipFile(raw) as found:
        for info in found.infolist():
            if info.is_dir():
                continue
            if stat.S_ISLNK(info.external_attr >> 16):
                archive.skip("that are symbolic links", info.filename)
                continue
            if info.flag_bits & _ENCRYPTED or info.compress_type not in _ZIP_METHODS:
                archive.skip("that are encrypted or compressed by another method than deflate", info.filename)
                continue
            offset = spool.tell()
            archive.expand(info.file_size, size)
            with _damage_of(archive), found.open(info) as stream:
                _copy(archive, stream, spool, lambda: None)
            mtime = 0.0
            with suppress(OverflowError, ValueError):
                mtime = time.mktime((*info.date_time, 0, 0, -1))
            member = Member(spool, offset, spool.tell() - offset, mtime, info.header_offset + 1)
            archive.add(info.filename, member)
