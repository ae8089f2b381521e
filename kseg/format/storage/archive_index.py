"""The index of an archive: its members by folder, in bounded memory."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import IO, NamedTuple

from kseg.format.storage import file_access

#: An archive may expand to MOST_EXPANDED bytes, or to MOST_RATIO times its size. Logs seldom compress better than 1:20.
MOST_EXPANDED = 4 << 30
MOST_RATIO = 200
#: The most memory of an index. It suffices for 400,000 members: more files than a broker has.
MOST_MEMORY = 200 << 20
_BYTES_PER_MEMBER, _BYTES_PER_FOLDER, _BYTES_PER_RANGE = 400, 500, 150
# Longer or deeper names are not those of a log directory. Each folder in a name takes memory.
_LONGEST_NAME = 1000
_DEEPEST = 50
_NAMES_SHOWN = 3


class LimitError(Exception):
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
    """A regular file of ``size`` bytes in an archive. Its bytes are in ``file`` from ``offset`` on.

    ``sparse`` has (position, bytes) of the stored ranges, in their order, None if everything is stored. ``mtime`` is in
    seconds since 1970. ``number`` is unique in the archive.
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
        self._use_memory(_BYTES_PER_MEMBER + len(own) + _BYTES_PER_RANGE * len(member.sparse or ()))

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
        """Count bytes that are not stored as such. Raises LimitError above the limit for ``size`` stored bytes."""
        self._expanded += count
        limit = max(MOST_EXPANDED, MOST_RATIO * size)
        if self._expanded > limit:
            raise LimitError(f"it expands to more than {limit:,} bytes")

    def _use_memory(self, count: int) -> None:
        self._memory += count
        if self._memory > MOST_MEMORY:
            raise LimitError("it has too many members")
