"""Validate the batches of one record set as a leader does before it appends them (``LogValidator`` of Kafka 4.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kseg.extras.wire.leader_records import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    UNKNOWN_SERVER_ERROR,
    BatchPayload,
    LeaderRecord,
    Reader,
    RejectedSetError,
    UndecidedSetError,
    decompressed,
    default_records,
    inner_messages,
    java_long,
    legacy_record,
    plain_records,
    varint,
)
from kseg.extras.wire.sent_batches import SentBatch
from kseg.format.compress.codecs import codec_name, compress
from kseg.format.record.framing import read_int64
from kseg.format.record.layout import (
    CONTROL,
    DEFAULT_MAX_MESSAGE_BYTES,
    INT64_MAX,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
)
from kseg.results import Settings

#: The default of ``message.timestamp.after.max.ms`` since Kafka 4.0 (KIP-1030).
FUTURE_MS = 3_600_000
# Of 623 random batches, kseg and Kafka compressed all to the same size with gzip and LZ4, with snappy up to 8 bytes
# differently, with zstd up to 24. A size nearer to the limit than 32 bytes and this part of it decides nothing.
_MARGIN = 50


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic that decide, by their Kafka names; ``now`` is the leader's clock in milliseconds.

    ``timestamp_after_max_ms`` None is the default of the broker: 1 hour in Kafka 4, unlimited in Kafka 3.9.
    """

    now: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    compression_type: str = "producer"
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None
    compacted: bool = False

    @classmethod
    def of(cls, settings: Settings) -> TopicSettings:
        """Return the settings of the topic that the settings of a run state, with the clock of this machine."""
        return cls(
            now=time.time_ns() // 1_000_000,
            max_message_bytes=settings.max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES,
            compression_type=settings.compression_type,
            timestamp_before_max_ms=settings.timestamp_before_max_ms,
            timestamp_after_max_ms=settings.timestamp_after_max_ms,
            compacted=settings.compacted,
        )


class SetVerdict(NamedTuple):
    """The result of a record set at a leader.

    ``outcome`` is "accepted" (the leader changes only the header), "rewritten", "rejected" with ``error``, the name in
    Kafka's ``Errors``, or "undetermined". ``why`` is the reason in one sentence. An accepted or rewritten set becomes one
    batch of version ``magic`` with ``records`` records and the largest timestamp ``max_timestamp``, which record
    ``max_timestamp_index`` has first; these are None for an empty set, which adds nothing to the log. ``bytes`` is the
    size of the batch, None if it depends on the broker's compression.
    """

    outcome: str
    broker: str
    why: str = ""
    error: str | None = None
    magic: int | None = None
    compression: str | None = None
    records: int | None = None
    max_timestamp: int | None = None
    max_timestamp_index: int | None = None
    bytes: int | None = None


class SetValidation:
    """The validation of a set (``LogValidator``). ``source`` and ``target`` are codecs."""

    def __init__(
        self, batches: Sequence[SentBatch], source: int, target: int, topic: TopicSettings, broker: str
    ) -> None:
        self._batches = batches
        self._first = batches[0]
        self._source = source
        self._target = target
        self._topic = topic
        self._broker = broker
        self._converting = False
        self._unwritable = ""
        self._count = 0
        self._max_timestamp = -1
        self._max_index: int | None = None
        # Of the records in a new v2 batch.
        self._base_timestamp = 0
        self._bytes = RECORD_BATCH_OVERHEAD
        self._size: int | None = len(self._first.data)

    def verdict(self) -> SetVerdict:
        """Return the verdict. Raises RejectedSetError and UndecidedSetError."""
        first = self._first
        self._converting = not self._source and not self._target and any(batch.magic != 2 for batch in self._batches)
        in_place = self._source == self._target and first.magic == 2 and not self._converting
        if self._converting:
            self._check_readable()
        if len(self._batches) > 1 and (first.magic >= 2 or self._source):
            why = "the set has more than one batch, but only uncompressed messages of versions 0 and 1 may follow each other"
            raise RejectedSetError(INVALID_RECORD, why)
        for batch in self._batches:
            self._check_header(batch)
            if not in_place or not self._is_plain(batch):
                self._check_records(batch, in_place)
        if not in_place:
            self._check_new_batch()
        elif self._unwritable:
            raise RejectedSetError(UNKNOWN_SERVER_ERROR, self._unwritable)
        self._check_producer()
        changed = [] if first.magic == 2 else [f"magic {first.magic} becomes 2"]
        if self._source != self._target:
            changed.append(f"{codec_name(self._source)} becomes {codec_name(self._target)}")
        return SetVerdict(
            "accepted" if in_place else "rewritten",
            self._broker,
            ", ".join(changed),
            None,
            2,
            codec_name(self._target),
            self._count,
            self._max_timestamp,
            self._max_index,
            self._size,
        )

    def _check_readable(self) -> None:
        """Check the keys and values of all records, which a broker measures before it converts them."""
        for batch in self._batches:
            if batch.header and not batch.header.record_count:
                continue
            for record in _records_of(batch, Reader.UNCOMPRESSED):
                _check_fault(record)

    def _check_header(self, batch: SentBatch) -> None:
        """``LogValidator.validateBatch``."""
        if batch.magic != self._first.magic:
            why = f"a batch has magic {batch.magic}, but the first has magic {self._first.magic}"
            raise RejectedSetError(INVALID_RECORD, why)
        header = batch.header
        if header is None:
            return
        expected, count = header.last_offset_delta + 1, header.record_count
        if expected <= 0:
            raise RejectedSetError(INVALID_RECORD, f"the last offset delta is {header.last_offset_delta}")
        if count <= 0:
            raise RejectedSetError(INVALID_RECORD, f"the record count is {count}")
        if expected != count:
            why = f"the record count is {count}, but the last offset delta is {expected - 1}"
            raise RejectedSetError(INVALID_RECORD, why)
        if batch.attributes & CONTROL:
            raise RejectedSetError(INVALID_RECORD, "clients may not write control batches")
        if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
            why = f"the base sequence of producer {header.producer_id} is {header.base_sequence}"
            raise RejectedSetError(INVALID_RECORD, why)

    def _check_records(self, batch: SentBatch, in_place: bool) -> None:
        """``LogValidator.validateRecord`` for each record of a batch; the faults are reported after the last one."""
        reader = Reader.SKIPPING if in_place and batch.codec else _reader(batch)
        error: RejectedSetError | None = None
        for index, record in enumerate(_records_of(batch, reader)):
            fault = self._record_fault(batch, record, index)
            if fault and (error is None or fault.error == "INVALID_TIMESTAMP" != error.error):
                error = fault
            if error is None:
                self._add(record, in_place)
        if error:
            raise error

    def _is_plain(self, batch: SentBatch) -> bool:
        """Count the records of a batch that stays as it is, and return True, or return False if one may have a fault."""
        found = None if batch.append_time else plain_records(batch.data, _payload_of(batch))
        before, after = self._timestamp_limits()
        now = self._topic.now
        if found is None or found.smallest < max(0, now - before) or found.largest > now + after:
            return False
        if self._topic.compacted and found.null_keys:
            return False
        self._count, self._max_timestamp, self._max_index = found.total, found.largest, found.largest_index
        return True

    def _timestamp_limits(self) -> tuple[int, int]:
        """Return message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic."""
        before, after = self._topic.timestamp_before_max_ms, self._topic.timestamp_after_max_ms
        if after is None:
            after = FUTURE_MS if self._broker != "3.9" else INT64_MAX
        return INT64_MAX if before is None else before, after

    def _record_fault(self, batch: SentBatch, record: LeaderRecord, index: int) -> RejectedSetError | None:
        if record.magic != batch.magic:
            why = f"record {index} has magic {record.magic}, but its message set has magic {batch.magic}"
            _check_fault(record)  # Kafka's error message prints the sizes of key and value
            return RejectedSetError(INVALID_RECORD, why)
        if not record.valid:
            raise RejectedSetError(CORRUPT_MESSAGE, f"the CRC of inner message {index} is wrong")
        if self._topic.compacted and not record.has_key:
            if record.has_key is None:
                raise RejectedSetError(UNKNOWN_SERVER_ERROR, record.fault)
            return RejectedSetError(INVALID_RECORD, f"record {index} has no key, but the topic is compacted")
        return self._timestamp_fault(batch, record, index)

    def _timestamp_fault(self, batch: SentBatch, record: LeaderRecord, index: int) -> RejectedSetError | None:
        """``LogValidator.validateTimestamp`` of a topic with CreateTime."""
        timestamp = record.timestamp
        if timestamp == -1:
            if batch.append_time:
                why = f"record {index} has LogAppendTime and no timestamp, but only a leader sets LogAppendTime"
                _check_fault(record)  # as above
                return RejectedSetError("INVALID_TIMESTAMP", why)
            return None
        before, after = self._timestamp_limits()
        age = java_long(self._topic.now - timestamp)
        for passed, limit, name in ((age, before, "before"), (java_long(-age), after, "after")):
            if passed > limit:
                why = f"record {index} has the timestamp {timestamp}, beyond message.timestamp.{name}.max.ms {limit:,}"
                return RejectedSetError("INVALID_TIMESTAMP", why)
        return None

    def _add(self, record: LeaderRecord, in_place: bool) -> None:
        """Count a record that is written. Raises RejectedSetError."""
        if in_place:
            if self._source and record.offset != self._count:
                # The records are to be written again, but their keys and values were skipped.
                self._unwritable = f"record {self._count} has the offset delta {record.offset}"
        else:
            self._add_size(record)
        if record.timestamp > self._max_timestamp:
            self._max_timestamp = record.timestamp
            self._max_index = record.offset if in_place else self._count
            if in_place and self._first.append_time:  # from now on, the records have timestamps of their own
                self._max_index = None
        self._count += 1

    def _add_size(self, record: LeaderRecord) -> None:
        if not self._count:
            self._base_timestamp = record.timestamp
        self._bytes += len(self._head(self._count, record)) + len(record.content)
        if record.timestamp < -1:
            self._unwritable = self._unwritable or f"record {self._count} has the timestamp {record.timestamp}"
            if self._converting:
                raise RejectedSetError(UNKNOWN_SERVER_ERROR, self._unwritable)
        self._unwritable = self._unwritable or record.fault

    def _head(self, index: int, record: LeaderRecord) -> bytes:
        """Return the bytes of a new v2 record before its content."""
        head = b"\0" + varint(java_long(record.timestamp - self._base_timestamp)) + varint(index)
        return varint(len(head) + len(record.content)) + head

    def _check_new_batch(self) -> None:
        """Check the producer of a batch that is written again, and its size (``MemoryRecordsBuilder``)."""
        header = self._first.header
        if header:
            producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
            if producer_id == NO_PRODUCER_ID and self._first.transactional:
                self._unwritable = self._unwritable or "a transactional batch has no producer id"
            if producer_id != NO_PRODUCER_ID and (epoch == -1 or sequence < 0):
                why = f"producer {producer_id} has the epoch {epoch} and the base sequence {sequence}"
                self._unwritable = self._unwritable or why
        if self._unwritable:
            raise RejectedSetError(UNKNOWN_SERVER_ERROR, f"{self._unwritable}, so that it cannot be written again")
        self._check_new_size()

    def _check_new_size(self) -> None:
        limit, size, margin, about = self._topic.max_message_bytes, self._bytes, 0, ""
        if self._target:
            self._size = None
            if size + size // 4 + 200 <= limit:  # a codec does not add more
                return
            size = RECORD_BATCH_OVERHEAD + len(compress(self._target, self._payload()))
            margin, about = 32 + limit // _MARGIN, "about "
        if abs(size - limit) < margin:
            why = f"the batch has about {size:,} bytes when it is compressed again, near max.message.bytes {limit:,}"
            raise UndecidedSetError(why)
        if size > limit:
            why = f"the batch has {about}{size:,} bytes when it is written again, above max.message.bytes {limit:,}"
            raise RejectedSetError("MESSAGE_TOO_LARGE", why)
        self._size = None if self._target else size

    def _payload(self) -> bytes:
        """Return the records of the new batch."""
        found = (record for batch in self._batches for record in _records_of(batch, _reader(batch)))
        return b"".join(self._head(index, record) + bytes(record.content) for index, record in enumerate(found))

    def _check_producer(self) -> None:
        """``ProducerAppendInfo.checkProducerEpoch`` of a producer without earlier batches."""
        header = self._first.header
        if header and header.producer_id > NO_PRODUCER_ID and header.producer_epoch < -1:
            why = f"producer {header.producer_id} has the epoch {header.producer_epoch}"
            raise RejectedSetError("INVALID_PRODUCER_EPOCH", why)


def _records_of(batch: SentBatch, reader: Reader) -> Iterator[LeaderRecord]:
    """Yield the records of a batch. Raises RejectedSetError and UndecidedSetError."""
    header = batch.header
    if header:
        append_time = header.max_timestamp if batch.append_time else None
        yield from default_records(_payload_of(batch), header.record_count, header.base_timestamp, append_time, reader)
    elif batch.codec:
        yield from inner_messages(batch.data[LOG_OVERHEAD:], read_int64(batch.data, 0))
    else:
        yield legacy_record(batch.data[LOG_OVERHEAD:])


def _reader(batch: SentBatch) -> Reader:
    return Reader.COMPRESSED if batch.codec else Reader.UNCOMPRESSED


def _payload_of(batch: SentBatch) -> BatchPayload:
    """Return the decompressed records of a v2 batch; of others, all after the header."""
    stored = batch.data[RECORD_BATCH_OVERHEAD if batch.header else LOG_OVERHEAD :]
    return decompressed(batch.codec, stored, batch.magic) if batch.header and batch.codec else BatchPayload(stored)


def _check_fault(record: LeaderRecord) -> None:
    if record.fault:
        raise RejectedSetError(UNKNOWN_SERVER_ERROR, record.fault)
