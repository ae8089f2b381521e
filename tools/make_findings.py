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
from kseg.commands.validate.parallel import validate_files
from kseg.findings import RULES, Policy
from kseg.format.segment.objects import Header
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.source import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings, Summary
from tests.support import damage
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

    ``beside`` are files that are checked with the file, as rules across files need: of the same folder, or of the
    fixture ``of``, copied to a folder ``within``.
    """

    def __init__(
        self,
        segment: str,
        what: str,
        *,
        name: str | None = None,
        beside: tuple[str, ...] = (),
        of: str | None = None,
        within: str | None = None,
        exchanged: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        folder, _, file = segment.partition("/")
        self.segment = f"{folder}/{file or FIRST}"
        self.name = name or file or FIRST
        self.beside = {(f"{within}/{other}" if within else other): f"{of or folder}/{other}" for other in beside}
        # Others of the folder under a name that is not theirs.
        self.beside |= {name: f"{folder}/{other}" for name, other in (exchanged or {}).items()}
        self.what = what
        self.settings = settings
        # Bytes from the network were captured, and are not in a segment.
        self.root = SEGMENTS if (SEGMENTS / folder).exists() else STREAMS
        self.make: Damage

    def __call__(self, make: Damage) -> Damage:
        self.make = make
        CASES[make.__name__.replace("_", "-")] = self
        return make


CASES: dict[str, Case] = {}

PLAIN = "4.3.0-v2-none"
MARKERS = f"4.3.0-v2-none-transactions/{17:020}.log"


# K1: framing


@Case(PLAIN, "cut inside the last entry's body")
def truncated_tail(data: bytes) -> bytes:
    return damage.shrink(data, entries(data)[-1].at + 4000)


@Case(PLAIN, "2048 zeros behind the last entry")
def zero_tail(data: bytes) -> bytes:
    return data + bytes(2048)


@Case(PLAIN, "the third entry's size 100 less than it is")
def invalid_size(data: bytes) -> bytes:
    at = entries(data)[2].at
    return put(data, at, size=get(data, at, "size") - 100)


@Case(PLAIN, "the third entry's magic flipped to 253")
def unknown_magic(data: bytes) -> bytes:
    return damage.flip(data, entries(data)[2].at + 16)


@Case(PLAIN, "37 bytes of noise before the fourth entry")
def lost_bytes(data: bytes) -> bytes:
    return damage.insert(data, entries(data)[3].at, damage.noise(37))


@Case("4.3.0-v2-lz4", "nothing: the limit is 700 bytes, and the fourth entry has 797", max_message_bytes=700)
def oversize_entry(data: bytes) -> bytes:
    return data


@Case(PLAIN, "cut inside the last entry, as a fetch's limit does", name="record-set", framing="message-set")
def partial_entry(data: bytes) -> bytes:
    return damage.shrink(data, entries(data)[-1].at + 4000)


# K2: batches


@Case(PLAIN, "a byte in the middle of the second entry flipped")
def crc_mismatch(data: bytes) -> bytes:
    return damage.flip(data, entries(data)[1].at + 200)


@Case(PLAIN, "the third entry twice")
def non_monotonic_offset(data: bytes) -> bytes:
    third = entries(data)[2]
    return damage.insert(data, third.end, data[third.at : third.end])


@Case(PLAIN, "the third entry gone")
def offset_gap(data: bytes) -> bytes:
    third = entries(data)[2]
    return damage.cut(data, third.at, third.end)


@Case(PLAIN, "the third entry's record count one less, CRC made right")
def record_count_mismatch(data: bytes) -> bytes:
    at = entries(data)[2].at
    return alter(data, at, record_count=get(data, at, "record_count") - 1)


@Case(PLAIN, "the second entry's largest timestamp a day less, CRC made right")
def max_timestamp_mismatch(data: bytes) -> bytes:
    at = entries(data)[1].at
    return alter(data, at, max_timestamp=get(data, at, "max_timestamp") - 86_400_000)


@Case(PLAIN, "attribute bit 9 of the third entry set, CRC made right")
def reserved_attribute_bits(data: bytes) -> bytes:
    at = entries(data)[2].at
    return alter(data, at, attributes=get(data, at, "attributes") | 1 << 9)


@Case(PLAIN, "the third entry's last offset delta -1, CRC made right")
def invalid_offset_range(data: bytes) -> bytes:
    return alter(data, entries(data)[2].at, last_offset_delta=-1)


@Case(PLAIN, "the last entry's last offset delta five more, CRC made right")
def last_offset_mismatch(data: bytes) -> bytes:
    at = entries(data)[-1].at
    return alter(data, at, last_offset_delta=get(data, at, "last_offset_delta") + 5)


def _timestamps(data: bytes, at: int, base: int) -> bytes:
    span = get(data, at, "max_timestamp") - get(data, at, "base_timestamp")
    return alter(data, at, base_timestamp=base, max_timestamp=base + span)


@Case(PLAIN, "the second entry's timestamps in the year 2200, CRC made right")
def future_timestamp(data: bytes) -> bytes:
    return _timestamps(data, entries(data)[1].at, 7_258_118_400_000)


@Case(PLAIN, "the second entry's timestamps in seconds, CRC made right")
def timestamp_unit(data: bytes) -> bytes:
    at = entries(data)[1].at
    return _timestamps(data, at, get(data, at, "base_timestamp") // 1000)


@Case(PLAIN, "the second entry's timestamps -60000, CRC made right")
def invalid_timestamp(data: bytes) -> bytes:
    return _timestamps(data, entries(data)[1].at, -60_000)


@Case(PLAIN, "the second entry's partition leader epoch 7, outside the CRC")
def leader_epoch_regression(data: bytes) -> bytes:
    return put(data, entries(data)[1].at, partition_leader_epoch=7)


@Case(PLAIN, "the second entry's partition leader epoch -1, outside the CRC")
def negative_leader_epoch(data: bytes) -> bytes:
    return put(data, entries(data)[1].at, partition_leader_epoch=-1)


@Case("4.3.0-v2-none-idempotent", "producer 1's last batch but one in epoch 1, CRC made right")
def producer_epoch_regression(data: bytes) -> bytes:
    return alter(data, entries(data)[4].at, producer_epoch=1, base_sequence=0)


@Case("4.3.0-v2-none-idempotent", "producer 0's second batch gone, the offsets behind it moved up")
def sequence_gap(data: bytes) -> bytes:
    gone = entries(data)[3]
    return damage.move(damage.cut(data, gone.at, gone.end), gone.at, -7)


@Case("4.3.0-v2-none-idempotent", "producer 0's second batch again behind itself, under new offsets")
def duplicate_sequence(data: bytes) -> bytes:
    second = entries(data)[3]
    return damage.move(damage.insert(data, second.end, data[second.at : second.end]), second.end, 7)


@Case("4.3.0-v2-none-idempotent", "the last batch without a sequence, CRC made right")
def inconsistent_producer(data: bytes) -> bytes:
    return alter(data, entries(data)[-1].at, base_sequence=-1)


@Case(PLAIN, "the file named as if it began at offset 13", name=f"{13:020}.log")
def file_name_mismatch(data: bytes) -> bytes:
    return data


@Case(PLAIN, "a v1 message in place of the second entry, which holds one record, too")
def magic_downgrade(data: bytes) -> bytes:
    old = (SEGMENTS / "2.8.2-v1-none" / FIRST).read_bytes()
    first, second = entries(old)[0], entries(data)[1]
    return damage.splice(data, second.at, second.end, put(old[first.at : first.end], 0, base_offset=12))


@Case("4.3.0-v2-none-log-append-time", "the third entry's append time two hours earlier")
def append_time_regression(data: bytes) -> bytes:
    at = entries(data)[2].at
    return alter(data, at, max_timestamp=get(data, at, "max_timestamp") - 7_200_000)


# K3: records


def _rewrite_records(data: bytes, entry: int, rewrite: Callable[[list[bytes]], list[bytes]]) -> bytes:
    place = entries(data)[entry]
    return with_inflated(data, place, b"".join(rewrite(damage.records(inflated(data, place)))))


@Case(PLAIN, "in the third entry the key length of record 4 is 63, CRC made right")
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


@Case("4.3.0-v2-none-transactions-v2", "in the first entry record 3 without its key, CRC made right", compacted=True)
def null_key(data: bytes) -> bytes:
    place = entries(data)[0]
    old = damage.records(inflated(data, place))[3]
    begin = damage.read_varint(old, 0)[1]
    key_at = _key_at(old)
    size, key_begin = damage.read_varint(old, key_at)
    body = old[begin:key_at] + damage.varint(-1) + old[key_begin + size :]
    return _rewrite_records(data, 0, lambda records: [*records[:3], damage.varint(len(body)) + body, *records[4:]])


@Case(PLAIN, "in the third entry record 5 takes the offset delta of record 4, CRC made right")
def record_offset_mismatch(data: bytes) -> bytes:
    def rewrite(records: list[bytes]) -> list[bytes]:
        broken = bytearray(records[5])
        broken[_key_at(records[5]) - 1] = damage.varint(4)[0]
        return [*records[:5], bytes(broken), *records[6:]]

    return _rewrite_records(data, 2, rewrite)


@Case("2.8.2-v1-gzip", "in the second wrapper the last value byte of inner message 2 flipped, compressed again")
def inner_crc_mismatch(data: bytes) -> bytes:
    place = entries(data)[1]
    inner = inflated(data, place)
    return with_inflated(data, place, damage.flip(inner, entries(inner)[2].end - 1, 1))


@Case("2.8.2-v0-gzip", "the last wrapper's offset two more, outside the CRC")
def wrapper_offset_mismatch(data: bytes) -> bytes:
    at = entries(data)[-1].at
    return put(data, at, base_offset=get(data, at, "base_offset") + 2)


def _inner_codec(data: bytes, codec: int) -> bytes:
    place = entries(data)[1]
    inner = inflated(data, place)
    at = entries(inner)[2].at
    return with_inflated(data, place, alter(inner, at, attributes=codec))


@Case("2.8.2-v1-gzip", "in the second wrapper inner message 2 names gzip, too, inner CRC made right")
def nested_compression(data: bytes) -> bytes:
    return _inner_codec(data, 1)


@Case("2.8.2-v1-gzip", "in the second wrapper inner message 2 names snappy, inner CRC made right: nested, and mixed")
def mixed_wrapper_codecs(data: bytes) -> bytes:
    return _inner_codec(data, 2)


@Case("2.8.2-v0-gzip", "in the second wrapper the last 9 inflated bytes gone, compressed again")
def truncated_wrapper(data: bytes) -> bytes:
    place = entries(data)[1]
    return with_inflated(data, place, inflated(data, place)[:-9])


@Case(MARKERS, "the first marker's key cut to its version, CRC made right")
def malformed_control_record(data: bytes) -> bytes:
    place = entries(data)[0]
    (old,) = damage.records(inflated(data, place))
    key_at = _key_at(old)
    size, begin = damage.read_varint(old, key_at)
    body = old[damage.read_varint(old, 0)[1] : key_at] + damage.varint(2) + old[begin : begin + 2] + old[begin + size :]
    return with_inflated(data, place, damage.varint(len(body)) + body)


@Case("4.3.0-v2-none-headers", "the first letter of a header key in the first entry made 0xff, CRC made right")
def invalid_header_key(data: bytes) -> bytes:
    place = entries(data)[0]
    at = data.index(HEADER_KEY, damage.payload_begin(data, place))
    assert at < place.end
    return fix_crc(damage.splice(data, at, at + 1, b"\xff"), place.at)


HEADER_KEY = b"trace"


@Case("4.3.0-v2-none-internal-transaction-state", "in the second entry the length of a topic's name is 126, CRC made right",
      name=f"__transaction_state-0/{FIRST}")  # fmt: skip
def internal_record(data: bytes) -> bytes:
    place = entries(data)[1]
    at = data.index(b"__consumer_offsets", place.at) - 1
    return fix_crc(damage.splice(data, at, at + 1, b"\x7f"), place.at)


# K4: codecs


@Case("4.3.0-v2-lz4", "codec 6 in the third entry's attributes, CRC made right")
def unknown_codec(data: bytes) -> bytes:
    at = entries(data)[2].at
    return alter(data, at, attributes=get(data, at, "attributes") & ~7 | 6)


@Case("4.3.0-v2-zstd", "the last 40 bytes of the third entry's stream gone, size and CRC made right")
def undecodable_payload(data: bytes) -> bytes:
    place = entries(data)[2]
    return with_payload(data, place, stored(data, place)[:-40])


@Case("4.3.0-v2-zstd", "the second entry's stream replaced by 257 MiB of zeros, which is 8 kB of zstd")
def decompression_limit(data: bytes) -> bytes:
    import zstandard

    bomb = zstandard.ZstdCompressor(level=1, write_content_size=True).compress(bytes(257 << 20))
    return with_payload(data, entries(data)[1], bomb)


@Case("2.8.2-v1-gzip", "20 bytes behind the second wrapper's gzip stream, sizes and CRC made right")
def codec_quirk(data: bytes) -> bytes:
    place = entries(data)[1]
    return with_payload(data, place, stored(data, place) + b"twenty bytes behind.")


@Case(
    PLAIN,
    "not a log: a tutorial's own message, whose gzip bit is set though nothing is compressed",
    name="message",
    framing="wide-crc",
)
def claimed_codec(data: bytes) -> bytes:
    return framed.EXAMPLE


@Case("4.3.0-v2-zstd", "a batch behind the last entry, whose only record has 10,001 headers without key and value")
def limit_reached(data: bytes) -> bytes:
    last = entries(data)[-1]
    offset = get(data, last.at, "base_offset") + get(data, last.at, "last_offset_delta") + 1
    record = PlainRecord(offset, b"key", b"value", get(data, last.at, "max_timestamp"), (Header("", None),) * 10_001)
    return data + build_batch([record], base_offset=offset, compression="zstd")


# K5: side files

INDEX = f"0.8.2.2-v0-none/{0:020}.index"
TIME_INDEX = f"4.3.0-v2-none-transactions/{17:020}.timeindex"
TXN_INDEX = f"4.3.0-v2-none-transactions/{17:020}.txnindex"
SNAPSHOT = f"4.3.0-v2-none-transactions/{88:020}.snapshot"
EPOCHS = "4.3.0-v2-none-transactions/leader-epoch-checkpoint"
HIGH_WATERMARKS = "4.3.0-v2-none-log-dir/replication-offset-checkpoint"


@Case(INDEX, "the last 3 bytes gone")
def index_size(data: bytes) -> bytes:
    return damage.shrink(data, len(data) - 3)


@Case(INDEX, "the second entry twice")
def index_not_increasing(data: bytes) -> bytes:
    return damage.insert(data, 16, data[8:16])


@Case(INDEX, "the second entry's relative offset -1")
def index_below_base(data: bytes) -> bytes:
    return damage.splice(data, 8, 12, b"\xff" * 4)


@Case(TIME_INDEX, "the first two entries changed about")
def time_index_not_increasing(data: bytes) -> bytes:
    return data[12:24] + data[:12] + data[24:]


@Case(TXN_INDEX, "the first entry's version 256")
def txn_index_version(data: bytes) -> bytes:
    return damage.splice(data, 0, 2, b"\1\0")


@Case(TXN_INDEX, "the two entries changed about")
def txn_index_order(data: bytes) -> bytes:
    return data[34:] + data[:34]


@Case(SNAPSHOT, "version 2, as no Kafka writes it yet")
def snapshot_version(data: bytes) -> bytes:
    return damage.splice(data, 0, 2, b"\0\2")


@Case(SNAPSHOT, "cut inside the last producer")
def snapshot_size(data: bytes) -> bytes:
    return damage.shrink(data, len(data) - 20)


@Case(SNAPSHOT, "a byte of the second producer's last offset flipped")
def snapshot_crc(data: bytes) -> bytes:
    return damage.flip(data, 10 + 46 + 21)


@Case(HIGH_WATERMARKS, "the offset of the third line's partition gone")
def checkpoint_malformed(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[4] = lines[4].rpartition(b" ")[0]
    return b"\n".join(lines)


@Case(HIGH_WATERMARKS, "the last line gone, as after a copy that stopped")
def checkpoint_count(data: bytes) -> bytes:
    return data[: data.rindex(b"\n", 0, -1) + 1]


@Case(HIGH_WATERMARKS, "the first line's partition again in place of the second's")
def checkpoint_duplicate(data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[3] = lines[2].rpartition(b" ")[0] + b" 87"
    return b"\n".join(lines)


@Case(EPOCHS, "the epochs' lines changed about")
def epoch_not_increasing(data: bytes) -> bytes:
    version, count, *lines = data.splitlines(keepends=True)
    return b"".join([version, count, *reversed(lines)])


@Case(f"{PLAIN}/partition.metadata", "the last 10 characters of the topic's id gone")
def metadata_malformed(data: bytes) -> bytes:
    return damage.shrink(data, len(data) - 10)


@Case(f"4.3.0-v2-none-kraft-metadata/{20:020}-{1:010}.checkpoint", "the last entry, the footer's, gone")
def kraft_snapshot_incomplete(data: bytes) -> bytes:
    return damage.shrink(data, entries(data)[-1].at)


# K6: across files

SEVERAL = "4.3.0-v2-none-segments"
HEADERS = "4.3.0-v2-none-headers"
LOG_DIR = "4.3.0-v2-none-log-dir"
SECOND, THIRD = f"{24:020}.log", f"{48:020}.log"

TRANSACTIONS = "4.3.0-v2-none-transactions"
WITH_INDEXES = tuple(f"{17:020}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex"))


def _others(*without: str) -> tuple[str, ...]:
    return tuple(name for name in WITH_INDEXES if not name.endswith(without))


@Case(f"{TRANSACTIONS}/{WITH_INDEXES[1]}", "the second entry's position one byte more", beside=_others(".index"))
def index_mismatch(data: bytes) -> bytes:
    return damage.flip(data, 15, 1)


@Case(f"{TRANSACTIONS}/{WITH_INDEXES[2]}", "the second entry's timestamp 1 ms more", beside=_others(".timeindex"))
def time_index_mismatch(data: bytes) -> bytes:
    (timestamp,) = struct.unpack_from(">q", data, 12)
    return damage.splice(data, 12, 20, struct.pack(">q", timestamp + 1))


@Case(f"{TRANSACTIONS}/{WITH_INDEXES[3]}", "the first entry gone", beside=_others(".txnindex"))
def txn_index_mismatch(data: bytes) -> bytes:
    return data[34:]


@Case(f"{SEVERAL}/{THIRD}", "the third segment named as if it began at offset 44", name=f"{44:020}.log",
      beside=(FIRST, SECOND))  # fmt: skip
def segment_overlap(data: bytes) -> bytes:
    return data


@Case(f"{SEVERAL}/{THIRD}", "the second of three segments gone", beside=(FIRST,))
def segment_gap(data: bytes) -> bytes:
    return data


@Case("4.3.0-v2-none-segments/00000000000000000024.log", "the first entry gone", beside=(FIRST,))
def missing_batches(data: bytes) -> bytes:
    return data[entries(data)[0].end :]


@Case(f"{SEVERAL}/{SECOND}", "the second and the third segment have each other's name", name=THIRD, beside=(FIRST,),
      exchanged={SECOND: THIRD})  # fmt: skip
def segment_order(data: bytes) -> bytes:
    return data


@Case(f"{SEVERAL}/{SECOND}", "its .index is gone, that of the first segment is there",
      beside=(FIRST, FIRST.replace(".log", ".index"), FIRST.replace(".log", ".timeindex"),
              SECOND.replace(".log", ".timeindex")))  # fmt: skip
def missing_index(data: bytes) -> bytes:
    return data


@Case(f"{SEVERAL}/{SECOND}", "two segments, and no other file", beside=(FIRST,))
def no_indexes(data: bytes) -> bytes:
    return data


@Case(f"{SEVERAL}/{SECOND}", "the second segment as a .swap file, too", name=f"{SECOND}.swap",
      beside=(FIRST, SECOND, THIRD))  # fmt: skip
def swap_pending(data: bytes) -> bytes:
    return data


@Case(f"{TRANSACTIONS}/{17:020}.snapshot", "producer 2's last offset one less, CRC made right",
      beside=(FIRST, WITH_INDEXES[0]))  # fmt: skip
def snapshot_mismatch(data: bytes) -> bytes:
    at = data.index(struct.pack(">qh", 2, 0)) + 14
    (offset,) = struct.unpack_from(">q", data, at)
    data = damage.splice(data, at, at + 8, struct.pack(">q", offset - 1))
    return damage.splice(data, 2, 6, struct.pack(">I", crc32c(data[6:])))


@Case(f"{TRANSACTIONS}/{17:020}.snapshot", "named as if it went up to offset 12", name=f"{12:020}.snapshot",
      beside=(FIRST, WITH_INDEXES[0]))  # fmt: skip
def stray_snapshot(data: bytes) -> bytes:
    return data


@Case(f"{HEADERS}/leader-epoch-checkpoint", "the second epoch from offset 20 on", beside=(FIRST,))
def epoch_mismatch(data: bytes) -> bytes:
    return data.replace(b"2 26", b"2 20")


@Case(f"{LOG_DIR}/recovery-point-offset-checkpoint", "the partition's recovery point 100 more", beside=(FIRST,),
      of=HEADERS, within="none-headers-0")  # fmt: skip
def checkpoint_behind_log(data: bytes) -> bytes:
    return data.replace(b"none-headers 0 26", b"none-headers 0 126")


@Case(f"{LOG_DIR}/replication-offset-checkpoint", "the partition's high watermark 100 more", beside=(FIRST,),
      of=HEADERS, within="none-headers-0")  # fmt: skip
def stale_high_watermark(data: bytes) -> bytes:
    return data.replace(b"none-headers 0 26", b"none-headers 0 126")


@Case(f"{LOG_DIR}/log-start-offset-checkpoint", "a log start of 100 for the partition", beside=(FIRST,),
      of=HEADERS, within="none-headers-0")  # fmt: skip
def log_start_behind_end(data: bytes) -> bytes:
    return data.replace(b"0\n0\n", b"0\n1\nnone-headers 0 100\n")


@Case(f"{TRANSACTIONS}/{WITH_INDEXES[1]}", "nothing: its log is gone", beside=(FIRST,))
def orphaned_index(data: bytes) -> bytes:
    return data


@Case(f"{TRANSACTIONS}/{88:020}.snapshot", "nothing: all but the first segment are gone", beside=(FIRST,))
def snapshot_behind_log(data: bytes) -> bytes:
    return data


LIVE = "4.3.0-v2-none-live"


@Case(
    f"{LIVE}/{0:020}.index",
    "an entry after the last one, of a batch that a truncation removed",
    beside=(FIRST, f"{0:020}.timeindex"),
)
def stale_index_entries(data: bytes) -> bytes:
    used = len(data.rstrip(b"\0"))
    used += -used % 8
    return damage.splice(data, used, used + 8, struct.pack(">ii", 60, 20_000))


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


@Case(WRAPPERS, "the first compressed message twice in a Produce request", name="sent", framing="requests")
def several_batches(data: bytes) -> bytes:
    return _produced(data[: entries(data)[1].at] * 2)


@Case(WRAPPERS, "the second compressed message in a Produce request, with the offsets of the log", name="sent",
      framing="requests")  # fmt: skip
def relative_offset_mismatch(data: bytes) -> bytes:
    place = entries(data)[1]
    return _produced(data[place.at : place.end])


@Case(PLAIN, "the first entry, then those of the same log in LZ4", name="record-set", framing="message-set")
def mixed_codecs(data: bytes) -> bytes:
    other = (SEGMENTS / "4.3.0-v2-lz4" / FIRST).read_bytes()
    return data[: entries(data)[1].at] + other[entries(other)[1].at :]


@Case(PRODUCED, "the third frame's size 2**31 less", framing="requests")
def frame_size(data: bytes) -> bytes:
    return damage.flip(data, THIRD_FRAME, 0x80)


@Case(PRODUCED, "cut inside the last frame", framing="requests")
def frame_cut(data: bytes) -> bytes:
    return damage.shrink(data, len(data) - 20)


@Case(PRODUCED, "the third frame's version 99", framing="requests")
def unknown_api(data: bytes) -> bytes:
    return _over(data, THIRD_FRAME + 6, struct.pack(">h", 99))


@Case(PRODUCED, "of the third frame's body the length of its topics, past its end", framing="requests")
def malformed_body(data: bytes) -> bytes:
    # After size, API, version, correlation id, client id and tags: null, acks, timeout.
    return _over(data, THIRD_FRAME + 4 + 8 + 2 + len("producer-1") + 1 + 1 + 2 + 4, b"\x7f")


@Case(
    ANSWERED,
    "the first frame's correlation id 77",
    framing="responses",
    beside=("03.requests",),
    requests="03.requests",
)
def unmatched_response(data: bytes) -> bytes:
    return _over(data, 4, struct.pack(">i", 77))


@Case(ANSWERED, "nothing: what was asked is not given", framing="responses")
def unread_bodies(data: bytes) -> bytes:
    return data


@Case("4.3.0-java/00.requests", "nothing: librdkafka's Metadata request has more than its version", framing="requests")
def body_left_over(data: bytes) -> bytes:
    return data


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
    return {**others, case.name: case.make((case.root / case.segment).read_bytes())}


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
    judged = folder if case.beside else folder / case.name
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
