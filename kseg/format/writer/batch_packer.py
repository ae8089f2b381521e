"""Pack records into v2 batches: one per old batch, or batches of a chosen size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kseg.format.compress.codecs import compress
from kseg.format.record import encoder
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.layout import (
    FIRST_LEADER_EPOCH,
    INT32_MAX,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
)


class OutputBuffer:
    """A reused output buffer, and a view of it."""

    def __init__(self) -> None:
        self.data = bytearray(64 * 1024)
        self.view = memoryview(self.data)

    def reserve(self, size: int, keep: int = 0) -> bytearray:
        """Return the buffer with at least ``size`` bytes; its first ``keep`` bytes are unchanged."""
        if size > len(self.data):
            larger = bytearray(max(size, 2 * len(self.data)))
            larger[:keep] = self.view[:keep]
            self.data, self.view = larger, memoryview(larger)
        return self.data


class BatchPacker:
    """Packs one v2 batch at a time.

    ``limit`` is its size in bytes before compression with the header; a larger old batch becomes a single batch. Without a
    limit each old batch becomes one. ``wrote`` is called with each finished batch and its codec. ``leader_epoch`` is the
    epoch of the next batches.
    """

    def __init__(self, limit: int | None, wrote: Callable[[memoryview, int], None]) -> None:
        self.leader_epoch = FIRST_LEADER_EPOCH
        self._limit = limit
        self._wrote = wrote
        self._buffer = OutputBuffer()
        self._end = RECORD_BATCH_OVERHEAD
        self._count = 0
        self._codec = 0
        self._append_time = 0
        self._base_offset = 0
        self._last_offset = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    def add_entry(self, data: Any, records: RecordColumns, first: int, stop: int, codec: int, append_time: int) -> None:
        """Add the records of one wrapper, which stay together; ``append_time`` is LOG_APPEND_TIME or 0."""
        if self._joins(records, first, stop, codec, append_time):
            end = self._encode(data, records, first, stop)
            if self._limit is not None and end <= self._limit:
                self._accept(records, first, stop, end)
                return
        self._begin(records, first, codec, append_time)
        self._accept(records, first, stop, self._encode(data, records, first, stop))
        if self._limit is None:
            self.flush()

    def add_messages(
        self, data: Any, records: RecordColumns, first: int, stop: int, batches: BatchColumns, codec: int
    ) -> None:
        """Add uncompressed messages, with one or several timestamp types."""
        while first < stop:
            append_time = batches.attributes[records.batch[first]] & LOG_APPEND_TIME
            append_time = append_time if batches.magic[records.batch[first]] else 0
            if not self._count or self._codec != codec:
                self._begin(records, first, codec, append_time)
            else:
                append_time = self._append_time
            end = self._end
            out = self._buffer.reserve(self._end + self._room(data, records, first, stop), self._end)
            fit, end = encoder.pack_messages(
                data, records, first, stop, batches, self._base_offset, self._base_timestamp, append_time,
                out, self._end, self._limit or 0,
            )  # fmt: skip
            if fit > first:
                self._accept(records, first, fit, end)
            elif self._count:
                self.flush()
            else:
                fit = first + 1
                self._accept(records, first, fit, self._encode(data, records, first, fit))
                self.flush()
            first = fit

    def flush(self) -> None:
        """Finish the batch that is being packed, if there is one."""
        if not self._count:
            return
        view, end = self._buffer.view[: self._end], self._end
        if self._codec:
            view = memoryview(bytearray(RECORD_BATCH_OVERHEAD) + compress(self._codec, view[RECORD_BATCH_OVERHEAD:]))
            end = len(view)
        encoder.finish_batch(
            view, 0, end, self._base_offset, self._last_offset, self._count, self._codec | self._append_time,
            self._base_timestamp, self._max_timestamp, -1, -1, -1, self.leader_epoch,
        )  # fmt: skip
        self._wrote(view, self._codec)
        self._end, self._count = RECORD_BATCH_OVERHEAD, 0

    def _joins(self, records: RecordColumns, first: int, stop: int, codec: int, append_time: int) -> bool:
        """Return whether records fit into the current batch: the same codec, timestamp type and append time."""
        return (
            self._count > 0
            and self._codec == codec
            and self._append_time == append_time
            and not (append_time and records.timestamp[first] != self._base_timestamp)
            and records.offset[stop - 1] - self._base_offset <= INT32_MAX
        )

    def _begin(self, records: RecordColumns, first: int, codec: int, append_time: int) -> None:
        self.flush()
        self._codec = codec
        self._append_time = append_time
        self._base_offset = records.offset[first]
        # Kafka's builder uses the first record's timestamp, not the smallest.
        self._base_timestamp = self._max_timestamp = records.timestamp[first]

    def _encode(self, data: Any, records: RecordColumns, first: int, stop: int) -> int:
        out = self._buffer.reserve(self._end + self._room(data, records, first, stop), self._end)
        return encoder.encode_records(
            data, records, first, stop, self._base_offset, self._base_timestamp, out, self._end
        )

    def _room(self, data: Any, records: RecordColumns, first: int, stop: int) -> int:
        # Keys and values of a run are consecutive in its payload.
        behind = records.value_at[stop - 1] + max(records.value_size[stop - 1], 0)
        return behind - records.key_at[first] + (stop - first) * encoder.ROOM_PER_RECORD

    def _accept(self, records: RecordColumns, first: int, stop: int, end: int) -> None:
        self._end = end
        self._count += stop - first
        self._last_offset = records.offset[stop - 1]
        self._max_timestamp = max(self._max_timestamp, encoder.largest_timestamp(records, first, stop))
