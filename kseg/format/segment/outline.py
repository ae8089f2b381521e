"""The outline of a segment for a plot: codecs, batch sizes, timestamps and offsets by byte, and its largest producers.

Plain Python over columns, which is compiled with the types of the ``.pxd`` file. Memory and the size of an outline are
constant: a segment has at most ``BUCKETS`` buckets, whose width doubles while the segment grows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kseg.format.record.columns import CRC_BAD, BatchColumns
from kseg.format.record.layout import CODEC_MASK

# C globals when compiled (see the .pxd).
CODECS = CODEC_MASK + 1
BUCKETS = 96
FAR = 1 << 62
SIZES = 32

#: The width of the first buckets in bytes.
_FIRST_WIDTH = 16
#: The most producers that are counted at once, and that an outline names.
_MOST_PRODUCERS = 4096
_NAMED_PRODUCERS = 20


@dataclass(frozen=True, slots=True)
class Outline:
    """Columns by bucket of ``width`` bytes. Batches with a wrong CRC are left out.

    ``codecs`` is the codec with the most bytes (``codec_bytes``) in the bucket, -1 without a batch. ``largest`` is the
    size of its largest batch, ``records`` the most records of a batch, ``times`` the largest timestamp (epoch
    milliseconds, -1 without one). ``first`` and ``last`` are its smallest and largest offset; without a batch ``last``
    is -1. A batch counts in each bucket that it touches.

    ``sizes`` counts batches by the binary logarithm of their size in bytes. ``bytes_by_codec`` are the bytes of the
    segment by codec. ``producers`` has (id, bytes) of the largest producers.
    """

    width: int
    codecs: Any
    codec_bytes: Any
    largest: Any
    records: Any
    times: Any
    first: Any
    last: Any
    sizes: Any
    bytes_by_codec: Any
    producers: tuple[tuple[int, int], ...]


class OutlineCounter:
    """Counts the batches of one segment, window by window."""

    def __init__(self) -> None:
        self.width = _FIRST_WIDTH
        self.codec_bytes = array("q", bytes(8 * BUCKETS * CODECS))
        self.largest = array("q", bytes(8 * BUCKETS))
        self.records = array("q", bytes(8 * BUCKETS))
        self.times = array("q", [-1] * BUCKETS)
        self.first = array("q", [FAR] * BUCKETS)
        self.last = array("q", [-1] * BUCKETS)
        self.sizes = array("q", bytes(8 * SIZES))
        self.bytes_by_codec = array("q", bytes(8 * CODECS))
        self.producers: dict[int, int] = {}

    def update(self, batches: BatchColumns, claimed: set[int]) -> None:
        """Add the batches of the next window. The offsets of those at the positions ``claimed`` are left out."""
        producer = -1  # consecutive batches of one producer are added together
        produced = 0
        for row in range(batches.count):
            if batches.crc_state[row] == CRC_BAD:
                continue
            size = batches.size[row]
            end = batches.position[row] + size - 1
            while end // self.width >= BUCKETS:
                self._fold()
            self.bytes_by_codec[batches.attributes[row] & CODEC_MASK] += size
            self._count_size(size)
            for bucket in range(batches.position[row] // self.width, end // self.width + 1):
                self._count(batches, row, bucket)
                if not claimed or batches.position[row] not in claimed:
                    self._count_offsets(batches, row, bucket)
            if batches.magic[row] < 2 or batches.producer_id[row] < 0:
                continue
            if batches.producer_id[row] != producer:
                self._add_producer(producer, produced)
                producer = batches.producer_id[row]
                produced = 0
            produced += size
        self._add_producer(producer, produced)

    def _count_size(self, size: int) -> None:
        power = 0
        while size > 1 and power < SIZES - 1:
            size >>= 1
            power += 1
        self.sizes[power] += 1

    def _count(self, batches: BatchColumns, row: int, bucket: int) -> None:
        size = batches.size[row]
        begin = max(batches.position[row], bucket * self.width)
        end = min(batches.position[row] + size, (bucket + 1) * self.width)
        self.codec_bytes[bucket * CODECS + (batches.attributes[row] & CODEC_MASK)] += end - begin
        records = batches.record_count[row] if batches.magic[row] >= 2 else batches.record_sum[row]
        if size > self.largest[bucket]:
            self.largest[bucket] = size
        if records > self.records[bucket]:
            self.records[bucket] = records
        if batches.max_timestamp[row] > self.times[bucket]:
            self.times[bucket] = batches.max_timestamp[row]

    def _count_offsets(self, batches: BatchColumns, row: int, bucket: int) -> None:
        if batches.base_offset[row] < self.first[bucket]:
            self.first[bucket] = batches.base_offset[row]
        if batches.last_offset[row] > self.last[bucket]:
            self.last[bucket] = batches.last_offset[row]

    def _fold(self) -> None:
        """Double the width: two buckets become one."""
        for bucket in range(BUCKETS):
            left = 2 * bucket
            inside = left < BUCKETS
            for codec in range(CODECS):
                self.codec_bytes[bucket * CODECS + codec] = (
                    self.codec_bytes[left * CODECS + codec] + self.codec_bytes[(left + 1) * CODECS + codec]
                    if inside
                    else 0
                )
            self.largest[bucket] = max(self.largest[left], self.largest[left + 1]) if inside else 0
            self.records[bucket] = max(self.records[left], self.records[left + 1]) if inside else 0
            self.times[bucket] = max(self.times[left], self.times[left + 1]) if inside else -1
            self.first[bucket] = min(self.first[left], self.first[left + 1]) if inside else FAR
            self.last[bucket] = max(self.last[left], self.last[left + 1]) if inside else -1
        self.width *= 2

    def _add_producer(self, producer: int, size: int) -> None:
        if producer < 0:
            return
        self.producers[producer] = self.producers.get(producer, 0) + size
        if len(self.producers) > _MOST_PRODUCERS:
            self.producers = dict(_largest(self.producers, _MOST_PRODUCERS // 2))

    def outline(self) -> Outline:
        """Return the outline of the batches so far."""
        used = max((bucket + 1 for bucket in range(BUCKETS) if self.largest[bucket]), default=0)
        codecs, codec_bytes = array("q"), array("q")
        for bucket in range(used):
            of_bucket = list(self.codec_bytes[bucket * CODECS : (bucket + 1) * CODECS])
            most = max(of_bucket)
            codecs.append(of_bucket.index(most) if most else -1)
            codec_bytes.append(most)
        return Outline(
            self.width, codecs, codec_bytes, array("q", self.largest[:used]), array("q", self.records[:used]),
            array("q", self.times[:used]), array("q", self.first[:used]), array("q", self.last[:used]),
            array("q", self.sizes), array("q", self.bytes_by_codec), tuple(_largest(self.producers, _NAMED_PRODUCERS)),
        )  # fmt: skip


def _largest(producers: dict[int, int], most: int) -> list[tuple[int, int]]:
    return sorted(producers.items(), key=lambda item: (-item[1], item[0]))[:most]


def joined(parts: Sequence[Outline]) -> Outline:
    """Return the outline of a segment from those of its ranges."""
    width = max(part.width for part in parts)
    count = max(len(part.codecs) * part.width // width + 1 for part in parts)  # the last bucket can be empty
    codecs, codec_bytes, times, last = [-1] * count, [0] * count, [-1] * count, [-1] * count
    largest, records, first = [0] * count, [0] * count, [FAR] * count
    producers: dict[int, int] = {}
    for part in parts:
        for at, codec in enumerate(part.codecs):
            bucket = at * part.width // width
            if codec == codecs[bucket]:
                codec_bytes[bucket] += part.codec_bytes[at]
            elif part.codec_bytes[at] > codec_bytes[bucket]:
                codecs[bucket], codec_bytes[bucket] = codec, part.codec_bytes[at]
            largest[bucket] = max(largest[bucket], part.largest[at])
            records[bucket] = max(records[bucket], part.records[at])
            times[bucket] = max(times[bucket], part.times[at])
            first[bucket] = min(first[bucket], part.first[at])
            last[bucket] = max(last[bucket], part.last[at])
        for producer, size in part.producers:
            producers[producer] = producers.get(producer, 0) + size
    used = len(codecs) if not codecs or largest[-1] else len(codecs) - 1
    return Outline(
        width, array("q", codecs[:used]), array("q", codec_bytes[:used]), array("q", largest[:used]),
        array("q", records[:used]), array("q", times[:used]), array("q", first[:used]), array("q", last[:used]),
        array("q", map(sum, zip(*(part.sizes for part in parts), strict=True))),
        array("q", map(sum, zip(*(part.bytes_by_codec for part in parts), strict=True))),
        tuple(_largest(producers, _NAMED_PRODUCERS)),
    )  # fmt: skip
