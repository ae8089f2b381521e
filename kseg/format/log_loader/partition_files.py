"""A model of a partition's folder that a broker changes while it loads the log: names, sizes and contents, not the
disk.

Source: ``LogFileUtils`` of Kafka 4.3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kseg.errors import UnreadableError
from kseg.format.log_loader.refusals import OfflineError, RefusedError
from kseg.format.record.layout import INT64_MAX
from kseg.format.sidefiles.producer_snapshot import ProducerState
from kseg.format.storage import local_files
from kseg.format.storage.naming import INDEX_SUFFIXES, base_offset_of, is_index
from kseg.format.storage.special_files import open_file, skip_special, special_kind_at

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


class Files(dict[str, File]):
    """The files of a folder by name, changed as the broker would change them. The folder on disk does not change.

    ``not_files`` maps names of segments that are not files to their kind, and those of folders named like an index.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.not_files: dict[str, str] = {}
        try:
            for name, kind in local_files.entries(path):
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
        return self.setdefault(name, File())

    def check_indexes(self, base: int) -> None:
        """Raise OfflineError if a folder has the name of an index of a segment."""
        for suffix in INDEX_SUFFIXES:
            if self.not_files.get(file_name(base, suffix)) == _FOLDER:
                raise OfflineError("a folder has the name of an index", file_name(base, suffix))

    def rename(self, name: str, new: str) -> None:
        """Give a file another name. A file with that name is replaced."""
        self[new] = self.pop(name)


def _kind(path: str, kind: str) -> str:
    return _FOLDER if kind == "folder" else special_kind_at(path) or _NOWHERE


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
