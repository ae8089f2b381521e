"""Bytes as text in pieces: keys, values and headers of large records, for JSON, CSV and kafka-dump-log's text.

A piece takes a few hundred kilobytes. JSON has up to six bytes per byte, and a string up to four per character, so copies of
a whole value would take many times its size.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring

from kseg.text import escape_json

#: Write bytes as a JSON value. A note on their encoding, if one is needed, follows under the given name.
JsonWriter = Callable[[memoryview, str], str]
#: Maximum bytes of a piece; a multiple of 3, so that base64 has padding only at the end.
PIECE_BYTES = 192 * 1024


def _json_auto(data: memoryview, name: str) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return f'"{base64.b64encode(data).decode()}"{_noted(name)}'
    return escape_json(encode_basestring(text))


JSON_WRITERS: Mapping[str, JsonWriter] = {
    "auto": _json_auto,
    "utf8": lambda data, name: escape_json(encode_basestring(str(data, "utf-8", "replace"))),
    "hex": lambda data, name: f'"{data.hex()}"',
    "base64": lambda data, name: f'"{base64.b64encode(data).decode()}"',
}


def json_pieces(data: memoryview, name: str, encoding: str) -> Iterator[str]:
    """Yield the JSON value that ``JSON_WRITERS[encoding]`` returns, in pieces."""
    actual = actual_encoding(data, encoding)
    yield '"'
    for text in text_pieces(data, actual):
        yield escape_json(encode_basestring(text))[1:-1]
    yield '"' + (_noted(name) if encoding == "auto" and actual == "base64" else "")


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


def actual_encoding(data: memoryview, encoding: str) -> str:
    """Return the encoding of these bytes: for ``auto``, ``utf8`` if they are UTF-8, otherwise ``base64``."""
    if encoding != "auto":
        return encoding
    try:
        for piece in utf8_slices(data):
            str(piece, "utf-8")
    except UnicodeDecodeError:
        return "base64"
    return "utf8"


def text_pieces(data: memoryview, encoding: str) -> Iterator[str]:
    """Yield the text of bytes in pieces. ``encoding`` is utf8 (invalid bytes are replaced), hex or base64."""
    if encoding == "utf8":
        for piece in utf8_slices(data):
            yield str(piece, "utf-8", "replace")
        return
    for at in range(0, len(data), PIECE_BYTES):
        piece = data[at : at + PIECE_BYTES]
        yield piece.hex() if encoding == "hex" else base64.b64encode(piece).decode()


def utf8_slices(data: memoryview) -> Iterator[memoryview]:
    """Yield consecutive slices of at most PIECE_BYTES that decode like the whole: none ends within a character."""
    first = 0
    while first < len(data):
        end = min(first + PIECE_BYTES, len(data))
        # A character has at most three continuation bytes. After more of them, none is within a character.
        back = next((n for n in range(4) if end == len(data) or data[end - n] & 0xC0 != 0x80), 0)
        end = end - back if end - back > first else end
        yield data[first:end]
        first = end


def _noted(name: str) -> str:
    return f',"{name}_encoding":"base64"'
