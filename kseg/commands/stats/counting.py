"""The hot loops of ``kseg stats``: sums over the batches of a segment and over their records.

Plain Python over columns, which is compiled with the types of the ``.pxd`` file.
"""

from __future__ import annotations

from array import array

from kseg.format.checks.batch_checks import MICROSECONDS, SECONDS, unit_of
from kseg.format.record import layout
from kseg.format.record.columns import CRC_BAD, BatchColumns, RecordColumns

# C globals when compiled (see the .pxd).
BAD = CRC_BAD
CODEC_MASK = layout.CODEC_MASK
TRANSACTIONAL = layout.TRANSACTIONAL
CONTROL = layout.CONTROL
NO_TIMESTAMP = layout.NO_TIMESTAMP
SECONDS_END = SECONDS[1]
MICROSECONDS_BEGIN = MICROSECONDS
V0_OVERHEAD = layout.LOG_OVERHEAD + layout.V0_MIN_SIZE
V1_OVERHEAD = layout.LOG_OVERHEAD + layout.V1_MIN_SIZE
V2_OVERHEAD = layout.RECORD_BATCH_OVERHEAD

#: Batches are counted by magic and codec, in group ``magic * CODECS + codec``.
CODECS = CODEC_MASK + 1
GROUPS = 3 * CODECS
FAR = 1 << 62
HOUR = 3_600_000
#: The buckets of sizes of records: one for each size below EXACT, then EXACT // 2 for each power of two.
EXACT = 16
SIZES = 256
# The same numbers as C globals.
HOUR_MS = HOUR
EXACT_SIZES = EXACT


class Counts:
    """The sums of one segment.

    ``batches``, ``bytes``, ``records``, ``stored``, ``inflated`` and ``unopened`` (batches whose records were not counted)
    are by group. Smallest values begin at FAR, largest at -1, ``first_offset`` is -1 until it is known.
    ``pin_*`` is the first batch with the largest timestamp. ``producers`` has [batches, bytes, records] by id,
    ``leader_epochs`` [batches, first offset, last offset] by epoch (-1 until known), ``odd_timestamps`` batches by unit.
    ``hours`` has [batches, bytes, records] by hour since 1970 of the largest timestamp, ``sizes`` records by their
    ``size_bucket``.
    """

    def __init__(self) -> None:
        self.batches = array("q", bytes(8 * GROUPS))
        self.bytes = array("q", bytes(8 * GROUPS))
        self.records = array("q", bytes(8 * GROUPS))
        self.stored = array("q", bytes(8 * GROUPS))
        self.inflated = array("q", bytes(8 * GROUPS))
        self.unopened = array("q", bytes(8 * GROUPS))
        self.sizes = array("q", bytes(8 * SIZES))
        self.begun = False
        self.damaged = 0
        self.damaged_bytes = 0
        self.transactional = 0
        self.control = 0
        self.timeless = 0
        self.smallest_batch = FAR
        self.largest_batch = -1
        self.fewest_records = FAR
        self.most_records = -1
        self.first_offset = -1
        self.last_offset = -1
        self.smallest_timestamp = FAR
        self.largest_timestamp = -1
        self.pin_position = -1
        self.pin_offset = -1
        self.pin_producer = -1
        self.null_keys = 0
        self.null_values = 0
        self.tombstones = 0
        self.key_bytes = 0
        self.value_bytes = 0
        self.headers = 0
        self.largest_record = -1
        self.producers: dict[int, list[int]] = {}
        self.leader_epochs: dict[int, list[int]] = {}
        self.odd_timestamps: dict[str, int] = {}
        self.hours: dict[int, list[int]] = {}


def group_of(batches: BatchColumns, row: int) -> int:
    """Return the group of a batch."""
    magic = batches.magic[row]
    return (magic if magic < 2 else 2) * CODECS + (batches.attributes[row] & CODEC_MASK)


def stored_payload(batches: BatchColumns, row: int) -> int:
    """Return the bytes of a batch without its header: the records of v2, the key and value of a message."""
    magic = batches.magic[row]
    overhead = V2_OVERHEAD if magic >= 2 else V1_OVERHEAD if magic == 1 else V0_OVERHEAD
    return batches.size[row] - overhead


def records_in(batches: BatchColumns, row: int, deep: bool) -> int:
    """Return the number of records in a batch, -1 if it is not known: it needs a decompression, or that failed."""
    if batches.magic[row] >= 2:
        total = batches.record_count[row] if batches.record_count[row] > 0 else 0
        return -1 if deep and batches.record_sum[row] != total else total
    if deep:
        return batches.record_sum[row] if batches.record_sum[row] or batches.intact[row] else -1
    return -1 if batches.attributes[row] & CODEC_MASK else 1


def count_batches(batches: BatchColumns, first: int, stop: int, deep: bool, claimed: set[int], counts: Counts) -> None:
    """Add the batches ``first`` to ``stop`` from their headers; with ``deep`` their records have been opened.

    A batch with a wrong CRC is only counted as damaged: its fields are not used. The offsets of the batches at the
    positions ``claimed`` are not used.
    """
    producer = -1  # consecutive batches of one producer are added together
    producer_batches = producer_bytes = producer_records = 0
    hour = -1  # and so are those of an hour
    hour_batches = hour_bytes = hour_records = 0
    for row in range(first, stop):
        size = batches.size[row]
        if batches.crc_state[row] == BAD:
            counts.damaged += 1
            counts.damaged_bytes += size
            continue
        group = group_of(batches, row)
        counts.batches[group] += 1
        counts.bytes[group] += size
        if size < counts.smallest_batch:
            counts.smallest_batch = size
        if size > counts.largest_batch:
            counts.largest_batch = size
        total = records_in(batches, row, deep)
        if total < 0:
            counts.unopened[group] += 1
        else:
            counts.records[group] += total
            if total < counts.fewest_records:
                counts.fewest_records = total
            if total > counts.most_records:
                counts.most_records = total
        if deep and not batches.attributes[row] & CODEC_MASK:
            counts.stored[group] += stored_payload(batches, row)
            counts.inflated[group] += stored_payload(batches, row)
        proved = not claimed or batches.position[row] not in claimed
        if proved:
            count_offsets(batches, row, total, counts)
        count_timestamp(batches, row, proved, counts)
        hour_of = batches.max_timestamp[row] // HOUR_MS if batches.max_timestamp[row] >= 0 else -1
        if hour_of != hour:
            add_to(counts.hours, hour, hour_batches, hour_bytes, hour_records)
            hour = hour_of
            hour_batches = hour_bytes = hour_records = 0
        hour_batches += 1
        hour_bytes += size
        hour_records += total if total > 0 else 0
        if batches.magic[row] < 2:
            continue
        if batches.attributes[row] & CONTROL:
            counts.control += 1
        elif batches.attributes[row] & TRANSACTIONAL:
            counts.transactional += 1
        if batches.partition_leader_epoch[row] >= 0:
            count_leader_epoch(batches, row, proved, counts)
        if batches.producer_id[row] < 0:
            continue
        if batches.producer_id[row] != producer:
            add_to(counts.producers, producer, producer_batches, producer_bytes, producer_records)
            producer = batches.producer_id[row]
            producer_batches = producer_bytes = producer_records = 0
        producer_batches += 1
        producer_bytes += size
        producer_records += total if total >= 0 else batches.record_count[row]
    add_to(counts.producers, producer, producer_batches, producer_bytes, producer_records)
    add_to(counts.hours, hour, hour_batches, hour_bytes, hour_records)


def add_to(producers: dict[int, list[int]], producer: int, batches: int, size: int, records: int) -> None:
    """Add consecutive batches of a producer or an hour; -1 means none."""
    if producer < 0:
        return
    known = producers.get(producer)
    if known is None:
        producers[producer] = [batches, size, records]
    else:
        known[0] += batches
        known[1] += size
        known[2] += records


def count_offsets(batches: BatchColumns, row: int, total: int, counts: Counts) -> None:
    """Update the first and the last offset; the first offset of a wrapper is known once it is decompressed."""
    if not counts.begun:
        counts.begun = True
        if batches.magic[row] >= 2 or not batches.attributes[row] & CODEC_MASK:
            counts.first_offset = batches.base_offset[row]
        elif total > 0:
            counts.first_offset = batches.first_record_offset[row]
    if batches.last_offset[row] > counts.last_offset:
        counts.last_offset = batches.last_offset[row]


def count_timestamp(batches: BatchColumns, row: int, proved: bool, counts: Counts) -> None:
    """Update the largest timestamp, which retention, the time index and offsetsForTimes use."""
    timestamp = batches.max_timestamp[row]
    if timestamp == NO_TIMESTAMP:
        counts.timeless += 1
        return
    if timestamp > counts.largest_timestamp:
        counts.largest_timestamp = timestamp
        counts.pin_position = batches.position[row]
        counts.pin_offset = batches.last_offset[row] if proved else -1
        counts.pin_producer = batches.producer_id[row]
    if timestamp < SECONDS_END or timestamp >= MICROSECONDS_BEGIN:
        unit = unit_of(timestamp)
        if unit:
            counts.odd_timestamps[unit] = counts.odd_timestamps.get(unit, 0) + 1


def count_leader_epoch(batches: BatchColumns, row: int, proved: bool, counts: Counts) -> None:
    """Update the offsets of a leader epoch. In a damaged log its batches need not be adjacent."""
    span = counts.leader_epochs.get(batches.partition_leader_epoch[row])
    if span is None:
        span = [0, -1, -1]
        counts.leader_epochs[batches.partition_leader_epoch[row]] = span
    span[0] += 1
    if not proved:
        return
    if span[1] < 0:
        span[1] = batches.base_offset[row]
    if batches.last_offset[row] > span[2]:
        span[2] = batches.last_offset[row]


def count_records(batches: BatchColumns, records: RecordColumns, first: int, stop: int, counts: Counts) -> None:
    """Add the records of the batches ``first`` to ``stop``. Keys and values of control records are not data."""
    for row in range(first, stop):
        if batches.crc_state[row] == BAD or not batches.record_total[row]:
            continue
        begin = batches.first_record[row]
        end = begin + batches.record_total[row]
        for i in range(begin, end):
            timestamp = records.timestamp[i]
            if timestamp < counts.smallest_timestamp and timestamp != NO_TIMESTAMP:
                counts.smallest_timestamp = timestamp
        if batches.magic[row] >= 2 and batches.attributes[row] & CONTROL:
            continue
        for i in range(begin, end):
            key_size = records.key_size[i]
            value_size = records.value_size[i]
            counts.headers += records.header_count[i]
            size = (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)
            counts.sizes[size_bucket(size)] += 1
            if size > counts.largest_record:
                counts.largest_record = size
            if key_size < 0:
                counts.null_keys += 1
            if key_size > 0:
                counts.key_bytes += key_size
            if value_size > 0:
                counts.value_bytes += value_size
            elif value_size < 0:
                counts.null_values += 1
                if key_size >= 0:
                    counts.tombstones += 1


def size_bucket(size: int) -> int:
    """Return the bucket of a size in bytes: an eighth of a power of two wide."""
    shift = 0
    while size >> shift >= EXACT_SIZES:
        shift += 1
    return shift * (EXACT_SIZES // 2) + (size >> shift)


def largest_in(bucket: int) -> int:
    """Return the largest size in a bucket."""
    if bucket < EXACT:
        return bucket
    shift = bucket // (EXACT // 2) - 1
    return ((bucket - shift * (EXACT // 2) + 1) << shift) - 1


def control_record_rows(batches: BatchColumns, first: int, stop: int) -> list[int]:
    """Return the decoded control batches among the batches ``first`` to ``stop``."""
    found = []
    for row in range(first, stop):
        if batches.magic[row] >= 2 and batches.attributes[row] & CONTROL and batches.record_total[row]:
            found.append(row)
    return found


def count_payload(batches: BatchColumns, row: int, inflated: int, counts: Counts) -> None:
    """Add the decompressed size of a payload, in bytes, and its stored size."""
    group = group_of(batches, row)
    counts.stored[group] += stored_payload(batches, row)
    counts.inflated[group] += inflated
