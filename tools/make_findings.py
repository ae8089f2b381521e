"""Make ``fixtures/findings/``: for each rule a real broker's segment, damaged so that only this rule reports it.

python -m tools.make_findings [RULE…]

A folder holds the damaged file, ``expect.jsonl`` (the findings in full and the summary), ``ORIGIN`` (the original and
the damage) and, if the rule needs one, ``settings.json``. The written findings were reviewed by hand: review them
again before committing a change.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crc32c import crc32c

from kseg import schema
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.findings import RULES, Policy
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kseg.format.segment.records_chunk import Header
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings, Summary
from tests.support import damage, metadata_logs
from tests.support import framed_files as framed
from tests.support.damage import alter, entries, fix_crc, get, inflated, put, stored, with_inflated, with_payload

FIXTURES = Path(__file__).parents[1] / "fixtures"
SEGMENTS, STREAMS, FINDINGS = FIXTURES / "segments", FIXTURES / "streams", FIXTURES / "findings"
FRAMES = FIXTURES / "framed"
FIRST = "00000000000000000000.log"

#: A rule that a file can't show: the system reports it when reading fails.
WITHOUT_FILE = "read-error"

Damage = Callable[[bytes], bytes]


class Case:
    """The recipe of one rule's file. ``what`` describes it, ``settings`` are those of ``kseg validate``.

    ``make`` damages the segment; a recipe without it decorates a function with the name of the rule.
    ``beside`` are files that are checked with the file, as rules across files need: of the same folder, or of the
    fixture ``of``, copied to a folder ``within``; ``written`` are others by their names, with their text.
    """

    def __init__(
        self,
        segment: str,
        what: str,
        make: Damage = lambda data: data,
        *,
        name: str | None = None,
        beside: tuple[str, ...] = (),
        of: str | None = None,
        within: str | None = None,
        exchanged: Mapping[str, str] | None = None,
        written: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        folder, _, file = segment.partition("/")
        self.segment = f"{folder}/{file or FIRST}"
        self.name = name or file or FIRST
        self.beside = {(f"{within}/{other}" if within else other): f"{of or folder}/{other}" for other in beside}
        # Others of the folder under a name that is not theirs.
        self.beside |= {name: f"{folder}/{other}" for name, other in (exchanged or {}).items()}
        self.written = {name: text.encode() for name, text in (written or {}).items()}
        self.what = what
        self.settings = settings
        # Bytes from the network were captured, and are not in a segment.
        self.root = SEGMENTS if (SEGMENTS / folder).exists() else STREAMS
        self.make = make

    def __call__(self, make: Damage) -> Damage:
        self.make = make
        CASES[make.__name__.replace("_", "-")] = self
        return make


CASES: dict[str, Case] = {}

PLAIN = "4.3.0-v2-none"
MARKERS = f"4.3.0-v2-none-transactions/{17:020}.log"


def _added(number: int, write: Callable[..., bytes] = alter, **amounts: int) -> Damage:
    """Return a function that adds to fields of the batch with this number."""

    def make(data: bytes) -> bytes:
        at = entries(data)[number].at
        return write(data, at, **{name: get(data, at, name) + amount for name, amount in amounts.items()})

    return make


# K1: framing

CASES |= {
    "truncated-tail": Case(PLAIN, "the last batch is cut",
        lambda data: damage.shrink(data, entries(data)[-1].at + 4000)),
    "zero-tail": Case(PLAIN, "2,048 zeros were added after the last batch", lambda data: data + bytes(2048)),
    "zero-segment": Case(PLAIN, "the bytes of all batches are zeros", lambda data: bytes(len(data)),
        rule=["zero-tail=ignore"]),
    "invalid-size": Case(PLAIN, "the size field of the third batch is 100 too low", _added(2, put, size=-100)),
    "unknown-magic": Case(PLAIN, "the magic byte of the third batch is 253",
        lambda data: damage.flip(data, entries(data)[2].at + 16)),
    "lost-bytes": Case(PLAIN, "37 random bytes were inserted before the fourth batch",
        lambda data: damage.insert(data, entries(data)[3].at, damage.noise(37))),
    "oversize-entry": Case("4.3.0-v2-lz4", "none: the limit is 700 bytes, and the fourth batch has 797",
        max_message_bytes=700),
    "partial-entry": Case(PLAIN, "the last batch is cut, as at the size limit of a fetch",
        lambda data: damage.shrink(data, entries(data)[-1].at + 4000), name="record-set", framing="message-set"),
}  # fmt: skip


# K2: batches


@Case(PLAIN, "the third batch occurs twice")
def non_monotonic_offset(data: bytes) -> bytes:
    third = entries(data)[2]
    return damage.insert(data, third.end, data[third.at : third.end])


@Case(PLAIN, "the third batch was removed")
def offset_gap(data: bytes) -> bytes:
    third = entries(data)[2]
    return damage.cut(data, third.at, third.end)


@Case(PLAIN, "attribute bit 9 of the third batch is set; its CRC is correct")
def reserved_attribute_bits(data: bytes) -> bytes:
    at = entries(data)[2].at
    return alter(data, at, attributes=get(data, at, "attributes") | 1 << 9)


def _timestamps(data: bytes, at: int, base: int) -> bytes:
    span = get(data, at, "max_timestamp") - get(data, at, "base_timestamp")
    return alter(data, at, base_timestamp=base, max_timestamp=base + span)


@Case(PLAIN, "the timestamps of the second batch are in seconds; its CRC is correct")
def timestamp_unit(data: bytes) -> bytes:
    at = entries(data)[1].at
    return _timestamps(data, at, get(data, at, "base_timestamp") // 1000)


@Case("4.3.0-v2-none-idempotent", "the second batch of producer 0 was removed, and later offsets were lowered")
def sequence_gap(data: bytes) -> bytes:
    gone = entries(data)[3]
    return damage.move(damage.cut(data, gone.at, gone.end), gone.at, -7)


@Case("4.3.0-v2-none-idempotent", "the second batch of producer 0 was added again with new offsets")
def duplicate_sequence(data: bytes) -> bytes:
    second = entries(data)[3]
    return damage.move(damage.insert(data, second.end, data[second.at : second.end]), second.end, 7)


@Case(PLAIN, "a v1 message replaces the second batch, which also has one record")
def magic_downgrade(data: bytes) -> bytes:
    old = (SEGMENTS / "2.8.2-v1-none" / FIRST).read_bytes()
    first, second = entries(old)[0], entries(data)[1]
    return damage.splice(data, second.at, second.end, put(old[first.at : first.end], 0, base_offset=12))


@Case(PLAIN, "compaction left an empty batch of the third one, up to offset 2147483647, and later offsets are higher")
def segment_offset_overflow(data: bytes) -> bytes:
    third = entries(data)[2]
    first, last = get(data, third.at, "base_offset"), get(data, third.at, "last_offset_delta")
    header = data[third.at : third.at + RECORD_BATCH_OVERHEAD]
    header = put(header, 0, size=RECORD_BATCH_OVERHEAD - LOG_OVERHEAD)
    empty = alter(header, 0, record_count=0, last_offset_delta=(1 << 31) - 1 - first)
    moved = damage.move(data, third.end, (1 << 31) - 1 - first - last)
    return damage.splice(moved, third.at, third.end, empty)


CASES |= {
    "crc-mismatch": Case(PLAIN, "one byte in the second batch is flipped",
        lambda data: damage.flip(data, entries(data)[1].at + 200)),
    "record-count-mismatch": Case(PLAIN, "the record count of the third batch is one too low; its CRC is correct",
        _added(2, record_count=-1)),
    "max-timestamp-mismatch": Case(PLAIN,
        "the largest timestamp of the second batch is one day too low; its CRC is correct",
        _added(1, max_timestamp=-86_400_000)),
    "invalid-offset-range": Case(PLAIN, "the last offset delta of the third batch is -1; its CRC is correct",
        lambda data: alter(data, entries(data)[2].at, last_offset_delta=-1)),
    "last-offset-mismatch": Case(PLAIN,
        "the last offset delta of the last batch is five too high; its CRC is correct",
        _added(-1, last_offset_delta=5)),
    "future-timestamp": Case(PLAIN, "the timestamps of the second batch are in the year 2200; its CRC is correct",
        lambda data: _timestamps(data, entries(data)[1].at, 7_258_118_400_000)),
    "invalid-timestamp": Case(PLAIN, "the timestamps of the second batch are -60000; its CRC is correct",
        lambda data: _timestamps(data, entries(data)[1].at, -60_000)),
    "negative-timestamp": Case(PLAIN, "the timestamps of the second batch are -60000, and it names -1 as the largest",
        lambda data: alter(data, entries(data)[1].at, base_timestamp=-60_000, max_timestamp=-1)),
    "leader-epoch-regression": Case(PLAIN, "the leader epoch of the second batch is 7; no CRC covers it",
        lambda data: put(data, entries(data)[1].at, partition_leader_epoch=7)),
    "leader-epoch-jump": Case(PLAIN, "the leader epoch of the last batch is 2,000,000,000; no CRC covers it",
        lambda data: put(data, entries(data)[-1].at, partition_leader_epoch=2_000_000_000)),
    "negative-leader-epoch": Case(PLAIN, "the leader epoch of the second batch is -1; no CRC covers it",
        lambda data: put(data, entries(data)[1].at, partition_leader_epoch=-1)),
    "producer-epoch-regression": Case("4.3.0-v2-none-idempotent",
        "the last batch but one of producer 1 has epoch 1; its CRC is correct",
        lambda data: alter(data, entries(data)[4].at, producer_epoch=1, base_sequence=0)),
    "inconsistent-producer": Case("4.3.0-v2-none-idempotent", "the last batch has no sequence; its CRC is correct",
        lambda data: alter(data, entries(data)[-1].at, base_sequence=-1)),
    "file-name-mismatch": Case(PLAIN, "the file was renamed to offset 13", name=f"{13:020}.log"),
    "append-time-regression": Case("4.3.0-v2-none-log-append-time",
        "the append time of the third batch is two hours too early", _added(2, max_timestamp=-7_200_000)),
}  # fmt: skip


# K3: records


def _rewrite_records(data: bytes, entry: int, rewrite: Callable[[list[bytes]], list[bytes]]) -> bytes:
    place = entries(data)[entry]
    return with_inflated(data, place, b"".join(rewrite(damage.records(inflated(data, place)))))


@Case(PLAIN, "the key length of record 4 in the third batch is 63; its CRC is correct")
def malformed_record(data: bytes) -> bytes:
    def rewrite(records: list[bytes]) -> list[bytes]:
        broken = bytearray(records[4])
        broken[_key_at(records[4])] = 126
        return [*records[:4], bytes(broken), *records[5:]]

    return _rewrite_records(data, 2, rewrite)


def _key_at(record: bytes) -> int:
    """Return where the key's length is: after length, attributes, timestamp delta and offset delta."""
    at = damage.read_varint(record, 0)[1] + 1
    return damage.read_varint(record, damage.read_varint(record, at)[1])[1]


@Case("4.3.0-v2-none-transactions-v2", "record 3 in the first batch has no key; its CRC is correct", compacted=True)
def null_key(data: bytes) -> bytes:
    place = entries(data)[0]
    old = damage.records(inflated(data, place))[3]
    begin = damage.read_varint(old, 0)[1]
    key_at = _key_at(old)
    size, key_begin = damage.read_varint(old, key_at)
    body = old[begin:key_at] + damage.varint(-1) + old[key_begin + size :]
    return _rewrite_records(data, 0, lambda records: [*records[:3], damage.varint(len(body)) + body, *records[4:]])


@Case(PLAIN, "record 5 in the third batch has the offset delta of record 4; its CRC is correct")
def record_offset_mismatch(data: bytes) -> bytes:
    def rewrite(records: list[bytes]) -> list[bytes]:
        broken = bytearray(records[5])
        broken[_key_at(records[5]) - 1] = damage.varint(4)[0]
        return [*records[:5], bytes(broken), *records[6:]]

    return _rewrite_records(data, 2, rewrite)


@Case("2.8.2-v1-gzip", "the last value byte of inner message 2 in the second message set is flipped")
def inner_crc_mismatch(data: bytes) -> bytes:
    place = entries(data)[1]
    inner = inflated(data, place)
    return with_inflated(data, place, damage.flip(inner, entries(inner)[2].end - 1, 1))


def _inner_codec(data: bytes, codec: int) -> bytes:
    place = entries(data)[1]
    inner = inflated(data, place)
    at = entries(inner)[2].at
    return with_inflated(data, place, alter(inner, at, attributes=codec))


@Case("2.8.2-v0-gzip", "the last 9 decompressed bytes of the second message set were removed")
def truncated_wrapper(data: bytes) -> bytes:
    place = entries(data)[1]
    return with_inflated(data, place, inflated(data, place)[:-9])


@Case(MARKERS, "the key of the first marker is cut after its version; its CRC is correct")
def malformed_control_record(data: bytes) -> bytes:
    place = entries(data)[0]
    (old,) = damage.records(inflated(data, place))
    key_at = _key_at(old)
    size, begin = damage.read_varint(old, key_at)
    body = old[damage.read_varint(old, 0)[1] : key_at] + damage.varint(2) + old[begin : begin + 2] + old[begin + size :]
    return with_inflated(data, place, damage.varint(len(body)) + body)


@Case(MARKERS, "the first marker has type 9; its CRC is correct")
def unknown_control_record(data: bytes) -> bytes:
    place = entries(data)[0]
    (old,) = damage.records(inflated(data, place))
    begin = damage.read_varint(old, _key_at(old))[1]
    return with_inflated(data, place, damage.splice(old, begin + 3, begin + 4, b"\x09"))


@Case("2.8.2-v1-gzip", "the second message set has a key; its CRC is correct")
def wrapper_key(data: bytes) -> bytes:
    at = entries(data)[1].at
    keyed = damage.splice(data, at + 26, at + 30, struct.pack(">i", 5) + b"user1")
    return fix_crc(damage.splice(keyed, at + 8, at + 12, struct.pack(">i", get(data, at, "size") + 5)), at)


@Case("4.3.0-v2-none-headers", "the first letter of a header key in the first batch is 0xff; its CRC is correct")
def invalid_header_key(data: bytes) -> bytes:
    place = entries(data)[0]
    at = data.index(HEADER_KEY, damage.payload_begin(data, place))
    assert at < place.end
    return fix_crc(damage.splice(data, at, at + 1, b"\xff"), place.at)


HEADER_KEY = b"trace"


@Case("4.3.0-v2-none-internal-transaction-state", "a topic name in the second batch has length 126; its CRC is correct",
      name=f"__transaction_state-0/{FIRST}")  # fmt: skip
def internal_record(data: bytes) -> bytes:
    place = entries(data)[1]
    at = data.index(b"__consumer_offsets", place.at) - 1
    return fix_crc(damage.splice(data, at, at + 1, b"\x7f"), place.at)


CASES |= {
    "wrapper-offset-mismatch": Case("2.8.2-v0-gzip",
        "the offset of the last message set is two too high; no CRC covers it", _added(-1, put, base_offset=2)),
    "nested-compression": Case("2.8.2-v1-gzip",
        "inner message 2 in the second message set names gzip; its CRC is correct",
        lambda data: _inner_codec(data, 1)),
    "mixed-wrapper-codecs": Case("2.8.2-v1-gzip",
        "inner message 2 in the second message set names snappy; its CRC is correct",
        lambda data: _inner_codec(data, 2)),
    "past-timestamp": Case("2.8.2-v1-none", "none: the records of 2023 are older than a day",
        timestamp_before_max_ms=86_400_000),
}  # fmt: skip


# K4: codecs


@Case("4.3.0-v2-lz4", "the attributes of the third batch name codec 6; its CRC is correct")
def unknown_codec(data: bytes) -> bytes:
    at = entries(data)[2].at
    return alter(data, at, attributes=get(data, at, "attributes") & ~7 | 6)


@Case("4.3.0-v2-zstd", "the last 40 bytes of compressed data in the third batch were removed; its CRC is correct")
def undecodable_payload(data: bytes) -> bytes:
    place = entries(data)[2]
    return with_payload(data, place, stored(data, place)[:-40])


@Case("4.3.0-v2-zstd", "257 MiB of zeros, 8 kB of zstd, replace the data of the second batch")
def decompression_limit(data: bytes) -> bytes:
    import zstandard

    bomb = zstandard.ZstdCompressor(level=1, write_content_size=True).compress(bytes(257 << 20))
    return with_payload(data, entries(data)[1], bomb)


@Case("2.8.2-v1-gzip", "20 bytes follow the gzip data of the second message set; its CRC is correct")
def codec_quirk(data: bytes) -> bytes:
    place = entries(data)[1]
    return with_payload(data, place, stored(data, place) + b"twenty bytes behind.")


@Case("4.3.0-v2-zstd", "a batch was added whose only record has 10,001 empty headers")
def limit_reached(data: bytes) -> bytes:
    last = entries(data)[-1]
    offset = get(data, last.at, "base_offset") + get(data, last.at, "last_offset_delta") + 1
    record = PlainRecord(offset, b"key", b"value", get(data, last.at, "max_timestamp"), (Header("", None),) * 10_001)
    return data + build_batch([record], base_offset=offset, compression="zstd")


CASES |= {
    "claimed-codec": Case(PLAIN, "none: a message with the gzip bit set and an uncompressed value",
        lambda data: framed.EXAMPLE, name="message", framing="wide-crc"),
}  # fmt: skip


# K5: side files

INDEX = f"0.8.2.2-v0-none/{0:020}.index"
TIME_INDEX = f"4.3.0-v2-none-transactions/{17:020}.timeindex"
TXN_INDEX = f"4.3.0-v2-none-transactions/{17:020}.txnindex"
SNAPSHOT = f"4.3.0-v2-none-transactions/{88:020}.snapshot"
EPOCHS = "4.3.0-v2-none-transactions/leader-epoch-checkpoint"
HIGH_WATERMARKS = "4.3.0-v2-none-log-dir/replication-offset-checkpoint"


@Case(HIGH_WATERMARKS, "the third line has no offset")
def checkpoint_malformed(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[4] = lines[4].rpartition(b" ")[0]
    return b"\n".join(lines)


@Case(HIGH_WATERMARKS, "the first line replaces the second")
def checkpoint_duplicate(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[3] = lines[2].rpartition(b" ")[0] + b" 87"
    return b"\n".join(lines)


@Case(EPOCHS, "the lines of the epochs were exchanged")
def epoch_not_increasing(data: bytes) -> bytes:
    version, count, *lines = data.splitlines(keepends=True)
    return b"".join([version, count, *reversed(lines)])


CASES |= {
    "index-size": Case(INDEX, "the last 3 bytes were removed", lambda data: damage.shrink(data, len(data) - 3)),
    "index-not-increasing": Case(INDEX, "the second entry occurs twice",
        lambda data: damage.insert(data, 16, data[8:16])),
    "index-below-base": Case(INDEX, "the relative offset of the second entry is -1",
        lambda data: damage.splice(data, 8, 12, b"\xff" * 4)),
    "time-index-not-increasing": Case(TIME_INDEX, "the first two entries were exchanged",
        lambda data: data[12:24] + data[:12] + data[24:]),
    "txn-index-version": Case(TXN_INDEX, "the version of the first entry is 256",
        lambda data: damage.splice(data, 0, 2, b"\1\0")),
    "late-stable-offset": Case(TXN_INDEX,
        "the last stable offset of the first entry is 30 instead of 23, as in an index of a follower",
        lambda data: damage.splice(data, 26, 34, struct.pack(">q", 30))),
    "txn-index-order": Case(TXN_INDEX, "the two entries were exchanged", lambda data: data[34:] + data[:34]),
    "snapshot-version": Case(SNAPSHOT, "the version is 2, which no Kafka writes",
        lambda data: damage.splice(data, 0, 2, b"\0\2")),
    "snapshot-size": Case(SNAPSHOT, "the last producer is cut", lambda data: damage.shrink(data, len(data) - 20)),
    "snapshot-crc": Case(SNAPSHOT, "one byte in the last offset of the second producer is flipped",
        lambda data: damage.flip(data, 10 + 46 + 21)),
    "checkpoint-count": Case(HIGH_WATERMARKS, "the last line was removed",
        lambda data: data[: data.rindex(b"\n", 0, -1) + 1]),
    "metadata-malformed": Case(f"{PLAIN}/partition.metadata", "the last 10 characters of the topic id were removed",
        lambda data: damage.shrink(data, len(data) - 10)),
    "kraft-snapshot-incomplete": Case(f"4.3.0-v2-none-kraft-metadata/{20:020}-{1:010}.checkpoint",
        "the last batch, with the footer, was removed", lambda data: damage.shrink(data, entries(data)[-1].at)),
}  # fmt: skip


# K6: across files

SEVERAL = "4.3.0-v2-none-segments"
HEADERS = "4.3.0-v2-none-headers"
LOG_DIR = "4.3.0-v2-none-log-dir"
SECOND, THIRD = f"{24:020}.log", f"{48:020}.log"
TRANSACTIONS = "4.3.0-v2-none-transactions"
WITH_INDEXES = tuple(f"{17:020}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex"))


def _others(*without: str) -> tuple[str, ...]:
    return tuple(name for name in WITH_INDEXES if not name.endswith(without))


@Case(
    f"{TRANSACTIONS}/{WITH_INDEXES[2]}",
    "the timestamp of the second entry is 1 ms too high",
    beside=_others(".timeindex"),
)
def time_index_mismatch(data: bytes) -> bytes:
    (timestamp,) = struct.unpack_from(">q", data, 12)
    return damage.splice(data, 12, 20, struct.pack(">q", timestamp + 1))


REMOTE = "-AAAAAAAAAAAAAAAAAAAAAA.log"


@Case(f"{TRANSACTIONS}/{17:020}.snapshot", "the last offset of producer 2 is one too low; the CRC is correct",
      beside=(FIRST, WITH_INDEXES[0]))  # fmt: skip
def snapshot_mismatch(data: bytes) -> bytes:
    at = data.index(struct.pack(">qh", 2, 0)) + 14
    (offset,) = struct.unpack_from(">q", data, at)
    data = damage.splice(data, at, at + 8, struct.pack(">q", offset - 1))
    return damage.splice(data, 2, 6, struct.pack(">I", crc32c(data[6:])))


_WITHOUT_SNAPSHOTS = tuple(
    f"{base:020}{suffix}" for base in (0, 17, 48, 52, 73, 77) for suffix in (".log", ".index", ".timeindex")
)
LIVE = "4.3.0-v2-none-live"


@Case(
    f"{LIVE}/{0:020}.index",
    "an entry was added after the last one, of a batch that a truncation removed",
    beside=(FIRST, f"{0:020}.timeindex"),
)
def stale_index_entries(data: bytes) -> bytes:
    used = len(data.rstrip(b"\0"))
    used += -used % 8
    return damage.splice(data, used, used + 8, struct.pack(">ii", 60, 20_000))


CASES |= {
    "index-mismatch": Case(f"{TRANSACTIONS}/{WITH_INDEXES[1]}",
        "the position of the second entry is one byte too high", lambda data: damage.flip(data, 15, 1),
        beside=_others(".index")),
    "txn-index-mismatch": Case(f"{TRANSACTIONS}/{WITH_INDEXES[3]}", "the first entry was removed",
        lambda data: data[34:], beside=_others(".txnindex")),
    "segment-overlap": Case(f"{SEVERAL}/{THIRD}", "the third segment was renamed to offset 44", name=f"{44:020}.log",
        beside=(FIRST, SECOND)),
    "segment-gap": Case(f"{SEVERAL}/{THIRD}", "the second of three segments was removed", beside=(FIRST,)),
    "missing-batches": Case("4.3.0-v2-none-segments/00000000000000000024.log", "the first batch was removed",
        lambda data: data[entries(data)[0].end :], beside=(FIRST,)),
    "repeated-upload": Case(f"{SEVERAL}/{FIRST}",
        "the segments are those of remote storage, with the first one uploaded twice",
        name=FIRST.replace(".log", REMOTE),
        exchanged={FIRST.replace(".log", REMOTE.replace("A.", "Q.")): FIRST, SECOND.replace(".log", REMOTE): SECOND}),
    "segment-order": Case(f"{SEVERAL}/{SECOND}", "the second and the third segment have each other's name",
        name=THIRD, beside=(FIRST,), exchanged={SECOND: THIRD}),
    "missing-index": Case(f"{SEVERAL}/{SECOND}", "the .index file was removed; the first segment has one",
        beside=(FIRST, FIRST.replace(".log", ".index"), FIRST.replace(".log", ".timeindex"),
            SECOND.replace(".log", ".timeindex"))),
    "no-indexes": Case(f"{SEVERAL}/{SECOND}", "two segments without any other file", beside=(FIRST,)),
    "swap-pending": Case(f"{SEVERAL}/{SECOND}", "the second segment also exists as a .swap file",
        name=f"{SECOND}.swap", beside=(FIRST, SECOND, THIRD)),
    "stray-snapshot": Case(f"{TRANSACTIONS}/{17:020}.snapshot", "the snapshot was renamed to offset 12",
        name=f"{12:020}.snapshot", beside=(FIRST, WITH_INDEXES[0])),
    "producers-without-snapshot": Case(f"{TRANSACTIONS}/{_WITHOUT_SNAPSHOTS[-3]}",
        "the producer snapshots of the folder were deleted",
        beside=(*(name for name in _WITHOUT_SNAPSHOTS if name != f"{77:020}.log"), f"{17:020}.txnindex",
            f"{52:020}.txnindex", "leader-epoch-checkpoint")),
    "missing-epochs": Case(HEADERS, "the leader-epoch-checkpoint was deleted",
        beside=(f"{0:020}.index", f"{0:020}.timeindex", "partition.metadata")),
    "epoch-mismatch": Case(f"{HEADERS}/leader-epoch-checkpoint", "the second epoch starts at offset 20",
        lambda data: data.replace(b"2 26", b"2 20"), beside=(FIRST,)),
    "checkpoint-behind-log": Case(f"{LOG_DIR}/recovery-point-offset-checkpoint",
        "the recovery point of the partition is 100 too high",
        lambda data: data.replace(b"none-headers 0 26", b"none-headers 0 126"), beside=(FIRST,), of=HEADERS,
        within="none-headers-0"),
    "stale-high-watermark": Case(f"{LOG_DIR}/replication-offset-checkpoint",
        "the high watermark of the partition is 100 too high",
        lambda data: data.replace(b"none-headers 0 26", b"none-headers 0 126"), beside=(FIRST,), of=HEADERS,
        within="none-headers-0"),
    "log-start-behind-end": Case(f"{LOG_DIR}/log-start-offset-checkpoint", "the log start of the partition is 100",
        lambda data: data.replace(b"0\n0\n", b"0\n1\nnone-headers 0 100\n"), beside=(FIRST,), of=HEADERS,
        within="none-headers-0"),
    "orphaned-index": Case(f"{TRANSACTIONS}/{WITH_INDEXES[1]}", "none: the log of the index was removed",
        beside=(FIRST,)),
    "snapshot-behind-log": Case(f"{TRANSACTIONS}/{88:020}.snapshot",
        "none: all segments except the first were removed", beside=(FIRST,)),
}  # fmt: skip


# K7: the metadata log of KRaft

METADATA = "4.3.0-v2-none-internal-cluster-metadata"


@Case(METADATA, "a bit of the topic id in the record that removes a topic is flipped; the CRC of its batch is correct",
      name=f"__cluster_metadata-0/{FIRST}", within="__cluster_metadata-0",
      beside=(f"{0:020}.index", f"{0:020}.timeindex"))  # fmt: skip
def metadata_not_replayable(data: bytes) -> bytes:
    batch = next(one for one in entries(data) if get(data, one.at, "base_offset") == 148)
    return fix_crc(damage.flip(data, batch.at + 80, bits=1), batch.at)


IN_LOG_DIR: dict[str, Any] = {
    "name": f"__cluster_metadata-0/{FIRST}",
    "within": "__cluster_metadata-0",
    "beside": (f"{0:020}.index", f"{0:020}.timeindex", "leader-epoch-checkpoint"),
}
#: The log directory that its broker has registered in the log, and one that it has not.
REGISTERED, OTHER = "4vorF-xVCUHKD5pad_XK3Q", "b3RoZXItZGlyZWN0b3J5MQ"
TOPIC_ID, OTHER_ID = "9tTEN1jcSP2qiuuJ4LB3xg", "b3RoZXItdG9waWMtaWQtMQ"


def log_dir_files(directory: str, topic_id: str) -> dict[str, str]:
    """The files that identify a log directory, and the empty partition plain-0 in it."""
    ids = f"version=1\ncluster.id=bXktY2x1c3Rlci1pZC0wMQ\nnode.id=1\ndirectory.id={directory}\n"
    return {
        "meta.properties": ids,
        "plain-0/partition.metadata": f"version: 0\ntopic_id: {topic_id}",
        f"plain-0/{FIRST}": "",
    }


@Case(METADATA, "a broker was added that runs: the log ended with the stop of its only one", **IN_LOG_DIR)
def last_replica_fenced(data: bytes) -> bytes:
    running = metadata_logs.broker(2, 200)
    features = metadata_logs.controller(2)[2]["features"]
    return metadata_logs.appended(data, (running[0], running[1], {**running[2], "fenced": False, "features": features}))


@Case(METADATA, "two controllers were added, and a record that names one of them as the voter", **IN_LOG_DIR)
def ghost_controller(data: bytes) -> bytes:
    added = metadata_logs.appended(data, metadata_logs.controller(2), metadata_logs.controller(3))
    return metadata_logs.with_voters(added, [1, 2])


CASES |= {
    "metadata-snapshot-missing": Case(METADATA, "the batches before offset 91 were removed",
        lambda data: data[next(batch.at for batch in entries(data) if get(data, batch.at, "base_offset") == 91) :],
        name=f"__cluster_metadata-0/{91:020}.log", within="__cluster_metadata-0", beside=("partition.metadata",),
        rule=["no-indexes=ignore"]),
    "stray-folder": Case(METADATA, "the partition folder plain-0 has a topic id that no topic of the log has",
        **IN_LOG_DIR, written=log_dir_files(REGISTERED, OTHER_ID), rule=["no-indexes=ignore"]),
    "unregistered-directory": Case(METADATA,
        "meta.properties has a directory id that the broker of the log has not registered", **IN_LOG_DIR,
        written=log_dir_files(OTHER, TOPIC_ID), rule=["no-indexes=ignore"]),
    "upgrade-blocked": Case(METADATA, "a controller of Kafka 3.9 was added",
        lambda data: metadata_logs.appended(data, metadata_logs.controller(2, metadata_version=21)), **IN_LOG_DIR),
}  # fmt: skip


# K8: bytes from the network


def _over(data: bytes, at: int, piece: bytes) -> bytes:
    return damage.splice(data, at, at + len(piece), piece)


PRODUCED = "4.3.0-java/03.requests"
ANSWERED = "4.3.0-java/03.responses"
THIRD_FRAME = 91


def _produced(records: bytes) -> bytes:
    """A Produce request of version 2 with one topic, one partition, and these records."""
    head = struct.pack(">hhihhi", 0, 2, 1, -1, 1, 30_000)  # API, version, id, no client id, acks, timeout
    body = struct.pack(">ih6siii", 1, 6, b"orders", 1, 0, len(records)) + records
    frame = head + body
    return struct.pack(">i", len(frame)) + frame


WRAPPERS = "0.10.2.2-v1-gzip"


@Case(WRAPPERS, "a Produce request has the second compressed message with the offsets of the log", name="sent",
      framing="requests")  # fmt: skip
def relative_offset_mismatch(data: bytes) -> bytes:
    place = entries(data)[1]
    return _produced(data[place.at : place.end])


@Case(PLAIN, "the first batch, then the LZ4 batches of the same log", name="record-set", framing="message-set")
def mixed_codecs(data: bytes) -> bytes:
    other = (SEGMENTS / "4.3.0-v2-lz4" / FIRST).read_bytes()
    return data[: entries(data)[1].at] + other[entries(other)[1].at :]


@Case(PRODUCED, "the length of the topics in the third frame goes beyond its end", framing="requests")
def malformed_body(data: bytes) -> bytes:
    # After size, API, version, correlation id, client id and tags: null, acks, timeout.
    return _over(data, THIRD_FRAME + 4 + 8 + 2 + len("producer-1") + 1 + 1 + 2 + 4, b"\x7f")


CASES |= {
    "several-batches": Case(WRAPPERS, "a Produce request has the first compressed message twice",
        lambda data: _produced(data[: entries(data)[1].at] * 2), name="sent", framing="requests"),
    "frame-size": Case(PRODUCED, "the size of the third frame is 2**31 too low",
        lambda data: damage.flip(data, THIRD_FRAME, 0x80), framing="requests"),
    "frame-cut": Case(PRODUCED, "the last frame is cut", lambda data: damage.shrink(data, len(data) - 20),
        framing="requests"),
    "unknown-api": Case(PRODUCED, "the version of the third frame is 99",
        lambda data: _over(data, THIRD_FRAME + 6, struct.pack(">h", 99)), framing="requests"),
    "unmatched-response": Case(ANSWERED, "the correlation id of the first frame is 77",
        lambda data: _over(data, 4, struct.pack(">i", 77)), framing="responses", beside=("03.requests",),
        requests="03.requests"),
    "unread-bodies": Case(ANSWERED, "none: the requests are not given", framing="responses"),
    "body-left-over": Case("4.3.0-java/00.requests",
        "none: a Metadata request of librdkafka is longer than its version", framing="requests"),
}  # fmt: skip


def is_judged(file: Path) -> bool:
    """Whether a file in a folder of fixtures is not about the others."""
    return file.name not in ("expect.jsonl", "ORIGIN", "settings.json")


def settings_of(folder: Path) -> dict[str, Any]:
    """Return the settings of ``kseg validate`` for a folder of fixtures."""
    path = folder / "settings.json"
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return settings


def findings(path: Path, settings: dict[str, Any]) -> list[schema.Row]:
    """The findings of a file, or a folder's files, as rows, and the summary, with the file's base name."""
    known = {key: value for key, value in settings.items() if key not in ("rule", "framing", "requests")}
    judged = Settings(**known, policy=Policy.parse(settings.get("rule", ())))
    requested = settings.get("requests")
    if "framing" in settings:
        path = (
            next(file for file in path.iterdir() if is_judged(file) and file.name != requested)
            if path.is_dir()
            else path
        )
        requests = str(path.with_name(requested)) if requested else None
        files = [SegmentFile(str(path), framing=settings["framing"], requests=requests)]
    else:
        files = list(find_files(str(path), lambda name: None)) if path.is_dir() else [SegmentFile(str(path))]
    found: list[schema.Row] = []
    summary = Summary()
    for result in check_folders(files, judged, validate_files(files, judged)):
        assert result.unread is None, result.unread
        found += ({**verdict.as_row(), "file": Path(verdict.file).name} for verdict in result.verdicts)
        summary.add(result.summary)
    counts = {name: getattr(summary, name) for name in ("batches", "records", "bytes", "lost_bytes")}
    return [*found, {"kind": "summary", **counts, "verdict": summary.verdict}]


def made(case: Case) -> dict[str, bytes]:
    """The files of a rule's folder, by their names in it."""
    others = {name: (case.root / source).read_bytes() for name, source in case.beside.items()}
    return {**others, **case.written, case.name: case.make((case.root / case.segment).read_bytes())}


def write(rule: str, case: Case) -> None:
    """Write one folder."""
    folder = FINDINGS / rule
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in made(case).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    if case.settings:
        (folder / "settings.json").write_text(json.dumps(case.settings) + "\n", encoding="utf-8")
    origin = f"made from fixtures/{case.root.name}/{case.segment}\n{case.what}\n"
    (folder / "ORIGIN").write_text(origin, encoding="utf-8")
    judged = folder if case.beside or case.written else folder / case.name
    lines = [json.dumps(row) + "\n" for row in findings(judged, case.settings)]
    (folder / "expect.jsonl").write_text("".join(lines), encoding="utf-8")


def write_framed(name: str, framing: str, data: bytes) -> None:
    """Write one folder of files that are not logs."""
    path = FRAMES / name / "data"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    lines = [json.dumps(row) + "\n" for row in findings(path, {"framing": framing})]
    path.with_name("expect.jsonl").write_text("".join(lines), encoding="utf-8")


def main(names: list[str]) -> None:
    missing = RULES.keys() - CASES.keys() - {WITHOUT_FILE}
    for rule in [name for name in names or CASES if name not in framed.FRAMED]:
        write(rule, CASES[rule])
        sys.stdout.write(f"{rule}\n")
    for name, made_of in framed.FRAMED.items():
        if not names or name in names:
            write_framed(name, *made_of)
    if missing:
        sys.exit(f"rules without a case: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main(sys.argv[1:])
