"""Batches whose records cannot be read, and those that only look so: the rule of each, and the records that are left."""

from __future__ import annotations

import io

import pytest

from kseg.findings import Finding
from kseg.format.compress import codecs
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage

GZIP, ZSTD = 1, 4
HEAD = build_batch([PlainRecord(0, b"k", b"v", 1)])
RECORDS = [damage.record(b"k%d" % n, b"v", offset_delta=n) for n in range(3)]


def v2(stored: bytes, codec: int, count: int = 3) -> bytes:
    return damage.batch(HEAD, stored, count, attributes=codec, base_offset=0, last_offset_delta=max(count - 1, 0))


def packed(payload: bytes, codec: int = GZIP) -> bytes:
    return bytes(codecs.compress(codec, payload))


def message(magic: int, key: bytes | None, value: bytes | None, codec: int) -> bytes:
    built = build_message(PlainRecord(0, key, value, 1 if magic else -1), magic=magic)
    return damage.alter(built, 0, attributes=codec)


def inner(magic: int) -> bytes:
    return build_message(PlainRecord(0, b"k0", b"v", 1 if magic else -1), magic=magic)


Case = tuple[str, bytes, list[str], list[bytes | None]]


def legacy(magic: int) -> list[Case]:
    later = packed(inner(magic), ZSTD)
    cases: list[Case] = [
        ("a message set", message(magic, None, packed(inner(magic)), GZIP), [], [b"k0"]),
        ("a key next to a message set", message(magic, b"K", packed(inner(magic)), GZIP), ["wrapper-key"], [b"k0"]),
        ("no value", message(magic, None, None, GZIP), ["undecodable-payload"], []),
        ("an empty value", message(magic, None, b"", GZIP), ["undecodable-payload"], []),
        ("a key and no value", message(magic, b"K", None, GZIP), ["claimed-codec"], [b"K"]),
        ("a key and an empty value", message(magic, b"K", b"", GZIP), ["claimed-codec"], [b"K"]),
        ("a value that is not compressed", message(magic, None, b"text", GZIP), ["claimed-codec"], [None]),
        ("a codec of later versions", message(magic, None, b"text", ZSTD), ["claimed-codec"], [None]),
        ("a codec of later versions, used", message(magic, None, later, ZSTD), ["unknown-codec"], []),
        ("a codec that does not exist", message(magic, None, b"text", 5), ["unknown-codec"], []),
        ("an empty message set", message(magic, None, packed(b""), GZIP), ["undecodable-payload"], []),
        ("a cut stream", message(magic, None, packed(inner(magic))[:-9], GZIP), ["undecodable-payload"], []),
        ("a cut message in it", message(magic, None, packed(inner(magic)[:-1]), GZIP), ["truncated-wrapper"], []),
    ]
    return [(f"v{magic}: {name}", data, rules, keys) for name, data, rules, keys in cases]


PLAIN = b"".join(RECORDS)
#: What a batch is, its bytes, the rules of its findings, and the keys of the records that are read.
CASES: list[Case] = [
    ("compressed", v2(packed(PLAIN), GZIP), [], [b"k0", b"k1", b"k2"]),
    ("zstd", v2(packed(PLAIN, ZSTD), ZSTD), [], [b"k0", b"k1", b"k2"]),
    ("no codec has this number", v2(packed(PLAIN), 5), ["unknown-codec"], []),
    ("nor this one", v2(PLAIN, 7), ["unknown-codec"], []),
    ("plain records that claim a codec", v2(PLAIN, GZIP), ["claimed-codec"], [b"k0", b"k1", b"k2"]),
    ("not as many plain records", v2(PLAIN, GZIP, 2), ["undecodable-payload"], []),
    ("more plain records than there are", v2(PLAIN, GZIP, 4), ["undecodable-payload"], []),
    ("plain records that are cut", v2(PLAIN[:-1], GZIP), ["undecodable-payload"], []),
    ("one plain record with a long length", v2(damage.record(b"k" * 99, b"v"), GZIP, 1), ["claimed-codec"], [b"k" * 99]),
    ("a cut stream", v2(packed(PLAIN)[:-9], GZIP), ["undecodable-payload"], []),
    ("nothing, of no record", v2(b"", GZIP, 0), [], []),
    ("an empty stream, of no record", v2(packed(b""), GZIP, 0), [], []),
    ("nothing, of a record", v2(b"", GZIP, 1), ["undecodable-payload"], []),
    ("fewer records than the header counts", v2(packed(PLAIN), GZIP, 4), ["record-count-mismatch"], [b"k0", b"k1", b"k2"]),
    ("more records than the header counts", v2(packed(PLAIN), GZIP, 2), ["record-count-mismatch"], [b"k0", b"k1"]),
    ("a negative count", v2(packed(PLAIN), GZIP, -1), ["record-count-mismatch"], []),
    ("other bytes after the records", v2(packed(PLAIN + b"x"), GZIP), ["malformed-record"], [b"k0", b"k1", b"k2"]),
    *legacy(0),
    *legacy(1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "rules", "keys"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("after", [0, 1])
def test_what_is_read_of_a_payload(
    name: str, data: bytes, rules: list[str], keys: list[bytes | None], before: int, after: int
) -> None:
    """The batches before it and after it are read, too."""
    magic = data[16]
    other = inner(magic) if magic < 2 else build_batch([PlainRecord(0, b"k0", b"v", 1)], compression="gzip")
    segment = other * before + data + other * after
    found: list[Finding] = []
    read: list[bytes | None] = []
    for chunk in chunks_of(Source("s", io.BytesIO(segment), len(segment)), found.append):
        read += [chunk.key(i) for i in range(chunk.records.count)]
    assert [one.rule for one in found] == rules
    assert {one.position for one in found} <= {len(other) * before}
    assert read == [b"k0"] * before + keys + [b"k0"] * after


@pytest.mark.parametrize("magic", [0, 1])
def test_the_key_of_a_message_set_is_shown_up_to_a_limit(magic: int) -> None:
    """A finding has no more than 80 bytes of it."""
    found: list[Finding] = []
    for size in (0, 79, 80, 81):
        data = message(magic, b"k" * size, packed(inner(magic)), GZIP)
        list(chunks_of(Source("s", io.BytesIO(data), len(data)), found.append))
    assert [one.facts["key"] for one in found] == ["", "k" * 79, "k" * 80, "k" * 80]


def test_message_sets_of_both_versions_are_read_next_to_each_other() -> None:
    """The offsets of v0 are absolute, those of v1 relative to the last one."""
    records = [PlainRecord(offset, b"k%d" % offset, b"v", -1) for offset in (4, 6)]
    data = b"".join(build_wrapper(records, magic=magic, compression="gzip") for magic in (0, 1))
    found = []
    for chunk in chunks_of(Source("s", io.BytesIO(data), len(data))):
        found += [(chunk.records.offset[i], chunk.key(i)) for i in range(chunk.records.count)]
    assert found == [(4, b"k4"), (6, b"k6")] * 2


@pytest.mark.parametrize("magic", [0, 1])
def test_a_fault_of_an_uncompressed_message_has_its_offset(magic: int) -> None:
    """The header of a compressed v0 or v1 set has only its last offset; that of an uncompressed message has its own."""
    built = bytearray(build_message(PlainRecord(7, b"key", b"value", 1 if magic else -1), magic=magic))
    key_at = 26 if magic else 18
    built[key_at : key_at + 4] = (1000).to_bytes(4, "big")
    data = damage.fix_crc(bytes(built), 0)
    found: list[Finding] = []
    list(chunks_of(Source("s", io.BytesIO(data), len(data)), found.append))
    assert [(one.rule, one.offset, one.last_offset) for one in found] == [("malformed-record", 7, 7)]
