"""The layouts of Kafka's three message formats: the grammar, header fields, masks and sentinels. No logic.

Every integer is big-endian and signed unless said otherwise. Sources: ``org.apache.kafka.common.record``
(``LegacyRecord``, ``DefaultRecordBatch``, ``DefaultRecord``), KIP-31, KIP-32, KIP-98, KIP-534.

A ``.log`` file is a sequence of batches. One file may contain several versions::

    log      := entry*                                  -- an entry is a batch
    entry    := offset:int64 size:int32 body            -- the magic byte is always at +16

    message  := crc:uint32 magic:int8 attributes:int8   -- v0, v1; CRC-32 over magic..end
                [timestamp:int64]                       -- v1
                keyLen:int32 key valueLen:int32 value   -- -1 is null
    wrapper  := message whose attributes name a codec: null key, value = compressed entry*

    batch    := partitionLeaderEpoch:int32 magic:int8 crc:uint32 ...   -- v2; CRC-32C over attributes..end
                recordCount:int32 (record* | compressed record*)
    record   := length:varint attributes:int8 timestampDelta:varlong offsetDelta:varint
                keyLen:varint key valueLen:varint value headerCount:varint header*
    header   := keyLen:varint key valueLen:varint value

Varints are zig-zag (``org.apache.kafka.common.utils.ByteUtils``).
"""

from __future__ import annotations

import struct

# Every batch: the header that `size` does not include, and the position of the magic byte.
OFFSET_AT = 0
SIZE_AT = 8
LOG_OVERHEAD = 12
MAGIC_AT = 16
HEADER_SIZE_UP_TO_MAGIC = 17

# v0 and v1 batches, from the first byte.
LEGACY_CRC_AT = 12
LEGACY_ATTRIBUTES_AT = 17
V1_TIMESTAMP_AT = 18
V0_KEY_AT = 18
V1_KEY_AT = 26
V0_MIN_SIZE = 14  # the smallest `size`: crc, magic, attributes and two null lengths
V1_MIN_SIZE = 22

# v2 batches, from the first byte.
PARTITION_LEADER_EPOCH_AT = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57
RECORD_BATCH_OVERHEAD = 61
V2_MIN_SIZE = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD

BATCH_HEADER = struct.Struct(
    ">"
    "q"  # baseOffset
    "i"  # batchLength: bytes after this field
    "i"  # partitionLeaderEpoch
    "b"  # magic
    "I"  # crc: CRC-32C over [21, end)
    "h"  # attributes
    "i"  # lastOffsetDelta
    "q"  # baseTimestamp, or deleteHorizonMs with DELETE_HORIZON
    "q"  # maxTimestamp
    "q"  # producerId
    "h"  # producerEpoch
    "i"  # baseSequence
    "i"  # recordCount
)

# Attributes.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
V0_RESERVED = 0xF8
V1_RESERVED = 0xF0
V2_RESERVED = 0xFF80

# A v2 record can't be smaller: length, attributes, three deltas and lengths, no headers.
MIN_RECORD_SIZE = 7

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
#: For batches whose epoch is unknown: no later batch has a lower epoch, and followers reject -1 (EpochEntry).
FIRST_LEADER_EPOCH = 0
INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF
INT64_MIN = -INT64_MAX - 1
# The limit of kseg for sums of a stored 64-bit number and a delta, so that the compiled engine does not overflow.
SUM_LIMIT = 1 << 61
# No producer's batch has as many records: a larger step of offsets needs a reason.
LARGE_JUMP = 1 << 20
# The years 1 to 9999 in epoch milliseconds, the range of Python, SQL and Spark.
FIRST_MILLISECOND = -62_135_596_800_000
LAST_MILLISECOND = 253_402_300_799_999

#: ``message.max.bytes`` by default: 1 MiB and the overhead of one batch.
DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024 + LOG_OVERHEAD

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def timestamp_or_none(stored: int) -> int | None:
    """Return a stored timestamp, None for -1."""
    return None if stored == NO_TIMESTAMP else stored


def first_timestamp(attributes: int, base_timestamp: int) -> int | None:
    """Return the timestamp of a batch's first record, None if its header has the delete horizon there, or -1."""
    return None if attributes & DELETE_HORIZON else timestamp_or_none(base_timestamp)


#: The states of a record's transaction.
COMMITTED, ABORTED, OPEN, UNKNOWN = TRANSACTION_STATES = ("committed", "aborted", "open", "unknown")
#: The isolation levels of consumers (KIP-98).
READ_UNCOMMITTED, READ_COMMITTED = ISOLATIONS = ("read_uncommitted", "read_committed")
