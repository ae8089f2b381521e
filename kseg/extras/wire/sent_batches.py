"""The batches of a record set, found as a leader finds them (``ByteBufferLogInputStream``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kseg.extras.wire.leader_records import CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR, RejectedSetError
from kseg.format.compress.codecs import CODECS
from kseg.format.record.crc import crc32_of, crc32c_of
from kseg.format.record.framing import read_int32, read_uint32
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LEGACY_CRC_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
    TRANSACTIONAL,
    V0_MIN_SIZE,
)


class BatchHeader(NamedTuple):
    """The fields of ``layout.BATCH_HEADER``."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class SentBatch(NamedTuple):
    """One batch of a set. ``header`` is None for versions 0 and 1, and for a batch that ends within its header."""

    data: memoryview
    magic: int
    header: BatchHeader | None

    @property
    def attributes(self) -> int:
        """The attributes; Kafka ignores the higher byte of version 2."""
        return self.data[ATTRIBUTES_AT + 1] if self.magic >= 2 else self.data[MAGIC_AT + 1]

    @property
    def codec(self) -> int:
        """The codec, of which the numbers above zstd are unknown."""
        return self.attributes & CODEC_MASK

    @property
    def crcs(self) -> tuple[int, int]:
        """The stored CRC and the computed one."""
        at, begin = (CRC_AT, ATTRIBUTES_AT) if self.magic >= 2 else (LEGACY_CRC_AT, MAGIC_AT)
        crc = crc32c_of if self.magic >= 2 else crc32_of
        return read_uint32(self.data, at), crc(self.data, begin, len(self.data))

    @property
    def transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def append_time(self) -> bool:
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


def batches_of(data: memoryview) -> Iterator[SentBatch]:
    """Yield the complete batches of a set (``ByteBufferLogInputStream``). Raises RejectedSetError for a damaged header."""
    at = 0
    while len(data) - at >= LOG_OVERHEAD:
        size = read_int32(data, at + SIZE_AT)
        if size < V0_MIN_SIZE:
            raise RejectedSetError(CORRUPT_MESSAGE, f"the size of a batch is {size}, but the minimum is {V0_MIN_SIZE}")
        if len(data) - at < HEADER_SIZE_UP_TO_MAGIC:
            return
        magic = data[at + MAGIC_AT]
        if magic > 2:
            raise RejectedSetError(CORRUPT_MESSAGE, f"the magic of a batch is {magic}, but the highest is 2")
        end = at + LOG_OVERHEAD + size
        if size > INT32_MAX - LOG_OVERHEAD:  # the sum overflows in Kafka
            raise RejectedSetError(UNKNOWN_SERVER_ERROR, f"the size of a batch is {size:,}")
        if end > len(data):
            return
        batch = data[at:end]
        complete = magic == 2 and len(batch) >= RECORD_BATCH_OVERHEAD
        header = BatchHeader(*BATCH_HEADER.unpack_from(batch)) if complete else None
        yield SentBatch(batch, magic, header)
        at = end


def check_codec(batch: SentBatch) -> None:
    """Raise RejectedSetError for an unknown codec."""
    if batch.codec not in CODECS:
        raise RejectedSetError(UNKNOWN_SERVER_ERROR, f"the codec {batch.codec} is unknown")
