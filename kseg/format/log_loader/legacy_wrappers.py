"""The first offset of a compressed v0 or v1 message, which a broker decompresses (``AbstractLegacyRecordBatch``,
4.3).
"""

from __future__ import annotations

from kseg.format.compress import codecs
from kseg.format.compress.codecs import CodecError, DecompressionLimit
from kseg.format.log_loader.refusals import RefusedError
from kseg.format.record import framing
from kseg.format.record.layout import (
    CODEC_MASK,
    HEADER_SIZE_UP_TO_MAGIC,
    LEGACY_ATTRIBUTES_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    SIZE_AT,
    V0_KEY_AT,
    V0_MIN_SIZE,
    V1_KEY_AT,
)

#: The largest wrapper, and the largest decompressed size, that is read. Brokers accept 1 MiB by default.
MAX_WRAPPER = 64 << 20
MAX_INFLATED = 128 << 20
#: Kafka allocates what an inner message's size field asks for; its start script gives the JVM 1 GiB, less other use.
HEAP = 960 << 20
_ZSTD = 4


def base_offset(entry: bytes) -> int:
    """Return the first offset in a complete message of magic 0 or 1 whose attributes name a codec.

    Raises RefusedError if Kafka throws: no caller of ``DeepRecordsIterator`` catches exceptions while a log is loaded.
    """
    magic = entry[MAGIC_AT]
    codec = entry[LEGACY_ATTRIBUTES_AT] & CODEC_MASK
    if magic > 1:
        raise RefusedError(f"a compressed message set has magic {magic - 256}")
    if codec >= _ZSTD:
        raise RefusedError(f"a compressed message set names codec {codec}, which message format v{magic} does not have")
    try:
        data = codecs.decompress(codec, _value(entry, magic), limit=MAX_INFLATED, magic=magic)
    except DecompressionLimit as error:
        raise RefusedError(f"a compressed message set decompresses to more than {MAX_INFLATED:,} bytes") from error
    except CodecError as error:
        raise RefusedError(f"a compressed message set cannot be decompressed: {error}") from error
    first, last = _inner_offsets(data)
    wrapper = framing.read_int64(entry, 0)
    if magic == 0:
        return first
    if wrapper and wrapper < last:
        raise RefusedError(
            f"a compressed message set has offset {wrapper}, but its last inner message has offset {last}"
        )
    return framing.wrapped_sum(first, wrapper - last if wrapper else 0)


def _value(entry: bytes, magic: int) -> memoryview:
    key_at = V1_KEY_AT if magic else V0_KEY_AT
    try:
        at = key_at + 4 + max(0, framing.read_int32(entry, key_at))
        size = framing.read_int32(entry, at)
    except IndexError:
        raise RefusedError("the key of a compressed message set goes beyond its end") from None
    if size < 0:
        raise RefusedError("a compressed message set has no value")
    if size > len(entry) - at - 4:
        raise RefusedError("the value of a compressed message set goes beyond its end")
    return memoryview(entry)[at + 4 : at + 4 + size]


def _inner_offsets(data: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return the stored offsets of the first and the last inner message. An incomplete message ends the set without an
    error.
    """
    at, end = 0, len(data)
    first = last = None
    attributes = 0
    while end - at >= LOG_OVERHEAD:
        size = framing.read_int32(data, at + SIZE_AT)
        if size < V0_MIN_SIZE:
            raise RefusedError(f"a compressed message set has an inner message of {size} bytes")
        if size > end - at - LOG_OVERHEAD:
            if size > HEAP:
                raise RefusedError(f"an inner message has the size field {size}, which the broker would allocate")
            break
        last = framing.read_int64(data, at)
        if first is None:
            first, attributes = last, data[at + HEADER_SIZE_UP_TO_MAGIC]
        at += LOG_OVERHEAD + size
    if first is None or last is None:
        raise RefusedError("a compressed message set has no inner message")
    if attributes & CODEC_MASK:
        raise RefusedError("a compressed message set has an inner message that is compressed")
    return first, last
