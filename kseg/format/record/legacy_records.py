"""Decode v0 and v1 messages, and the compressed message sets (wrappers) of these versions, into columns.

Compiled with the types of ``legacy_records.pxd``. Faults of the bytes are appended to ``faults`` as tuples (rule, row of
the batch, index of the record, detail). ``segment.deep_reader`` makes findings of them.
"""

from __future__ import annotations

from typing import Any

from kseg.format.record import layout
from kseg.format.record.columns import BatchColumns, PartialBatch, RecordColumns
from kseg.format.record.crc import crc32_of
from kseg.format.record.framing import clamped, length_fault, read_int32, read_int64, read_uint32

# C constants when compiled.
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
CODEC_MASK = layout.CODEC_MASK
LOG_APPEND_TIME = layout.LOG_APPEND_TIME
MAX_INT64 = layout.INT64_MAX

#: Messages of one wrapper whose faults are reported one by one; more are counted.
MAX_FAULTS = 1000


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
    """Append the v0 or v1 message ``data[at:end]`` to ``records`` and return True, or return False if it is malformed.

    The offset is stored unchanged. ``index`` is the index of a message in a wrapper, or -1 for a message that is not in
    one.
    """
    key_at = at + V1_KEY_AT if magic == 1 else at + V0_KEY_AT
    if end - key_at < 8:
        why = f"it has {end - at - LOG_OVERHEAD} bytes, fewer than a v{magic} message needs"
        faults.append(("malformed-record", row, index, why))
        return False
    key_size = read_int32(data, key_at)
    if key_size < -1 or key_size > end - key_at - 8:
        why = length_fault("its key length", key_size, key_at, -1, end - key_at - 8)
        faults.append(("malformed-record", row, index, why))
        return False
    value_at = key_at + 4 + (key_size if key_size > 0 else 0)
    value_size = read_int32(data, value_at)
    if value_size < -1 or value_size > end - value_at - 4:
        why = length_fault("its value length", value_size, value_at, -1, end - value_at - 4)
        faults.append(("malformed-record", row, index, why))
        return False
    if value_at + 4 + (value_size if value_size > 0 else 0) != end:
        left = end - value_at - 4 - (value_size if value_size > 0 else 0)
        faults.append(("malformed-record", row, index, f"{left} bytes of its declared length are left over"))
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
        records.timestamp[i] = batches.max_timestamp[row]  # KIP-32: the wrapper's timestamp replaces all inner ones
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


def split_messages(
    data: Any, batches: BatchColumns, row: int, room: int, records: RecordColumns, faults: list[Any]
) -> int:
    """Decode the uncompressed v0 and v1 messages from ``row`` until a batch is something else or not selected.

    Stops also when ``records`` has ``room`` rows. Returns the row where it stopped.
    """
    while row < batches.count and records.count < room and batches.selected[row]:
        magic = batches.magic[row]
        if magic > 1 or batches.attributes[row] & CODEC_MASK:
            break
        batches.begin_records(row, records.count)
        at = batches.at[row]
        if split_message(data, at, at + batches.size[row], magic, -1, batches, row, records, faults):
            batches.record_sum[row] = 1
            batches.first_record_offset[row] = batches.last_record_offset[row] = records.offset[records.count - 1]
        row += 1
    return row


def split_wrapper(
    data: Any,
    view: memoryview,
    batches: BatchColumns,
    row: int,
    records: RecordColumns,
    faults: list[Any],
    part: PartialBatch | None = None,
) -> int:
    """Split the decompressed value of wrapper ``row`` into its messages and make their offsets absolute (KIP-31).

    ``data`` and ``view`` are the same bytes. Returns the number of messages so far. With ``part``, at most ``part.rows``
    messages are split, from ``part.index``, and ``part.shift`` is added to their offsets, because ``wrapper_shift``
    needs the last message.
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
        batches.begin_records(row, records.count)
    disorder = batches.disorder[row]
    while at < end and index < stop_index:
        whole = end - at >= HEADER_SIZE_UP_TO_MAGIC
        if whole:
            size = read_int32(data, at + SIZE_AT)
            magic = data[at + MAGIC_AT]
            if size < V0_MIN_SIZE or magic > 1:
                small = f"its size is {size}, but the minimum is {V0_MIN_SIZE}"
                why = small if size < V0_MIN_SIZE else f"its magic is {magic}, not 0 or 1"
                faults.append(("malformed-record", row, index, why))
                broken = True
                break
            whole = size <= end - at - LOG_OVERHEAD
        if not whole:
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
                    why = f"its magic is {magic}, but that of its message set is {batches.magic[row]}"
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
        if disorder < 0 and begin and index > begin and records.offset[first] <= part.previous:
            batches.disorder[row] = begin
        elif disorder < 0 and batches.disorder[row] >= 0:
            batches.disorder[row] += begin - first
        if index > begin:
            part.previous = records.offset[records.count - 1]
        part.index = index
        part.at = at
        part.hungry = hungry or (at == end and not final)
        part.done = broken or (at == end and final)
        part.faulty = faulty
        part.faults_left_out = left_out
    if left_out and (part is None or part.done):
        faults.append(("malformed-record", row, index, f"{left_out} more messages have faults"))
    return index


def wrapper_shift(batches: BatchColumns, row: int, faults: list[Any]) -> int:
    """Return the number to add to the offsets in wrapper ``row`` to make them absolute.

    ``last_record_offset`` of the row must be the stored one.
    """
    if not batches.record_sum[row]:
        return 0
    last_inner = batches.last_record_offset[row]
    if batches.magic[row] != 1:
        if last_inner != batches.last_offset[row]:
            faults.append(("wrapper-offset-mismatch", row, batches.record_sum[row], last_inner))
        return 0
    wrapper_offset = clamped(batches.last_offset[row])
    # Old librdkafka wrote 0 as the offset of the wrapper. Kafka then uses base 0.
    shift = wrapper_offset - last_inner if wrapper_offset else 0
    if wrapper_offset and shift < 0:
        faults.append(("wrapper-offset-mismatch", row, batches.record_sum[row], last_inner))
    return clamped(shift)


def shift_offsets(batches: BatchColumns, row: int, records: RecordColumns, first: int, shift: int) -> None:
    """Add ``shift`` to the offsets of the records of v1 wrapper ``row``, from row ``first`` of ``records``."""
    if batches.magic[row] != 1 or records.count == first:
        return
    for i in range(first, records.count):
        records.offset[i] = clamped(records.offset[i]) + shift
    batches.last_record_offset[row] = records.offset[records.count - 1]
    if batches.record_sum[row] == records.count - first:
        batches.first_record_offset[row] = records.offset[first]
