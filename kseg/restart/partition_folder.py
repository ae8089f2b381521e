"""A partition's folder as a broker finds it at its start, and how it tidies it: what a crash left of other work.

Sources: ``LogLoader.removeTempFilesAndCollectSwapFiles``, the passes of ``LogLoader.load`` over swap files, and
``LogFileUtils`` of Kafka 4.3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from kseg.errors import UnreadableError
from kseg.files.special import special_kind_of, without_special
from kseg.files.storage import base_offset_of
from kseg.format.log_format import INT64_MAX
from kseg.restart.broker_reading import Piece, RefusedError, last_entry, read_end

#: Told of each step: its action, the file's name, and why.
Tell = Callable[[str, str, str], None]

_OFFSET = re.compile(r"([+-]?\d+)\.")


class Folder:
    """The names in a folder, changed as the broker would change them; the folder itself stays as it is.

    ``files`` has for each name the path where its bytes stand now, None for an index that is yet to be made.
    ``no_files`` says what else has the name of a segment.
    """

    def __init__(self, path: str, tell: Tell) -> None:
        self._tell = tell
        self.files: dict[str, str | None] = {}
        self.no_files: dict[str, str] = {}
        try:
            with os.scandir(path) as found:
                for entry in found:
                    if entry.is_file():
                        self.files[entry.name] = entry.path
                    elif base_offset_of(entry.name) is not None:
                        self.no_files[entry.name] = _kind(entry)
                    elif not entry.is_dir():
                        without_special(path, [entry.name])
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error
        for name, what in sorted(self.no_files.items()):
            tell("pass-over", name, f"it is {what}")

    def offset(self, name: str) -> int:
        """The offset in a name that must have one. Raises RefusedError."""
        offset = _offset_in(name)
        if offset is None:
            raise RefusedError("there is no offset in its name", name)
        return offset

    def delete_temporary(self) -> None:
        """What is about to go, and what was not finished. Raises RefusedError."""
        cleaned = [name for name in self.files if name.endswith(".cleaned")]
        first_cleaned = min(map(self.offset, cleaned), default=None)
        for name in sorted(self.files):
            if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
                self.delete(name, "it was about to be deleted")
            elif name.endswith(".cleaned"):
                self.delete(name, "the cleaner did not finish it")
            elif name.endswith(".swap") and first_cleaned is not None and self.offset(name) >= first_cleaned:
                self.delete(name, f"the split it is part of did not finish: there is a .cleaned at {first_cleaned}")

    def delete(self, name: str, why: str) -> None:
        """One file gone."""
        self._tell("delete-segment" if name.endswith(".log") else "delete-file", name, why)
        del self.files[name]

    def swap_in(self) -> None:
        """A .swap is complete: what it covers goes, and it takes its name. Raises RefusedError, UnreadableError."""
        swaps = sorted(name for name in self.files if name.endswith(".swap"))
        covered = [self._span_of_swap(name) for name in swaps if name.endswith(".log.swap")]
        if covered:
            first, end = min(base for base, _ in covered), max(end for _, end in covered)
            for name in sorted(self.files):
                offset = _offset_in(name)
                if offset is not None and first <= offset < end and not name.endswith(".swap"):
                    self.delete(name, f"a .swap has the offsets {first} to {end - 1}")
        for name in sorted(name for name in self.files if name.endswith(".swap")):
            self._tell("rename-swap", name, f"it becomes {name.removesuffix('.swap')}")
            self.files[name.removesuffix(".swap")] = self.files.pop(name)

    def _span_of_swap(self, name: str) -> tuple[int, int]:
        base = self.offset(name)
        # Opening it makes the index that is not there, full of zeros.
        self.files.setdefault(name.replace(".log.", ".index."), None)
        end, _ = self.end_by_index(self.piece(name, base), self.files[name.replace(".log.", ".index.")])
        return base, base if end is None else end

    def piece(self, name: str, base: int) -> Piece:
        """A whole log of the folder. Raises UnreadableError."""
        path = self.files[name]
        assert path is not None, "only indexes are made from nothing"
        try:
            return Piece(base, path, 0, os.path.getsize(path))
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror or error}") from error

    def end_by_index(self, piece: Piece, index: str | None) -> tuple[int | None, int | None]:
        """The log's end as its index has it found, and the byte where reading ended early, if it did.

        Raises RefusedError, UnreadableError.
        """
        if index is None:
            return read_end(piece, 0, piece.base_offset)
        entry = last_entry(index, piece.base_offset)
        return read_end(piece, entry.log_position, entry.offset)


def file_name(offset: int, suffix: str = ".log") -> str:
    """``LogFileUtils.filenamePrefixFromOffset``, and a suffix."""
    return f"{offset:020d}{suffix}"


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir():
        return "a folder"
    return special_kind_of(entry.path) or "a link that leads to no file"


def _offset_in(name: str) -> int | None:
    """``LogFileUtils.offsetFromFile``."""
    match = _OFFSET.match(name)
    return int(match[1]) if match and abs(int(match[1])) <= INT64_MAX else None
