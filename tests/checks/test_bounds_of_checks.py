"""The values at the ends of the ranges that checks allow: the last valid one is no finding, the next one is."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.findings import Finding
from kseg.format.checks.batch_checks import MICROSECONDS, NANOSECONDS, SECONDS, CheckSettings, CheckState, unit_of
from kseg.format.checks.offset_checks import offset_ranges_join, wrapper_offsets_join
from kseg.format.checks.run_checks import SegmentChecks
from kseg.format.compress import codecs
from kseg.format.record.default_records import LARGE_BATCH
from kseg.format.record.layout import INT32_MAX, LOG_APPEND_TIME
from kseg.format.segment.deep_reader import CHUNK_ROWS, DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from kseg.results import Settings
from tests.support import damage
from tests.support.cli import PLAIN

NOW = 1_700_000_000_000
Maker = Callable[[int], bytes]
Bound = tuple[str, dict[str, Any], Callable[[int], list[bytes]], dict[int, bool]]


def rules(folder: Path, data: bytes, *, shallow: bool = False) -> set[str]:
    path = folder / f"{0:020}.log"
    path.write_bytes(data)
    return {one.finding.rule for one in kseg.validate(path, settings=Settings(deep=not shallow)).findings}


@pytest.mark.parametrize("attributes", [0, 1, 0x80])
def test_no_bit_of_a_records_attributes_is_defined(tmp_path: Path, attributes: int) -> None:
    """Only the record is wrong: its batch has no such bit."""
    record = damage.record()
    changed = record[:1] + bytes([attributes]) + record[2:]
    found = rules(tmp_path, damage.batch(PLAIN.read_bytes(), changed, 1, base_offset=0))
    assert ("reserved-attribute-bits" in found) == (attributes != 0)


@pytest.mark.parametrize(("count", "wrong"), [(0, False), (-1, True), (1, False)])
def test_a_batch_without_records_is_valid_by_its_header(tmp_path: Path, count: int, wrong: bool) -> None:
    """The cleaner keeps the header of a batch without records; no batch has fewer than none."""
    payload = damage.record() * max(count, 0)
    data = damage.batch(PLAIN.read_bytes(), payload, 1, base_offset=0, record_count=count, last_offset_delta=0)
    assert ("record-count-mismatch" in rules(tmp_path, data, shallow=True)) == wrong


def test_units_of_timestamps_begin_and_end_where_they_say() -> None:
    """Milliseconds before and after each range are a date that someone may have meant."""
    begin, end = SECONDS
    cases = {
        begin - 1: "", begin: "seconds", end - 1: "seconds", end: "", MICROSECONDS - 1: "", MICROSECONDS: "microseconds",
        NANOSECONDS - 1: "microseconds", NANOSECONDS: "nanoseconds",
    }  # fmt: skip
    assert {timestamp: unit_of(timestamp) for timestamp in cases} == cases


def test_parts_of_a_file_join_at_their_bounds() -> None:
    """Parts that several processes checked are one file only where one process would have found nothing between them."""

    def state(**values: int) -> CheckState:
        made = CheckState()
        for name, value in values.items():
            setattr(made, name, value)
        return made

    wrappers = {(5, 5): False, (5, 6): True, (5, -1): True, (0, 0): False, (-1, 0): True, (7, 6): False}
    for (last, first), joined in wrappers.items():
        assert wrapper_offsets_join(state(last_offset=last), state(first_opened=first)) == joined, (last, first)
    most = 2**31 - 1
    ranges = {(0, 0, most + 1): True, (0, 9, most): True, (0, 9, most + 1): False, (9, 0, most + 9): True}
    for (base, other, highest), joined in ranges.items():
        assert offset_ranges_join(state(base=base), state(base=other, highest_offset=highest)) == joined, (base, other)


def findings_of(parts: Sequence[bytes], **settings: Any) -> list[Finding]:
    """Return what the checks find in a segment of these batches, at a fixed time."""
    data, reported = b"".join(parts), list[Finding]()
    limits = CheckSettings(**{"now": NOW, "deep": True, **settings})
    checks = SegmentChecks("records", limits, reported.append)
    with SegmentReader(Source("records", io.BytesIO(data), len(data)), report=reported.append) as reader:
        opener = DeepIterator(reported.append)
        for window in reader.windows():
            for chunk in opener.chunks(window) if limits.deep else ():
                checks.check_records(chunk)
            checks.check_batches(window)
    return reported


def checked(parts: Sequence[bytes], **settings: Any) -> list[tuple[int, str]]:
    """Return (number of the batch, rule) of each finding."""
    begins = [0, *accumulate(map(len, parts))]
    return sorted((begins.index(one.position or 0), one.rule) for one in findings_of(parts, **settings))


def batch(
    offset: int,
    *,
    key: bytes | None = b"k",
    value: bytes = b"v",
    timestamp: int = NOW,
    builds: Any = None,
    **fields: int,
) -> bytes:
    """Return a v2 batch with one record, whose header is then changed."""
    built = build_batch([PlainRecord(offset, key, value, timestamp)], partition_leader_epoch=0, **(builds or {}))
    return damage.alter(built, 0, **fields)


def message(offset: int, magic: int, *, key: bytes | None = b"k", value: bytes = b"v", **fields: int) -> bytes:
    """Return a v0 or v1 message, whose header is then changed."""
    timestamp = NOW if magic else -1
    return damage.alter(build_message(PlainRecord(offset, key, value, timestamp), magic=magic), 0, **fields)


def wrapper(offset: int, magic: int, **fields: int) -> bytes:
    """Return a v0 or v1 message set of one message in gzip."""
    record = PlainRecord(offset, b"k", b"v", NOW if magic else -1)
    return damage.alter(build_wrapper([record], magic=magic, compression="gzip"), 0, **fields)


def of_record(offset: int, record: bytes) -> bytes:
    return damage.batch(batch(offset), record, 1)


def control(offset: int, key: bytes, value: bytes = bytes(6), *, transactional: bool = True) -> bytes:
    builds = {
        "control": True,
        "transactional": transactional,
        "producer_id": 9,
        "producer_epoch": 0,
        "base_sequence": -1,
    }
    return batch(offset, key=key, value=value, builds=builds)


def wrong_crc(offset: int) -> bytes:
    return damage.flip(batch(offset), 65)


OLD = NOW - 1001
#: With these, each of the faults below is one finding, and none of the batches in NEUTRAL is.
STRICT: dict[str, Any] = {"compacted": True, "max_message_bytes": 1000, "oldest": NOW - 1000, "future_ms": 1000}
#: Batches without a fault, some of which a check skips: wrong by its rule, if they were of another version or kind.
NEUTRAL: dict[int, list[Maker]] = {
    1: [
        partial(message, magic=0), partial(wrapper, magic=0), partial(message, magic=1), partial(wrapper, magic=1),
        # KIP-32: the timestamp of the wrapper replaces those in it, and Kafka checks no age of LogAppendTime.
        partial(wrapper, magic=1, attributes=LOG_APPEND_TIME | 1, timestamp=OLD),
    ],
    2: [
        partial(batch), partial(batch, attributes=LOG_APPEND_TIME, max_timestamp=OLD, base_timestamp=NOW),
        lambda offset: build_batch([], base_offset=offset, partition_leader_epoch=0),
        partial(control, key=b"\0\0\0\1"), partial(batch, builds={"compression": "gzip"}),
    ],
}  # fmt: skip
_PLAIN_RECORD = damage.record(b"k", b"v")
#: (version, rule, a batch with this fault alone)
FAULTS: list[tuple[int, str, Maker]] = [
    (2, "max-timestamp-mismatch", partial(batch, max_timestamp=NOW + 1)),
    (1, "max-timestamp-mismatch", partial(wrapper, magic=1, timestamp=NOW + 1)),
    (2, "reserved-attribute-bits", partial(batch, attributes=0x80)),
    (1, "reserved-attribute-bits", partial(message, magic=1, attributes=0x10)),
    (1, "reserved-attribute-bits", partial(message, magic=0, attributes=0x08)),
    (2, "reserved-attribute-bits", partial(of_record, record=_PLAIN_RECORD[:1] + b"\1" + _PLAIN_RECORD[2:])),
    (2, "null-key", partial(batch, key=None)),
    (1, "null-key", partial(message, magic=0, key=None)),
    (2, "invalid-header-key", partial(of_record, record=b"\x18\0\0\0\2k\2v\2\2\xff\2x")),
    (2, "malformed-control-record", partial(control, key=b"\0\0\0")),
    (2, "malformed-control-record", partial(control, key=b"\0\0\0\1", transactional=False)),
    (2, "unknown-control-record", partial(control, key=b"\0\1\0\1")),
    (2, "past-timestamp", partial(batch, timestamp=OLD)),
    (1, "past-timestamp", partial(message, magic=1, timestamp=OLD)),
    (2, "future-timestamp", partial(batch, timestamp=NOW + 1001)),
    (1, "future-timestamp", partial(message, magic=1, timestamp=NOW + 1001)),
    (2, "oversize-entry", partial(batch, value=bytes(1000))),
    (1, "oversize-entry", partial(message, magic=0, value=bytes(1000))),
    (2, "record-count-mismatch", partial(batch, record_count=2, last_offset_delta=0)),
    (2, "negative-leader-epoch", partial(batch, partition_leader_epoch=-1)),
    (2, "inconsistent-producer", partial(batch, producer_id=7, base_sequence=0)),
    (2, "record-offset-mismatch", partial(of_record, record=damage.record(b"k", b"v", offset_delta=1))),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[1]}-v{fault[0]}")
def test_a_check_finds_each_fault_among_batches_that_it_skips(fault: tuple[int, str, Maker]) -> None:
    """A batch without records, of another version, with an append time, or with a wrong CRC ends no check of the others."""
    version, rule, faulty = fault
    makers = [*NEUTRAL[1], *(NEUTRAL[2] if version == 2 else []), faulty, *NEUTRAL[version], faulty, *NEUTRAL[2]]
    makers += [wrong_crc, batch, *NEUTRAL[2], *([faulty] if version == 2 else []), batch]
    found = checked([maker(offset) for offset, maker in enumerate(makers)], **STRICT)
    named = {faulty: rule, wrong_crc: "crc-mismatch"}
    # Messages of v0 after those of v1 are only here.
    assert [one for one in found if one[1] != "magic-downgrade"] == [
        (number, named[maker]) for number, maker in enumerate(makers) if maker in named
    ]


#: (rule, settings, batches with one value, whether each value is a finding)
BOUNDS: list[Bound] = [
    (
        "max-timestamp-mismatch", {}, lambda stored: [batch(0, max_timestamp=stored)],
        {NOW - 1: True, NOW: False, NOW + 1: True, -1: True, -2: False},  # the last is an invalid-timestamp
    ),
    ("invalid-timestamp", {}, lambda stored: [batch(0, max_timestamp=stored)], {-1: False, -2: True, -(1 << 63): True}),
    (
        "negative-timestamp", {}, lambda stored: [message(0, 1, timestamp=stored)],
        {0: False, -1: False, -2: True},
    ),
    ("negative-timestamp", {}, lambda stored: [batch(0, timestamp=stored)], {-1: False, -2: True, -(1 << 63): True}),
    (
        "max-timestamp-mismatch", {}, lambda stored: [batch(0, timestamp=stored, max_timestamp=-1)],
        {-60_000: False, -1: False, 0: True},  # a broker writes -1 for all that are lower
    ),
    (
        "future-timestamp", {"future_ms": 10}, lambda stored: [batch(0, timestamp=stored)],
        {NOW + 10: False, NOW + 11: True, MICROSECONDS - 1: True, MICROSECONDS: False},
    ),
    (
        "timestamp-unit", {}, lambda stored: [batch(0, timestamp=stored)],
        {SECONDS[0] - 1: False, SECONDS[0]: True, SECONDS[1] - 1: True, SECONDS[1]: False, MICROSECONDS: True},
    ),
    (
        "past-timestamp", {"oldest": NOW}, lambda stored: [batch(0, timestamp=stored)],
        {NOW: False, NOW - 1: True, 0: True, -1: False},
    ),
    (
        "oversize-entry", {"max_message_bytes": len(batch(0))}, lambda more: [batch(0, value=bytes(more))],
        {1: False, 2: True},
    ),
    (
        "oversize-entry", {"max_message_bytes": len(message(0, 0))}, lambda more: [message(0, 0, value=bytes(more))],
        {1: False, 2: True},
    ),
    ("negative-leader-epoch", {}, lambda epoch: [batch(0, partition_leader_epoch=epoch)], {0: False, -1: True}),
    (
        "leader-epoch-regression", {},
        lambda epoch: [batch(0, partition_leader_epoch=5), message(1, 1), batch(2, partition_leader_epoch=epoch)],
        {4: True, 5: False, 6: False},
    ),
    ("leader-epoch-jump", {}, lambda epoch: [batch(0, partition_leader_epoch=epoch)], {1_000_000: False, 1_000_001: True}),
    (
        "leader-epoch-jump", {},
        lambda epoch: [batch(0, partition_leader_epoch=7), batch(1, partition_leader_epoch=epoch)],
        {1_000_007: False, 1_000_008: True},
    ),
    (
        "record-count-mismatch", {"deep": False}, lambda count: [batch(0, record_count=count, last_offset_delta=2)],
        {-1: True, 0: False, 3: False, 4: True},
    ),
    ("invalid-offset-range", {}, lambda delta: [batch(0, last_offset_delta=delta, record_count=0)], {-1: True, 0: False}),
    ("invalid-offset-range", {}, lambda base: [batch(0, base_offset=base)], {-1: True, 0: False}),
    (
        "segment-offset-overflow", {"name_offset": 0},
        lambda first: [batch(0), batch(first, last_offset_delta=9, record_count=0)],
        {INT32_MAX - 9: False, INT32_MAX - 8: True},
    ),
    (
        "segment-offset-overflow", {"name_offset": 0},
        lambda first: [batch(first, last_offset_delta=9, record_count=0)],
        {INT32_MAX - 9: False, INT32_MAX - 8: True, INT32_MAX + 1: False},
    ),
    (
        "append-time-regression", {},
        lambda time: [
            batch(number, attributes=LOG_APPEND_TIME, max_timestamp=stored, partition_leader_epoch=1)
            for number, stored in enumerate((NOW, time))
        ],
        {NOW - 1: True, NOW: False, NOW + 1: False},
    ),
    (
        "append-time-regression", {},  # another leader has another clock
        lambda epoch: [
            batch(number, attributes=LOG_APPEND_TIME, max_timestamp=NOW - number, partition_leader_epoch=number * epoch)
            for number in (0, 1)
        ],
        {0: True, 1: False},
    ),
    (
        "append-time-regression", {},
        lambda append: [message(number, 1, attributes=append, timestamp=NOW - number) for number in (0, 1)],
        {LOG_APPEND_TIME: True, 0: False},
    ),
    ("magic-downgrade", {}, lambda magic: [message(0, 1), message(1, magic)], {0: True, 1: False}),
    ("magic-downgrade", {}, lambda offset: [batch(0), message(1, 1), message(2, 1), batch(3)][:offset], {1: False, 3: True}),
    ("file-name-mismatch", {"name_offset": 5}, lambda base: [batch(base), batch(base + 1)], {4: True, 5: False, 6: False}),
    (
        "non-monotonic-offset", {}, lambda offset: [batch(0), batch(5), batch(offset), batch(9)],
        {4: True, 5: True, 6: False, 8: False, 9: True},
    ),
    ("offset-gap", {}, lambda offset: [batch(3), batch(offset)], {4: False, 5: True, 3: False}),
    ("offset-gap", {"gaps": False}, lambda offset: [batch(3), batch(offset)], {4: False, 5: False}),
    ("offset-gap", {}, lambda offset: [wrapper(3, 1), wrapper(offset, 1)], {4: False, 5: True, 3: False}),
    ("offset-gap", {}, lambda offset: [message(3, 1), wrapper(offset, 1), message(offset + 1, 1)], {4: False, 5: True}),
    (
        "last-offset-mismatch", {}, lambda delta: [batch(0, last_offset_delta=delta)],
        {0: False, 1: True},  # a leader sets the delta of the last record
    ),
    (
        "record-offset-mismatch", {},
        lambda delta: [damage.batch(batch(0), damage.record() + damage.record(offset_delta=delta), 2, base_offset=0)],
        {0: True, 1: False, 2: True, -1: True},
    ),
    (
        "record-offset-mismatch", {}, lambda delta: [of_record(4, damage.record(offset_delta=delta))],
        {-1: True, 0: False, 1: True},
    ),
]  # fmt: skip


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound[0])
def test_a_range_ends_where_the_rule_says(bound: Bound) -> None:
    """The values are those of ``LogValidator`` and ``UnifiedLog``: one more or less is a finding."""
    rule, settings, made, values = bound
    found = {value: sum(name == rule for _, name in checked(made(value), **settings)) for value in values}
    assert found == {value: int(wrong) for value, wrong in values.items()}


#: (epoch, base sequence, records) of the batches of one producer; None is a marker of that epoch -> the rules of the last.
SEQUENCES: list[tuple[list[tuple[int, int | None, int]], list[str]]] = [
    ([(0, 0, 3), (0, 3, 1)], []),
    ([(0, 0, 3), (0, 4, 1)], ["sequence-gap"]),
    ([(0, 0, 3), (0, 2, 1)], ["duplicate-sequence"]),
    ([(0, 0, 3), (0, 0, 3)], ["duplicate-sequence"]),
    ([(0, 5, 1)], []),  # what was before is deleted
    # ProducerAppendInfo: after the largest sequence follows 0.
    ([(0, INT32_MAX - 1, 1), (0, INT32_MAX, 1)], []),
    ([(0, INT32_MAX, 1), (0, 0, 1)], []),
    ([(0, INT32_MAX - 1, 4), (0, 2, 1)], []),
    ([(0, INT32_MAX - 1, 4), (0, 3, 1)], ["sequence-gap"]),
    ([(0, INT32_MAX - 1, 4), (0, INT32_MAX, 1)], ["sequence-gap"]),
    # A sequence is a repetition of one in the half before the expected one.
    ([(0, INT32_MAX // 2, 1), (0, 1, 1)], ["duplicate-sequence"]),
    ([(0, INT32_MAX // 2, 1), (0, 0, 1)], ["sequence-gap"]),
    # A new epoch begins at 0, and none comes back.
    ([(0, 7, 1), (1, 0, 1)], []),
    ([(0, 7, 1), (1, 8, 1)], ["sequence-gap"]),
    ([(0, 7, 1), (1, 1, 1)], ["sequence-gap"]),
    ([(1, 0, 1), (0, 1, 1)], ["producer-epoch-regression"]),
    ([(1, 0, 1), (0, None, 1)], ["producer-epoch-regression"]),
    # Markers have no sequence; in transactions v2 (KIP-890) they raise the epoch, and the next batch begins at 0.
    ([(0, 0, 1), (0, None, 1), (0, 1, 1)], []),
    ([(0, 0, 1), (0, None, 1), (0, 2, 1)], ["sequence-gap"]),
    ([(0, 3, 1), (1, None, 1), (1, 0, 1)], []),
    ([(0, 3, 1), (1, None, 1), (1, 4, 1)], ["sequence-gap"]),
    # A group coordinator begins each transaction at 0.
    ([(0, 0, 2), (0, None, 1), (0, 0, 1)], []),
    ([(0, None, 1), (0, 9, 1)], []),
]


@pytest.mark.parametrize("history", SEQUENCES, ids=str)
@pytest.mark.parametrize("other", [False, True])
def test_sequences_are_those_that_a_leader_accepts(
    history: tuple[list[tuple[int, int | None, int]], list[str]], other: bool
) -> None:
    """The sequences of a producer do not depend on those of the others. ``other`` is whether others write between them."""
    given, expected = history
    parts, offset = list[bytes](), 0
    for epoch, sequence, count in given:
        if other:
            sequence_of_other = len(parts) // 3
            parts.append(batch(offset, producer_id=8, producer_epoch=3, base_sequence=sequence_of_other))
            parts.append(batch(offset + 1))
            offset += 2
        fields = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": -1 if sequence is None else sequence}
        if sequence is None:
            parts.append(damage.alter(control(offset, b"\0\0\0\1"), 0, **fields))
        else:
            payload = b"".join(damage.record(offset_delta=number) for number in range(count))
            parts.append(damage.batch(batch(offset), payload, count, **fields))
        offset += count
    found = checked(parts)
    assert [rule for number, rule in found if number == len(parts) - 1] == expected


PAST = 1 << 20
FAR, TOP, SPAN = 1 << 31, 1 << 30, 1 << 29
#: Base offsets of batches of one record in a file of this name -> (number of the batch, rule, first offset, last offset).
OFFSETS: list[tuple[int | None, tuple[int, ...], list[tuple[int, str, int | None, int | None]]]] = [
    (0, (0, 1, PAST + 1), [(2, "offset-gap", 2, PAST)]),
    # One bit less is an offset of this place: the gap may end there.
    (0, (0, 1, PAST + 2), [(2, "offset-gap", 2, None)]),
    # The next batch is a witness for one that is far away ...
    (0, (0, 1, PAST + 7, PAST + 8), [(2, "offset-gap", 2, None)]),
    (0, (0, 1, PAST + 7, PAST + 9), [(2, "offset-gap", 2, None), (3, "offset-gap", PAST + 8, PAST + 8)]),
    # ... or against it.
    (0, (0, 1, PAST + 7, 3, 4), [(2, "non-monotonic-offset", 2, 2)]),
    (0, (0, 1, PAST + 7, 2, 3), [(2, "non-monotonic-offset", None, None)]),
    (0, (0, 1, PAST + 7, 5, 6), [(2, "non-monotonic-offset", None, None)]),
    (0, (0, 1, FAR, 5, 6), [(2, "non-monotonic-offset", None, None)]),
    (0, (0, 1, FAR + 1, 5, 6), [(2, "invalid-offset-range", None, None)]),
    (5, (PAST + 99, 7, 8), [(0, "non-monotonic-offset", None, None)]),
    (5, (PAST + 99, 6, 7), [(0, "non-monotonic-offset", 5, 5)]),
    (None, (PAST + 99, 6, 7), [(1, "non-monotonic-offset", 6, 6)]),
    (5, (PAST + 5, PAST + 6), []),
    # Beyond the range of the indexes: one bit less is an offset of this place, or the next batch is a witness, ...
    (
        SPAN, (SPAN, FAR, FAR + 1 + TOP),
        [
            (1, "offset-gap", SPAN + 1, FAR - 1), (2, "offset-gap", FAR + 1, FAR + TOP),
            (2, "invalid-offset-range", None, None),
        ],
    ),
    (
        SPAN, (SPAN, FAR, FAR + 1 + TOP, FAR + 2 + TOP),
        [
            (1, "offset-gap", SPAN + 1, FAR - 1), (2, "offset-gap", FAR + 1, FAR + TOP),
            (2, "segment-offset-overflow", FAR + 1 + TOP, FAR + 1 + TOP),
        ],
    ),
    # ... or no bit explains the offset. A broker begins a segment there, and the next one only beyond its range.
    (
        0, (0, FAR - 1, FAR, FAR + 1, 2 * FAR - 1, 2 * FAR),
        [
            (1, "offset-gap", 1, FAR - 2), (4, "offset-gap", FAR + 2, 2 * FAR - 2),
            (2, "segment-offset-overflow", FAR, FAR), (5, "segment-offset-overflow", 2 * FAR, 2 * FAR),
        ],
    ),
    (0, (0, 4, 2, 3, 5), [(1, "non-monotonic-offset", 1, 1), (4, "offset-gap", 4, 4)]),
    (0, (0, 4, 2, 4, 5), [(1, "offset-gap", 1, 3), (2, "non-monotonic-offset", 2, 2), (3, "offset-gap", 3, 3)]),
    (0, (0, 4, 2, 5), [(1, "offset-gap", 1, 3), (2, "non-monotonic-offset", 2, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "offsets", "expected"), OFFSETS)
def test_what_offsets_far_from_the_others_are(
    name: int | None, offsets: tuple[int, ...], expected: list[tuple[int, str, int | None, int | None]]
) -> None:
    """A base offset is outside the CRC: the batches around it decide whether it is a gap or a wrong number."""
    parts = [batch(offset) for offset in offsets]
    found = findings_of(parts, name_offset=name)
    size = len(parts[0])
    assert [((one.position or 0) // size, one.rule, one.offset, one.last_offset) for one in found] == expected


@pytest.mark.slow
@pytest.mark.parametrize("index", [1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 2 * CHUNK_ROWS])
def test_a_record_out_of_order_is_found_where_a_large_batch_is_parted(index: int) -> None:
    """A batch of many records is checked in parts: the first record of a part is compared with the last one before it."""
    count = LARGE_BATCH + 9
    deltas = [number - (number >= index) for number in range(count)]
    payload = b"".join(damage.record(None, b"", offset_delta=delta) for delta in deltas)
    (found,) = findings_of([damage.batch(batch(5), payload, count, last_offset_delta=count - 2)])
    assert (found.rule, found.offset, found.facts["index"]) == ("record-offset-mismatch", 4 + index, index)
    assert f"the previous offset {4 + index}" in found.facts["why"]


@pytest.mark.parametrize(
    ("keys", "codec", "expected"),
    [
        ([b"\0\0\0\1"], 0, []),
        ([b"\0\0\0\1"], 1, []),
        ([b"\0\0\0\0"], 1, []),
        ([b"\0\0\0"], 1, [("malformed-control-record", 0)]),
        ([b"\0\0\0\1", b"\0\0\0\1"], 0, [("malformed-control-record", 0), ("malformed-control-record", 1)]),
        ([b"\0", b"\0\1\0\1", b"\0"], 0, [
            ("malformed-control-record", 0), ("malformed-control-record", 1), ("malformed-control-record", 2),
            ("unknown-control-record", 1),
        ]),
    ],
)  # fmt: skip
def test_each_record_of_a_control_batch_is_checked(
    keys: list[bytes], codec: int, expected: list[tuple[str, int]]
) -> None:
    """A marker is alone in its batch, compressed or not; a malformed record hides none after it."""
    values = [struct.pack(">hi", 0, 9) if key[-1] < 2 else bytes(16) for key in keys]
    payload = b"".join(
        damage.record(key, value, offset_delta=n) for n, (key, value) in enumerate(zip(keys, values, strict=True))
    )
    data = control(3, b"\0\0\0\1")[:61] + bytes(codecs.compress(codec, payload) if codec else payload)
    fields = {"record_count": len(keys), "last_offset_delta": len(keys) - 1, "attributes": 0x30 | codec}
    found = findings_of([damage.alter(data, 0, size=len(data) - 12, **fields)])
    assert [(one.rule, one.facts["index"]) for one in found] == expected


def two(offset: int, magic: int, *, apart: int = 1, key: bytes | None = b"k") -> bytes:
    """Return a message set of two messages whose offsets are ``apart``."""
    records = [PlainRecord(offset + n * apart, key, b"v", NOW if magic else -1) for n in (0, 1)]
    return build_wrapper(records, magic=magic, compression="gzip")


#: Batches -> whether a record has no key, whether a batch has fewer records than offsets.
EVIDENCE: list[tuple[list[bytes], bool, bool]] = [
    ([batch(0), batch(1)], False, False),
    ([batch(0), batch(1, key=None)], True, False),
    ([build_batch([], base_offset=0, partition_leader_epoch=0), batch(1, key=None)], True, True),
    ([control(0, b"\0\0\0\1"), batch(1, key=None)], True, False),
    # A marker has a key by its nature, and the cleaner keeps it; a damaged one without a key says nothing of the topic.
    ([damage.batch(control(0, b"\0\0\0\1"), damage.record(None, b""), 1, attributes=0x30), batch(1)], False, False),
    ([message(0, 0, key=None), batch(1)], True, False),
    ([message(0, 1), message(1, 1, key=None)], True, False),
    ([two(0, 0, key=None)], True, False),
    ([two(0, 0)], False, False),
    ([two(0, 1)], False, False),
    ([two(0, 0, apart=2)], False, True),
    ([two(0, 1, apart=2)], False, True),
    ([message(0, 1), batch(1), two(2, 1), two(4, 1, apart=2), batch(7)], False, True),
]


@pytest.mark.parametrize(("parts", "keyless", "thinned"), EVIDENCE)
def test_records_show_whether_a_log_was_compacted(parts: list[bytes], keyless: bool, thinned: bool) -> None:
    """The cleaner removes each record without a key, and nobody else removes single records of a batch."""
    data = b"".join(parts)
    checks = SegmentChecks("records", CheckSettings(now=NOW, deep=True), lambda finding: None)
    with SegmentReader(Source("records", io.BytesIO(data), len(data))) as reader:
        opener = DeepIterator()
        for window in reader.windows():
            checks.check_batches(window)
            for chunk in opener.chunks(window):
                checks.check_records(chunk)
    assert (bool(checks.history.keyless), bool(checks.history.thinned)) == (keyless, thinned)
