"""The hot loops over payloads: split them into records, rows of ``kernel.RecordColumns``.

Like ``kernel``: plain Python that runs as it is, compiled with the ``.pxd`` beside it, bounds checked. Nothing here
reports or raises for what the bytes say: anomalies go as tuples (rule, entry's row, index of the record, detail) onto
``faults``, for ``deep_iteration`` to put into words.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record import layout
from kseg.format.record.crc import crc32_of
from kseg.format.record.framing import (
    BatchColumns,
    RecordColumns,
    clamped,
    read_int32,
    read_int64,
    read_uint32,
    wrapped_sum,
)

COMPILED = not __file__.endswith(".py")

# C globals when compiled (see the .pxd).
SIZE_AT = layout.SIZE_AT
LOG_OVERHEAD = layout.LOG_OVERHEAD
MAGIC_AT = layout.MAGIC_AT
HEADER_SIZE_UP_TO_MAGIC = layout.HEADER_SIZE_UP_TO_MAGIC
LEGACY_CRC_AT = layout.LEGACY_CRC_AT
LEGACY_ATTRIBUTES_AT = layout.LEGACY_ATTRIBUTES_AT
V1_TIMESTAMP_AT = layout.V1_TIMESTAMP_AT
V0_KEY_AT = layout.V0_KEY_AT
V1_KEY_AT = layout.V1_KEY_AT
V0_MIN_SIZE = layout.V0_MIN_SIZE
RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
CODEC_MASK = layout.CODEC_MASK
LOG_APPEND_TIME = layout.LOG_APPEND_TIME
MIN_RECORD_SIZE = layout.MIN_RECORD_SIZE

SUM_LIMIT = layout.SUM_LIMIT
MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
LEFT_OVER = "bytes are left over after the last record"

#: A batch of more records than this is opened in parts. Real ones seldom have a tenth of that.
LARGE_BATCH = 64 * 1024
LARGE = LARGE_BATCH
#: Headers of one record that are shown. Clients write a few; a small file can hold a record with millions.
MAX_HEADERS = 10_000
MOST_HEADERS = MAX_HEADERS
#: Inner messages of one wrapper whose faults are reported one by one; more are counted.
MAX_FAULTS = 1000


def finish_varint(data: Any, at: int, end: int, first: int, last_shift: int) -> tuple[int, int]:
    """The rest of a zig-zag varint whose first byte has its high bit set: (raw value, next byte), next -1 if broken.

    ``last_shift`` is 28 for an int32 (five bytes at most) and 63 for an int64.
    """
    raw = first - 128
    shift = 7
    while at < end and shift <= last_shift:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        if byte < 128:
            return raw | byte << shift, at
        raw |= (byte - 128) << shift
        shift += 7
    return 0, -1


class PartialBatch:
    """Where splitting a large batch has come to, to go on from there.

    ``rows`` is the most records of one call. ``final``: the bytes given end with the payload. A call ends with ``at`` the
    byte that comes next, ``hungry`` if it needs more bytes than it was given, ``done`` at the batch's end. The others are
    facts of the records so far, as BatchColumns has them; ``disorder`` is the index of a record.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.final = True
        self.at = 0
        self.hungry = False
        self.done = False
        self.index = 0
        self.previous = MIN_INT64
        self.bits = 0
        self.largest = MIN_INT64
        self.disorder = -1
        self.null_keys = 0
        self.header_total = 0
        self.faulty = 0
        self.faults_left_out = 0
        self.shift = 0


def split_plain(
    data: Any, batches: BatchColumns, row: int, room: int, records: RecordColumns, faults: list[Any]
) -> int:
    """Split the uncompressed entries from ``row`` on, until one is compressed or has a bad CRC.

    Stops too once ``records`` holds ``room`` rows, and at a batch of more records than LARGE. Returns the row it stopped at.
    """
    while row < batches.count and records.count < room:
        if batches.attributes[row] & CODEC_MASK or not batches.selected[row]:
            return row
        at = batches.at[row]
        if batches.magic[row] < 2:
            split_batch_payload(batches, row, records)
            if split_message(data, at, at + batches.size[row], batches.magic[row], -1, batches, row, records, faults):
                batches.record_sum[row] = 1
                batches.first_record_offset[row] = batches.last_record_offset[row] = records.offset[records.count - 1]
            row += 1
        elif batches.record_count[row] > LARGE:
            return row
        else:
            at += RECORD_BATCH_OVERHEAD
            row = split_records(data, at, batches.at[row] + batches.size[row], batches, row, room, records, faults)
    return row


def split_batch_payload(batches: BatchColumns, row: int, records: RecordColumns) -> None:
    """Begin the facts of an entry whose records follow."""
    batches.first_record[row] = records.count
    batches.record_total[row] = 0
    batches.attribute_bits[row] = 0
    batches.largest_timestamp[row] = -1
    batches.disorder[row] = -1
    batches.null_keys[row] = 0
    batches.header_total[row] = 0
    batches.record_sum[row] = 0


def split_records(
    data: Any,
    at: int,
    end: int,
    batches: BatchColumns,
    row: int,
    room: int,
    records: RecordColumns,
    faults: list[Any],
    part: PartialBatch | None = None,
) -> int:
    """Split the v2 payload ``data[at:end]`` of batch ``row`` into rows of ``records``; returns the row behind it.

    While ``records`` holds fewer than ``room`` rows it goes on with the uncompressed batches that follow in ``data``:
    a run of small ones takes one call. Of a batch that does not hold together the records before the fault are kept.
    With ``part`` only some records of this one batch are split, from ``part.index`` on.
    """
    # Locals: an attribute look-up a field is what plain Python spends its time on.
    batch, offsets, timestamps, attributes = records.batch, records.offset, records.timestamp, records.attributes
    key_ats, key_sizes, value_ats = records.key_at, records.key_size, records.value_at
    value_sizes, headers_ats, header_counts = records.value_size, records.headers_at, records.header_count
    capacity = records.capacity
    while True:
        count = batches.record_count[row]
        base_offset = clamped(batches.base_offset[row])
        base_timestamp = batches.base_timestamp[row]
        # Up to this delta the sum with it stays in 64 bits.
        reach = SUM_LIMIT if -SUM_LIMIT <= base_timestamp <= SUM_LIMIT else -1
        append_time = batches.attributes[row] & LOG_APPEND_TIME
        max_timestamp = batches.max_timestamp[row]
        begin = first = records.count
        index = 0
        why = ""
        bits = 0
        largest = MIN_INT64
        previous = MIN_INT64
        disorder = -1
        null_keys = 0
        header_total = 0
        record_at = at
        stop_index = count
        final = True
        hungry = False
        if part is not None:
            index = part.index
            first -= index
            bits = part.bits
            largest = part.largest
            previous = part.previous
            disorder = part.disorder
            null_keys = part.null_keys
            header_total = part.header_total
            final = part.final
            if count - index > part.rows:
                stop_index = index + part.rows
        while index < stop_index:
            record_at = at
            if at >= end:
                if final:
                    faults.append(("record-count-mismatch", row, index, index))
                else:
                    hungry = True
                break
            byte = data[at]
            at += 1
            # Two bytes are what most long varints have: here and below a call less for these is a quarter of the time.
            if byte >= 128:
                if at < end and data[at] < 128:
                    byte += (data[at] << 7) - 128
                    at += 1
                else:
                    byte, at = finish_varint(data, at, end, byte, 28)
            length = (byte >> 1) ^ -(byte & 1)
            if at < 0 or length < MIN_RECORD_SIZE - 1 or length > end - at:
                if not final and (end - record_at < 5 or (at > 0 and length >= MIN_RECORD_SIZE - 1)):
                    hungry = True
                else:
                    why = offset_mismatch("its length", length, at, MIN_RECORD_SIZE - 1, end - at)
                break
            stop = at + length
            i = first + index
            if i == capacity:
                records.count = i
                records.grow()
                batch, offsets, timestamps, attributes = (
                    records.batch,
                    records.offset,
                    records.timestamp,
                    records.attributes,
                )
                key_ats, key_sizes, value_ats = records.key_at, records.key_size, records.value_at
                value_sizes, headers_ats, header_counts = records.value_size, records.headers_at, records.header_count
                capacity = records.capacity
            attributes[i] = data[at]
            bits |= data[at]
            at += 1

            byte = data[at]
            at += 1
            if byte >= 128:
                if at < stop and data[at] < 128:
                    byte += (data[at] << 7) - 128
                    at += 1
                else:
                    byte, at = finish_varint(data, at, stop, byte, 63)
            delta = (byte >> 1) ^ -(byte & 1)
            if at < 0 or at >= stop:
                why = "its timestamp delta is broken"
                break
            if append_time:
                timestamp = max_timestamp
            elif -reach <= delta <= reach:
                timestamp = base_timestamp + delta
            else:
                timestamp = wrapped_sum(base_timestamp, delta)
            timestamps[i] = timestamp
            if timestamp > largest:
                largest = timestamp

            byte = data[at]
            at += 1
            if byte >= 128:
                if at < stop and data[at] < 128:
                    byte += (data[at] << 7) - 128
                    at += 1
                else:
                    byte, at = finish_varint(data, at, stop, byte, 28)
            if at < 0 or at >= stop:
                why = "its offset delta is broken"
                break
            offset = base_offset + ((byte >> 1) ^ -(byte & 1))
            offsets[i] = offset
            if offset <= previous and disorder < 0:
                disorder = i - first if part is not None else i
            previous = offset

            byte = data[at]
            at += 1
            if byte >= 128:
                byte, at = finish_varint(data, at, stop, byte, 28)
            length = (byte >> 1) ^ -(byte & 1)
            if at < 0 or length < -1 or length >= stop - at:
                why = offset_mismatch("its key's length", length, at, -1, stop - at - 1)
                break
            key_ats[i] = at
            key_sizes[i] = length
            if length > 0:
                at += length
            elif length < 0:
                null_keys += 1

            byte = data[at]
            at += 1
            if byte >= 128:
                if at < stop and data[at] < 128:
                    byte += (data[at] << 7) - 128
                    at += 1
                else:
                    byte, at = finish_varint(data, at, stop, byte, 28)
            length = (byte >> 1) ^ -(byte & 1)
            if at < 0 or length < -1 or length >= stop - at:
                why = offset_mismatch("its value's length", length, at, -1, stop - at - 1)
                break
            value_ats[i] = at
            value_sizes[i] = length
            if length > 0:
                at += length

            byte = data[at]
            at += 1
            if byte:
                if byte >= 128:
                    byte, at = finish_varint(data, at, stop, byte, 28)
                length = (byte >> 1) ^ -(byte & 1)
                # A header takes two bytes at least: a count that lies can't make the walk long.
                if at < 0 or length < 0 or length > (stop - at) // 2:
                    why = offset_mismatch("its header count", length, at, 0, (stop - at) // 2)
                    break
                headers_ats[i] = at
                header_counts[i] = length
                header_total += length
                at = skip_headers(data, at, stop, length)
                if at < 0:
                    why = "its headers do not fit the record"
                    break
            else:
                header_counts[i] = 0
            if at != stop:
                why = f"its fields leave {stop - at} bytes of its declared length over"
                break
            batch[i] = row
            if header_counts[i] > MOST_HEADERS:
                faults.append(("limit-reached", row, index, (index, header_counts[i])))
            index += 1
        records.count = first + index
        batches.first_record[row] = begin
        batches.record_total[row] = records.count - begin
        batches.record_sum[row] = index
        if records.count > begin:
            batches.last_record_offset[row] = offsets[records.count - 1]
            if first == begin:
                batches.first_record_offset[row] = offsets[begin]
        batches.attribute_bits[row] = bits
        batches.largest_timestamp[row] = largest
        batches.disorder[row] = disorder
        batches.null_keys[row] = null_keys
        batches.header_total[row] = header_total
        if part is not None:
            part.index = index
            part.bits = bits
            part.largest = largest
            part.previous = previous
            part.disorder = disorder
            part.null_keys = null_keys
            part.header_total = header_total
            part.hungry = hungry
            part.at = record_at if hungry else at
            part.done = count < 0 or (not hungry and (index == count or index < stop_index))
        if why:
            faults.append(("malformed-record", row, index, why))
        elif count < 0:
            # DefaultRecordBatch.iterator refuses it; what is there says nothing of what was meant.
            faults.append(("record-count-mismatch", row, 0, count_records(data, at, end)))
        elif hungry or index != count:
            pass
        elif not final:
            faults.append(("malformed-record", row, index, LEFT_OVER))
        elif at != end:
            rest = count_records(data, at, end)
            if rest > 0:
                faults.append(("record-count-mismatch", row, index, index + rest))
            else:
                faults.append(("malformed-record", row, index, LEFT_OVER))
        row += 1
        if part is not None or row >= batches.count or records.count >= room or batches.magic[row] < 2:
            return row
        if batches.attributes[row] & CODEC_MASK or not batches.selected[row] or batches.record_count[row] > LARGE:
            return row
        at = batches.at[row] + RECORD_BATCH_OVERHEAD
        end = batches.at[row] + batches.size[row]


def offset_mismatch(what: str, size: int, at: int, least: int, room: int) -> str:
    """Say why a size was not accepted: below ``least``, or more than the ``room``; ``at`` is negative after a bad varint."""
    if at < 0:
        return f"{what} is no varint"
    return f"{what} is {size}, below the least of {least}" if size < least else f"{what} is {size}, and {room} fit"


def skip_headers(data: Any, at: int, stop: int, count: int) -> int:
    """The byte behind ``count`` headers, or -1 when they don't fit or a key is null."""
    for _ in range(count):
        key_size, key_at = header_field(data, at, stop)
        if key_size < 0 or key_at < 0:
            return -1
        value_size, value_at = header_field(data, key_at + key_size, stop)
        if value_at < 0:
            return -1
        at = value_at + (value_size if value_size > 0 else 0)
    return at


def header_field(data: Any, at: int, stop: int) -> tuple[int, int]:
    """(size, first byte) of a header's key or value at ``data[at]``; size -1 is null, first byte -1 is broken."""
    if at >= stop:
        return 0, -1
    byte = data[at]
    at += 1
    if byte >= 128:
        byte, at = finish_varint(data, at, stop, byte, 28)
    size = (byte >> 1) ^ -(byte & 1)
    if at < 0 or size < -1 or size > stop - at:
        return 0, -1
    return size, at


def count_records(data: Any, at: int, end: int) -> int:
    """How many records ``data[at:end]`` holds going by their lengths alone; 0 when those don't end at ``end``."""
    count = 0
    while at < end:
        byte = data[at]
        at += 1
        if byte >= 128:
            byte, at = finish_varint(data, at, end, byte, 28)
        length = (byte >> 1) ^ -(byte & 1)
        if at < 0 or length < MIN_RECORD_SIZE - 1 or length > end - at:
            return 0
        at += length
        count += 1
    return count


def split_message(
    data: Any,
    at: int,
    end: int,
    magic: int,
    index: int,
    batches: BatchColumns,
    row: int,
    records: RecordColumns,
    faults: list[Any],
) -> bool:
    """Take the v0 or v1 message ``data[at:end]`` into ``records`` with its offset as stored; False if it is malformed.

    ``index`` counts inner messages of a wrapper; -1 is an entry of the log itself.
    """
    key_at = at + V1_KEY_AT if magic == 1 else at + V0_KEY_AT
    if end - key_at < 8:
        faults.append(("malformed-record", row, index, f"it has {end - at - LOG_OVERHEAD} bytes, too few for v{magic}"))
        return False
    key_size = read_int32(data, key_at)
    if key_size < -1 or key_size > end - key_at - 8:
        why = offset_mismatch("its key's length", key_size, key_at, -1, end - key_at - 8)
        faults.append(("malformed-record", row, index, why))
        return False
    value_at = key_at + 4 + (key_size if key_size > 0 else 0)
    value_size = read_int32(data, value_at)
    if value_size < -1 or value_size > end - value_at - 4:
        why = offset_mismatch("its value's length", value_size, value_at, -1, end - value_at - 4)
        faults.append(("malformed-record", row, index, why))
        return False
    if value_at + 4 + (value_size if value_size > 0 else 0) != end:
        left = end - value_at - 4 - (value_size if value_size > 0 else 0)
        faults.append(("malformed-record", row, index, f"its fields leave {left} bytes of its declared length over"))
        return False
    if records.count == records.capacity:
        records.grow()
    i = records.count
    records.batch[i] = row
    records.offset[i] = clamped(read_int64(data, at))
    records.attributes[i] = data[at + LEGACY_ATTRIBUTES_AT]
    if magic == 0:
        records.timestamp[i] = -1
    elif index >= 0 and batches.attributes[row] & LOG_APPEND_TIME:
        records.timestamp[i] = batches.max_timestamp[row]  # KIP-32: the wrapper's replaces every inner one
    else:
        records.timestamp[i] = read_int64(data, at + V1_TIMESTAMP_AT)
    records.key_at[i] = key_at + 4
    records.key_size[i] = key_size
    records.value_at[i] = value_at + 4
    records.value_size[i] = value_size
    records.headers_at[i] = 0
    records.header_count[i] = 0
    records.count = i + 1
    batches.record_total[row] += 1
    if key_size < 0:
        batches.null_keys[row] += 1
    if records.timestamp[i] > batches.largest_timestamp[row]:
        batches.largest_timestamp[row] = records.timestamp[i]
    if (
        i > batches.first_record[row]
        and index > 0
        and records.offset[i] <= records.offset[i - 1]
        and batches.disorder[row] < 0
    ):
        batches.disorder[row] = i
    return True


def split_wrapper(
    data: Any,
    view: memoryview,
    batches: BatchColumns,
    row: int,
    records: RecordColumns,
    faults: list[Any],
    part: PartialBatch | None = None,
) -> int:
    """Split the decompressed value of wrapper ``row`` into its inner messages, offsets made absolute (KIP-31).

    ``data`` and ``view`` are the same bytes. Returns how many messages there are. With ``part`` only some are split, from
    ``part.index`` on, and ``part.shift`` is added to their offsets: what ``wrapper_shift`` returns is known at the end.
    """
    at = 0
    end = len(view)
    index = 0
    first = records.count
    stop_index = MAX_INT64
    final = True
    hungry = broken = False
    faulty = left_out = 0
    if part is not None:
        at = part.at
        index = part.index
        stop_index = index + part.rows
        final = part.final
        faulty = part.faulty
        left_out = part.faults_left_out
    begin = index
    if index:
        batches.first_record[row] = first
        batches.record_total[row] = 0
    else:
        split_batch_payload(batches, row, records)
    disorder = batches.disorder[row]
    while at < end and index < stop_index:
        if end - at < HEADER_SIZE_UP_TO_MAGIC:
            hungry = not final
            if final:
                faults.append(("truncated-wrapper", row, index, end - at))
            broken = final
            break
        size = read_int32(data, at + SIZE_AT)
        magic = data[at + MAGIC_AT]
        if size < V0_MIN_SIZE or magic > 1:
            small = size < V0_MIN_SIZE
            why = (
                f"its size is {size}, below the least of {V0_MIN_SIZE}"
                if small
                else f"its magic is {magic}, not 0 or 1"
            )
            faults.append(("malformed-record", row, index, why))
            broken = True
            break
        if size > end - at - LOG_OVERHEAD:
            hungry = not final
            if final:
                faults.append(("truncated-wrapper", row, index, end - at))
            broken = final
            break
        stop = at + LOG_OVERHEAD + size
        stored = read_uint32(data, at + LEGACY_CRC_AT)
        computed = crc32_of(view, at + MAGIC_AT, stop)
        inner_codec = data[at + LEGACY_ATTRIBUTES_AT] & CODEC_MASK
        if stored != computed or inner_codec or magic != batches.magic[row]:
            if faulty < MAX_FAULTS:
                faulty += 1
                if stored != computed:
                    faults.append(("inner-crc-mismatch", row, index, (stored, computed)))
                if inner_codec:
                    faults.append(("nested-compression", row, index, inner_codec))
                if magic != batches.magic[row]:
                    why = f"its magic is {magic}, its wrapper's {batches.magic[row]}"
                    faults.append(("malformed-record", row, index, why))
            else:
                left_out += 1
        if not split_message(data, at, stop, magic, index, batches, row, records, faults):
            broken = True
            break
        index += 1
        at = stop
    if index > begin:
        batches.last_record_offset[row] = records.offset[records.count - 1]
        if not begin:
            batches.first_record_offset[row] = records.offset[first]
    batches.record_sum[row] = index
    if part is None:
        shift = wrapper_shift(batches, row, faults)
        shift_offsets(batches, row, records, first, shift)
    else:
        shift_offsets(batches, row, records, first, part.shift)
        if disorder < 0 and batches.disorder[row] >= 0:
            batches.disorder[row] += begin - first
        elif disorder < 0 and begin and index > begin and records.offset[first] <= part.previous:
            batches.disorder[row] = begin
        if index > begin:
            part.previous = records.offset[records.count - 1]
        part.index = index
        part.at = at
        part.hungry = hungry or (at == end and not final)
        part.done = broken or (at == end and final)
        part.faulty = faulty
        part.faults_left_out = left_out
    if left_out and (part is None or part.done):
        faults.append(("malformed-record", row, index, f"{left_out} more messages in it have faults"))
    return index


def wrapper_shift(batches: BatchColumns, row: int, faults: list[Any]) -> int:
    """Return what makes the offsets in wrapper ``row`` absolute, whose ``last_record_offset`` is the one stored."""
    if not batches.record_sum[row]:
        return 0
    last_inner = batches.last_record_offset[row]
    if batches.magic[row] != 1:
        if last_inner != batches.last_offset[row]:
            faults.append(("wrapper-offset-mismatch", row, batches.record_sum[row], last_inner))
        return 0
    wrapper_offset = clamped(batches.last_offset[row])
    # librdkafka once left 0 in the wrapper, and Kafka takes that as base 0.
    shift = wrapper_offset - last_inner if wrapper_offset else 0
    if wrapper_offset and shift < 0:
        faults.append(("wrapper-offset-mismatch", row, batches.record_sum[row], last_inner))
    return clamped(shift)


def shift_offsets(batches: BatchColumns, row: int, records: RecordColumns, first: int, shift: int) -> None:
    """Add ``shift`` to the offsets of the records of v1 wrapper ``row``, which are those from ``first`` on."""
    if batches.magic[row] != 1 or records.count == first:
        return
    for i in range(first, records.count):
        records.offset[i] = clamped(records.offset[i]) + shift
    batches.last_record_offset[row] = records.offset[records.count - 1]
    if batches.record_sum[row] == records.count - first:
        batches.first_record_offset[row] = records.offset[first]
