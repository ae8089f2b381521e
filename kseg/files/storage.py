"""From a PATH to readable sources: local files, standard input, URLs; and what Kafka's file names say.

Sources are opened read-only, and nothing is created, locked or changed beside them.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.files import pace
from kseg.files.holes import hole_bytes
from kseg.files.special import open_file, without_special
from kseg.format.log_format import INT32_MAX, INT64_MAX

STDIN = "-"
#: A file that was written to within so many seconds may be written to this moment.
LATELY = 2.0
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_SEGMENT_NAME = re.compile(r"(\d{20})\.log(?:\.deleted|\.cleaned|\.swap)?$")
# A URL that ends so is a file's: whether it is a folder's need not be asked for.
_FILE_NAME = re.compile(r"/\d{20}[^/]*$|\.log$")
# What a broker appends to a folder that it is deleting, moving between disks, or doesn't know (LocalLog).
_PARTITION_FOLDER = re.compile(r"(.+)-(\d{1,10})(?:\.[^.]+(-delete|-future|-stray))?")
_OF_A_SEGMENT = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_STEM = re.compile(r"(?:^|/)\d{20}$")
_SNAPSHOT_NAME = re.compile(r"(\d{20})-\d{10}\.checkpoint$")


class Source:
    """Bytes read front to back, with a size taken once at opening (None when it can't be known, as of a pipe).

    A live segment grows while it is read: nothing past ``size`` is read until ``refresh`` takes the size anew, and in
    a ``bounded`` one never: a range does not grow into the next.
    ``split_end`` is set when the source is a split of a file (``open_split``): entries that begin there or later belong
    to the next split. Until ``lift_end`` is called, ``size`` equals it.
    ``start`` is the first byte read, 0 unless only a range of the file is wanted; ``size`` is where reading ends, and
    ``position`` where it has come to.
    """

    def __init__(self, name: str, raw: Any, size: int | None, start: int = 0, *, bounded: bool = False) -> None:
        self.name = name
        self.size = size
        self._bounded = bounded
        self.split_end: int | None = None
        self.start = start
        self.position = start
        self._raw = raw
        if start:
            raw.seek(start)

    def readinto(self, view: memoryview) -> int:
        """Fill the front of ``view``; returns the bytes read, 0 at the end. Raises OSError as the system does."""
        if self.size is not None:
            view = view[: max(0, self.size - self.position)]
        if not len(view):
            return 0
        try:
            count: int = self._raw.readinto(view[: pace.at_once(len(view))]) or 0
        except (OSError, MemoryError):
            raise
        except Exception as error:  # of a URL's file system
            raise OSError(_reason(error, self.name)) from error
        self.position += count
        pace.pause_for(count)
        return count

    @property
    def may_grow(self) -> bool:
        """Whether it is a local file, to which something may be appended."""
        return isinstance(self._raw, io.FileIO) and not self._bounded

    def refresh(self) -> bool:
        """Take the size of a local file again; True when it has grown since."""
        if self.size is None or not self.may_grow:
            return False
        now = os.fstat(self._raw.fileno()).st_size
        grown = now > self.size
        self.size = max(now, self.size)
        return grown

    def lift_end(self) -> None:
        """Of a split: let it be read past its end, up to the end of the file. The end of a split is not the end of a file.

        Whoever finds that the bytes at hand are not whole entries calls this before saying so. Of other sources it does
        nothing.
        """
        if self.split_end is not None:
            self._bounded = False
            self.refresh()

    def reread(self, position: int, view: memoryview) -> bool:
        """Read bytes of a local file again that was written to lately; True when they are others than in ``view``."""
        if not isinstance(self._raw, io.FileIO) or self.size is None:
            return False
        handle = self._raw.fileno()
        if time.time() - os.fstat(handle).st_mtime > LATELY:
            return False
        again = os.pread(handle, len(view), position)
        if len(again) < len(view) or again == view:
            return False
        view[:] = again
        return True

    def holes(self, begin: int, end: int) -> int | None:
        """How many bytes of that stretch a local file has no blocks for (hole_bytes); None of any other source."""
        if not isinstance(self._raw, io.FileIO) or self.size is None:
            return None
        return hole_bytes(self._raw.fileno(), begin, end)

    def close(self) -> None:
        if self.name != STDIN:
            self._raw.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_source(path: str | os.PathLike[str] | BinaryIO, *, listed: bool = False) -> Source:
    """Open a local path, ``-`` (standard input), an fsspec URL, or a binary file object for reading.

    ``listed``: the path was found in a folder, or made from another. Then it must be a regular file; else it may also be
    a pipe or what else has an end (``special.open_file``). Raises UnreadableError with one line that says why.
    """
    if not isinstance(path, (str, os.PathLike)):
        return Source(getattr(path, "name", "<stream>"), path, None)
    name = os.fspath(path)
    if name == STDIN:
        if sys.stdin is None:
            raise UnreadableError("standard input is closed")
        return Source(STDIN, sys.stdin.buffer, None)
    if _URL.match(name):
        return _open_url(name)
    raw = open_file(name, named=not listed)
    status = os.fstat(raw.fileno())
    return Source(name, raw, status.st_size if stat.S_ISREG(status.st_mode) else None)


def _open_url(url: str) -> Source:
    with _remote(url) as (filesystem, path):
        size = filesystem.size(path)
        return Source(url, filesystem.open(path, "rb"), size)


def _reason(error: Exception, url: str) -> str:
    """One line. Drivers raise what they like, and some say only the URL again: then its class and cause say more."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    if text and text not in url:
        return text
    cause = error.__cause__ or error.__context__
    return ": ".join([type(error).__name__, *([" ".join(str(cause).split()) or type(cause).__name__] if cause else [])])


@contextmanager
def _remote(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL, and the path on it. What either raises then becomes UnreadableError."""
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(f"{url}: reading URLs needs fsspec: pip install 'kseg[remote]'") from error
    try:
        yield fsspec.url_to_fs(url)
    except (KsegError, MemoryError):
        raise
    except Exception as error:  # each file system has its own: NoCredentialsError, EndpointConnectionError, …
        raise UnreadableError(f"{url}: {_reason(error, url)}") from error


def base_offset_of(name: str) -> int | None:
    """The offset in a segment's file name, None for other names (``LocalLog.filenamePrefixFromOffset``)."""
    match = _SEGMENT_NAME.search(name)
    return named_offset(match[1]) if match else None


def named_offset(digits: str) -> int:
    """The offset that a file name tells. Twenty digits can say more than 64 bits hold, which no offset reaches."""
    return min(int(digits), INT64_MAX - INT32_MAX)


class Partition(NamedTuple):
    """What a folder's name says. ``state`` is ``-delete``, ``-future`` or ``-stray``, None for a folder in use."""

    topic: str
    partition: int
    state: str | None


def partition_of(name: str) -> Partition | None:
    """The partition that a folder of that name holds (``LocalLog.parseTopicPartitionName``); None for other names."""
    match = _PARTITION_FOLDER.fullmatch(name)
    return Partition(match[1], int(match[2]), match[3]) if match else None


def topic_partition(path: str) -> tuple[str | None, int | None]:
    """Topic and partition of a file by its folder's name, as ``orders-3``; None for others."""
    folder = path.rpartition("/")[0] if _URL.match(path) else os.path.dirname(os.path.abspath(path))
    partition = partition_of(os.path.basename(folder))
    return partition[:2] if partition and path != STDIN else (None, None)


def is_snapshot(name: str) -> bool:
    """Whether the name is a KRaft snapshot's, ``<20 digits>-<10 digits>.checkpoint``: a segment in all but name."""
    return _SNAPSHOT_NAME.search(name) is not None


def open_range(path: str, start: int, end: int) -> Source:
    """Open bytes ``start`` to ``end`` of a local file. Raises UnreadableError."""
    source = open_source(path, listed=True)
    return Source(source.name, source._raw, end, start, bounded=True)


def open_split(path: str, start: int, end: int) -> Source:
    """Open a local segment to read the entries that begin in the bytes ``start`` to ``end``. Raises UnreadableError.

    Where the last of them is not whole before ``end``, a SegmentReader reads on: see ``Source.lift_end``.
    """
    source = open_range(path, start, end)
    source.split_end = end
    return source


def local_size(path: str) -> int | None:
    """The bytes of a regular local file, None for anything else."""
    if path == STDIN or _URL.match(path):
        return None
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def files_of_segment(path: str) -> tuple[str, ...]:
    """A path and, where it is a segment's, what stands beside it by its name, whether it is there or not."""
    stem, dot, suffix = path.rpartition(".")
    if dot + suffix not in _OF_A_SEGMENT:
        stem = path if _STEM.search(path) else ""
    return (path, *(stem + each for each in _OF_A_SEGMENT)) if stem else (path,)


def refuse_as_output(output: str | None, inputs: Iterable[str]) -> None:
    """Raises UsageError when results would be written over an input or what belongs to it, or into an input folder.

    By whatever name: inputs are never changed, and nothing is created beside them under a name of theirs.
    """
    if output in (None, STDIN):
        return
    assert output is not None
    target = os.path.realpath(output)
    present = os.stat(output) if os.path.exists(output) else None
    for path in inputs:
        if path == STDIN or is_url(path):
            continue
        own = os.path.realpath(path)
        if target in files_of_segment(own) or (
            present and os.path.exists(path) and os.path.samestat(os.stat(path), present)
        ):
            raise UsageError(f"{output} is an input, or belongs to one: inputs are never changed")
        if os.path.commonpath([own, target]) == own and (
            present is None or stat.S_IFMT(present.st_mode) in (stat.S_IFREG, stat.S_IFDIR)
        ):
            raise UsageError(f"{output} lies in {path}: inputs are never changed, and nothing is created beside them")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment, or a file beside one. ``active`` is the newest of its folder, where a broker may be writing.

    ``listed``: it was found in a folder, from which a broker may have taken it by now. A named one must be there.

    ``beside`` are the indexes to be judged with a segment, None where it is judged alone. Of a side file they are ()
    where it is to be judged with its folder.

    ``framing`` names what it is read as (``frames.framings``), None for what its name says; of responses, ``requests`` is
    the file of what was asked.
    """

    path: str
    active: bool = False
    beside: tuple[str, ...] | None = None
    listed: bool = False
    framing: str | None = None
    requests: str | None = None


def find_segments(path: str) -> Iterator[SegmentFile]:
    """The segments a PATH stands for: itself, or those of a partition folder, a log dir, or any folder of these.

    In Kafka's order: folders by name, segments by offset. Raises UnreadableError where there is nothing.
    """
    remote = _URL.match(path) and not _FILE_NAME.search(path)
    folders = _walk_remote(path) if remote else list(walk_folders(path)) if is_folder(path) else None
    if folders is None:
        yield SegmentFile(path)
        return
    found = [file for folder, names in folders for file in segments_in(folder, names)]
    if not found:
        raise UnreadableError(f"{path}: no segment in it or below it (a .log named by 20 digits)")
    yield from found


def is_url(path: str) -> bool:
    """Whether a PATH is a URL."""
    return _URL.match(path) is not None


def is_folder(path: str) -> bool:
    """Whether a PATH is a local folder."""
    return path != STDIN and not _URL.match(path) and os.path.isdir(path)


def walk_folders(path: str) -> Iterator[tuple[Path, list[str]]]:
    """A folder and all below it, by name, each with the names of its files, sorted. Raises UnreadableError.

    FIFOs, sockets and devices are skipped with a warning.

    Links are followed, as a broker follows them, but no folder is walked twice.
    """
    root = os.path.join(os.path.realpath(path), "")
    seen = {root}

    def is_new(folder: str) -> bool:
        real = os.path.join(os.path.realpath(folder), "")
        # What lies below the root is walked by its own name; what is above holds the root.
        again = real in seen or (os.path.islink(folder) and (real.startswith(root) or root.startswith(real)))
        seen.add(real)
        return not again

    def failed(error: OSError) -> None:
        # A topic may be deleted meanwhile: its folders are renamed.
        if not isinstance(error, FileNotFoundError) or error.filename == path:
            raise UnreadableError(f"{error.filename}: {error.strerror or error}") from error

    for folder, folders, names in os.walk(path, onerror=failed, followlinks=True):
        folders[:] = [name for name in sorted(folders) if is_new(os.path.join(folder, name))]
        yield Path(folder), without_special(folder, sorted(names))


def _walk_remote(url: str) -> list[tuple[str, list[str]]] | None:
    """As walk_folders, of a URL; None where it is no folder."""
    folders: dict[str, list[str]] = {}
    with _remote(url) as (filesystem, path):
        if "::" in url or not filesystem.isdir(path):
            return None
        for name in sorted(filesystem.find(path)):
            folder, _, file = filesystem.unstrip_protocol(name).rpartition("/")
            folders.setdefault(folder, []).append(file)
    return list(folders.items())


def size_of(file: SegmentFile) -> int | None:
    """The bytes of a local file, 0 of one that has vanished, None for anything else."""
    size = local_size(file.path)
    return 0 if size is None and file.listed and not _URL.match(file.path) else size


def total_size(files: Iterable[SegmentFile]) -> int | None:
    """The bytes of the files, None where that is not known beforehand."""
    sizes = [size_of(file) for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def is_newest(path: str) -> bool:
    """Whether a local segment is the newest of its folder now, where a broker may be writing."""
    folder, name = os.path.split(path)
    try:
        return not any(re.fullmatch(r"\d{20}\.log", other) and other > name for other in os.listdir(folder or "."))
    except OSError:
        return False


def segments_in(folder: Path | str, names: list[str]) -> Iterator[SegmentFile]:
    """Those among a folder's files that are segments, or snapshots of KRaft."""
    logs = [name for name in names if re.fullmatch(r"\d{20}\.log", name)]
    for name in logs:
        yield SegmentFile(os.path.join(folder, name), active=name == logs[-1], listed=True)
    for name in names:
        if is_snapshot(name):
            yield SegmentFile(os.path.join(folder, name), listed=True)
