"""The framing loop is compiled without bounds checks and checks bounds itself:

it never reads or writes outside its buffers.
"""

from __future__ import annotations

import struct

import pytest

from kseg.format.record import columns, framing
from kseg.format.record.layout import INT32_MAX, RECORD_BATCH_OVERHEAD
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support import damage

READERS = {"h": framing.read_int16, "i": framing.read_int32, "I": framing.read_uint32, "q": framing.read_int64}
BYTES = bytes.fromhex("7fffffffffffffff8000000000000000ffffffffffffffff0102030405060708f1e2d3c4b5a69788")


@pytest.mark.parametrize("code", READERS)
def test_numbers_are_read_as_struct_reads_them(code: str) -> None:
    """Every sign and the position of every byte: a header consists of such numbers."""
    layout = struct.Struct(">" + code)
    for at in range(len(BYTES) - layout.size + 1):
        assert READERS[code](BYTES, at) == layout.unpack_from(BYTES, at)[0]


@pytest.mark.parametrize("code", READERS)
def test_a_number_that_is_not_wholly_there_is_refused(code: str) -> None:
    """A read past the buffer's end raises."""
    size = struct.calcsize(">" + code)
    for at in (-1, len(BYTES) - size + 1, len(BYTES), 1 << 40):
        with pytest.raises(IndexError):
            READERS[code](BYTES, at)


def test_headers_and_rows_outside_of_the_buffer_are_rejected() -> None:
    """Also if the buffer ends within a header, in every version."""
    entry = bytearray(RECORD_BATCH_OVERHEAD)
    batches = columns.BatchColumns(2)
    for row in (-1, 2):
        with pytest.raises(IndexError):
            framing.read_header(entry, 0, 49, 2, batches, row)
    for magic, size in ((0, 18), (1, 26), (2, RECORD_BATCH_OVERHEAD)):
        framing.read_header(entry[:size], 0, 49, magic, batches, 1)
        with pytest.raises(IndexError):
            framing.read_header(entry[: size - 1], 0, 49, magic, batches, 1)
    batches.count = 3
    with pytest.raises(IndexError):
        framing.check_crcs(memoryview(entry), batches)


def test_a_window_outside_its_buffer_is_refused() -> None:
    """The loop checks its range itself."""
    data = bytearray(100)
    for at, end in ((-1, 100), (0, 101)):
        with pytest.raises(IndexError):
            framing.frame(data, at, end, 0, 1 << 20, columns.BatchColumns(8))
        with pytest.raises(IndexError):
            framing.plausible(data, at, end, 1 << 20)
        with pytest.raises(IndexError):
            framing.find_signature(data, at, end, 1 << 20)


def _sized(magic: int, key: int, value: int, size: int) -> bytes:
    """Return a v0 or v1 message whose lengths say this; it ends after them."""
    data = build_message(PlainRecord(5, None, None, 1 if magic else -1), magic=magic)
    return damage.put(data[:-4] + struct.pack(">i", value), 0, key_size=key, size=size)


BATCH = build_batch([], base_offset=5, last_offset=6)
MESSAGES = {magic: build_message(PlainRecord(5, b"k", b"v", 1 if magic else -1), magic=magic) for magic in (0, 1)}
#: What begins with a header, and whether a broker can have written it.
HEADERS: list[tuple[str, bytes, bool]] = [
    ("v2", BATCH, True),
    ("v2 cut in its header", BATCH[:-1], False),
    ("v2 smaller than its header", damage.put(BATCH, 0, size=48), False),
    ("v2 of the largest size", damage.put(BATCH, 0, size=1000), True),
    ("v2 above the largest size", damage.put(BATCH, 0, size=1001), False),
    ("v2 of a negative size", damage.put(BATCH, 0, size=-1), False),
    ("v2 with a negative offset", damage.put(BATCH, 0, base_offset=-1), False),
    ("v2 with zstd", damage.put(BATCH, 0, attributes=4), True),
    ("v2 with an unknown codec", damage.put(BATCH, 0, attributes=5), False),
    ("v2 with all known bits", damage.put(BATCH, 0, attributes=0x78), True),
    ("v2 with an unknown bit", damage.put(BATCH, 0, attributes=0x80), False),
    ("v2 with the highest bit", damage.put(BATCH, 0, attributes=0x8000), False),
    ("v2 with as many records as offsets", damage.put(BATCH, 0, record_count=2), True),
    ("v2 with more records than offsets", damage.put(BATCH, 0, record_count=3), False),
    ("v2 with fewer records than none", damage.put(BATCH, 0, record_count=-1), False),
    ("v2 of one offset", damage.put(BATCH, 0, last_offset_delta=0), True),
    ("v2 of no offset", damage.put(BATCH, 0, last_offset_delta=-1, record_count=0), False),
    ("v3", damage.put(BATCH, 0, magic=3), False),
    ("v0", MESSAGES[0], True),
    ("v1", MESSAGES[1], True),
    ("v0 without its value", MESSAGES[0][:-1], True),
    ("v0 with lz4", damage.put(MESSAGES[0], 0, attributes=3), True),
    ("v0 with zstd", damage.put(MESSAGES[0], 0, attributes=4), False),
    ("v0 with a timestamp type", damage.put(MESSAGES[0], 0, attributes=8), False),
    ("v1 with lz4", damage.put(MESSAGES[1], 0, attributes=3), True),
    ("v1 with zstd", damage.put(MESSAGES[1], 0, attributes=4), False),
    ("v1 with a timestamp type", damage.put(MESSAGES[1], 0, attributes=8), True),
    ("v1 with an unknown bit", damage.put(MESSAGES[1], 0, attributes=16), False),
    ("v0 with nulls", _sized(0, -1, -1, 14), True),
    ("v1 with nulls", _sized(1, -1, -1, 22), True),
    ("v0 smaller than its header", _sized(0, -1, -1, 13), False),
    ("v1 smaller than its header", _sized(1, -1, -1, 21), False),
    ("v0 with a key below null", _sized(0, -2, -1, 14), False),
    ("v0 with empty parts", _sized(0, 0, 0, 14), True),
    ("v0 with a value that its size has no room for", _sized(0, -1, 1, 14), False),
    ("v0 with a value of its size", _sized(0, -1, 1, 15), True),
    ("v0 with a value smaller than its size", _sized(0, -1, 1, 16), False),
    ("v1 with a value of its size", _sized(1, 0, 7, 29), True),
    ("v0 with a key as long as its size", _sized(0, 9, 0, 23), True),
    ("v0 with a key longer than its size", _sized(0, 10, 0, 23), False),
    ("v0 with the largest key", _sized(0, INT32_MAX, 0, 23), False),
]


@pytest.mark.parametrize(("name", "data", "possible"), HEADERS, ids=[row[0] for row in HEADERS])
def test_only_headers_that_a_broker_can_write_begin_a_batch(name: str, data: bytes, possible: bool) -> None:
    """After damage, a batch is looked for at each byte: what no broker writes must not be taken for one."""
    for before in (b"", b"\xff" * 30):
        buffer = before + data
        assert framing.plausible(buffer, len(before), len(buffer), 1000) == possible
        assert framing.find_signature(buffer, 0, len(buffer), 1000) == (len(before) if possible else len(buffer))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_is_possible_as_soon_as_its_key_length_is_there(magic: int) -> None:
    """A shorter piece shows too little; the key and the value may follow in the next window."""
    data = MESSAGES[magic]
    least = {stop: framing.plausible(data, 0, stop, 1000) for stop in range(len(data) + 1)}
    first = min(stop for stop, possible in least.items() if possible)
    assert first == max(12 + 14, damage.FIELDS[magic]["key_size"][0] + 4)
    assert all(possible == (stop >= first) for stop, possible in least.items())


@pytest.mark.parametrize("batch", [BATCH, *MESSAGES.values()], ids=["v2", "v0", "v1"])
def test_a_batch_is_framed_if_it_is_whole_and_of_a_valid_size(batch: bytes) -> None:
    """Two batches and a piece of a third; the position after the framed ones shows where the others begin."""
    size = len(batch)
    for left in range(size):
        rows = columns.BatchColumns(5)
        data = bytes(3) + batch * 2 + batch[:left]
        assert framing.frame(data, 3, len(data), 1000, size - 12, rows) == 3 + 2 * size
        assert (rows.count, list(rows.position[:2]), list(rows.at[:2])) == (2, [1003, 1003 + size], [3, 3 + size])
    rows = columns.BatchColumns(5)
    assert framing.frame(batch * 2, 0, 2 * size, 0, size - 13, rows) == rows.count == 0
    rows = columns.BatchColumns(1)
    assert framing.frame(batch * 2, 0, 2 * size, 0, size, rows) == size


def test_the_first_wrong_crc_ends_the_check() -> None:
    """The batches before it are known to be valid, and those after it are not checked."""
    parts = [BATCH, MESSAGES[0], MESSAGES[1], BATCH]
    for wrong in range(len(parts) + 1):
        data = b"".join(damage.flip(part, len(part) - 1) if n == wrong else part for n, part in enumerate(parts))
        rows = columns.BatchColumns(4)
        framing.frame(data, 0, len(data), 0, 1000, rows)
        assert framing.check_crcs(memoryview(data), rows) == wrong
        states = [columns.CRC_GOOD] * wrong + [columns.CRC_BAD] + [columns.CRC_UNCHECKED] * 4
        assert list(rows.crc_state[:4]) == states[:4]
        assert list(rows.selected[:4]) == [int(n != wrong) for n in range(4)]


@pytest.mark.parametrize(("sequence", "by", "after"), [(0, 1, 1), (INT32_MAX, 1, 0), (INT32_MAX - 1, 3, 1), (5, 0, 5)])
def test_sequences_continue_at_0(sequence: int, by: int, after: int) -> None:
    """``DefaultRecordBatch.incrementSequence``."""
    assert framing.increment_sequence(sequence, by) == after


@pytest.mark.parametrize("value", [0, 1, -1, (1 << 61) - 1, 1 << 61, (1 << 61) + 1, (1 << 63) - 1])
def test_sums_are_limited_or_continue_as_in_java(value: int) -> None:
    """A limited number with a delta of 32 bits is one of 64 bits."""
    for number in (value, -value):
        assert framing.clamped(number) == max(-(1 << 61), min(number, 1 << 61))
        for other in (0, 1, -1, INT32_MAX, (1 << 63) - 1, -(1 << 63)):
            assert framing.wrapped_sum(number, other) == (number + other + (1 << 63)) % (1 << 64) - (1 << 63)
