"""Columns of batches and of records: one row for each batch of a window, one row for each record.

Compiled with the types of ``columns.pxd``. A column is an array of int64, so a loop over it makes no objects.
"""

from __future__ import annotations

from array import array

from kseg.format.record.layout import INT64_MIN

# Values of the column ``crc_state``.
CRC_UNCHECKED = -1
CRC_BAD = 0
CRC_GOOD = 1


class BatchColumns:
    """The batches of one window, one row each. A field that the batch's version (``magic``) lacks is 0.

    ``at`` is the batch's first byte in the window's buffer. ``position`` is its first byte in the file. ``size`` is the
    size of the whole batch in bytes. ``crc_state`` is CRC_UNCHECKED, CRC_BAD or CRC_GOOD. In v0
    and v1, ``base_offset`` and ``last_offset`` are both the stored offset, and both timestamps are the stored timestamp (-1
    in v0). The deep reader and the checks skip a batch whose ``selected`` is 0: its CRC is wrong, or the caller
    deselected it.

    The other columns are filled when the batch is decoded. Its records are the ``record_total`` rows of RecordColumns
    from row ``first_record``. ``attribute_bits`` is the OR of the records' attributes. ``largest_timestamp`` is in epoch
    milliseconds. ``null_keys`` and ``header_total`` are counts, and ``invalid_keys`` counts the records with a header key
    that is not UTF-8. ``disorder`` is the first row whose offset is not greater than the previous one, or -1. So a check
    reads the records only of a batch that needs it. ``intact`` becomes 0 when decoding finds a fault. ``record_sum``
    counts the records. ``first_record_offset`` and ``last_record_offset`` are the offsets of the first and last record.

    A large batch is decoded in parts. Then ``first_record`` and ``record_total`` describe the current part, and the
    other columns describe all parts so far.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.at = _column(capacity)
        self.position = _column(capacity)
        self.size = _column(capacity)
        self.magic = _column(capacity)
        self.attributes = _column(capacity)
        self.base_offset = _column(capacity)
        self.last_offset = _column(capacity)
        self.record_count = _column(capacity)
        self.base_timestamp = _column(capacity)
        self.max_timestamp = _column(capacity)
        self.crc = _column(capacity)
        self.crc_state = _column(capacity)
        self.producer_id = _column(capacity)
        self.producer_epoch = _column(capacity)
        self.base_sequence = _column(capacity)
        self.partition_leader_epoch = _column(capacity)
        self.selected = _column(capacity)
        self.intact = _column(capacity)
        self.first_record = _column(capacity)
        self.record_total = _column(capacity)
        self.attribute_bits = _column(capacity)
        self.largest_timestamp = _column(capacity)
        self.disorder = _column(capacity)
        self.null_keys = _column(capacity)
        self.header_total = _column(capacity)
        self.invalid_keys = _column(capacity)
        self.record_sum = _column(capacity)
        self.first_record_offset = _column(capacity)
        self.last_record_offset = _column(capacity)

    def begin_records(self, row: int, first_record: int) -> None:
        """Reset the columns of batch ``row`` that describe its records, which begin at row ``first_record``."""
        self.first_record[row] = first_record
        self.record_total[row] = 0
        self.attribute_bits[row] = 0
        self.largest_timestamp[row] = -1
        self.disorder[row] = -1
        self.null_keys[row] = 0
        self.header_total[row] = 0
        self.invalid_keys[row] = 0
        self.record_sum[row] = 0


class RecordColumns:
    """The records of consecutive batches, one row each.

    ``batch`` is the batch's row in its BatchColumns. ``key_at``, ``value_at`` and ``headers_at`` are positions in the
    batch's payload, or in the window's buffer if the batch is not compressed. Sizes are in bytes; -1 is null.
    Timestamps are epoch milliseconds; -1 if the record lacks one.
    """

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._reserve(capacity)

    def _reserve(self, capacity: int) -> None:
        self.capacity = capacity
        self.batch = _column(capacity)
        self.offset = _column(capacity)
        self.timestamp = _column(capacity)
        self.attributes = _column(capacity)
        self.key_at = _column(capacity)
        self.key_size = _column(capacity)
        self.value_at = _column(capacity)
        self.value_size = _column(capacity)
        self.headers_at = _column(capacity)
        self.header_count = _column(capacity)

    def grow(self) -> None:
        """Double the capacity and keep the rows."""
        old = [(name, getattr(self, name)) for name in _RECORD_COLUMNS]
        count = self.count
        self._reserve(self.capacity * 2)
        for name, column in old:
            memoryview(getattr(self, name))[:count] = memoryview(column)[:count]


_RECORD_COLUMNS = (
    "batch", "offset", "timestamp", "attributes", "key_at", "key_size", "value_at", "value_size", "headers_at",
    "header_count",
)  # fmt: skip


class PartialBatch:
    """The state of a large batch that is decoded in parts.

    ``rows`` is the most records of one call. ``final`` is whether the given bytes include the end of the payload. After
    a call, ``at`` is the next byte to decode. ``hungry`` is whether the next record needs more bytes, and ``done``
    whether the batch ended. The other fields describe the records so far, like the fields of BatchColumns; ``disorder``
    is the index of a record.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.final = True
        self.at = 0
        self.hungry = False
        self.done = False
        self.index = 0
        self.previous = INT64_MIN
        self.bits = 0
        self.largest = INT64_MIN
        self.disorder = -1
        self.null_keys = 0
        self.header_total = 0
        self.invalid_keys = 0
        self.faulty = 0
        self.faults_left_out = 0
        self.shift = 0


def _column(capacity: int) -> array[int]:
    return array("q", (0,)) * capacity
