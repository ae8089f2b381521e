"""A batch that is decoded in parts, as its payload arrives, has the records, facts and faults that it has at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kseg.format.record import framing, legacy_records
from kseg.format.record.columns import BatchColumns, PartialBatch, RecordColumns
from kseg.format.record.default_records import split_records
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage

NOW = 1_700_000_000_000
FACTS = (
    "attribute_bits", "largest_timestamp", "disorder", "null_keys", "header_total", "invalid_keys", "record_sum",
    "first_record_offset", "last_record_offset",
)  # fmt: skip

PLAIN = [damage.record(b"k", b"v" * n, offset_delta=n, timestamp_delta=7 * n % 5) for n in range(7)]
#: A record with two headers, of which one has a key that is not UTF-8, and one with a bit among its attributes.
HEADERS = b"\x24\0\0\x10\2k\2v\4\2a\1\2\xff\2b"
HEADERS = bytes([2 * (len(HEADERS) - 1)]) + HEADERS[1:]
WITH_BIT = damage.record(None, b"", offset_delta=9)
WITH_BIT = WITH_BIT[:1] + b"\4" + WITH_BIT[2:]
LONG = damage.record(b"k" * 90, b"v" * 300, offset_delta=11, timestamp_delta=1 << 40)
ALL = [*PLAIN, HEADERS, WITH_BIT, LONG]
#: Records, bytes after them, and how many records the header claims besides them.
PAYLOADS: dict[str, tuple[list[bytes], bytes, int]] = {
    "valid": (ALL, b"", 0),
    "one": (PLAIN[:1], b"", 0),
    "disorder": ([PLAIN[0], PLAIN[3], PLAIN[2], PLAIN[2], PLAIN[5]], b"", 0),
    "a record is missing": (ALL, b"", 1),
    "a record is left": (ALL, b"", -1),
    "two records are left": (ALL, b"", -2),
    "the last record is cut": ([*ALL, LONG[:-1]], b"", 0),
    "a length is cut": (ALL, LONG[:1], 1),
    "a record is malformed": ([*PLAIN[:3], b"\x0e\0\0\0\2k\2v", *PLAIN[3:]], b"", 0),
    "a length is negative": ([*PLAIN[:3], b"\1", *PLAIN[3:]], b"", 0),
    "a length is too small": ([*PLAIN[:3], b"\x0a", *PLAIN[3:]], b"", 0),
    "a length is not a varint": ([*PLAIN[:3], b"\xff" * 6, *PLAIN[3:]], b"", 0),
}


def rows_of(records: RecordColumns, data: bytes) -> Iterator[tuple[Any, ...]]:
    for i in range(records.count):
        key_at, value_at = records.key_at[i], records.value_at[i]
        key = data[key_at : key_at + records.key_size[i]] if records.key_size[i] >= 0 else None
        value = data[value_at : value_at + records.value_size[i]] if records.value_size[i] >= 0 else None
        yield (records.offset[i], records.timestamp[i], records.attributes[i], key, value, records.header_count[i])


def split(
    data: bytes, batches: BatchColumns, records: RecordColumns, faults: list[Any], part: PartialBatch | None
) -> None:
    if batches.magic[0] >= 2:
        split_records(data, part.at if part else 0, len(data), batches, 0, 0, records, faults, part)
    else:
        legacy_records.split_wrapper(data, memoryview(data), batches, 0, records, faults, part)


Found = tuple[list[tuple[Any, ...]], dict[str, int], list[Any]]


def at_once(batches: BatchColumns, payload: bytes) -> Found:
    records, faults = RecordColumns(2), list[Any]()
    split(payload, batches, records, faults, None)
    return list(rows_of(records, payload)), {name: getattr(batches, name)[0] for name in FACTS}, faults


def in_parts(batches: BatchColumns, payload: bytes, rows: int, step: int, shift: int = 0) -> Found:
    records, faults, found = RecordColumns(2), list[Any](), list[tuple[Any, ...]]()
    part, begin, end = PartialBatch(rows), 0, min(step, len(payload))
    part.shift = shift
    while not part.done:
        records.count = 0
        part.final = end == len(payload)
        window = payload[begin:end]
        split(window, batches, records, faults, part)
        assert records.count <= rows
        found += rows_of(records, window)
        if part.hungry:
            assert end < len(payload)
            begin, end, part.at = begin + part.at, min(end + step, len(payload)), 0
    return found, {name: getattr(batches, name)[0] for name in FACTS}, faults


def framed(batch: bytes) -> BatchColumns:
    batches = BatchColumns(1)
    framing.frame(batch, 0, len(batch), 0, 1 << 20, batches)
    assert batches.count == 1
    return batches


def places(faults: list[Any]) -> list[Any]:
    """Return where faults are. In a window that is not the last, bytes after the records are not counted as records."""
    return [fault[1:3] for fault in faults]


SIZES = [(rows, step) for rows in (1, 2, 3, 100) for step in (1, 2, 7, 64, 10_000)]


@pytest.mark.parametrize("name", PAYLOADS)
@pytest.mark.parametrize("append_time", [False, True])
def test_a_v2_batch_in_parts(name: str, append_time: bool) -> None:
    """The parts end between any two records and within any of them."""
    parts, rest, more = PAYLOADS[name]
    payload = b"".join(parts) + rest
    head = build_batch([PlainRecord(50, b"k", b"v", NOW)])
    batch = damage.batch(head, payload, len(parts) + more, attributes=8 * append_time, max_timestamp=NOW + 1)
    expected = at_once(framed(batch), payload)
    assert len(expected[0]) == expected[1]["record_sum"]
    for rows, step in SIZES:
        found = in_parts(framed(batch), payload, rows, step)
        assert found[:2] == expected[:2], (rows, step)
        assert places(found[2]) == places(expected[2]), (rows, step)
        if step >= len(payload):
            assert found[2] == expected[2], (rows, step)


MESSAGES = [(4, b"k", b"v"), (5, None, b""), (9, b"key", None), (11, b"", b"v" * 50)]
LAST = 11


def messages(magic: int, offsets: list[int] | None = None) -> list[bytes]:
    found = []
    for n, (offset, key, value) in enumerate(MESSAGES):
        stored = offsets[n] if offsets else offset
        found.append(build_message(PlainRecord(stored, key, value, NOW - n if magic else -1), magic=magic))
    return found


def sets(magic: int) -> dict[str, bytes]:
    """Return the decompressed values of message sets, valid and not."""
    parts = messages(magic)
    wrong_crc, nested = damage.flip(parts[1], 13), damage.alter(parts[2], 0, attributes=1)
    small, key = damage.put(parts[2], 0, size=13), damage.alter(parts[2], 0, key_size=99)
    return {
        "valid": b"".join(parts),
        "relative": b"".join(messages(magic, [0, 1, 2, 3])),
        "disorder": b"".join(messages(magic, [0, 5, 3, 3])),
        "above the wrapper": b"".join(messages(magic, [0, 1, 2, 30])),
        "empty": b"",
        "cut in a header": b"".join(parts) + parts[0][:16],
        "cut in a message": b"".join(parts)[:-1],
        "wrong CRC": parts[0] + wrong_crc + parts[2] + parts[3],
        "nested": parts[0] + parts[1] + nested + parts[3],
        "other version": b"".join([*parts[:2], messages(1 - magic)[2], parts[3]]),
        "unknown version": b"".join([*parts[:2], damage.put(parts[2], 0, magic=2), parts[3]]),
        "too small": b"".join([*parts[:2], small, parts[3]]),
        "key too long": b"".join([*parts[:2], key, parts[3]]),
    }


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", sets(0))
@pytest.mark.parametrize("append_time", [False, True])
def test_a_message_set_in_parts(magic: int, name: str, append_time: bool) -> None:
    """In v1 the offsets are relative, and the wrapper has the last one: a first pass finds it (KIP-31)."""
    payload = sets(magic)[name]
    record = PlainRecord(LAST, b"k", b"v", NOW + 5 if magic else -1)
    batch = build_wrapper([record], magic=magic, compression="gzip")
    if append_time and magic:
        batch = damage.alter(batch, 0, attributes=9)
    expected = at_once(framed(batch), payload)
    for rows, step in SIZES:
        batches = framed(batch)
        shift, faults = 0, list[Any]()
        first = in_parts(batches, payload, rows, step)
        if magic:
            shift = legacy_records.wrapper_shift(batches, 0, faults)
        else:
            legacy_records.wrapper_shift(batches, 0, faults)
        found = in_parts(framed(batch), payload, rows, step, shift)
        assert found[0] == expected[0], (rows, step)
        assert found[1] == expected[1], (rows, step)
        assert sorted(map(str, first[2] + faults)) == sorted(map(str, expected[2])), (rows, step)


def specified(payload: bytes, magic: int, last: int, replaced: int | None) -> tuple[list[Any], set[str]]:
    """Return the messages of a set of that version and the rules that they violate, as ``LegacyRecord`` reads them.

    ``replaced`` is the timestamp of a wrapper with LogAppendTime, which counts for all of its messages (KIP-32).
    """
    rows, rules, at = list[Any](), set[str](), 0
    while at < len(payload):
        left = len(payload) - at
        if left < 17:
            return rows, rules | {"truncated-wrapper"}
        size, version = int.from_bytes(payload[at + 8 : at + 12], signed=True), payload[at + 16]
        if size < 14 or version > 1:
            return rows, rules | {"malformed-record"}
        if size > left - 12:
            return rows, rules | {"truncated-wrapper"}
        data = payload[at : at + 12 + size]
        if damage.fix_crc(data, 0) != data:
            rules.add("inner-crc-mismatch")
        if data[17] & 7:
            rules.add("nested-compression")
        if version != magic:
            rules.add("malformed-record")
        fields, place = list[bytes | None](), 26 if version else 18
        for _ in range(2):
            length = int.from_bytes(data[place : place + 4], signed=True)
            if len(data) - place < 4 or length < -1 or length > len(data) - place - 4:
                return rows, rules | {"malformed-record"}
            fields.append(None if length < 0 else data[place + 4 : place + 4 + length])
            place += 4 + max(length, 0)
        if place != len(data):
            return rows, rules | {"malformed-record"}
        offset = int.from_bytes(data[:8], signed=True)
        time = int.from_bytes(data[18:26], signed=True) if version else -1
        rows.append((offset, time if replaced is None or not version else replaced, *fields))
        at += len(data)
    return rows, rules


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("append_time", [False, True])
def test_any_byte_of_a_message_in_a_set_has_any_value(magic: int, append_time: bool) -> None:
    """Valid messages are read, and all others are faults."""
    if append_time and not magic:
        return
    first, second = messages(magic)[:2]
    payload = first + second
    batch = build_wrapper([PlainRecord(5, b"k", b"v", NOW if magic else -1)], magic=magic, compression="gzip")
    if append_time:
        batch = damage.alter(batch, 0, attributes=9)
    for at in (*range(8, len(first)), *range(len(first) + 8, len(payload))):
        for value in (0, 1, 2, 7, 8, 13, 14, 15, 16, 22, 23, 0x7F, 0x80, 0xFF):
            changed = payload[:at] + bytes([value]) + payload[at + 1 :]
            rows, rules = specified(changed, magic, 5, NOW if append_time else None)
            batches = framed(batch)
            found, facts, faults = at_once(batches, changed)
            shift = 5 - rows[-1][0] if magic and rows else 0
            assert [(row[0], row[1], row[3], row[4]) for row in found] == [
                (one[0] + shift, *one[1:]) for one in rows
            ], (at, value)
            assert {fault[0] for fault in faults} - {"wrapper-offset-mismatch"} == rules, (at, value)
            assert facts["null_keys"] == sum(row[2] is None for row in rows)
            assert facts["record_sum"] == len(rows)
            assert facts["largest_timestamp"] == max([-1, *(row[1] for row in rows)])
