"""A model of the files of a partition while a broker loads it: names, sizes, contents, and indexes. The disk is not changed.

Sources: ``LogFileUtils``, ``AbstractIndex`` and ``TransactionIndex.sanityCheck`` of Kafka 4.3.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kseg.errors import UnreadableError
from kseg.format.log_loader.loaded_files import OfflineError, RefusedError
from kseg.format.record.layout import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY
from kseg.format.sidefiles.producer_snapshot import ProducerState
from kseg.format.storage import local_files
from kseg.format.storage.local_files import open_file, skip_special, special_kind_at
from kseg.format.storage.naming import INDEX_SUFFIXES, base_offset_of, is_index

#: Reports a step: its action, the file's name, and why.
AddStep = Callable[[str, str, str], None]

_FOLDER = "a folder"
_NOWHERE = "a link without a target"
_OFFSET = re.compile(r"([+-]?\d+)\.")


@dataclass(slots=True)
class File:
    """A file of the model: ``size`` bytes of ``path`` from byte ``begin`` on.

    Bytes after the first ``stored`` are zeros. Contents that the broker would write are kept as values: the entries of
    a rebuilt offset index (``entries``), the producers of a snapshot (``producers``). Both are None if the contents are
    those of ``path``.
    """

    path: str | None = None
    begin: int = 0
    size: int = 0
    stored: int = 0
    entries: list[tuple[int, int]] | None = None
    producers: Sequence[ProducerState] | None = None

    @classmethod
    def at(cls, path: str) -> File:
        """Return the file at a path. Raises OSError."""
        size = local_files.status(path).st_size
        return cls(path, size=size, stored=size)

    def truncated(self, size: int) -> None:
        """Return the file with another size. Added bytes are zeros."""
        self.size = size
        self.stored = min(self.stored, size)

    def read(self, at: int, size: int) -> bytes:
        """Read up to ``size`` bytes from byte ``at`` on, fewer if the file ends before. Raises UnreadableError."""
        size = max(0, min(size, self.size - at))
        data = b""
        if self.path is not None and at < self.stored:
            with open_file(self.path, named=False) as file:
                try:
                    file.seek(self.begin + at)
                    data = file.read(min(size, self.stored - at))
                except OSError as error:
                    raise UnreadableError(f"{self.path}: {error.strerror or error}") from error
        return data.ljust(size, b"\0")


class SnapshotNames(dict[int, str]):
    """The names of producer snapshots by offset, with the offsets in order: a loader asks for a range for each segment."""

    def __init__(self, names: Mapping[int, str], order: list[int] | None = None) -> None:
        super().__init__(names)
        self.order = sorted(self) if order is None else order[:]

    def __setitem__(self, offset: int, name: str) -> None:
        if offset not in self:
            insort(self.order, offset)
        super().__setitem__(offset, name)

    def __delitem__(self, offset: int) -> None:
        super().__delitem__(offset)
        del self.order[bisect_left(self.order, offset)]

    def outside(self, after: int, last: int) -> list[int]:
        """Return the offsets that are not above ``after``, or above ``last``."""
        first, end = bisect_right(self.order, after), bisect_right(self.order, max(after, last))
        return self.order[:first] + self.order[end:]


class Files(dict[str, File]):
    """The files of a folder by name, changed as the broker would change them. The folder on disk does not change.

    ``not_files`` maps names of segments that are not files to their kind, and those of folders named like an index.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._snapshots: SnapshotNames | None = None
        self.not_files: dict[str, str] = {}
        entries = local_files.entries(path)
        try:
            for name, kind in entries:
                if kind == "file":
                    self[name] = File.at(os.path.join(path, name))
                elif base_offset_of(name) is not None or (is_index(name) and kind == "folder"):
                    self.not_files[name] = _kind(os.path.join(path, name), kind)
                elif kind == "other":
                    skip_special(path, [name])
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error

    def exists(self, name: str) -> bool:
        """Return whether the name exists and is not a broken link."""
        return name in self or self.not_files.get(name, _NOWHERE) != _NOWHERE

    def open(self, name: str) -> File:
        """Return the file of that name, created if it is missing. Raises OfflineError if it is a folder."""
        if self.not_files.get(name) == _FOLDER:
            raise OfflineError("a folder has the name of a file", name)
        if name not in self:
            self[name] = File()
        return self[name]

    def check_indexes(self, base: int) -> None:
        """Raise OfflineError if a folder has the name of an index of a segment."""
        for suffix in INDEX_SUFFIXES:
            if self.not_files.get(file_name(base, suffix)) == _FOLDER:
                raise OfflineError("a folder has the name of an index", file_name(base, suffix))

    def snapshots(self) -> SnapshotNames:
        """Return the names of the producer snapshots by offset. Raises RefusedError for one without an offset.

        They are kept up to date: a loader asks for each segment, and writes one for each.
        """
        if self._snapshots is None:
            names = sorted(name for name in self if name.endswith(SNAPSHOT_SUFFIX))
            found = {offset_of(name): name for name in names}
            if len(found) < len(names):
                return SnapshotNames(found)  # two of one offset: the next change decides which is left
            self._snapshots = SnapshotNames(found)
        return SnapshotNames(self._snapshots, self._snapshots.order)

    def __setitem__(self, name: str, file: File) -> None:
        super().__setitem__(name, file)
        if name.endswith(SNAPSHOT_SUFFIX) and self._snapshots is not None:
            offset = offset_or_none(name)
            if offset is None or self._snapshots.get(offset, name) != name:
                self._snapshots = None
            else:
                self._snapshots[offset] = name

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if name.endswith(SNAPSHOT_SUFFIX) and self._snapshots is not None:
            del self._snapshots[offset_of(name)]

    def remove(self, name: str) -> File | None:
        """Remove a file, and return it; None if there is none."""
        file = self.get(name)
        if file is not None:
            del self[name]
        return file

    def rename(self, name: str, new: str) -> None:
        """Give a file another name. A file with that name is replaced."""
        file = self[name]
        del self[name]
        self[new] = file


def _kind(path: str, kind: str) -> str:
    return _FOLDER if kind == "folder" else special_kind_at(path) or _NOWHERE


#: The end of the names of producer snapshots.
SNAPSHOT_SUFFIX = ".snapshot"


def offset_of(name: str) -> int:
    """Return the offset that a file name begins with (``LogFileUtils.offsetFromFileName``). Raises RefusedError."""
    match = _OFFSET.match(name)
    offset = int(match[1]) if match else None
    if offset is None or not -INT64_MAX - 1 <= offset <= INT64_MAX:
        raise RefusedError("its name does not contain an offset", name)
    return offset


def offset_or_none(name: str) -> int | None:
    """Return the offset that a file name begins with, None for other names."""
    try:
        return offset_of(name)
    except RefusedError:
        return None


def file_name(offset: int, suffix: str = ".log") -> str:
    """Return ``LogFileUtils.filenamePrefixFromOffset`` with a suffix."""
    return f"{'-' if offset < 0 else ''}{abs(offset):020d}{suffix}"


# AbstractIndex.warmEntries: in an index that is out of order, the result of a look-up depends on its start.
_WARM_ENTRIES = 8192 // OFFSET_ENTRY.size


class InvalidOffsetError(Exception):
    """An index rejects an offset: Kafka's InvalidOffsetException, after which recovery empties the segment."""


def fits(offset: int, base_offset: int) -> bool:
    """Return whether an offset can be stored relative to a base offset (``AbstractIndex.canAppendOffset``)."""
    return 0 <= wrapped(offset - base_offset) <= INT32_MAX


def wrapped(number: int) -> int:
    """Return a number as a Java long, which wraps at the end of its range."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class _Index:
    """An index that is opened, or created with its largest size: ``limit`` bytes, rounded down to whole entries.

    Zeros of a preallocated index count as entries when it is opened again, as in a broker.
    """

    entry_size: ClassVar[int]

    def __init__(self, files: Files, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit - limit % self.entry_size
        self.file = files.get(name) or File(size=self.limit, entries=[])
        self.entries = self.file.size // self.entry_size if name in files else 0
        files[name] = self.file

    def reset(self) -> None:
        """Remove all entries before they are written again."""
        self.entries = 0
        self.file.truncated(0)
        self.file.entries = []
        self.file.truncated(self.limit)

    def trim(self) -> None:
        """Reduce the file to the size of its entries."""
        self.file.truncated(self.entries * self.entry_size)

    def resize(self) -> None:
        """Grow the file to its largest size. Raises RefusedError if it is larger already."""
        if self.file.size != self.limit and self.entries * self.entry_size > self.limit:
            raise RefusedError(
                f"the index has {self.file.size:,} bytes, more than segment.index.bytes {self.limit:,}", self.name
            )
        self.file.truncated(self.limit)

    def _check_space(self, kind: str) -> None:
        raise RefusedError(f"{self.entries} entries fill the {kind}: segment.index.bytes is {self.limit:,}", self.name)


class OffsetIndex(_Index):
    """Offsets and their positions in the log."""

    entry_size = OFFSET_ENTRY.size

    def __init__(self, files: Files, name: str, base_offset: int, limit: int) -> None:
        super().__init__(files, name, limit)
        self._base_offset = base_offset

    @property
    def last_offset(self) -> int:
        """The offset of the last entry, the base offset if the index is empty."""
        return self._entry(self.entries - 1)[0] if self.entries else self._base_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises InvalidOffsetError, RefusedError."""
        if self.entries >= self.file.size // self.entry_size:
            self._check_space("offset index")
        if self.entries and offset <= self.last_offset:
            raise InvalidOffsetError(offset)
        assert self.file.entries is not None, "only an index that was reset is appended to"
        self.file.entries.append((offset, position))
        self.entries += 1

    def position_of(self, target: int) -> int:
        """Return the position at which the search for an offset begins, like ``OffsetIndex.lookup``."""
        if not self.entries:
            return 0
        low, high = max(0, self.entries - 1 - _WARM_ENTRIES), self.entries - 1
        if self._entry(low)[0] >= target:
            if self._entry(0)[0] > target:
                return 0
            low, high = 0, low
        while low < high:
            middle = (low + high + 1) // 2
            offset = self._entry(middle)[0]
            if offset == target:
                low = middle
                break
            low, high = (low, middle - 1) if offset > target else (middle, high)
        return max(self._entry(low)[1], 0)

    def _entry(self, slot: int) -> tuple[int, int]:
        if self.file.entries is not None:
            return self.file.entries[slot] if slot < len(self.file.entries) else (self._base_offset, 0)
        relative, position = OFFSET_ENTRY.unpack(self.file.read(slot * self.entry_size, self.entry_size))
        return wrapped(self._base_offset + relative), position


class TimeIndex(_Index):
    """The timestamps of a segment. Only the latest one matters while a log is loaded."""

    entry_size = TIME_ENTRY.size

    def __init__(self, files: Files, name: str, limit: int) -> None:
        super().__init__(files, name, limit)
        self._last: tuple[int, int] | None = None

    def reset(self) -> None:
        super().reset()
        self._last = None

    def empty(self) -> None:
        """Empty the file: it was just created for a log that is not new."""
        self.entries = 0
        self.file.truncated(0)

    def append(self, timestamp: int, offset: int, *, last: bool = False) -> None:
        """Add an entry if the timestamp is new, ``last`` at the segment's end. Raises InvalidOffsetError, RefusedError."""
        slots = self.file.size // self.entry_size
        if not last and self.entries >= slots - 1:
            self._check_space("time index")
        if self._last is not None and offset < self._last[1]:
            raise InvalidOffsetError(offset)
        if timestamp > (self._last[0] if self._last else NO_TIMESTAMP):
            if self.entries >= slots:
                self._check_space("time index")
            self._last = timestamp, offset
            self.entries += 1


_ENTRY = struct.Struct(">bx8x8xq8x")  # the first byte of the version, and the last offset
_BLOCK = _ENTRY.size * 1024


def check_txn_index(file: File, base_offset: int) -> str | None:
    """Return why the segment must be recovered, otherwise None. Raises RefusedError for another version."""
    at = 0
    while block := file.read(at, _BLOCK):
        for version, last_offset in _ENTRY.iter_unpack(block[: len(block) - len(block) % _ENTRY.size]):
            # Kafka looks at the first byte of the two alone (AbortedTxn.version).
            if version > 0:
                raise RefusedError(f"its transaction index has version {version}")
            if last_offset < base_offset:
                return f"its transaction index has an abort at offset {last_offset}"
        at += len(block)
    return None
