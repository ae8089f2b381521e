"""Read the members of tar and zip files into an index by folder, in bounded memory.

Damage ends the reading, and the index has the members before it.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any, NamedTuple

from kseg.errors import KsegError
from kseg.format.storage import atomic_write, file_access

#: An archive may expand to MOST_EXPANDED bytes, or to MOST_RATIO times its size. Logs seldom compress better than 1:20.
MOST_EXPANDED = 4 << 30
MOST_RATIO = 200
#: An archive may have MOST_MEMBERS members, or one for each STORED_PER_MEMBER bytes that it takes. Each partition folder
#: costs a third of a millisecond, and a megabyte of gzip can have 200,000 of them.
MOST_MEMBERS = 10_000
STORED_PER_MEMBER = 64
#: The most memory of an index. It suffices for 400,000 members: more files than a broker has.
MOST_MEMORY = 200 << 20
_BYTES_PER_MEMBER, _BYTES_PER_FOLDER, _BYTES_PER_RANGE = 400, 500, 150
# Longer or deeper names are not those of a log directory. Each folder in a name takes memory.
_LONGEST_NAME = 1000
_DEEPEST = 50
_NAMES_SHOWN = 3


class ArchiveLimitError(Exception):
    """The archive exceeds a limit."""


class PositionedFile(io.RawIOBase):
    """A file for reading that has its own position and a known size: a member of an archive, or a decoded file."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position


class Status(NamedTuple):
    """The status of a member, with the names of ``os.stat``."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime: float
    st_mtime_ns: int


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file of ``size`` bytes in an archive. Its bytes are in ``file`` from ``offset`` on, up to ``end``.

    An archive that ends early has fewer bytes than its header names: reading the others fails. ``sparse`` has (position,
    bytes) of the stored ranges, in their order, None if everything is stored. ``mtime`` is in seconds since 1970. ``number``
    is unique in the archive.
    """

    file: IO[bytes]
    offset: int
    end: int
    size: int
    mtime: float
    number: int
    sparse: tuple[tuple[int, int], ...] | None = None

    @property
    def status(self) -> Status:
        """The status as that of a file: mode, inode, size and time of modification."""
        return Status(stat.S_IFREG | 0o444, self.number, self.size, self.mtime, int(self.mtime * 1e9))


class Archive:
    """The members of an archive by folder.

    ``damage`` says why members are missing, "" if the archive is complete. ``unfinished`` is then the folder of the last
    member: it can have other files, too, as any folder if the members are not ``in_order`` by folder. ``stored`` is the
    size of the archive in bytes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.damage = ""
        self.unfinished: str | None = ""
        self.in_order = True
        self._left: set[str] = set()
        self.stored = 0
        # They stay open, because processes that are forked read from them, too.
        self.files: list[IO[bytes]] = []
        self.folders: dict[str, dict[str, Member]] = {"": {}}
        self.subfolders: dict[str, set[str]] = {"": set()}
        self._members = 0
        self._memory = 0
        self._expanded = 0
        # Kind -> the number of skipped members, and the first names.
        self._skipped: dict[str, tuple[int, list[str]]] = {}

    def add(self, name: str, member: Member) -> None:
        """Add a member. Names with ``..`` are skipped; of two members with one name the last one counts, as for tar."""
        parts = [part for part in name[: _LONGEST_NAME + 1].split("/") if part not in ("", ".")]
        if len(name) > _LONGEST_NAME or len(parts) > _DEEPEST or not parts or ".." in parts or "\0" in name:
            self.skip("with unsafe names", name)
            return
        *above, own = parts
        folder = ""
        for part in above:
            self.subfolders[folder].add(part)
            folder = f"{folder}/{part}" if folder else part
            if folder not in self.folders:
                self.folders[folder], self.subfolders[folder] = {}, set()
                self._use_memory(_BYTES_PER_FOLDER + 2 * len(folder))
        if own in self.folders[folder]:
            self.skip("that a later member of the same name replaces", name)
        self.folders[folder][own] = member
        self._enter(folder)
        self._members += 1
        if self._members > (limit := max(MOST_MEMBERS, self.stored // STORED_PER_MEMBER)):
            raise ArchiveLimitError(f"it has more than {limit:,} members in {self.stored:,} bytes")
        self._use_memory(_BYTES_PER_MEMBER + len(own) + _BYTES_PER_RANGE * len(member.sparse or ()))

    def _enter(self, folder: str) -> None:
        """Note the folder of the last member. Without an order by folders, any folder of a damaged archive lacks files."""
        if folder == self.unfinished:
            return
        before = self.unfinished or ""
        is_above = not folder or before.startswith(f"{folder}/")
        self.in_order = self.in_order and (is_above or folder not in self._left)
        self._left.add(before)
        self.unfinished = folder

    def find(self, name: str) -> Member | None:
        """Return the member with a name inside of the archive, None without one."""
        folder, _, own = name.rpartition("/")
        return self.folders.get(folder, {}).get(own)

    def skip(self, kind: str, name: str) -> None:
        """Record a member that is not read, for ``warn``."""
        count, names = self._skipped.get(kind, (0, []))
        self._skipped[kind] = count + 1, [*names, name[:_LONGEST_NAME]][:_NAMES_SHOWN]

    def warn(self) -> None:
        """Report the skipped members, one line for each kind."""
        for kind, (count, names) in self._skipped.items():
            shown = ", ".join(names) + ", ..." * (count > len(names))
            members = "1 member" if count == 1 else f"{count:,} members"
            file_access.current().warn(f"{self.path}: skipped {members} {kind}: {shown}")

    def expand(self, count: int, size: int) -> None:
        """Count bytes that are not stored as such. Raises ArchiveLimitError above the limit for ``size`` stored bytes."""
        self._expanded += count
        limit = max(MOST_EXPANDED, MOST_RATIO * size)
        if self._expanded > limit:
            raise ArchiveLimitError(f"it expands to more than {limit:,} bytes")

    def _use_memory(self, count: int) -> None:
        self._memory += count
        if self._memory > MOST_MEMORY:
            raise ArchiveLimitError("it has too many members")


#: The first bytes of a zip archive; the second is one without members.
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
#: The most bytes of the headers of one member: long names and maps of holes.
_MOST_HEADER = 1 << 20
_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)
_ENCRYPTED = 1
_LATEST = 1 << 33  # seconds since 1970
#: The most bytes of a member that an archive lacks: a segment has at most 2 GiB, and the header of a damaged archive names
#: any size.
_MOST_ABSENT = 1 << 31
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def record_damage(archive: Archive) -> Iterator[None]:
    """Store the reason for which an archive cannot be read to its end. The members before that place are read."""
    try:
        yield
    except ArchiveLimitError as error:
        archive.damage = f"{error}: unpack it first"
    except KsegError:  # the temporary folder is full
        for file in archive.files:
            with suppress(KsegError):
                file.close()
        raise
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, struct.error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        archive.damage = archive.damage or f"the archive is damaged or incomplete: {reason}"


def temporary_copy(archive: Archive, stream: Any, size: Callable[[], int | None]) -> IO[bytes]:
    """Return a temporary file with the bytes of a stream. After damage, it has the bytes before.

    Raises KsegError if the temporary folder is full.
    """
    out = _temporary_file(archive)
    with record_damage(archive):
        _copy(archive, stream, out, size)
    return out


def _temporary_file(archive: Archive) -> IO[bytes]:
    archive.files.append(atomic_write.temporary_file())
    return archive.files[-1]


def _copy(archive: Archive, stream: Any, out: IO[bytes], size: Callable[[], int | None]) -> None:
    """Copy a stream. Raises ArchiveLimitError if compressed bytes expand to too many.

    Zeros become holes: the preallocated files of a broker, and a bomb, take no space on the disk.
    """
    try:
        while piece := stream.read(_PIECE):
            if (stored := size()) is not None:
                archive.expand(len(piece), stored)
            if piece == _ZEROS[: len(piece)]:
                out.seek(len(piece), os.SEEK_CUR)
            else:
                out.write(piece)
            file_access.current().limit.wait_for(len(piece))
    finally:
        out.truncate()


def read_members(archive: Archive, file: IO[bytes], *, is_zip: bool) -> None:
    (_read_zip if is_zip else _read_tar)(archive, file)
    archive.unfinished = None


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
        if sparse is not None:
            if not _is_in_order(sparse, info.size):
                archive.skip("with a wrong map of their holes", info.name)
                return
            archive.expand(info.size, end)
        mtime = info.mtime if 0 <= info.mtime < _LATEST else 0.0  # not infinite or NaN
        size = info.size if sparse is not None else min(info.size, max(end - info.offset_data, 0) + _MOST_ABSENT)
        archive.add(info.name, Member(file, info.offset_data, end, size, mtime, info.offset + 1, sparse))
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
            with record_damage(archive), found.open(info) as stream:
                _copy(archive, stream, spool, lambda: None)
            mtime = 0.0
            with suppress(OverflowError, ValueError):
                mtime = time.mktime((*info.date_time, 0, 0, -1))
            member = Member(spool, offset, spool.tell(), info.file_size, mtime, info.header_offset + 1)
            archive.add(info.filename, member)
