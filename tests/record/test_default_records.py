"""Records of v2 batches with any byte changed: what a decoder of the specification reads, and findings for the rest."""

from __future__ import annotations

import io
from itertools import product

import pytest

import kseg
from kseg.findings import Finding
from kseg.format.compress import codecs
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.source import Source
from tests.support import damage
from tests.support.cli import PLAIN

LZ4 = 3
NOW = 1_700_000_000_000
Row = tuple[int, int, bytes | None, bytes | None, int]


class _Invalid(Exception):
    """Kafka's InvalidRecordException."""


class _Decoder:
    """Reads varints and bytes as DefaultRecord.readFrom does: within the record, to its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self.data) - self.at:
            raise _Invalid
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, most: int) -> int:
        raw = 0
        for shift in range(0, 7 * most, 7):
            (byte,) = self.take(1)
            raw |= (byte & 127) << shift
            if byte < 128:
                return (raw >> 1) ^ -(raw & 1)
        raise _Invalid

    def sized(self) -> bytes | None:
        size = self.varint(5)
        return None if size == -1 else self.take(size)

    def record(self) -> Row:
        inner = _Decoder(self.take(self.varint(5)))
        inner.take(1)
        timestamp, offset, key, value, headers = (
            inner.varint(10),
            inner.varint(5),
            inner.sized(),
            inner.sized(),
            inner.varint(5),
        )
        if not 0 <= headers <= len(self.data):
            raise _Invalid
        for _ in range(headers):
            if inner.sized() is None:
                raise _Invalid
            inner.sized()
        if inner.at != len(inner.data):
            raise _Invalid
        return offset, timestamp, key, value, headers


def _specified(payload: bytes, count: int) -> list[Row] | None:
    """Return the records of a payload, None if Kafka rejects one."""
    decoder = _Decoder(payload)
    try:
        rows = [decoder.record() for _ in range(count)]
    except _Invalid:
        return None
    return rows if decoder.at == len(payload) else None


def _read(data: bytes) -> tuple[list[Row], list[str]]:
    """Return the records that kseg reads, and the rules of its findings."""
    found: list[Finding] = []
    for _ in chunks_of(Source("s", io.BytesIO(data), len(data)), found.append):
        pass
    with kseg.open_segment(io.BytesIO(data)) as segment:
        rows = [
            (one.offset, (one.timestamp or 0) - NOW, one.key, one.value, len(one.headers)) for one in segment.records()
        ]
    return rows, [one.rule for one in found]


#: Each is the last record of its batch, so that nothing follows the byte that a wrong length takes for its own.
LAST = {
    "text": damage.record(b"k", b"v", offset_delta=1),
    "tombstone": damage.record(b"k", None, offset_delta=1),
    "no key": damage.record(None, b"v", offset_delta=1),
    "empty": damage.record(None, None, offset_delta=1),
    "headers": bytes([2 * 14]) + b"\0\0\2\2k\2v\4\2a\1\2b" + b"\0",
}


#: The ends of the ranges of lengths, deltas and varints of one byte, and beginnings of longer ones.
VALUES = (0, 1, 2, 3, 5, 8, 10, 11, 12, 13, 14, 0x7E, 0x7F, 0x80, 0x81, 0x82, 0xFE, 0xFF)


@pytest.mark.slow
@pytest.mark.parametrize("last", LAST)
def test_any_byte_of_a_record_has_any_value(last: str) -> None:
    """Valid records are read, and all others are findings: no byte makes kseg read what is not in the record."""
    payload = damage.record() + LAST[last]
    like = PLAIN.read_bytes()
    assert _specified(payload, 2) is not None, "the record itself is valid"
    for at, value in product(range(len(payload)), VALUES):
        changed = payload[:at] + bytes([value]) + payload[at + 1 :]
        # Decompressed, so that the bytes end with the record.
        stored = bytes(codecs.compress(LZ4, changed))
        data = damage.batch(like, stored, 2, attributes=LZ4, base_offset=0, base_timestamp=NOW)
        expected = _specified(changed, 2)
        rows, rules = _read(data)
        assert ("malformed-record" in rules or "record-count-mismatch" in rules) == (expected is None), (
            at,
            value,
            rules,
        )
        if expected is not None:
            assert rows == expected, (at, value)
