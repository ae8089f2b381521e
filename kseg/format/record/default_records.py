"""Decode v2 record batches (Kafka's ``DefaultRecord``) into columns.

Compiled with the types of ``default_records.pxd``. Faults of the bytes are appended to ``faults`` as tuples (rule, row of
the batch, index of the record, detail). ``segment.deep_reader`` makes findings of them.

The headers of records (KIP-82).
"""

from __future__ import annotations

from typing import Any

from kseg.format.record import layout
from kseg.format.record.columns import BatchColumns, PartialBatch, RecordColumns
from kseg.format.record.framing import clamped, delta_fault, finish_varint, length_fault, wrapped_sum
from kseg.format.record.legacy_records import split_messages
from kseg.format.record.memory import is_utf8


def skip_headers(data: Any, at: int, stop: int, count: int) -> tuple[int, bool]:
    """Return (position after ``count`` headers, whether all keys are UTF-8).

    The position is -1 if the headers do not fit into ``data[at:stop]`` or a key is null. Raises IndexError.
    """
    check_range(len(data), at, stop)
    valid = True
    for _ in range(count):
        if at >= stop:
            return -1, valid
        byte = data[at]
        at += 1
        if byte >= 128:
            byte, at = finish_varint(data, at, stop, byte, 28)
        size = (byte >> 1) ^ -(byte & 1)
        if at < 0 or size < 0 or size >= stop - at:
            return -1, valid
        key_at = at
        end = at + size
        bits = 0
        while at < end:
            bits |= data[at]
            at += 1
        if bits >= 128 and not is_utf8(data, key_at, size):
            valid = False
        byte = data[at]
        at += 1
        if byte >= 128:
            byte, at = finish_varint(data, at, stop, byte, 28)
        size = (byte >> 1) ^ -(byte & 1)
        if at < 0 or size < -1 or size > stop - at:
            return -1, valid
        if size > 0:
            at += size
    return at, valid


def header_field(data: Any, at: int, stop: int) -> tuple[int, int]:
    """Return (size, first byte) of a header's key or value at ``data[at]``.

    Size -1 is null, first byte -1 is not valid. Raises IndexError.
    """
    if at >= stop:
        return 0, -1
    check_range(len(data), at, stop)
    byte = data[at]
    at += 1
    if byte >= 128:
        byte, at = finish_varint(data, at, stop, byte, 28)
    size = (byte >> 1) ^ -(byte & 1)
    if at < 0 or size < -1 or size > stop - at:
        return 0, -1
    return size, at


def check_range(size: int, at: int, stop: int) -> None:
    """Raise IndexError unless ``at`` to ``stop`` is within ``size`` bytes."""
    if at < 0 or stop > size:
        raise IndexError(f"{at} to {stop} is not within {size}")


COMPILED = not __file__.endswith(".py")

# C constants when compiled.
RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
CODEC_MASK = layout.CODEC_MASK
LOG_APPEND_TIME = layout.LOG_APPEND_TIME
MIN_RECORD_SIZE = layout.MIN_RECORD_SIZE
SUM_LIMIT = layout.SUM_LIMIT
MIN_INT64 = layout.INT64_MIN

#: A batch of more records than this is decoded in parts. Real batches rarely have a tenth of it.
LARGE_BATCH = 64 * 1024
LARGE = LARGE_BATCH
#: The most headers of one record that are shown. Clients write a few, but a small file can contain a record with millions.
MAX_HEADERS = 10_000
MOST_HEADERS = MAX_HEADERS


def split_uncompressed(
    data: Any, batches: BatchColumns, row: int, room: int, records: RecordColumns, faults: list[Any]
) -> int:
    """Decode the uncompressed batches from ``row`` until one is compressed or not selected.

    Stops also when ``records`` has ``room`` rows, and at a batch of more than LARGE_BATCH records. Returns the row where
    it stopped.
    """
    while row < batches.count and records.count < room:
        if batches.attributes[row] & CODEC_MASK or not batches.selected[row]:
            return row
        if batches.magic[row] < 2:
            row = split_messages(data, batches, row, room, records, faults)
        elif batches.record_count[row] > LARGE:
            return row
        else:
            at = batches.at[row] + RECORD_BATCH_OVERHEAD
            row = split_records(data, at, batches.at[row] + batches.size[row], batches, row, room, records, faults)
    return row


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
    """Decode the v2 payload ``data[at:end]`` of batch ``row`` into ``records``, and return the next row to decode.

    While ``records`` has fewer than ``room`` rows, it continues with the uncompressed batches that follow in ``data``:
    one call decodes many small batches. If a record is malformed, the records before it are kept. With ``part``, only
    some records of this batch are decoded, from ``part.index``.
    """
    # Locals, because attribute look-ups take most of the time in plain Python.
    batch, offsets, timestamps, attributes = records.batch, records.offset, records.timestamp, records.attributes
    key_ats, key_sizes, value_ats = records.key_at, records.key_size, records.value_at
    value_sizes, headers_ats, header_counts = records.value_size, records.headers_at, records.header_count
    capacity = records.capacity
    while True:
        count = batches.record_count[row]
        base_offset = clamped(batches.base_offset[row])
        base_timestamp = batches.base_timestamp[row]
        # The sum with a delta up to this stays in 64 bits.
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
        invalid_keys = 0
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
            invalid_keys = part.invalid_keys
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
            # Most long varints have two bytes. Here and below, decoding them without a call saves a quarter of the time.
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
                    why = length_fault("its length", length, at, MIN_RECORD_SIZE - 1, end - at)
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
                why = delta_fault("its timestamp delta", at, 10, length)
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
                why = delta_fault("its offset delta", at, 5, length)
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
                why = length_fault("its key length", length, at, -1, stop - at - 1)
                break
            key_ats[i] = at
            key_sizes[i] = length
            if length > 0:
                at += length
            elif length < 0:
                if at == stop:
                    why = "its key length is the end of the record"
                    break
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
                why = length_fault("its value length", length, at, -1, stop - at - 1)
                break
            value_ats[i] = at
            value_sizes[i] = length
            if length > 0:
                at += length
            elif at == stop:
                why = "its value length is the end of the record"
                break

            byte = data[at]
            at += 1
            if byte:
                if byte >= 128:
                    byte, at = finish_varint(data, at, stop, byte, 28)
                length = (byte >> 1) ^ -(byte & 1)
                # A header has at least two bytes, which limits the loop for a wrong count.
                if at < 0 or length < 0 or length > (stop - at) // 2:
                    why = length_fault("its header count", length, at, 0, (stop - at) // 2)
                    break
                headers_ats[i] = at
                header_counts[i] = length
                header_total += length
                at, valid_keys = skip_headers(data, at, stop, length)
                if at < 0:
                    why = f"its {length} headers do not fit in {stop - headers_ats[i]} bytes, or one has no key"
                    break
                if not valid_keys:
                    invalid_keys += 1
            else:
                header_counts[i] = 0
            if at != stop:
                why = f"{stop - at} bytes of its declared length are left over"
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
        batches.invalid_keys[row] = invalid_keys
        if part is not None:
            part.index = index
            part.bits = bits
            part.largest = largest
            part.previous = previous
            part.disorder = disorder
            part.null_keys = null_keys
            part.header_total = header_total
            part.invalid_keys = invalid_keys
            part.hungry = hungry
            part.at = record_at if hungry else at
            part.done = count < 0 or (not hungry and (index == count or index < stop_index))
        if why:
            faults.append(("malformed-record", row, index, why))
        elif at != end or index != count or not final:
            add_count_fault(data, at, end, row, index, count, hungry, final, faults)
        row += 1
        if part is not None or row >= batches.count or records.count >= room or batches.magic[row] < 2:
            return row
        if batches.attributes[row] & CODEC_MASK or not batches.selected[row] or batches.record_count[row] > LARGE:
            return row
        at = batches.at[row] + RECORD_BATCH_OVERHEAD
        end = batches.at[row] + batches.size[row]


def add_count_fault(
    data: Any, at: int, end: int, row: int, index: int, count: int, hungry: bool, final: bool, faults: list[Any]
) -> None:
    """Append the fault of a batch whose record count does not match its payload.

    ``at`` is the position after record ``index``, the last that was decoded. ``count`` is the record count in the header.
    """
    if count < 0:
        # DefaultRecordBatch.iterator rejects a negative count.
        faults.append(("record-count-mismatch", row, 0, count_records(data, at, end)))
    elif hungry or index != count:
        return  # more records follow, or the missing ones are reported already
    else:
        rest = count_records(data, at, end) if final else 0
        if rest > 0:
            faults.append(("record-count-mismatch", row, index, index + rest))
        else:
            left = f"{'' if final else 'at least '}{end - at} bytes are left over after the last record"
            faults.append(("malformed-record", row, index, left))


def count_records(data: Any, at: int, end: int) -> int:
    """Return the number of records in ``data[at:end]`` by their lengths alone, or 0 if the last does not end at ``end``."""
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
