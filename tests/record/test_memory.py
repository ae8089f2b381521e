"""Ranges of bytes are scanned as Python's own functions would do it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kseg.format.record.memory import copy_bytes, decode_point, is_ascii, is_utf8, put_number

# Random bytes are rarely near to UTF-8: these pieces are valid characters, their halves, surrogates and overlong forms.
PIECES = [b"a", "ß".encode(), "日".encode(), "🙂".encode(), b"\xe6\x97", b"\xf0\x9f", b"\x80", b"\xff"]
PIECES += [
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
]


def decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


@given(st.one_of(st.binary(max_size=12), st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)))
@example(b"")
def test_text_is_recognised_as_python_does(data: bytes) -> None:
    """A header key is called invalid exactly if Python can't decode it, whatever the bytes around it are."""
    around = b"\xff" + data + b"\x80"
    assert is_utf8(around, 1, len(data)) == decodes(data, "utf-8")
    assert is_ascii(around, 1, len(data)) == decodes(data, "ascii")


def test_code_points_are_decoded_as_python_does() -> None:
    """Around each length and each range that is not allowed."""
    for point in (0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF):
        data = chr(point).encode()
        assert decode_point(b"a" + data, 1, 1 + len(data)) == point
        assert decode_point(data, 0, len(data) - 1) == -1
        for at in range(1, len(data)):
            for byte in (0x7F, 0xC0, 0xFF):
                assert decode_point(data[:at] + bytes([byte]) + data[at + 1 :], 0, len(data)) == -1
    wrong = (
        "80 80",
        "c1 bf",
        "e0 9f bf",
        "ed a0 80",
        "ed bf bf",
        "f0 8f bf bf",
        "f4 90 80 80",
        "f5 80 80 80",
        "ff bf bf bf",
    )
    for data in map(bytes.fromhex, wrong):
        assert decode_point(data, 0, len(data)) == -1


def test_numbers_are_written_in_decimal() -> None:
    """Around each power of ten, and the ends of int64."""
    powers = [sign * (10**n + by) for n in range(19) for by in (-1, 0, 1) for sign in (1, -1)]
    for value in (*powers, 2**63 - 1, -(2**63) + 1):
        out = bytearray(b"." * 30)
        assert put_number(out, 3, value) == 3 + len(str(value))
        assert out == b"..." + str(value).encode() + b"." * (27 - len(str(value)))
    put_number(bytearray(20), 0, 1)
    for size, at in ((19, 0), (20, 1), (20, -1)):
        with pytest.raises(IndexError):
            put_number(bytearray(size), at, 1)


def test_bytes_are_copied_within_both_buffers() -> None:
    """The copy has no bounds checks, so the function checks both ranges."""
    out = bytearray(b"......")
    assert copy_bytes(out, 2, b"abcd", 1, 3) == 5
    assert out == b"..bcd."
    assert copy_bytes(out, 6, b"abcd", 4, 0) == 6
    for at, first, size in ((4, 0, 3), (0, 2, 3), (-1, 0, 1), (0, -1, 1), (0, 0, -1)):
        with pytest.raises(IndexError):
            copy_bytes(out, at, b"abcd", first, size)
