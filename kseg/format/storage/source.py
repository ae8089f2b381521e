"""Readable sources from paths: local files, standard input, URLs.

Sources are opened read-only. kseg creates, locks and changes no files next to them.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from kseg.errors import UnreadableError, UsageError, VanishedError
from kseg.format.compress import gzip_streams
from kseg.format.storage import file_access, file_type, local_files, remote_files
from kseg.format.storage.local_files import open_file
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    INTERNAL_TOPICS,
    base_offset_of,
    is_snapshot,
    is_url,
    partition_of,
    remote_partition_of,
)

STDIN = "-"
#: Recognise the internal topic by the name of the folder.
BY_FOLDER = "auto"
# The suffixes of compressed files.
_COMPRESSED = (".gz", ".zst")
#: Seconds since the last write within which a file counts as being written.
LATELY = 2.0

#: Size in bytes, modification time in ns, inode; of an object its size, 0 and its tag. None if the file does not exist.
Stamp = tuple[int, int, int | str] | None


class Source:
    """Bytes read from front to back. The size is taken once at opening (None if unknown, as for a pipe).

    A live segment grows while it is read: nothing after ``size`` is read until ``refresh`` updates it. A ``bounded``
    source, a range of a file, does not grow. ``split_end`` is set for a split of a file (``open_split``): batches that
    begin there or later belong to the next split. ``size`` equals it until a reader completes its last batch. ``start`` is
    the position of the first byte (0 for a whole file), ``size`` the position of the end, ``position`` the current one.
    """

    def __init__(self, name: str, raw: Any, size: int | None, start: int = 0, *, bounded: bool = False) -> None:
        self.name = name
        self.size = size
        self._bounded = bounded
        # Whether the name is not one of Kafka's: without a byte the file is not an empty segment.
        self._needs_bytes = False
        self.split_end: int | None = None
        self.start = start
        self.position = start
        self._raw = raw
        self._limit = file_access.current().limit
        if start:
            raw.seek(start)

    def readinto(self, view: memoryview) -> int:
        """Read into ``view`` and return the number of bytes, 0 at the end. Raises OSError."""
        if self.size is not None:
            view = view[: max(0, self.size - self.position)]
        if not len(view):
            return 0
        try:
            count: int = self._raw.readinto(view[: self._limit.read_size(len(view))]) or 0
        except ValueError as error:
            raise UsageError(f"{self.name}: closed while it is read: {error}") from error
        self.position += count
        self._limit.wait_for(count)
        return count

    def check_not_empty(self) -> None:
        """Raise UnreadableError if nothing was read from a file that a user named, and whose name is not a segment's.

        A broker creates segments of 0 bytes. Other files of 0 bytes are left over from a failed command.
        """
        if self._needs_bytes and self.position == 0:
            raise UnreadableError(f"{self.name} is empty: nothing was read")

    @property
    def may_grow(self) -> bool:
        """Whether this is a local file that can grow."""
        return isinstance(self._raw, io.FileIO) and not self._bounded

    def refresh(self) -> bool:
        """Update the size of a local file; return True if it has grown."""
        if self.size is None or not self.may_grow:
            return False
        now = os.fstat(self._raw.fileno()).st_size
        grown = now > self.size
        self.size = max(now, self.size)
        return grown

    def rearranged(self, pieces: Sequence[tuple[int, int]]) -> Source:
        """Return the byte ranges ``pieces`` of a local file as one source, which owns the file."""
        size = sum(end - begin for begin, end in pieces)
        return Source(self.name, _Pieces(self._raw, pieces), size, bounded=True)

    def remove_end(self) -> None:
        """Allow reading a split beyond its end, up to the end of the file; no effect on other sources.

        Called before buffered bytes are reported as an incomplete batch: the end of a split is not the end of the file.
        """
        if self.split_end is not None:
            self._bounded = False
            if isinstance(self._raw, remote_files.RemoteFile):
                self.size = self._raw.read_until(None)
            self.refresh()

    def reread(self, position: int, view: memoryview) -> bool:
        """Read bytes of a recently written local file again; return True if they differ from ``view``."""
        if not isinstance(self._raw, io.FileIO) or self.size is None:
            return False
        handle = self._raw.fileno()
        if time.time() - os.fstat(handle).st_mtime > LATELY:
            return False
        at = os.lseek(handle, 0, os.SEEK_CUR)
        os.lseek(handle, position, os.SEEK_SET)  # Windows lacks pread
        try:
            again = os.read(handle, len(view))
        finally:
            os.lseek(handle, at, os.SEEK_SET)
        if len(again) < len(view) or again == view:
            return False
        view[:] = again
        return True

    def holes(self, begin: int, end: int) -> int | None:
        """Return the bytes in holes of a range of a local file (``local_files.hole_bytes``); None for other sources."""
        if not isinstance(self._raw, io.FileIO) or self.size is None:
            return None
        return local_files.hole_bytes(self._raw.fileno(), begin, end)

    def skip_zeros(self, position: int, unit: int) -> int | None:
        """Skip zeros from ``position`` on, in multiples of ``unit`` bytes; return the new position.

        See ``local_files.end_of_zeros``. The zeros before ``position`` must have been read. None for other
        sources than files on disk and at URLs: they are read.
        """
        if self.size is None or not isinstance(self._raw, (io.FileIO, remote_files.RemoteFile)):
            return None
        handle = self._raw.fileno() if isinstance(self._raw, io.FileIO) else None
        end, sampled = local_files.end_of_zeros(handle, position, self.size, self._sample)
        self._limit.wait_for(sampled)
        end = position + (end - position) // unit * unit
        self._raw.seek(end)
        self.position = end
        return end

    def follows_zeros(self, position: int, count: int) -> bool:
        """Return whether ``count`` zeros are before ``position`` in a local file; False for other sources."""
        if not isinstance(self._raw, io.FileIO) or position < count:
            return False
        at = self._raw.tell()
        self._raw.seek(position - count)
        try:
            return self._raw.read(count) == bytes(count)
        finally:
            self._raw.seek(at)

    def skip_hole(self, position: int, until: int | None) -> int:
        """Skip a hole of a local file from ``position``, the current one, up to ``until``; return its number of bytes."""
        if self.size is None or not isinstance(self._raw, io.FileIO):
            return 0
        end = self.size if until is None else min(until, self.size)
        skipped = local_files.hole_at(self._raw.fileno(), position, end)
        self._raw.seek(position + skipped)
        self.position += skipped
        return skipped

    def _sample(self, position: int, size: int) -> bytes:
        """Read bytes of a file at a position, which becomes the current one."""
        if isinstance(self._raw, remote_files.RemoteFile):
            self._raw.read_until(position + size)
        self._raw.seek(position)
        data = bytearray(size)
        count = self._raw.readinto(data) or 0
        if isinstance(self._raw, remote_files.RemoteFile):
            self._raw.read_until(self.size)
        return bytes(data[:count])

    def close(self) -> None:
        if self.name != STDIN:
            self._raw.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Pieces:
    """The byte ranges ``pieces`` of a seekable file, one after the other."""

    def __init__(self, raw: Any, pieces: Sequence[tuple[int, int]]) -> None:
        self._raw = raw
        self._left = list(reversed(pieces))
        self.close = raw.close

    def readinto(self, view: memoryview) -> int:
        """Read from the next range into ``view``; return the number of bytes, 0 at the end."""
        if not self._left:
            return 0
        begin, end = self._left.pop()
        self._raw.seek(begin)
        count: int = self._raw.readinto(view[: end - begin]) or 0
        if 0 < count < end - begin:
            self._left.append((begin + count, end))
        return count


def open_source(path: str | os.PathLike[str] | BinaryIO, *, listed: bool = False) -> Source:
    """Open a local path, ``-`` (standard input), an fsspec URL, or a binary file object for reading.

    ``listed``: the path was found in a folder or derived from another one. It must then be a regular file; a named path
    can also be a pipe or another special file with an end (``local_files.open_file``). Raises UnreadableError.
    """
    if not isinstance(path, (str, os.PathLike)):
        # A pipe or a temporary file without a name has a descriptor there, or None.
        name = getattr(path, "name", None)
        return Source(name if isinstance(name, str) else "<stream>", _binary(path), None)
    source = _open(os.fspath(path), listed=listed)
    source._needs_bytes = not listed and base_offset_of(source.name) is None and not is_snapshot(source.name)
    return source


def _binary(given: Any) -> Any:
    """Return a file object, or what only has its method ``read``, such as ``mmap``, as one. Raises UsageError for others."""
    if isinstance(given, io.TextIOBase) or not callable(getattr(given, "read", None)):
        raise UsageError(f"expected a path, a URL or a binary file object, got {given!r}")
    return given if hasattr(given, "readinto") else _ReadOnly(given)


class _ReadOnly(io.RawIOBase):
    """A file object that only has the method ``read``."""

    def __init__(self, given: Any) -> None:
        self._read = given.read

    def readinto(self, view: Any) -> int:
        """Read into ``view`` and return the number of bytes."""
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)


def _open(name: str, *, listed: bool) -> Source:
    if name == STDIN:
        return Source(STDIN, file_type.unpacked(STDIN)[0], None)
    raw = open_file(name, named=not listed)
    if name.endswith(_COMPRESSED):
        kind = gzip_streams.compression_of(_head_of(raw))
        if kind:
            return Source(name, gzip_streams.decompressed(raw, kind), None)
    status = os.fstat(raw.fileno()) if isinstance(raw, io.FileIO) else raw.status
    return Source(name, raw, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _head_of(raw: Any) -> bytes:
    """Return the first bytes of a file, which are read again later; none if the file is a pipe."""
    try:
        head: bytes = raw.read(gzip_streams.SIGNATURE_SIZE)
        raw.seek(0)
    except OSError:
        return b""
    return head


def topic_partition(path: str) -> tuple[str | None, int | None]:
    """Return topic and partition of a file by the name of its folder, such as ``orders-3``; None for other names."""
    folder = path.rpartition("/")[0] if is_url(path) else os.path.dirname(os.path.abspath(path))
    name = os.path.basename(folder)
    partition = partition_of(name) or remote_partition_of(name)
    return partition[:2] if partition and path != STDIN else (None, None)


def internal_topic(path: str, decode_as: str | None = BY_FOLDER) -> str | None:
    """Return the internal topic whose decoder reads the segment: ``decode_as``, or the topic in the folder's name.

    Returns None if the records are not decoded: for other topics, and if ``decode_as`` is None.
    """
    topic = topic_partition(path)[0] if decode_as == BY_FOLDER else decode_as
    return topic if topic in INTERNAL_TOPICS else None


def is_metadata_log(folder: str) -> bool:
    """Return whether a folder has the name of a metadata log's folder, such as ``__cluster_metadata-0``."""
    return topic_partition(f"{folder}/x")[0] == CLUSTER_METADATA


def open_range(path: str, start: int, end: int) -> Source:
    """Open bytes ``start`` to ``end`` of a file. Raises UnreadableError."""
    source = open_source(path, listed=True)
    if is_url(path) and isinstance(source._raw, remote_files.RemoteFile):  # otherwise its module is not needed
        source._raw.read_until(end)
    return Source(source.name, source._raw, end, start, bounded=True)


def open_split(path: str, start: int, end: int) -> Source:
    """Open a segment to read the batches that begin in positions ``start`` to ``end``. Raises UnreadableError.

    A SegmentReader can read past ``end`` to complete the last batch.
    """
    source = open_range(path, start, end)
    source.split_end = end
    return source


def local_size(path: str) -> int | None:
    """Return the size of a regular local file in bytes, None for anything else, also if it is compressed."""
    try:
        return _regular_size(path)
    except (OSError, ValueError):
        return None


def _regular_size(path: str) -> int | None:
    if path == STDIN or path.endswith(_COMPRESSED) or is_url(path):
        return None
    status = local_files.status(path)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def stored_size(path: str) -> int | None:
    """Return the size in bytes of a local file or of one at a URL.

    None if it does not exist, and for what has no size, as ``local_size``. Raises UnreadableError.
    """
    if not is_url(path) or path.endswith(_COMPRESSED):
        try:
            return _regular_size(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # a symbolic link to itself
                return None
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
    try:
        return remote_files.stored_at(path).size
    except VanishedError:
        return None


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file, None for an object without a tag. A file renamed to this path has another inode."""
    try:
        if is_url(path):
            return remote_files.stored_at(path).stamp
        status = local_files.status(path)
    except (OSError, ValueError, UnreadableError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def stamp_text(stamp: Stamp) -> str | None:
    """Return a stamp as text, None without one."""
    return None if stamp is None else ":".join(map(str, stamp))


def check_same(path: str, before: Stamp, *, copied: bool = False, end: int | None = None) -> None:
    """Raise UnreadableError if a path has another file since its stamp was taken, or a cut one; VanishedError for no file.

    A log cleaner replaces segments, and its files have their batches at other positions. ``copied``: the stamp can be that
    of a copy on another machine, with another inode and the same size. ``end``: the first byte that is not needed, None if
    all are. A broker that preallocates segments cuts the zeros at the end of one that it rolls.
    """
    if before is None:
        return
    now = stamp_of(path)
    if now is None:
        raise VanishedError(f"{path}: {os.strerror(errno.ENOENT)}")
    needed = before[0] if end is None else min(before[0], end)
    if now[0] < needed or (now[2] != before[2] and not (copied and now[0] == before[0])):
        raise UnreadableError(f"{path}: replaced meanwhile: run again")
