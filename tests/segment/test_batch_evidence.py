"""What shows that a batch begins at a byte, on both sides of each limit, and the buffer in which that is looked for."""

from __future__ import annotations

import io
import struct
from itertools import product

import pytest

from kseg.findings import do_nothing
from kseg.format.record import framing
from kseg.format.record.layout import INT32_MAX
from kseg.format.segment import batch_evidence as evidence
from kseg.format.segment.batch_evidence import LIKELY, NOTHING, SURELY, BatchChain
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage

V2 = build_batch([PlainRecord(5, b"k", b"value", 1), PlainRecord(6, b"k", b"value", 1)])
V1 = build_message(PlainRecord(5, b"k", b"value", 1), magic=1)
V0 = build_message(PlainRecord(5, b"k", b"value", -1), magic=0)
NOISE = bytes([0xAB, 0xCD, 0xEF]) * 40
MAX = 1 << 20


def buffer_of(data: bytes, capacity: int = 1 << 12) -> InputBuffer:
    buffer = InputBuffer(Source("s", io.BytesIO(data), len(data)), capacity, do_nothing)
    buffer.fill(min(len(data), capacity))
    return buffer


@pytest.mark.parametrize("batch", [V0, V1, V2], ids=["v0", "v1", "v2"])
def test_the_first_header_is_found_at_any_byte(batch: bytes) -> None:
    """Not at or after the end, nor with header bytes after the limit."""
    for before in (0, 1, 16, 17, 40):
        data = bytearray(NOISE[:before] + batch + batch + NOISE)
        assert evidence.find_header(data, 0, len(data), len(data), MAX) == before
        assert evidence.find_header(data, before, before + 1, len(data), MAX) == before
        assert evidence.find_header(data, 0, before, len(data), MAX) == before, "the end is returned"
        next_one = evidence.find_header(data, before + 1, len(data), len(data), MAX)
        assert before < next_one <= before + len(batch)
    data = bytearray(batch)
    found = [limit for limit in range(len(data) + 1) if evidence.find_header(data, 0, len(data), limit, MAX) == 0]
    least = 61 if batch is V2 else max(26, damage.FIELDS[batch[16]]["key_size"][0] + 4)
    assert found == list(range(least, len(data) + 1))


#: Changes of a v2 header, and whether it is one, whatever its size and magic are.
V2_HEADERS: list[tuple[dict[str, int], bool]] = [
    ({}, True), ({"size": 1}, True), ({"size": -1}, True), ({"base_offset": 0}, True), ({"base_offset": -1}, False),
    ({"attributes": 4}, True), ({"attributes": 5}, False), ({"attributes": 0x7C}, True), ({"attributes": 0x80}, False),
    ({"attributes": 0x8000}, False), ({"last_offset_delta": -1, "record_count": 0}, False),
    ({"last_offset_delta": 0, "record_count": 1}, True), ({"last_offset_delta": 0, "record_count": 2}, False),
    ({"record_count": 0}, True), ({"record_count": -1}, False), ({"record_count": 3}, False),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "likely"), V2_HEADERS)
def test_a_v2_header_is_likely_by_its_fields(fields: dict[str, int], likely: bool) -> None:
    """A wrong size or magic does not hide it, because it still ends the batch before it."""
    header = bytearray(damage.put(V2, 0, **fields)[:61])
    for magic in (2, 0, 77):
        header[16] = magic
        assert evidence.is_likely_header(header, 0, 61) == likely
        assert not evidence.is_likely_header(header, 0, 60)
        assert evidence.is_likely_header(bytearray(7) + header, 7, 68) == likely


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 65535, 65536, 65537, 131072, 131073])
def test_a_run_of_zeros_is_counted(count: int) -> None:
    """Up to the first other byte, or the end."""
    data = bytearray(b"\1" + bytes(count) + b"\1")
    assert evidence.zero_run_end(data, 1, len(data)) == count
    assert evidence.zero_run_end(data, 1, len(data) - 1) == count
    assert evidence.find_zeros(data, 0, len(data)) == (1 if count >= 64 else len(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_the_size_of_a_message_follows_from_its_lengths(magic: int) -> None:
    """Its size field is not used; a message whose key or value is not there, or of a CRC of 0, has no size."""
    for key, value in product((None, b"", b"key"), repeat=2):
        message = bytearray(build_message(PlainRecord(5, key, value, 1 if magic else -1), magic=magic))
        size, key_at = len(message), damage.FIELDS[magic]["key_size"][0]
        value_at = key_at + 4 + len(key or b"")
        assert evidence.implied_size(bytearray(3) + message, 3, 3 + size, magic) == size
        assert evidence.implied_size(message, 0, value_at + 4, magic) == size
        assert evidence.implied_size(message, 0, value_at + 3, magic) == 0
        assert evidence.implied_size(message, 0, key_at + 3, magic) == 0
        most = INT32_MAX - value_at - 4
        for at, length, expected in (
            (key_at, -2, 0), (value_at, -2, 0), (value_at, most, INT32_MAX), (value_at, most + 1, 0),
        ):  # fmt: skip
            changed = bytearray(message)
            changed[at : at + 4] = struct.pack(">i", length)
            assert evidence.implied_size(changed, 0, size, magic) == expected
        for at, byte in ((0, 0x80), (17, 0x08 if not magic else 0x10)):
            changed = bytearray(message)
            changed[at] = byte
            assert evidence.implied_size(changed, 0, size, magic) == 0
        changed = bytearray(message)
        changed[12:16] = bytes(4)
        assert evidence.implied_size(changed, 0, size, magic) == 0


def test_the_rest_of_a_batch_ends_with_whole_records() -> None:
    """Headers of the record that was cut, then records up to the end."""
    record, header = damage.record(b"k", b"v"), b"\2a\4bc"
    for headers, records in product((0, 1, 2), (0, 1, 3)):
        rest = bytearray(damage.varint(headers) + header * headers + record * records)
        assert evidence.is_rest_of_batch(bytearray(b"xx") + rest, 2, 2 + len(rest))
        if headers or records:
            assert not evidence.is_rest_of_batch(rest, 0, len(rest) - 1)
        assert not evidence.is_rest_of_batch(rest + b"\x02", 0, len(rest) + 1)
    assert evidence.is_rest_of_batch(bytearray(b"\2\2a\1"), 0, 4), "a header without a value"
    assert not evidence.is_rest_of_batch(bytearray(damage.varint(-1)), 0, 1)
    smallest = damage.record(None, None)
    assert len(smallest) == 7
    assert evidence.is_rest_of_batch(bytearray(b"\0" + smallest), 0, 8)
    assert not evidence.is_rest_of_batch(bytearray(b"\0\x0a" + bytes(5)), 0, 7)


def chain(*offsets: tuple[int, int]) -> BatchChain:
    return BatchChain(tuple((100 * n, *one) for n, one in enumerate(offsets)), 100 * len(offsets), True)


def test_a_chain_continues_a_log_by_most_of_its_offsets() -> None:
    """A segment holds 2**31 offsets; one wrong base offset among several does not count."""
    assert [chain((5, 6)).continues(floor) for floor in (None, 4, 5, 6)] == [True, True, True, False]
    assert [chain((5 + INT32_MAX + more, 0)).continues(5) for more in (0, 1)] == [True, False]
    assert chain((9, 9), (1, 1)).continues(5)
    assert not chain((9, 9), (1, 1), (2, 2)).continues(5)


def test_a_chain_begins_with_the_first_offset_that_fits() -> None:
    """The base offset of its first batch may be damaged; that of the second is then the first one known."""
    found = chain((3, 4), (7, 8), (5, 6))
    assert [found.first_from(floor) for floor in (None, 0, 3, 4, 7, 8)] == [3, 3, 3, 7, 7, 3]
    far = chain((8 + INT32_MAX, 0), (9, 9))
    assert [far.first_from(floor) for floor in (7, 8)] == [9, 8 + INT32_MAX]
    assert (found.position, found.offset) == (0, 3)
    assert [found.begins_batch(at) for at in (0, 1, 100, 200, 299, 300, 301)] == [
        True,
        False,
        True,
        True,
        False,
        True,
        False,
    ]


def test_chains_follow_each_other_by_their_offsets() -> None:
    """The last batch of one, and as many offsets between them as bytes at most."""
    assert [chain((3, 4)).leads_to(chain((first, 9)), 3) for first in (3, 4, 5)] == [False, False, True]
    assert [chain((3, 4)).leads_to(chain((5, 9)), floor) for floor in (None, 3, 4)] == [True, True, False]
    late = BatchChain(((100, 20, 21),), 150, True)
    assert [late.follows_soon(floor, 80) for floor in (None, -1, 0, 20)] == [False, False, True, True]
    assert [late.follows_soon(10, began) for began in (90, 91)] == [True, False]
    assert [chain((3, 4), (8, 9)).precedes(chain((first, first + 1))) for first in (4, 5, 9, 10)] == [
        False,
        True,
        True,
        True,
    ]
    assert not chain((3, 4), (8, 9), (8, 9)).precedes(chain((5, 6)))


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("the end", b"", SURELY),
        ("an offset and a size", V2[:16], SURELY),
        ("a header up to its magic", V2[:17], LIKELY),
        ("a cut header", V2[:60], LIKELY),
        ("a cut batch", V2[:61], LIKELY),
        ("a batch without its last byte", V2[:-1], LIKELY),
        ("a batch", V2, SURELY),
        ("a batch and more", V2 + NOISE, SURELY),
        ("a v1 message", V1, SURELY),
        ("a v0 message", V0, SURELY),
        ("a cut v1 message", V1[:-1], LIKELY),
        ("zeros", bytes(70), SURELY),
        ("few zeros", bytes(17), SURELY),
        ("a header of another version", damage.put(V2, 0, magic=3), LIKELY),
        ("a wrong size", damage.put(V2, 0, size=7), LIKELY),
        ("a size above the limit", damage.put(V2, 0, size=MAX + 1), LIKELY),
        ("a wrong size and magic", V2[:8] + struct.pack(">iIB", 7, 0, 0x7F) + V2[17:], NOTHING),
        ("an unknown bit", damage.put(V2, 0, attributes=0x80), NOTHING),
        ("a cut header of another version", damage.put(V2, 0, magic=3)[:40], NOTHING),
        ("a cut header with a wrong size", damage.put(V2, 0, size=7)[:40], NOTHING),
        ("a v1 message of a wrong size", damage.put(V1, 0, size=999), LIKELY),
        ("a v0 message of a wrong size", damage.put(V0, 0, size=999), LIKELY),
        ("a v1 message of a wrong size and CRC", damage.put(V1, 0, size=999, crc=5), NOTHING),
        ("noise", NOISE, NOTHING),
    ],
)  # fmt: skip
@pytest.mark.parametrize("distance", [0, 1, 50])
def test_how_likely_a_batch_begins(name: str, data: bytes, expected: int, distance: int) -> None:
    """After a batch whose size is doubtful: the next one, zeros or the end of the file prove it."""
    assert evidence.how_likely_batch_begins(buffer_of(NOISE[:distance] + data), distance, MAX) == expected, name


def test_nothing_begins_after_the_end_of_the_file() -> None:
    """A batch that ends after the file is not proved by its end."""
    assert evidence.how_likely_batch_begins(buffer_of(b"xy"), 3, MAX) == NOTHING


@pytest.mark.parametrize("batch", [V0, V1, V2], ids=["v0", "v1", "v2"])
def test_a_crc_is_valid_for_one_version_and_size(batch: bytes) -> None:
    """The CRC of v2 does not cover the magic byte; that of the others does."""
    magic, size = batch[16], len(batch)
    buffer = buffer_of(b"abc" + batch)
    assert [evidence.is_valid_batch(buffer, at, size, magic) for at in (2, 3)] == [False, True]
    buffer.start = 3
    assert [evidence.is_valid_batch_of(buffer, size, other) for other in (0, 1, 2)] == [magic == n for n in (0, 1, 2)]
    buffer.data[19] ^= 1  # the magic
    assert evidence.is_valid_batch_of(buffer, size, magic)
    for at in (size - 1, 21):
        buffer.data[3 + at] ^= 1
        assert not evidence.is_valid_batch_of(buffer, size, magic)
        buffer.data[3 + at] ^= 1
    least = framing.smallest_size(magic) + 12
    assert not evidence.is_valid_batch_of(buffer, least - 1, magic)
    assert evidence.last_offset_of(bytearray(b"xx" + batch), 2) == (6 if magic == 2 else 5)
    assert not evidence.is_wrapper(bytearray(batch), 0)


def test_the_smallest_batches_are_valid() -> None:
    """A header without records, and messages without key and value."""
    for batch in (
        build_batch([], base_offset=1),
        *(build_message(PlainRecord(1, None, None, -1), magic=m) for m in (0, 1)),
    ):
        buffer = buffer_of(batch)
        assert evidence.is_valid_batch(buffer, 0, len(batch), batch[16])
        assert evidence.is_valid_batch_of(buffer, len(batch), batch[16])
    for magic in (0, 1):
        wrapper = build_wrapper([PlainRecord(1, b"k", b"v", -1)], magic=magic, compression="gzip")
        assert evidence.is_wrapper(bytearray(b"x" + wrapper), 1)


@pytest.mark.parametrize("capacity", [1, 8, 64])
@pytest.mark.parametrize("sized", [True, False])
def test_a_buffer_has_the_bytes_at_its_position(capacity: int, sized: bool) -> None:
    """However many are wanted and used, and also from a pipe, whose size is unknown."""
    data = bytes(range(200))
    for wanted, used in product((1, 7, 8, 9, 63, 64, 65, 199, 200), (1, 5, 64)):
        buffer = InputBuffer(Source("s", io.BytesIO(data), len(data) if sized else None), capacity, do_nothing)
        position = 0
        while buffer.fill(wanted):
            assert wanted <= buffer.available
            assert buffer.position == position
            assert bytes(buffer.view[buffer.start : buffer.start + wanted]) == data[position : position + wanted]
            position += min(used, wanted)
            buffer.skip_to(position)
        assert position == min(n for n in range(0, 400, min(used, wanted)) if n + wanted > len(data))
        assert (buffer.available, buffer.position) == (len(data) - position, position)
        assert [buffer.ends_before(len(data) - position + more) for more in (0, 1)] == [False, sized]
        assert buffer.discard_rest() == len(data) - position
        assert (buffer.position, buffer.available) == (len(data), 0)
