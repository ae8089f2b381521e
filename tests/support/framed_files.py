"""Generated files that are not logs: a tutorial's message, and the same with each of its fields damaged."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping


def message(
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 0,
    attributes: int = 0,
    crc: int | None = None,
    key_length: int | None = None,
    value_length: int | None = None,
) -> bytes:
    """Return one message as the tutorial draws it: by its own table of fields, not by kseg's layout."""
    fields = [
        struct.pack(">q", zlib.crc32(value or b"") if crc is None else crc),
        struct.pack(">bb", magic, attributes),
    ]
    for data, length in ((key, key_length), (value, value_length)):
        size = -1 if data is None else len(data)
        fields += [struct.pack(">i", size if length is None else length), data or b""]
    return b"".join(fields)


def bare(
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 0,
    attributes: int = 0,
    timestamp: int = 1_700_000_000_000,
    crc: int | None = None,
    key_length: int | None = None,
) -> bytes:
    """Return one message of a log without the offset and the size before it."""
    fields = [struct.pack(">BB", magic, attributes), struct.pack(">q", timestamp) if magic == 1 else b""]
    for data, length in ((key, key_length), (value, None)):
        size = -1 if data is None else len(data)
        fields += [struct.pack(">i", size if length is None else length), data or b""]
    body = b"".join(fields)
    return struct.pack(">I", zlib.crc32(body) if crc is None else crc) + body


def gzipped(data: bytes) -> bytes:
    """Return a gzip member whose header names Unix as its system: which one Python writes depends on its version."""
    member = gzip.compress(data, mtime=0)
    return member[:9] + b"\x03" + member[10:]


#: As articles show it: the attributes say lz4, though the value is not compressed.
ARTICLE = bare(b"key", b"value", attributes=3)
BARE_SECOND = bare(None, b"the second has no key", magic=1)

#: The tutorial's own: the gzip bit is set, though the value is not compressed.
EXAMPLE = message(b"first", b"this is the first message", attributes=1)
PLAIN = message(b"first", b"this is the first message")
SECOND = message(None, b"the second has no key", magic=1)
THIRD = message(b"third", None)

#: Name -> (framing, bytes); fixtures/framed/NAME has kseg's rows and findings.
FRAMED: Mapping[str, tuple[str, bytes]] = {
    "example": ("wide-crc", EXAMPLE),
    "several": ("wide-crc", PLAIN + SECOND + THIRD),
    "gzip": ("wide-crc", message(b"zipped", gzipped(b"this is compressed"), attributes=1) + SECOND),
    "wrong-crc": ("wide-crc", message(b"first", b"this is the first message", crc=4252115573) + SECOND),
    "negative-crc": ("wide-crc", message(b"first", b"this is the first message", crc=-1) + SECOND),
    "truncated": ("wide-crc", PLAIN + SECOND[:-5]),
    "truncated-header": ("wide-crc", PLAIN + SECOND[:11]),
    "key-length": ("wide-crc", message(b"first", b"this is the first message", key_length=-2) + SECOND + THIRD),
    "value-length": ("wide-crc", PLAIN + message(b"lies", b"in its length", value_length=0x7FFFFFFF) + SECOND),
    "length-past-the-end": ("wide-crc", PLAIN + message(b"lies", b"in its length", value_length=2000) + SECOND),
    "zeros-behind": ("wide-crc", PLAIN + bytes(2000)),
    "zeros-between": ("wide-crc", PLAIN + bytes(2000) + SECOND),
    "magic": ("wide-crc", message(b"first", b"this is the first message", magic=2) + SECOND),
    "attributes": ("wide-crc", message(b"first", b"this is the first message", attributes=0x48) + SECOND),
    "codec": ("wide-crc", message(b"first", b"this is the first message", attributes=7) + SECOND),
    "torn-gzip": ("wide-crc", message(b"zipped", gzipped(b"this is compressed")[:-9], attributes=1)),
    "message-article": ("message", ARTICLE),
    "message-several": ("message", bare(b"key", b"value") + BARE_SECOND + bare(b"third", None)),
    "message-gzip": ("message", bare(None, gzipped(struct.pack(">qi", 0, 20) + bare(b"in", b"side")), attributes=1)),
    "message-wrong-crc": ("message", bare(b"key", b"value", crc=0x70CC9AB3) + BARE_SECOND),
    "message-truncated": ("message", bare(b"key", b"value") + BARE_SECOND[:-5]),
    "message-key-length": ("message", bare(b"key", b"value", key_length=-2) + BARE_SECOND),
    "message-magic": ("message", bare(b"key", b"value", magic=7) + BARE_SECOND),
    "message-attributes": ("message", bare(b"key", b"value", attributes=0x48) + BARE_SECOND),
    "message-zeros": ("message", bare(b"key", b"value") + bytes(2000) + BARE_SECOND),
}
