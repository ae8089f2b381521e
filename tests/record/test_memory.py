"""Ranges of bytes are scanned as Python's own functions would do it."""

from hypothesis import example, given
from hypothesis import strategies as st

from kseg.format.record.memory import is_ascii, is_utf8

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
