"""Runs: batches of one file that an image has one after the other, or in pieces that a CRC joins."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

from kseg.format.record.columns import BatchColumns
from kseg.format.record.framing import increment_sequence
from kseg.format.record.layout import CODEC_MASK, CONTROL, NO_TIMESTAMP, first_timestamp
from kseg.format.record.offset_evidence import is_wrapper


@dataclass(slots=True)
class Lane:
    """The sequences of one producer id and epoch in a run.

    The first and the last batch: ``first_sequence`` and ``first_offset``, the sequence and the offset that follow, and
    their marks (see ``CarvedRun``).
    """

    first_sequence: int
    first_offset: int
    first_mark: int
    next_sequence: int
    next_offset: int
    last_mark: int

    @property
    def keys(self) -> tuple[int, int]:
        """How far sequences are from offsets at both ends: 0 for a producer that wrote the whole partition."""
        mask = 0x7FFFFFFF
        return (self.first_sequence - self.first_offset) & mask, (self.next_sequence - self.next_offset) & mask


@dataclass(frozen=True, slots=True)
class Piece:
    """``size`` bytes from byte ``position`` of an image, which has the number ``image``."""

    image: int
    position: int
    size: int

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.position + self.size


@dataclass(slots=True, eq=False)
class CarvedRun:
    """Batches of one file in ``pieces`` of images, with ascending offsets, each with a valid CRC.

    Per batch: ``lasts`` has the last offset, ``starts`` the first byte in the run, and ``marks`` a hash of base offset, CRC
    and size, by which copies are found. ``joined`` counts batches that were torn. ``unsequenced`` counts batches without a
    producer's sequence, control batches, too. ``codecs`` and ``magics`` have a bit per codec and version. ``is_bare`` is
    whether the last batch is an uncompressed v0 or v1 message, and ``begins_with_set`` whether the first one is a compressed
    set, whose header has only its last offset.
    """

    pieces: list[Piece]
    first: int
    lasts: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    marks: array[int] = field(default_factory=lambda: array("q"))
    gaps: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0
    records: int = 0
    joined: int = 0
    unsequenced: int = 0
    codecs: int = 0
    magics: int = 0
    is_bare: bool = False
    begins_with_set: bool = False
    first_epoch: int = -1
    last_epoch: int = -1
    first_time: int = -1
    last_time: int = -1
    lanes: dict[tuple[int, int], Lane] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last offset."""
        return self.lasts[-1]

    @property
    def position(self) -> int:
        """The first byte in its image."""
        return self.pieces[0].position

    @property
    def image(self) -> int:
        """The number of the image."""
        return self.pieces[0].image

    @property
    def end(self) -> int:
        """The byte in its image after the last one."""
        return self.pieces[-1].end

    def append(self, batches: BatchColumns, row: int) -> None:
        """Append the batch of a row; the caller extends ``pieces``."""
        base, last, size = batches.base_offset[row], batches.last_offset[row], batches.size[row]
        mark = hash((base, batches.crc[row], size))
        # The header of a v0 or v1 message set has only its last offset.
        is_set = is_wrapper(batches, row)
        if self.lasts and base > self.last + 1 and not is_set:
            self.gaps.append((len(self.lasts), base - self.last - 1))
        self.lasts.append(last)
        self.starts.append(self.size)
        self.marks.append(mark)
        self.size += size
        self.is_bare = batches.magic[row] < 2 and not is_set
        self.codecs |= 1 << (batches.attributes[row] & CODEC_MASK)
        self.magics |= 1 << batches.magic[row]
        self.records += batches.record_count[row]
        if len(self.lasts) == 1:
            self.begins_with_set = is_set
            self.first_epoch = batches.partition_leader_epoch[row]
            first = first_timestamp(batches.attributes[row], batches.base_timestamp[row])
            self.first_time = NO_TIMESTAMP if first is None else first
        self.last_epoch = max(self.last_epoch, batches.partition_leader_epoch[row])
        self.last_time = max(self.last_time, batches.max_timestamp[row])
        sequence = batches.base_sequence[row]
        if sequence < 0 or batches.attributes[row] & CONTROL:
            self.unsequenced += 1
            return
        after = increment_sequence(sequence, last - base + 1)
        lane = self.lanes.get(key := (batches.producer_id[row], batches.producer_epoch[row]))
        if lane is None:
            self.lanes[key] = Lane(sequence, base, mark, after, last + 1, mark)
        else:
            lane.next_sequence, lane.next_offset, lane.last_mark = after, last + 1, mark

    def extend(self, other: CarvedRun) -> None:
        """Append the batches of another run."""
        self.pieces += other.pieces
        is_gap = other.first > self.last + 1 and not other.begins_with_set
        between = [(0, other.first - self.last - 1)] if is_gap else []
        self.gaps += [(len(self.lasts) + at, size) for at, size in (*between, *other.gaps)]
        self.lasts += other.lasts
        self.starts.extend(start + self.size for start in other.starts)
        self.marks += other.marks
        self.size += other.size
        self.records += other.records
        self.joined += other.joined
        self.unsequenced += other.unsequenced
        self.is_bare = other.is_bare
        self.codecs |= other.codecs
        self.magics |= other.magics
        self.last_epoch = max(self.last_epoch, other.last_epoch)
        self.last_time = max(self.last_time, other.last_time)
        for key, lane in other.lanes.items():
            if (mine := self.lanes.get(key)) is None:
                self.lanes[key] = lane
            else:
                mine.next_sequence, mine.next_offset = lane.next_sequence, lane.next_offset
                mine.last_mark = lane.last_mark

    def same_from(self, other: CarvedRun) -> int:
        """Return the number of batches that two runs with overlapping offsets share, 0 if they differ anywhere there."""
        low, high = max(self.first, other.first), min(self.last, other.last)
        mine, others = (
            run.marks[bisect_left(run.lasts, low) : bisect_left(run.lasts, high) + 1] for run in (self, other)
        )
        return len(mine) if mine == others else 0

    def holds(self, other: CarvedRun) -> bool:
        """Return whether all batches of another run are in this one."""
        return self.first <= other.first and other.last <= self.last and self.same_from(other) == len(other.marks)
