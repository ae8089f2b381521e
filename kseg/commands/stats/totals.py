"""The counts of segments, which add up to partitions, log directories and a total.

Memory is bounded: of many producers the largest are kept, of many leader epochs the newest, and the dropped ones are
counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nlargest
from operator import itemgetter
from typing import Any

from kseg.format.storage.naming import is_snapshot

#: Producers and leader epochs that are kept per file, partition or log directory; up to twice as many temporarily.
MAX_PRODUCERS = 10_000
MAX_LEADER_EPOCHS = 1_000
#: Delays of retention that are kept across partitions: those of most bytes.
MAX_DELAYS = 10

#: The sums per magic and codec.
GROUP_SUMS = ("batches", "bytes", "records", "stored", "inflated", "unopened")
#: The plain sums in ``Counts``, which have the same names in ``Stats``.
SCALAR_SUMS = (
    "damaged", "damaged_bytes", "transactional", "control", "timeless",
    "null_keys", "null_values", "tombstones", "key_bytes", "value_bytes", "headers",
)  # fmt: skip


@dataclass(slots=True)
class CountedOffsets:
    """The smallest and the largest of some numbers; both None without numbers."""

    smallest: int | None = None
    largest: int | None = None

    def add(self, other: CountedOffsets) -> None:
        """Extend the range by another."""
        self.smallest = min((one for one in (self.smallest, other.smallest) if one is not None), default=None)
        self.largest = max((one for one in (self.largest, other.largest) if one is not None), default=None)


@dataclass(frozen=True, slots=True)
class RetentionPin:
    """The first batch with the largest timestamp (epoch milliseconds), which time retention uses."""

    timestamp: int
    file: str
    position: int
    last_offset: int
    producer_id: int


@dataclass(slots=True)
class RetentionDelay:
    """A batch that keeps later segments of its partition, whose timestamps are smaller, from being deleted by time.

    A broker deletes segments from the oldest on, and stops at the first one that is too recent (``UnifiedLog``).
    ``segments`` and ``bytes`` are those of the later segments, ``longest`` the longest delay in milliseconds.
    """

    pin: RetentionPin
    segments: int = 0
    bytes: int = 0
    longest: int = 0


@dataclass(slots=True)
class LargestSums:
    """[batches, bytes, records] by producer id, hour or key; of too many, the largest by bytes.

    ``dropped`` are the sums of the others. A dropped one can return, so counts are lower bounds then.
    """

    by_id: dict[Any, list[int]] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=lambda: [0, 0, 0])

    @property
    def exact(self) -> bool:
        return not any(self.dropped)

    def add(self, other: LargestSums) -> None:
        """Count another's in."""
        for key, sums in other.by_id.items():
            self.add_one(key, *sums)
        self.dropped = [mine + others for mine, others in zip(self.dropped, other.dropped, strict=True)]
        self.bound()

    def add_one(self, key: Any, batches: int, size: int, records: int) -> None:
        """Add sums of one producer, hour or key."""
        known = self.by_id.get(key)
        if known is None:
            self.by_id[key] = [batches, size, records]
        else:
            known[0] += batches
            known[1] += size
            known[2] += records

    def bound(self) -> None:
        """Keep the largest if there are more than twice as many as allowed."""
        if len(self.by_id) <= 2 * MAX_PRODUCERS:
            return
        ordered = self.largest()
        small = (sums for _, sums in ordered[MAX_PRODUCERS:])
        self.dropped = [sum(column) for column in zip(self.dropped, *small, strict=True)]
        # Cleared and filled, not replaced: the loops have a reference to this table.
        self.by_id.clear()
        self.by_id.update(ordered[:MAX_PRODUCERS])

    def largest(self) -> list[tuple[Any, list[int]]]:
        """Return them by bytes, the largest first."""
        # Two sorts by numbers take half the time of one by pairs of numbers.
        found = sorted((item for item in self.by_id.items() if item[0] is not None), key=itemgetter(0))
        if None in self.by_id:  # records without a key
            found.append((None, self.by_id[None]))
        return sorted(found, key=lambda item: -item[1][1])


#: The fields of Stats that are added one by one.
_COUNTERS = ("sums", "odd_timestamps", "control_types", "contents", "sample", "sizes")
_ADDED = ("batch_size", "records_per_batch", "timestamps", "producers", "hours")


@dataclass(slots=True)
class Stats:
    """Counts over one segment or many. ``parts`` are partitions, ``unread`` files that could not be read.

    ``sums`` has the names of SCALAR_SUMS, ``segments``, ``legacy_segments``, ``file_bytes``, ``lost_bytes`` and
    ``held_segments`` (those of ``delays``); ``groups`` those of GROUP_SUMS by (magic, codec's name). Offsets and
    ``leader_epochs``, [batches, first offset, last offset] by epoch, are valid within one partition only: they are None
    and empty across several. ``contents`` are the bytes of keys and values by magic, ``sample`` those of a sample before
    and after compression by codec. ``frames`` are the requests and responses by kind and API: [frames, bytes]; the name
    of an unknown API is empty. ``hours`` are those of the largest timestamps of batches, since 1970. ``keys`` have
    [0, estimated bytes on disk, records], None if they are not counted. ``sizes`` are records by ``counting.size_bucket``.
    """

    deep: bool
    partitions: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    groups: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    batch_size: CountedOffsets = field(default_factory=CountedOffsets)
    records_per_batch: CountedOffsets = field(default_factory=CountedOffsets)
    offsets: CountedOffsets = field(default_factory=CountedOffsets)
    timestamps: CountedOffsets = field(default_factory=CountedOffsets)
    pin: RetentionPin | None = None
    delays: list[RetentionDelay] = field(default_factory=list)
    odd_timestamps: Counter[str] = field(default_factory=Counter)
    control_types: Counter[str] = field(default_factory=Counter)
    producers: LargestSums = field(default_factory=LargestSums)
    hours: LargestSums = field(default_factory=LargestSums)
    keys: LargestSums | None = None
    sizes: Counter[int] = field(default_factory=Counter)
    largest_record: int = -1
    leader_epochs: dict[int, list[int]] = field(default_factory=dict)
    leader_epochs_dropped: int = 0
    contents: Counter[int] = field(default_factory=Counter)
    sample: Counter[str] = field(default_factory=Counter)
    frames: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def total(self, name: str) -> int:
        """Return the sum over all groups."""
        return sum(group[name] for group in self.groups.values())

    def add_frames(self, kind: str, api: str, count: int, size: int) -> None:
        """Count frames of one kind and API. ``size`` is in bytes, with the size fields."""
        sums = self.frames.setdefault((kind, api), [0, 0])
        sums[0] += count
        sums[1] += size

    def add(self, other: Stats, *, same_partition: bool) -> None:
        """Count another's files in."""
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for name in _ADDED:
            getattr(self, name).add(getattr(other, name))
        for key, group in other.groups.items():
            self.groups.setdefault(key, Counter()).update(group)
        if same_partition:
            self._add_delay(other)
        else:
            self.delays = nlargest(MAX_DELAYS, (*self.delays, *other.delays), key=lambda delay: delay.bytes)
        if other.pin and (self.pin is None or other.pin.timestamp > self.pin.timestamp):
            self.pin = other.pin
        self.largest_record = max(self.largest_record, other.largest_record)
        if other.keys is not None:
            self.keys = self.keys or LargestSums()
            self.keys.add(other.keys)
        for (kind, api), (count, size) in other.frames.items():
            self.add_frames(kind, api, count, size)
        if not same_partition:
            self.partitions += other.partitions
        if same_partition or self.partitions == 1:
            self._add_offsets(other)
        else:
            self.offsets, self.leader_epochs, self.leader_epochs_dropped = CountedOffsets(), {}, 0

    def _add_delay(self, segment: Stats) -> None:
        """Record the delay if the next segment of the partition is older than the largest timestamp before it."""
        pin, own = self.pin, segment.pin
        if pin is None or own is None or own.timestamp >= pin.timestamp or is_snapshot(own.file):
            return
        if not self.delays or self.delays[-1].pin is not pin:
            self.delays.append(RetentionDelay(pin))
        delay = self.delays[-1]
        delay.segments += 1
        delay.bytes += segment.sums["file_bytes"]
        delay.longest = max(delay.longest, pin.timestamp - own.timestamp)
        self.sums["held_segments"] += 1

    def _add_offsets(self, other: Stats) -> None:
        if self.offsets.largest is None:
            # If the first batch is a compressed wrapper, the first offset is unknown.
            self.offsets = CountedOffsets(other.offsets.smallest, other.offsets.largest)
        elif other.offsets.largest is not None:
            self.offsets.largest = max(self.offsets.largest, other.offsets.largest)
        for epoch, (batches, first, last) in other.leader_epochs.items():
            span = self.leader_epochs.setdefault(epoch, [0, first, last])
            span[0] += batches
            span[1] = first if span[1] < 0 else span[1]
            span[2] = max(span[2], last)
        self.leader_epochs_dropped += other.leader_epochs_dropped + bound_epochs(self.leader_epochs)


def bound_epochs(epochs: dict[int, list[int]]) -> int:
    """Drop the oldest if there are more than twice as many as allowed; return how many."""
    if len(epochs) <= 2 * MAX_LEADER_EPOCHS:
        return 0
    oldest = sorted(epochs)[:-MAX_LEADER_EPOCHS]
    for epoch in oldest:
        del epochs[epoch]
    return len(oldest)
