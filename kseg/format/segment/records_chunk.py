"""A run of opened entries: their records in columns, and as objects for what is shown."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kseg.format.record import layout
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.default_records import MAX_HEADERS, header_field
from kseg.format.record.framing import increment_sequence
from kseg.format.segment.reader import Window

if TYPE_CHECKING:
    from kseg.format.record.control_records import ControlRecord
    from kseg.format.segment.objects import Header, Record


class ColumnLists(NamedTuple):
    """The record columns as Python lists: many times faster to index from Python than typed buffers are."""

    offset: list[int]
    timestamp: list[int]
    key_at: list[int]
    key_size: list[int]
    value_at: list[int]
    value_size: list[int]
    header_count: list[int]


class Chunk:
    """The records of the window's entries ``first`` to ``stop`` (rows of ``batches``, stop exclusive).

    The parts of a large batch come in chunks of their own, one batch per chunk. ``index`` is the index of the chunk's first
    record in it, 0 everywhere else, and ``unfinished`` is whether more parts follow. Counts and checks of batches belong to
    the first part (``resumed`` is False); the columns of facts are about all of the batch. ``payload_size`` is then the
    size of the whole payload in bytes.

    ``payload(row)`` is the buffer that a record's ``key_at`` and its like are bytes of. Valid until the next chunk
    is asked for.
    """

    def __init__(self, window: Window, records: RecordColumns) -> None:
        self.window = window
        self.batches: BatchColumns = window.batches
        self.records = records
        self.first = 0
        self.stop = 0
        self.payloads: dict[int, memoryview] = {}
        self.index = 0
        self.unfinished = False
        self.payload_size: int | None = None

    @property
    def resumed(self) -> bool:
        """Whether this is a part of a batch of which others came before."""
        return self.index > 0

    @cached_property
    def lists(self) -> ColumnLists:
        """The columns that making rows needs; asked for only once the chunk is filled."""
        count = self.records.count
        return ColumnLists(*(memoryview(getattr(self.records, name))[:count].tolist() for name in ColumnLists._fields))

    def rows(self, row: int) -> range:
        """The record rows of one entry."""
        first = self.batches.first_record[row]
        return range(first, first + self.batches.record_total[row])

    def payload(self, row: int) -> memoryview:
        """The inflated payload of a compressed entry, the window's buffer for others."""
        payload: memoryview = self.payloads.get(row, self.window.view)
        return payload

    def key(self, i: int) -> bytes | None:
        """The key of record ``i``, None where it is null."""
        return self._bytes(self.records.batch[i], self.lists.key_at[i], self.lists.key_size[i])

    def value(self, i: int) -> bytes | None:
        """The value of record ``i``, None where it is null."""
        return self._bytes(self.records.batch[i], self.lists.value_at[i], self.lists.value_size[i])

    def headers(self, i: int, most: int | None = MAX_HEADERS) -> tuple[Header, ...]:
        """The headers of record ``i`` in their order; of more than ``most``, the first."""
        if not self.lists.header_count[i]:
            return ()
        from kseg.format.segment.objects import Header

        return tuple(
            Header(str(key, "utf-8", "surrogateescape"), None if value is None else bytes(value))
            for key, value in islice(self.header_fields(i), most)
        )

    def header_keys(self, i: int) -> Iterator[memoryview]:
        """The keys of the headers of record ``i``, one at a time: there may be millions."""
        return (key for key, _ in self.header_fields(i))

    def header_fields(self, i: int) -> Iterator[tuple[memoryview, memoryview | None]]:
        """Yield key and value of each header of record ``i``."""
        payload = self.payload(self.records.batch[i])
        at = self.records.headers_at[i]
        for _ in range(self.lists.header_count[i]):
            # The kernel walked these before: sizes and ends hold.
            size, at = header_field(payload, at, len(payload))
            key = payload[at : at + size]
            size, at = header_field(payload, at + size, len(payload))
            yield key, None if size < 0 else payload[at : at + size]
            at += max(size, 0)

    def control(self, i: int) -> ControlRecord | None:
        """The decoded marker of record ``i``, None for data. One that can't be decoded is a finding elsewhere."""
        row = self.records.batch[i]
        if self.batches.magic[row] < 2 or not self.batches.attributes[row] & layout.CONTROL:
            return None
        from kseg.format.record.control_records import ControlRecord, MalformedControlRecord, decode

        try:
            return decode(self.key(i), self.value(i))
        except MalformedControlRecord as error:
            return ControlRecord("MALFORMED", -1, -1, {"error": str(error)})

    def record(self, i: int, most_headers: int | None = MAX_HEADERS, *, contents: bool = True) -> Record:
        """Return record ``i`` with its first ``most_headers`` headers; without ``contents`` no key, value and headers."""
        # Their classes take 10 ms to make: who only checks the columns does without them.
        from kseg.format.segment.objects import Record, timestamp_or_none, timestamp_type

        batches = self.batches
        row = self.records.batch[i]
        return Record(
            position=batches.position[row],
            offset=self.lists.offset[i],
            timestamp=timestamp_or_none(self.lists.timestamp[i]),
            timestamp_type=timestamp_type(batches.magic[row], batches.attributes[row]),
            sequence=self.sequence(i, row),
            key=self.key(i) if contents else None,
            value=self.value(i) if contents else None,
            headers=self.headers(i, most_headers) if contents else (),
            control=self.control(i),
        )

    def sequence(self, i: int, row: int) -> int | None:
        """The sequence of record ``i`` of entry ``row``; -1 without an idempotent producer, None before v2."""
        if self.batches.magic[row] < 2:
            return None
        base = self.batches.base_sequence[row]
        return base if base < 0 else increment_sequence(base, self.lists.offset[i] - self.batches.base_offset[row])

    def _bytes(self, row: int, at: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.payload(row)[at : at + size])
