"""Read the members of tar and zip files into an index. Damage ends the reading, and the index has the members before it."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import IO, Any

from kseg.format.storage import file_access
from kseg.format.storage.archive_index import Archive, LimitError, Member

#: The first bytes of a zip archive; the second is one without members.
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
#: The most bytes of the headers of one member: long names and maps of holes.
_MOST_HEADER = 1 << 20
_PIECE = 1 << 20
_ENCRYPTED = 1
_LATEST = 1 << 33  # seconds since 1970
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def record_damage(archive: Archive) -> Iterator[None]:
    """Store the reason for which an archive cannot be read to its end. The members before that place are read."""
    try:
        yield
    except LimitError as error:
        archive.damage = f"{error}: unpack it first"
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, struct.error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        archive.damage = archive.damage or f"the archive is damaged or incomplete: {reason}"


def temporary_copy(archive: Archive, stream: Any, size: Callable[[], int | None]) -> IO[bytes]:
    """Return a temporary file with the bytes of a stream. After damage, it has the bytes before."""
    out = _temporary_file(archive)
    with record_damage(archive):
        _copy(archive, stream, out, size)
    return out


def _temporary_file(archive: Archive) -> IO[bytes]:
    archive.files.append(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
    return archive.files[-1]


def _copy(archive: Archive, stream: Any, out: IO[bytes], size: Callable[[], int | None]) -> int:
    """Copy a stream and return the number of bytes. Raises LimitError if compressed bytes expand to too many."""
    total = 0
    while piece := stream.read(_PIECE):
        total += len(piece)
        stored = size()
        if stored is not None:
            archive.expand(len(piece), stored)
        out.write(piece)
        file_access.current().limit.wait_for(len(piece))
    return total


def read_members(archive: Archive, file: IO[bytes], *, is_zip: bool) -> None:
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
            with record_damage(archive), found.open(info) as stream:
                _copy(archive, stream, spool, lambda: None)
            mtime = 0.0
            with suppress(OverflowError, ValueError):
                mtime = time.mktime((*info.date_time, 0, 0, -1))
            member = Member(spool, offset, spool.tell() - offset, mtime, info.header_offset + 1)
            archive.add(info.filename, member)
