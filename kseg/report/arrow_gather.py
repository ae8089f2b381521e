"""The hot loop for Arrow output: gathers records from their payloads into column buffers.

Plain Python, compiled with the types in the ``.pxd`` file, with bounds checks. It knows Arrow's layout
(int32 offsets, validity bitmaps with the least significant bit first) but not pyarrow: ``arrow_rows`` wraps the buffers.
Record headers become a list of structs in the same pass, without an object per record.
"""

from __future__ import annotations

from array import array
from typing import Any

from kseg.format.record import layout
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.default_records import MAX_HEADERS, header_field

LOG_APPEND_TIME = layout.LOG_APPEND_TIME
TRANSACTIONAL = layout.TRANSACTIONAL
CONTROL = layout.CONTROL
INT32_MAX = layout.INT32_MAX
NO_TIMESTAMP = layout.NO_TIMESTAMP
MOST_HEADERS = MAX_HEADERS
HEADER_BYTES = 8  # the two ends of a header, which may be empty
# Smaller sizes are copied byte by byte: a slice costs 0.1 us compiled; in plain Python a loop costs more.
BY_BYTE = 0 if __file__.endswith(".py") else 64
FIRST_MILLISECOND = layout.FIRST_MILLISECOND
LAST_MILLISECOND = layout.LAST_MILLISECOND


class Texts:
    """A growing Arrow column of texts or bytes: value ``n`` is ``data[ends[n]:ends[n + 1]]``.

    ``valid`` has one bit per value, 0 for null.
    """

    def __init__(self, capacity: int, room: int = 0) -> None:
        self.data = bytearray(max(room, 4096))
        self.used = 0
        self.ends = array("i", bytes(4 * (capacity + 1)))
        self.valid = bytearray(capacity // 8 + 1)

    def reserve(self, size: int) -> None:
        """Reserve ``size`` more bytes. Raises OverflowError beyond the range of Arrow's int32 offsets."""
        wanted = self.used + size
        if wanted > INT32_MAX:
            raise OverflowError("more than 2 GiB in one column of a batch")
        grown = bytearray(max(wanted, len(self.data) * 3 // 2))
        memoryview(grown)[: self.used] = memoryview(self.data)[: self.used]
        self.data = grown

    def widen(self) -> None:
        """Double the number of values that fit."""
        capacity = 2 * len(self.ends)
        ends, valid = array("i", bytes(4 * (capacity + 1))), bytearray(capacity // 8 + 1)
        memoryview(ends)[: len(self.ends)] = memoryview(self.ends)
        memoryview(valid)[: len(self.valid)] = memoryview(self.valid)
        self.ends, self.valid = ends, valid


class ArrowColumns:
    """``count`` rows of records in Arrow's layout, at most ``capacity`` rows or ``limit`` bytes.

    Integers are int64. Columns that v0 and v1 lack (sequence, producer, transaction) share the validity bitmap
    ``modern``. ``time`` is in microseconds with the bitmap ``time_valid``; ``timestamp`` has the milliseconds as stored.
    ``timestamp_type`` is an index into ``layout.TIMESTAMP_TYPES`` with the bitmap ``typed``. ``key_room`` and
    ``value_room`` are initial sizes in bytes. ``controls`` lists pairs (row here, row of the RecordColumns) of control
    records. ``keys``, ``values`` and the headers stay empty unless requested; without ``facts`` all other columns do.
    """

    def __init__(
        self,
        capacity: int,
        limit: int,
        keys: bool,
        values: bool,
        headers: bool,
        key_room: int = 0,
        value_room: int = 0,
        facts: bool = True,
    ) -> None:
        self.capacity = capacity
        self.limit = limit
        self.count = 0
        self.want_keys = keys
        self.want_values = values
        self.want_headers = headers
        self.want_facts = facts
        rows = capacity if facts else 0
        self.position = array("q", bytes(8 * rows))
        self.offset = array("q", bytes(8 * rows))
        self.timestamp = array("q", bytes(8 * rows))
        self.time = array("q", bytes(8 * rows))
        self.sequence = array("q", bytes(8 * rows))
        self.producer_id = array("q", bytes(8 * rows))
        self.producer_epoch = array("q", bytes(8 * rows))
        self.leader_epoch = array("q", bytes(8 * rows))
        self.timestamp_type = array("b", bytes(rows))
        self.stamped = bytearray(rows // 8 + 1)
        self.time_valid = bytearray(rows // 8 + 1)
        self.typed = bytearray(rows // 8 + 1)
        self.modern = bytearray(rows // 8 + 1)
        self.transactional = bytearray(rows // 8 + 1)
        self.keys = Texts(capacity, key_room)
        self.values = Texts(capacity, value_room)
        self.header_ends = array("i", bytes(4 * (capacity + 1)))
        self.header_count = 0
        self.header_keys = Texts(1)
        self.header_values = Texts(1)
        self.controls: list[tuple[int, int]] = []

    def full(self) -> bool:
        """Whether the columns are full: keys, values and headers can exceed ``limit`` bytes by one record."""
        held = self.keys.used + self.values.used + self.header_keys.used + self.header_values.used
        held += HEADER_BYTES * self.header_count
        return self.count == self.capacity or held >= self.limit


def append(
    columns: ArrowColumns, data: Any, batches: BatchColumns, records: RecordColumns, first: int, stop: int
) -> int:
    """Append rows ``first`` to ``stop`` of ``records``, whose bytes are in ``data``; return the first row not appended.

    That is a row before ``stop`` if the columns are full.
    """
    position, offset, timestamp, time = columns.position, columns.offset, columns.timestamp, columns.time
    sequence, producer_id, producer_epoch = columns.sequence, columns.producer_id, columns.producer_epoch
    leader_epoch = columns.leader_epoch
    timestamp_type, stamped, time_valid = columns.timestamp_type, columns.stamped, columns.time_valid
    typed, modern, transactional = columns.typed, columns.modern, columns.transactional
    header_ends = columns.header_ends
    n = columns.count
    i = first
    while i < stop and not columns.full():
        row = records.batch[i]
        if columns.want_facts:
            at = n >> 3
            bit = 1 << (n & 7)
            magic = batches.magic[row]
            attributes = batches.attributes[row]
            position[n] = batches.position[row]
            offset[n] = records.offset[i]
            stored = records.timestamp[i]
            timestamp[n] = stored
            if stored != NO_TIMESTAMP:
                stamped[at] |= bit
                if FIRST_MILLISECOND <= stored <= LAST_MILLISECOND:
                    time[n] = stored * 1000
                    time_valid[at] |= bit
            if magic:
                typed[at] |= bit
                timestamp_type[n] = 1 if attributes & LOG_APPEND_TIME else 0
            if magic >= 2:
                modern[at] |= bit
                base_sequence = batches.base_sequence[row]
                if base_sequence < 0:
                    sequence[n] = base_sequence
                else:
                    sequence[n] = (base_sequence + (records.offset[i] - batches.base_offset[row])) & INT32_MAX
                producer_id[n] = batches.producer_id[row]
                producer_epoch[n] = batches.producer_epoch[row]
                leader_epoch[n] = batches.partition_leader_epoch[row]
                if attributes & TRANSACTIONAL:
                    transactional[at] |= bit
                if attributes & CONTROL:
                    columns.controls.append((n, i))
        if columns.want_keys:
            put(columns.keys, n, data, records.key_at[i], records.key_size[i])
        if columns.want_values:
            put(columns.values, n, data, records.value_at[i], records.value_size[i])
        if columns.want_headers and records.header_count[i]:
            put_headers(columns, data, records.headers_at[i], records.header_count[i])
        header_ends[n + 1] = columns.header_count
        n += 1
        i += 1
        columns.count = n
    return i


def put(column: Texts, n: int, data: Any, at: int, size: int) -> None:
    """Set value ``n`` of the column to ``data[at:at + size]``, or to null if ``size`` is -1."""
    used = column.used
    if size > 0:
        if used + size > len(column.data):
            column.reserve(size)
        if size < BY_BYTE:
            for i in range(size):
                column.data[used + i] = data[at + i]
        else:
            column.data[used : used + size] = data[at : at + size]
        used += size
        column.used = used
    column.ends[n + 1] = used
    if size >= 0:
        column.valid[n >> 3] |= 1 << (n & 7)


def put_headers(columns: ArrowColumns, data: Any, at: int, count: int) -> None:
    """Append the first MAX_HEADERS of ``count`` headers at ``data[at]``. Record splitting has checked their sizes before."""
    keys, values = columns.header_keys, columns.header_values
    for _ in range(min(count, MOST_HEADERS)):
        n = columns.header_count
        if n + 1 >= len(keys.ends):
            keys.widen()
            values.widen()
        size, at = header_field(data, at, len(data))
        put(keys, n, data, at, size)
        at += size
        size, at = header_field(data, at, len(data))
        put(values, n, data, at, size)
        if size > 0:
            at += size
        columns.header_count = n + 1
