"""The framing loop is compiled without bounds checks and checks bounds itself:

it never reads or writes outside its buffers.
"""

from __future__ import annotations

import struct

import pytest

from kseg.format.record import columns, framing
from kseg.format.record.layout import RECORD_BATCH_OVERHEAD

READERS = {
    "h": framing.read_int16,
    "i": framing.read_int32,
    "I": framing.read_uint32,
    "q": framing.read_int64,
}
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
