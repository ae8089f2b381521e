"""Make ``fixtures/statements/``: the files of the statements about Kafka's formats in ``tests/support/statements.py``.

python -m tools.make_statements

``tools.statement_bytes`` packs the bytes without kseg, so that a statement does not prove itself.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from tools.statement_bytes import (
    APPEND_TIME,
    GZIP,
    LZ4,
    SNAPPY,
    TIME,
    ZSTD,
    altered,
    batch,
    body,
    compact,
    control,
    crc32c,
    entry,
    lz4,
    message,
    messages,
    metadata_request,
    metadata_response,
    produce,
    record,
    request,
    sized,
    snappy_block,
    text,
    uvarint,
    varint,
    wide,
    wrapper,
    zstd,
)  # fmt: skip

STATEMENTS = Path(__file__).parents[1] / "fixtures" / "statements"
HOUR = 3_600_000
FIRST = "00000000000000000000"
TOPIC_ID = bytes(range(16))

_THREE = messages(range(10, 13))
_FIVE = messages(range(10, 15))
_INNER = messages(range(5), 1)
_V1_SET = wrapper(14, _INNER, magic=1)
_ARTICLE = body(b"key", b"value", bits=LZ4)
_TORN = _THREE[:32] + struct.pack(">qi", 11, 100)
_V2 = batch(0, [record(0, b"key", b"value", [(b"h", b"1"), (b"empty", b""), (b"null", None)]), record(1, None, b"")])
# A record of 2,097,000 zeros.
_BIG_HEAD = bytes(3) + varint(-1) + varint(2_097_000)
_BIG = zstd(varint(len(_BIG_HEAD) + 2_097_001) + _BIG_HEAD, *[131_072] * 15, 130_920, b"\0")


def _records(*keys: int) -> list[bytes]:
    return [record(at, b"k%d" % at, b"v%d" % at) for at in keys]


def _sealed(data: bytes) -> bytes:
    """Return a v2 batch with the right CRC and length."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def _produced(*batches: tuple[int, int]) -> bytes:
    """Return batches of one record each, from producer 7 with these (offset, sequence)."""
    return b"".join(batch(at, _records(0), producer=(7, 0, sequence)) for at, sequence in batches)


def _snapshot(last_sequence: int) -> bytes:
    """Return a producer snapshot with one producer: the state at offset 2."""
    entries = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 0, last_sequence, 1, 0, TIME, -1, -1)
    return struct.pack(">hI", 1, crc32c(entries)) + entries


def _metadata(api: int, content: bytes, version: int = 0) -> bytes:
    """Return the value of a record of __cluster_metadata: frame version, type, version, message, no tagged fields."""
    return uvarint(1) + uvarint(api) + uvarint(version) + content + b"\0"


def _items(*items: bytes) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def _numbers(*numbers: int) -> bytes:
    return _items(*(struct.pack(">i", number) for number in numbers))


def _cluster() -> bytes:
    """Return a log of __cluster_metadata: what old clusters kept below /brokers, /config and /controller."""
    endpoint = compact("PLAINTEXT") + compact("broker-1") + struct.pack(">Hh", 9092, 0) + b"\0"
    broker = (
        struct.pack(">i", 1) + TOPIC_ID + struct.pack(">q", 5) + _items(endpoint) + _items() + compact(None) + b"\0"
    )
    partition = (
        struct.pack(">i", 0) + TOPIC_ID + _numbers(1, 2) + _numbers(1, 2) + _numbers() + _numbers()
        + struct.pack(">iii", 1, 0, 0)
    )  # fmt: skip
    shrunk = uvarint(1) + uvarint(0) + uvarint(len(_numbers(1))) + _numbers(1)
    change = uvarint(1) + uvarint(5) + uvarint(1) + struct.pack(">i", 0) + TOPIC_ID + shrunk
    voters = _items(struct.pack(">i", 1) + b"\0")
    leader = struct.pack(">hi", 0, 1) + voters + voters + b"\0"
    values = [
        _metadata(12, compact("metadata.version") + struct.pack(">h", 27)),
        _metadata(0, broker),
        _metadata(2, compact("orders") + TOPIC_ID),
        _metadata(3, partition),
        _metadata(4, b"\x02" + compact("orders") + compact("retention.ms") + compact("1000")),
        change,
    ]
    data = [record(at, None, value) for at, value in enumerate(values)]
    return control(0, 2, value=leader, producer=-1, epoch=3) + batch(1, data, epoch=3)


def _group() -> bytes:
    """Return a log of __consumer_offsets with the metadata of one consumer group."""
    member = text("m-1") + text(None) + text("client-1") + text("/10.0.0.1") + struct.pack(">ii", 300_000, 45_000)
    member += sized(struct.pack(">hi", 0, 1) + text("orders") + struct.pack(">i", -1))
    member += sized(struct.pack(">hii", 0, 0, 0) + struct.pack(">i", -1))
    value = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 1) + text("range") + text("m-1")
    value += struct.pack(">qi", TIME, 1) + member
    return batch(0, [record(0, struct.pack(">h", 2) + text("group-1"), value)])


def _partition(name: str, log: bytes, **beside: bytes) -> dict[str, bytes]:
    return {f"{name}/{FIRST}.log": log, **{f"{name}/{FIRST}.{suffix}": data for suffix, data in beside.items()}}


def files() -> Mapping[str, bytes]:
    """Return the bytes of each file by its name below ``fixtures/statements``."""
    v1, v2 = message(0, magic=1), batch(0, [record(0)])
    return {
        # messages and message sets
        "v0.log": _THREE,
        "v0-min.log": message(0, None, None) + message(1, b"", b"") + message(2, None, b"") + message(3, b"", None),
        "v0-claims-lz4.log": entry(0, _ARTICLE) + message(1),
        "v0-claims-zstd.log": message(0, bits=ZSTD),
        "v0-zstd.log": message(0, None, zstd(messages(range(1))), bits=ZSTD),
        "v0-bits.log": b"".join(message(at, bits=1 << at) for at in range(3, 8)),
        "v0-codecs-5-to-7.log": b"".join(message(at, bits=at) for at in range(5, 8)),
        "v0-crc.log": message(0, crc=1) + message(1),
        "v0-flipped-offset.log": message(0) + altered(message(1), 0, b"\x10") + message(2),
        "message-22.bin": _ARTICLE,
        "message-19.bin": body(None, b"value", bits=LZ4),
        "message-14.bin": body(None, None),
        "two-messages.bin": _ARTICLE + body(None, b"second"),
        "set-of-three.bin": messages((0, 0, 0)),
        "set-cut.bin": messages((7, 3)) + message(9)[:20],
        "set-cut-in-header.bin": messages((7,)) + message(8)[:11],
        "set-size-12.bin": messages((0,)) + entry(1, bytes(3), size=12),
        # wrappers
        **{f"v0-{name}.log": wrapper(14, _FIVE, codec) for name, codec in (("gzip", 1), ("snappy", 2), ("lz4", 3))},
        "v0-snappy-raw.log": message(14, None, snappy_block(_FIVE), bits=SNAPPY),
        "v0-lz4-old-checksum.log": message(14, None, lz4(_FIVE, of_magic=True), bits=LZ4),
        "nested.log": wrapper(14, wrapper(14, _FIVE)),
        "inner-size-13.log": wrapper(11, messages((10,)) + entry(11, bytes(13))),
        "inner-cut.log": wrapper(11, messages((10, 11))[:-3]),
        "inner-crc.log": wrapper(11, message(10) + message(11, crc=1)),
        "wrapper-null.log": message(0, None, None, bits=GZIP),
        "wrapper-key.log": wrapper(12, _THREE, key=b"partition-key"),
        "wrapper-first-offset.log": wrapper(10, _FIVE),
        "v1-wrapper.log": _V1_SET,
        "v1-gap.log": wrapper(14, messages((0, 2, 4), 1), magic=1),
        "v1-zero.log": wrapper(14, messages((0, 0, 0), 1), magic=1),
        # offsets, sizes, tails
        "equal-offsets.log": messages((5, 5)),
        "decreasing-offsets.log": messages((5, 3)),
        "100-bytes.log": message(0, None, bytes(74)) + message(1, None, bytes(75)),
        "v2-grows.log": batch(0, _BIG, codec=ZSTD, count=1),
        "tail-11.log": _THREE + _THREE[:11],
        "tail-header.log": _TORN,
        "tail-v0-header.log": _THREE[:52],
        "tail-25-of-28.log": _THREE[:-3],
        "tail-negative.log": _THREE + struct.pack(">qi", 13, -5) + bytes(20),
        "tail-v1.log": messages((10,), 1) + messages((11,), 1)[:30],
        "tail-small-12.log": messages((10,)) + entry(11, bytes(3), size=12),
        # timestamps
        "v1.log": v1,
        "v1-append-time.log": wrapper(14, _INNER, magic=1, bits=APPEND_TIME),
        "append-time-back.log": message(0, magic=1, bits=APPEND_TIME) + message(1, magic=1, bits=8, time=TIME - 1),
        "v1-2100.log": message(0, magic=1, time=4_102_444_800_000),
        "v1-year-2001.log": message(0, magic=1, time=1_000_000_000_000),
        "v1-minus-5.log": message(0, magic=1, time=-5),
        "v2-minus-5.log": batch(0, [record(0)], time=-5),
        "v2-no-timestamps.log": batch(0, [record(0)], time=-1),
        **_partition("time-index-0", v1 + message(1, magic=1, time=TIME + 5), index=b"",
                     timeindex=struct.pack(">qi", TIME + 5, 1)),
        **_partition("time-index-1", v1 + message(1, magic=1, time=TIME + 5), index=b"",
                     timeindex=struct.pack(">qi", TIME + 9, 1) + struct.pack(">qi", TIME + 5, 1)),
        # requests and responses
        "produce.bin": produce(_THREE),
        "produce-any-offsets.bin": produce(messages((9, 2, 2))),
        "produce-two-wrappers.bin": produce(wrapper(2, messages(range(3))) + wrapper(5, messages(range(3)))),
        "produce-two-codecs.bin": produce(wrapper(2, messages(range(3))) + wrapper(5, messages(range(3)), SNAPPY)),
        "produce-null-key.bin": produce(message(0, None)),
        "produce-v1-gap.bin": produce(wrapper(4, messages((0, 2, 4), 1), magic=1), 2),
        "frame-negative.bin": metadata_request() + struct.pack(">i", -1) + bytes(8),
        "frame-cut.bin": metadata_request() + produce(_THREE)[:40],
        "metadata.bin": metadata_request(),
        "client-null.bin": request(3, 0, 1, struct.pack(">i", 0), None),
        "produce-v2.bin": produce(messages(range(2), 1), 2),
        "metadata-answer.bin": metadata_response(),
        "answer-of-another.bin": metadata_response(99),
        "set-of-codecs.bin": wrapper(2, messages(range(3))) + wrapper(5, messages(range(3, 6)), SNAPPY),
        # v2
        "v2.log": _V2,
        "v2-attributes.log": b"".join(
            batch(at, [record(0)], bits=1 << bit, producer=(7, 0, at) if bit == 4 else (-1, -1, -1))
            for at, bit in enumerate((3, 4, 7, 15))
        ),
        "v2-claims-gzip.log": batch(0, b"".join(_records(0, 1)), codec=GZIP, count=2, last=1),
        "v2-claims-snappy.log": batch(0, b"".join(_records(0, 1)), codec=SNAPPY, count=2, last=1),
        "v2-crc.log": altered(v2, 17, b"\0\0\0\1") + batch(1, [record(0)]),
        "v2-epoch-outside-crc.log": altered(v2, 12, struct.pack(">i", 5)),
        "v2-crc32.log": batch(0, [record(0)], polynomial=crc32),
        "v2-magic-7.log": v2 + batch(1, [record(0)], magic=7),
        **{f"v2-{name}.log": batch(0, _records(0, 1), codec=codec)
           for name, codec in (("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4))},
        "v2-cleaned.log": batch(0, _records(1, 3), last=5, producer=(7, 0, 0)),
        "v2-empty.log": batch(0, [], last=4, producer=(7, 0, 0), largest=TIME),
        "v2-repeated.log": _produced((0, 0), (1, 1), (2, 1)),
        "v2-gap.log": _produced((0, 0), (1, 5)),
        "v2-wraps.log": _produced((0, 2**31 - 1), (1, 0)),
        "v2-commit.log": batch(0, _records(0), bits=0x10, producer=(7, 0, 0)) + control(1, 1),
        "v2-abort.log": batch(0, _records(0), bits=0x10, producer=(7, 0, 0)) + control(1, 0),
        "v2-control-newer.log": control(0, 1, version=5) + control(1, 9),
        "v2-control-short.log": batch(0, [record(0, b"\0\0", b"")], bits=0x30, producer=(7, 0, -1)),
        "v2-record-bits.log": batch(0, [record(0, bits=0x55)]),
        "v2-negative-key.log": _sealed(altered(v2, 61 + 4, varint(-9))),
        "v2-negative-count.log": batch(0, [record(0)], count=-1),
        "v2-delta-2-40.log": batch(0, [record(0, time=2**40)], time=0, largest=2**40),
        "v2-header-without-key.log": batch(0, [record(0, b"k", b"v", [(None, b"1")])]),
        **_partition("snapshot-0", _produced((0, 0), (1, 1)), index=b"", timeindex=b""),
        f"snapshot-0/{2:020}.log": _produced((2, 2)), f"snapshot-0/{2:020}.index": b"",
        f"snapshot-0/{2:020}.timeindex": b"", f"snapshot-0/{2:020}.snapshot": _snapshot(9),
        # versions, folders
        "mixed.log": message(0) + message(1, magic=1) + batch(2, [record(0)]),
        "v1-thousand.log": messages(range(1000), 1),
        **_partition("__consumer_offsets-0", _group()),
        **_partition("__cluster_metadata-0", _cluster()),
        "log-dir/meta.properties": b"version=1\ncluster.id=AAECAwQFBgcICQoLDA0ODw\nnode.id=1\n"
        b"directory.id=EBESExQVFhcYGRobHB0eHw\n",
        "__cluster_metadata-0/quorum-state": b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        # the 18 bytes of a tutorial
        "tutorial.bin": wide(b"first", b"this is the first message", 1),
        "tutorial-two.bin": wide(b"first", b"this is the first message") + wide(b"second", b"another"),
        "tutorial-wrong-crc.bin": wide(b"first", b"this is the first message", crc=1),
        "tutorial-other-key.bin": altered(wide(b"first", b"this is the first message"), 14, b"other"),
        "tutorial-as-v0.bin": body(b"first", b"this is the first message"),
    }  # fmt: skip


def main() -> None:
    """Write all files, and remove those that are no longer made."""
    shutil.rmtree(STATEMENTS, ignore_errors=True)
    for name, data in files().items():
        path = STATEMENTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
