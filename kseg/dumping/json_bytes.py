"""Bytes as JSON values: keys, values and headers of records. A large one is written in pieces.

A piece takes a few hundred kilobytes, whatever the size of the value: JSON has up to six bytes per byte, and several copies
of a whole value would take many times its size.
"""

from __future__ import annotations

import base64
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring

from kseg.text import escape_json

#: Write bytes as a JSON value. A note on their encoding, if one is needed, follows under the given name.
JsonWriter = Callable[[memoryview, str], str]
#: Maximum bytes of a piece; a multiple of 3, so that base64 has padding only at the end.
PIECE_BYTES = 192 * 1024
_Utf8Decoder = getincrementaldecoder("utf-8")


def _json_auto(data: memoryview, name: str) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return f'"{base64.b64encode(data).decode()}"{_noted(name)}'
    quoted = encode_basestring(text)
    return quoted if text.isascii() and "\x7f" not in text else escape_json(quoted)


JSON_WRITERS: Mapping[str, JsonWriter] = {
    "auto": _json_auto,
    "utf8": lambda data, name: escape_json(encode_basestring(str(data, "utf-8", "replace"))),
    "hex": lambda data, name: f'"{data.hex()}"',
    "base64": lambda data, name: f'"{base64.b64encode(data).decode()}"',
}


def json_pieces(data: memoryview, name: str, encoding: str) -> Iterator[str]:
    """Yield the JSON value that ``JSON_WRITERS[encoding]`` returns, in pieces."""
    note = ""
    if encoding == "auto":
        encoding = "utf8" if _is_utf8(data) else "base64"
        note = _noted(name) if encoding == "base64" else ""
    yield '"'
    if encoding == "utf8":
        for text in utf8_pieces(data):
            yield escape_json(encode_basestring(text))[1:-1]
    else:
        for piece in slices(data):
            yield JSON_WRITERS[encoding](piece, name)[1:-1]
    yield '"' + note


def json_header_pieces(headers: Iterable[tuple[memoryview, memoryview | None]], encoding: str) -> Iterator[str]:
    """Yield the members of the JSON array of headers, in pieces."""
    separator = ""
    for key, value in headers:
        yield separator + '{"key":'
        # Kafka replaces bytes of a header key that are not UTF-8.
        yield from json_pieces(key, "key", "utf8")
        yield ',"value":'
        yield from ("null",) if value is None else json_pieces(value, "value", encoding)
        yield "}"
        separator = ","


def slices(data: memoryview) -> Iterator[memoryview]:
    """Yield consecutive slices of at most PIECE_BYTES."""
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]


def utf8_pieces(data: memoryview, errors: str = "replace") -> Iterator[str]:
    """Yield the text of UTF-8 bytes in pieces, as decoding all of them at once returns it. Raises UnicodeDecodeError."""
    decoder = _Utf8Decoder(errors)
    for piece in slices(data):
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)


def _is_utf8(data: memoryview) -> bool:
    try:
        for _ in utf8_pieces(data, "strict"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _noted(name: str) -> str:
    return f',"{name}_encoding":"base64"'
