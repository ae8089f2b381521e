"""The markers that end transactions, read from control batches as a broker reads them (``EndTransactionMarker``)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kseg.format.compress import codecs
from kseg.format.compress.codecs import CodecError, DecompressionLimit
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.partition_files import File
from kseg.format.record import framing, layout
from kseg.format.record.columns import BatchColumns

_MAX_CONTROL = 16 << 20
_ABORT, _COMMIT = 0, 1
_KEY = struct.Struct(">hh")  # version, type
_MARKER = struct.Struct(">hi")  # version, coordinator epoch


class EndMarker(NamedTuple):
    """The end of a transaction. ``timestamp`` is that of its record, in epoch milliseconds."""

    commit: bool
    coordinator_epoch: int
    timestamp: int


class CorruptRecord(Exception):
    """Kafka's InvalidRecordException: recovery cuts the log there; without recovery the broker ends."""


def end_marker(log: File, batches: BatchColumns, row: int) -> EndMarker | None:
    """Return the marker that is the first record of a control batch; None for an empty batch.

    Raises CorruptRecord and RefusedError like ``EndTransactionMarker.deserialize``.
    """
    count = batches.record_count[row]
    if not count:
        return None
    if count < 0:
        raise CorruptRecord(f"a control batch has {count} records")
    size = batches.size[row]
    if size > _MAX_CONTROL:
        raise RefusedError(f"a control batch has {size} bytes")
    data = log.read(batches.position[row], size)[layout.RECORD_BATCH_OVERHEAD :]
    codec = batches.attributes[row] & layout.CODEC_MASK
    if codec:
        try:
            data = bytes(codecs.decompress(codec, data, limit=_MAX_CONTROL))
        except (CodecError, DecompressionLimit) as error:
            raise RefusedError(f"a control batch cannot be decompressed: {error}") from error
    delta, key, value, end = _first_record(data)
    if count == 1 and end != len(data):
        raise CorruptRecord(f"{len(data) - end} bytes follow the only record of a control batch")
    commit = _is_commit(key, value)
    assert value is not None
    if batches.attributes[row] & layout.LOG_APPEND_TIME:
        timestamp = batches.max_timestamp[row]
    else:
        timestamp = framing.wrapped_sum(batches.base_timestamp[row], delta)
    return EndMarker(commit, _MARKER.unpack_from(value)[1], timestamp)


def _is_commit(key: bytes | None, value: bytes | None) -> bool:
    if key is None:
        raise RefusedError("a control record has no key")
    if len(key) < _KEY.size or _KEY.unpack_from(key)[0] < 0:
        raise CorruptRecord(f"the key of a control record is {key.hex()}")
    kind = _KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        raise RefusedError(f"a control record of producer has type {kind}, which does not end a transaction")
    if value is None or len(value) < 2:
        raise RefusedError("a control record has no value")
    if framing.read_int16(value, 0) < 0:
        raise CorruptRecord(f"the value of a control record is {value.hex()}")
    if len(value) < _MARKER.size:
        raise RefusedError("the value of a control record is incomplete")
    return bool(kind == _COMMIT)


def _first_record(data: bytes) -> tuple[int, bytes | None, bytes | None, int]:
    """Return timestamp delta, key and value of the first record (``DefaultRecord.readFrom``), and the byte after it.

    Raises CorruptRecord.
    """
    end = len(data)
    try:
        size, begin = _varint(data, 0, end)
        if size > end - begin:
            raise CorruptRecord(f"a control record has the length {size}, but only {end - begin} bytes are left")
        at = begin + 1
        delta, at = _varint(data, at, end, 63)
        _, at = _varint(data, at, end)
        key, at = _field(data, at, end)
        value, at = _field(data, at, end)
        headers, at = _varint(data, at, end)
        if not 0 <= headers <= end - at:
            raise CorruptRecord(f"a control record has the header count {headers}")
        for _ in range(headers):
            name, at = _field(data, at, end)
            if name is None:
                raise CorruptRecord("a header of a control record has no key")
            _, at = _field(data, at, end)
    except IndexError as error:
        raise CorruptRecord("a control record is incomplete") from error
    if at - begin != size:
        raise CorruptRecord(f"a control record has the length {size}, but {at - begin} bytes")
    return delta, key, value, at


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at, end)
    if size < 0:
        return None, at
    if size > end - at:
        raise IndexError(at)
    return data[at : at + size], at + size


def _varint(data: bytes, at: int, end: int, last_shift: int = 28) -> tuple[int, int]:
    """Return a zig-zag number and the byte after it. Raises IndexError if it is incomplete or too long."""
    value, at = framing.read_varint(data, at, end, last_shift)
    if at < 0:
        raise IndexError
    return value, at
