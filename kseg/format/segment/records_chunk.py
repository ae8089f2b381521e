"""The records of a run of batches: in columns, and as objects for display."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from kseg.format.record import control_records, layout
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.default_records import MAX_HEADERS
from kseg.format.record.framing import increment_sequence
from kseg.format.record.headers import header_field
from kseg.format.segment import objects
from kseg.format.segment.reader import Window


class ColumnLists(NamedTuple):
    """The record columns as Python lists, which plain Python indexes many times faster than typed buffers."""

    offset: list[int]
    timestamp: list[int]
    key_at: list[int]
    key_size: list[int]
    value_at: list[int]
    value_size: list[int]
    header_count: list[int]


class Chunk:
    """The records of the batches ``first`` to ``stop`` of a window (rows of ``batches``, stop exclusive).

    A large batch is yielded in several chunks that contain only this batch. ``index`` is the index of the chunk's first
    record in the batch (0 otherwise), ``unfinished`` is whether more chunks of it follow, ``payload_size`` the size of
    its decompressed payload in bytes. Count and check batches at the first chunk only (``resumed`` is False). The fact
    columns of ``batches`` describe the whole batch.

    ``payload(row)`` is the buffer that ``key_at`` and the other record positions refer to. A chunk is valid until the
    next one is read.
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
        """Whether earlier chunks contain the first records of this batch."""
        return self.index > 0

    @cached_property
    def lists(self) -> ColumnLists:
        """The columns that rows are made from. Read it only after the chunk is filled."""
        count = self.records.count
        return ColumnLists(*(memoryview(getattr(self.records, name))[:count].tolist() for name in ColumnLists._fields))

    def rows(self, row: int) -> range:
        """Return the record rows of a batch."""
        first = self.batches.first_record[row]
        return range(first, first + self.batches.record_total[row])

    def payload(self, row: int) -> memoryview:
        """Return the decompressed payload of a compressed batch, the window's buffer for other batches."""
        payload: memoryview = self.payloads.get(row, self.window.view)
        return payload

    def key(self, i: int) -> bytes | None:
        """Return the key of record ``i``, None if it is null."""
        return self._bytes(self.records.batch[i], self.lists.key_at[i], self.lists.key_size[i])

    def value(self, i: int) -> bytes | None:
        """Return the value of record ``i``, None if it is null."""
        return self._bytes(self.records.batch[i], self.lists.value_at[i], self.lists.value_size[i])

    def key_and_value(self, i: int) -> tuple[bytes | None, bytes | None]:
        """Return key and value of record ``i``, for few records of a chunk: ``lists`` would convert all."""
        row, records = self.records.batch[i], self.records
        return (
            self._bytes(row, records.key_at[i], records.key_size[i]),
            self._bytes(row, records.value_at[i], records.value_size[i]),
        )

    def headers(self, i: int, most: int | None = MAX_HEADERS) -> tuple[objects.Header, ...]:
        """Return the headers of record ``i`` in their order, at most the first ``most``."""
        if not self.lists.header_count[i]:
            return ()
        return tuple(
            objects.Header(str(key, "utf-8", "surrogateescape"), None if value is None else bytes(value))
            for key, value in islice(self.header_fields(i), most)
        )

    def header_keys(self, i: int) -> Iterator[memoryview]:
        """Yield the header keys of record ``i`` one at a time: there may be millions."""
        return (key for key, _ in self.header_fields(i))

    def header_fields(self, i: int) -> Iterator[tuple[memoryview, memoryview | None]]:
        """Yield key and value of each header of record ``i``."""
        payload = self.payload(self.records.batch[i])
        at = self.records.headers_at[i]
        for _ in range(self.lists.header_count[i]):
            # The deep reader has already checked these sizes.
            size, at = header_field(payload, at, len(payload))
            key = payload[at : at + size]
            size, at = header_field(payload, at + size, len(payload))
            yield key, None if size < 0 else payload[at : at + size]
            at += max(size, 0)

    def control(self, i: int) -> control_records.ControlRecord | None:
        """Return the decoded marker of record ``i``, None for data. An undecodable marker has the type MALFORMED."""
        row = self.records.batch[i]
        if self.batches.magic[row] < 2 or not self.batches.attributes[row] & layout.CONTROL:
            return None
        try:
            return control_records.decode(*self.key_and_value(i))
        except control_records.MalformedControlRecord as error:
            return control_records.ControlRecord("MALFORMED", -1, -1, {"error": str(error)})

    def record(self, i: int, most_headers: int | None = MAX_HEADERS, *, contents: bool = True) -> objects.Record:
        """Return record ``i`` with its first ``most_headers`` headers. Without ``contents``, key, value and headers are
        left out.
        """
        batches = self.batches
        row = self.records.batch[i]
        return objects.Record(
            position=batches.position[row],
            offset=self.lists.offset[i],
            timestamp=layout.timestamp_or_none(self.lists.timestamp[i]),
            timestamp_type=objects.timestamp_type(batches.magic[row], batches.attributes[row]),
            sequence=self.sequence(i, row),
            key=self.key(i) if contents else None,
            value=self.value(i) if contents else None,
            headers=self.headers(i, most_headers) if contents else (),
            control=self.control(i),
        )

    def sequence(self, i: int, row: int) -> int | None:
        """Return the sequence of record ``i`` of batch ``row``: -1 if the producer is not idempotent, None before
        v2.
        """
        if self.batches.magic[row] < 2:
            return None
        base = self.batches.base_sequence[row]
        return base if base < 0 else increment_sequence(base, self.lists.offset[i] - self.batches.base_offset[row])

    def _bytes(self, row: int, at: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.payload(row)[at : at + size])
