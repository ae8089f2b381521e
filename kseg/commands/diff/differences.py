"""The differences between two replicas, the verdict over all of them, and the offsets that both lack.

The union of two replicas: which offsets neither of them can read, and where one has what damage took from the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
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
        # A valid replica without any record in the whole gap does not have the records. Compaction can be the reason for
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


#: Kinds of difference and their meanings.
KINDS: Mapping[str, str] = {
    "leader-epoch": "the same batches with different leader epochs",
    "batching": "the same records in different batches",
    "starts-later": "only the other replica has these first offsets (retention)",
    "ends-earlier": "only the other replica has these last offsets (follower lag)",
    "missing": "only the other replica has these offsets (compaction, or loss)",
    "unopened": "different batches, whose records were not compared",
    "damaged": "this replica is damaged here, only the other one has these offsets",
    "content": "both replicas have these offsets, with different records",
}
#: Kind -> the unit of its count.
COUNTED: Mapping[str, str] = {
    **dict.fromkeys(KINDS, "record"),
    "leader-epoch": "batch",
    "batching": "batch",
    "unopened": "place",
}
#: Kinds that leave the content the same.
SAME_CONTENT = frozenset({"leader-epoch", "batching"})

# From best to worst: the verdict is the first row whose kinds include every kind that was found.
_VERDICTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("identical", frozenset()),
    ("same", SAME_CONTENT),
    ("consistent", SAME_CONTENT | {"starts-later", "ends-earlier", "missing"}),
    ("undetermined", frozenset(KINDS) - {"damaged", "content"}),
    ("damaged", frozenset(KINDS) - {"content"}),
    ("diverged", frozenset(KINDS)),
)
VERDICTS = (*(name for name, _ in _VERDICTS), "disjoint")


@dataclass(frozen=True, slots=True)
class DifferencePlace:
    """The place of a batch in a replica. ``leader_epoch`` is None for v0 and v1, which have none."""

    file: str
    position: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets ``first_offset`` to ``last_offset`` (inclusive) that differ in one way.

    ``lacking`` is the replica, ``a`` or ``b``, that lacks these offsets; None if both have them. ``a`` and ``b`` are the
    places of the first difference. ``count`` is the number of records (an unopened compressed message set counts as
    one), of batches in replica a for leader-epoch and batching, or of places for unopened. ``detail`` describes the first.
    """

    kind: str
    first_offset: int
    last_offset: int
    lacking: str | None
    count: int
    a: DifferencePlace | None
    b: DifferencePlace | None
    detail: str = ""


@dataclass(slots=True)
class Comparison:
    """The outcome of a comparison: the number of differences and of records or batches by kind.

    ``lacking`` counts the records that a replica lacks, by kind and replica (``a`` or ``b``). ``last_common_offset`` is the
    last offset with equal records before ``first_difference``, the first offset with different records; without such a
    difference it is the last offset with equal records of the whole log. ``union``: the offsets of all replicas.
    """

    stretches: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lacking: Counter[tuple[str, str]] = field(default_factory=Counter)
    last_common_offset: int | None = None
    first_difference: Difference | None = None
    damage: int = 0
    union: ReplicaUnion = field(default_factory=ReplicaUnion)

    @property
    def leader_epochs(self) -> dict[str, int | None]:
        """The leader epochs at ``first_difference``, by replica; None if there is none."""
        first = self.first_difference
        places = {"a": first.a, "b": first.b} if first else {"a": None, "b": None}
        return {name: place.leader_epoch if place else None for name, place in places.items()}

    @property
    def stale(self) -> str | None:
        """The replica, ``a`` or ``b``, with the older leader epoch at ``first_difference``: a former leader wrote it."""
        a, b = self.leader_epochs.values()
        return None if a is None or b is None or a == b else "a" if a < b else "b"

    @property
    def whole(self) -> bool | None:
        """Whether one of the replicas can read each offset that the other one has lost; None if headers do not show it."""
        if self.union.unread_count:
            return False
        return None if "unopened" in self.counts else True

    @property
    def verdict(self) -> str:
        """One of ``identical``, ``same`` (content), ``consistent`` (equal wherever both have records), ``disjoint`` (no
        common offset), ``undetermined`` (headers alone do not decide), ``damaged``, ``diverged``."""
        kinds = set(self.counts) | ({"damaged"} if self.damage else set())
        if kinds == {"starts-later", "ends-earlier"} and self.last_common_offset is None:
            return "disjoint"
        return next(name for name, enough in _VERDICTS if kinds <= enough)

    def accepted(self, kinds: Set[str]) -> bool:
        """Return whether only differences of these kinds were found, both replicas are readable, and they overlap."""
        return set(self.counts) <= kinds and not self.damage and self.verdict != "disjoint"
