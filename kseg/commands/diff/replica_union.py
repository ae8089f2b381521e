"""The union of two replicas: which offsets neither of them can read, and where one has what damage took from the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kseg.commands.diff.replica import Replica
from kseg.format.storage.naming import base_offset_of

# The number of ranges that are kept of each kind. All of them are counted.
_MAX_RANGES = 1000
# Ends of a range that no readable batch and no file name bounds.
_UNKNOWN_START, _UNKNOWN_END = -1, 2**63 - 1


class OffsetRange(NamedTuple):
    """Offsets ``first`` to ``last`` (inclusive), None where the end is not known."""

    first: int | None
    last: int | None


class ReadableRange(NamedTuple):
    """Offsets ``first_offset`` to ``last_offset`` (inclusive) with ``records`` records.

    The first of them is in the batch at byte ``position`` of ``file``.
    """

    first_offset: int
    last_offset: int
    records: int
    file: str
    position: int


@dataclass(slots=True)
class ReplicaUnion:
    """What two replicas have together.

    ``unread`` has the ranges that neither can read and where at least one is damaged. ``only_in`` has by replica, ``a`` or
    ``b``, the ranges that it can read and damage took from the other one. Both are the first ranges; ``unread_count`` and
    ``only_in_count`` are the numbers of all of them.
    """

    unread: list[OffsetRange] = field(default_factory=list)
    unread_count: int = 0
    only_in: dict[str, list[ReadableRange]] = field(default_factory=lambda: {"a": [], "b": []})
    only_in_count: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})

    def update(self, a: Replica, b: Replica) -> bool:
        """Add the offsets before the current batches that neither replica can read; return False if there are none."""
        found = _unread_in_both(a, b) if a.torn or b.torn else None
        if found is None:
            return False
        self.unread_count += 1
        if len(self.unread) < _MAX_RANGES:
            self.unread.append(found)
        return True

    def add_readable(self, name: str, found: ReadableRange) -> None:
        """Add offsets that only replica ``name`` can read, because the other one is damaged there."""
        self.only_in_count[name] += 1
        if len(self.only_in[name]) < _MAX_RANGES:
            self.only_in[name].append(found)


def _unread_in_both(a: Replica, b: Replica) -> OffsetRange | None:
    gap_a, gap_b = _gap_before(a), _gap_before(b)
    # Before its first file a replica has lost nothing.
    start = min(_damaged_from(replica) for replica in (a, b) if replica.torn)
    first, last = max(gap_a[0], gap_b[0], start), min(gap_a[1], gap_b[1])
    if not (a.torn and b.torn):
        damaged, valid = (a, b) if a.torn else (b, a)
        # A valid replica without any record in the whole gap does not have what was there. Compaction can be the reason for
        # smaller holes. Offsets before its start and after its end are in neither replica, either.
        if (first, last) != (start, _gap_before(damaged)[1]):
            if valid.unread_from is None:
                begin = base_offset_of(valid.files[0].path)
                last = min(last, (valid.low if begin is None and not valid.finished else begin or 0) - 1)
                if first == _UNKNOWN_START:
                    return None
            elif damaged.finished or not valid.finished:
                return None
    if last < max(first, 0):
        return None
    return OffsetRange(None if first == _UNKNOWN_START else first, None if last == _UNKNOWN_END else last)


def _gap_before(replica: Replica) -> tuple[int, int]:
    """Return the offsets after the last record that was read and before the current batch, or without end at the end."""
    first = _UNKNOWN_START if replica.unread_from is None else replica.unread_from
    return first, _UNKNOWN_END if replica.finished else replica.low - 1


def _damaged_from(replica: Replica) -> int:
    """Return the first offset that the damage before the current batch can have taken."""
    if replica.unread_from is not None:
        return replica.unread_from
    begin = base_offset_of(replica.files[0].path)
    return _UNKNOWN_START if begin is None else begin
