"""The model of a broker's files: look-ups in logs and indexes, names and sizes, at the limits of Kafka's methods."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kseg.format.compress import codecs
from kseg.format.log_loader.broker_reader import HEAP, BrokerReader, base_offset, last_offset, position_of
from kseg.format.log_loader.loaded_files import OfflineError, RefusedError
from kseg.format.log_loader.log_segment import Limits, LogSegment
from kseg.format.log_loader.partition_files import (
    File,
    Files,
    InvalidOffsetError,
    OffsetIndex,
    SnapshotNames,
    TimeIndex,
    check_txn_index,
    file_name,
    fits,
    offset_of,
    offset_or_none,
    wrapped,
)
from kseg.format.log_loader.plan import Lost, loss_of_range
from kseg.format.record.layout import INT32_MAX, INT64_MAX, LOG_OVERHEAD
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage


def records(first: int, last: int, timestamp: int = 1) -> list[PlainRecord]:
    return [PlainRecord(offset, b"k", b"v", timestamp) for offset in range(first, last + 1)]


def log(folder: Path, *parts: bytes, before: bytes = b"", zeros: int = 0) -> File:
    path = folder / "log"
    data = b"".join(parts)
    path.write_bytes(before + data)
    return File(str(path), len(before), len(data) + zeros, len(data))


RANGES = [(3, 4), (5, 5), (8, 9)]
LOGS = {
    "v2": [build_batch(records(*one)) for one in RANGES],
    "v1": [build_wrapper(records(*one), magic=1, compression="gzip") for one in RANGES],
    "v0": [build_wrapper(records(*one, -1), magic=0, compression="gzip") for one in RANGES],
    "mixed": [
        build_wrapper(records(3, 4), magic=1, compression="gzip"),
        build_message(records(5, 5)[0], magic=1),
        build_batch(records(8, 9)),
    ],
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("before", [b"", b"bytes of the file before the log"])
def test_a_read_begins_at_the_first_batch_that_reaches_the_offset(name: str, before: bytes, tmp_path: Path) -> None:
    """``FileRecords.searchForOffsetFromPosition``, and the end of the log."""
    parts = LOGS[name]
    file = log(tmp_path, *parts, before=before)
    begins = [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    for target in range(11):
        reach = [n for n, (_, last) in enumerate(RANGES) if last >= target]
        assert position_of(file, target, 0) == (begins[reach[0]] if reach else None), target
        later = [n for n in reach if n >= 1]
        assert position_of(file, target, begins[1]) == (begins[later[0]] if later else None), target
    assert last_offset(file, 0) == last_offset(file, begins[2]) == (9, file.size)
    assert last_offset(file, file.size) == (None, file.size)
    assert last_offset(File(), 0) == (None, 0)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_ends_where_a_broker_stops_reading(name: str, tmp_path: Path) -> None:
    """At a cut batch without an error, at a size field below the minimum or a wrong CRC with one."""
    parts = LOGS[name]
    whole = b"".join(parts)
    kept = len(parts[0]) + len(parts[1])

    def read(data: bytes, *, verify: bool = True) -> tuple[int, bool, bool]:
        reader = BrokerReader(log(tmp_path, data), verify=verify)
        stop = sum(sum(batches.size[: batches.count]) for batches in reader.windows())
        assert reader.stop == stop
        return stop, reader.corrupt, reader.why is not None

    assert read(whole) == (len(whole), False, False)
    for cut in range(kept + 1, len(whole)):
        assert read(whole[:cut]) == (kept, False, True), cut
    for zeros in (1, 16, 17):  # FileLogInputStream.nextBatch needs one byte after the magic
        assert read(whole + bytes(zeros)) == (len(whole), False, True), zeros
    for zeros in (18, 100):
        assert read(whole + bytes(zeros)) == (len(whole), True, True), zeros
    small = damage.put(whole, kept, size=13)
    assert read(small) == read(small, verify=False) == (kept, True, True)
    wrong = damage.flip(whole, len(whole) - 1)
    assert read(wrong) == (kept, True, True)
    assert read(wrong, verify=False) == (len(whole), False, False)
    less = damage.put(build_batch([PlainRecord(0, None, b"v", 1)]), 0, size=20)[: LOG_OVERHEAD + 20]
    assert read(less + whole) == (0, True, True)
    assert read(less + whole, verify=False) == (len(less + whole), False, False)


def message_set(magic: int, value: bytes | None, offset: int = 9) -> bytes:
    """Return a compressed message with this value, decompressed."""
    stored = None if value is None else bytes(codecs.compress(1, value))
    built = build_message(PlainRecord(offset, None, stored, 1 if magic else -1), magic=magic)
    return damage.alter(built, 0, attributes=1)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_first_offset_of_a_message_set_is_in_it(magic: int) -> None:
    """``DeepRecordsIterator``: what it cannot read ends the broker; an incomplete last message is left out."""
    inner = [build_message(PlainRecord(offset, b"k", b"v", 1 if magic else -1), magic=magic) for offset in (3, 7)]
    nested, small = damage.alter(inner[0], 0, attributes=1), damage.put(inner[1], 0, size=13)
    whole = message_set(magic, b"".join(inner))
    key_at = damage.FIELDS[magic]["key_size"][0]
    value_size = len(whole) - key_at - 8
    cases: list[tuple[bytes, int | None]] = [
        (whole, 5 if magic else 3),  # relative to the last one, which has the offset of the set
        (message_set(magic, b"".join(inner), 7), 3),
        (message_set(magic, b"".join(inner), 6), None if magic else 3),
        (message_set(magic, b"".join(inner), 0), 3),  # old librdkafka
        (message_set(magic, inner[0]), 9 if magic else 3),
        (message_set(magic, inner[0] + inner[1][:-1]), 9 if magic else 3),
        (message_set(magic, inner[0] + inner[1][:11]), 9 if magic else 3),
        (message_set(magic, inner[0] + damage.put(inner[1], 0, size=HEAP)), 9 if magic else 3),
        (message_set(magic, inner[0] + damage.put(inner[1], 0, size=HEAP + 1)), None),
        (message_set(magic, inner[0] + small), None),
        (message_set(magic, inner[0][:-1]), None),
        (message_set(magic, nested), None),
        (message_set(magic, b""), None),
        (message_set(magic, None), None),
        (damage.put(whole, 0, key_size=-2), 5 if magic else 3),
        (damage.put(whole, 0, key_size=1 << 20), None),
        (whole[: key_at + 4] + struct.pack(">i", value_size + 1) + whole[key_at + 8 :], None),
        (whole[: key_at + 4] + struct.pack(">i", -1) + whole[key_at + 8 :], None),
        (damage.put(whole, 0, attributes=2), None),
    ]
    for number, (entry, expected) in enumerate(cases):
        if expected is None:
            with pytest.raises(RefusedError):
                base_offset(entry)
        else:
            assert base_offset(entry) == expected, number


def test_a_file_has_zeros_after_its_stored_bytes(tmp_path: Path) -> None:
    """And only the bytes from its begin on."""
    file = log(tmp_path, b"abcdef", before=b"xy", zeros=2)
    assert [file.read(at, 3) for at in (0, 4, 6, 7, 8, 9)] == [b"abc", b"ef\0", b"\0\0", b"\0", b"", b""]
    file.truncated(3)
    assert file.read(0, 9) == b"abc"
    file.truncated(5)
    assert file.read(0, 9) == b"abc\0\0"


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000007.log", 7), ("7.snapshot", 7), ("-5.log", -5), ("+5.log", 5), (f"{INT64_MAX}.log", INT64_MAX),
        (f"{INT64_MAX + 1}.log", None), (f"{-INT64_MAX - 1}.log", -INT64_MAX - 1), (f"{-INT64_MAX - 2}.log", None),
        ("x7.log", None), ("7", None), (".log", None),
    ],
)  # fmt: skip
def test_names_begin_with_an_offset(name: str, offset: int | None) -> None:
    """``LogFileUtils.offsetFromFileName``: another name ends the broker."""
    assert offset_or_none(name) == offset
    if offset is None:
        with pytest.raises(RefusedError):
            offset_of(name)


def test_offsets_fit_an_index_within_31_bits() -> None:
    """``AbstractIndex.canAppendOffset``, with the overflow of Java's long."""
    assert [fits(offset, 10) for offset in (9, 10, 10 + INT32_MAX, 11 + INT32_MAX)] == [False, True, True, False]
    assert [wrapped(n) for n in (INT64_MAX, INT64_MAX + 1, -INT64_MAX - 2)] == [INT64_MAX, -INT64_MAX - 1, INT64_MAX]
    assert [file_name(n) for n in (0, 7, -7)] == [f"{'0' * 20}.log", f"{'0' * 19}7.log", f"-{'0' * 19}7.log"]


def index_files(folder: Path, entries: list[tuple[int, int]]) -> Files:
    (folder / "i").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    return Files(str(folder))


@pytest.mark.parametrize("count", [1, 2, 3, 1024, 1025, 1026, 3000])
def test_an_offset_index_is_searched_as_a_broker_does(count: int, tmp_path: Path) -> None:
    """The position of the last entry up to the offset, in the last entries and in the others."""
    index = OffsetIndex(index_files(tmp_path, [(2 * n, 10 * n + 5) for n in range(1, count + 1)]), "i", 100, 1 << 20)
    assert (index.entries, index.last_offset) == (count, 100 + 2 * count)
    for target in {99, 100, 101, 102, 103, 104, 100 + count, 99 + 2 * count, 100 + 2 * count, 101 + 2 * count}:
        below = [n for n in range(1, count + 1) if 100 + 2 * n <= target]
        expected = 10 * below[-1] + 5 if below else 0 if target < 102 and count > 1024 else 15
        assert index.position_of(target) in ({0, 15} if not below else {expected}), target


def test_an_index_is_filled_up_to_its_size(tmp_path: Path) -> None:
    """``segment.index.bytes``: the offsets increase, and the time index keeps room for its last entry."""
    files = Files(str(tmp_path))
    offsets = OffsetIndex(files, "o", 100, 8 * 3 + 7)
    assert (offsets.file.size, offsets.last_offset, offsets.position_of(105)) == (24, 100, 0)
    for n in range(3):
        offsets.append(100 + n, 50 * n)
        with pytest.raises(InvalidOffsetError if n < 2 else RefusedError):
            offsets.append(100 + n, 7)
    assert [offsets.position_of(100 + n) for n in range(4)] == [0, 50, 100, 100]
    offsets.trim()
    assert offsets.file.size == 24
    offsets.reset()
    assert (offsets.entries, offsets.file.size, offsets.last_offset) == (0, 24, 100)
    times = TimeIndex(files, "t", 12 * 3 + 11)
    times.append(5, 1)
    times.append(5, 2)  # not a new timestamp
    times.append(6, 2)
    assert times.entries == 2
    with pytest.raises(RefusedError):
        times.append(7, 3)
    with pytest.raises(InvalidOffsetError):
        times.append(7, 1, last=True)
    times.append(7, 2, last=True)
    with pytest.raises(RefusedError):
        times.append(8, 3, last=True)
    times.append(7, 3, last=True)
    times.trim()
    assert (times.entries, times.file.size) == (3, 36)
    times.resize()
    small = OffsetIndex(index_files(tmp_path, [(n, n) for n in range(1, 4)]), "i", 0, 16)
    with pytest.raises(RefusedError):
        small.resize()
    small.entries = 2
    small.resize()
    assert small.file.size == 16


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], None), ([(0, 10)], None), ([(0, 9)], "recover"), ([(0, 10), (0, 9)], "recover"),
        ([(1, 10)], "refused"), ([(-1, 10)], None), ([(0, 10)] * 1024 + [(0, 9)], "recover"),
    ],
)  # fmt: skip
def test_a_transaction_index_has_aborts_of_its_segment(
    entries: list[tuple[int, int]], expected: str | None, tmp_path: Path
) -> None:
    """``TransactionIndex.sanityCheck``."""
    data = b"".join(struct.pack(">bbqqqq", version, 9, 1, 2, last, 3) for version, last in entries)
    file = log(tmp_path, data + b"torn")
    if expected == "refused":
        with pytest.raises(RefusedError):
            check_txn_index(file, 10)
    else:
        assert (check_txn_index(file, 10) is None) == (expected is None)


def test_snapshots_outside_of_a_range_are_named(tmp_path: Path) -> None:
    """Those up to its start and after its end; an empty range has none inside."""
    names = SnapshotNames({offset: f"{offset}.snapshot" for offset in (9, 3, 5, 7)})
    assert [names.outside(*one) for one in ((3, 7), (2, 9), (4, 6), (9, 9), (7, 3))] == [
        [3, 9], [], [3, 7, 9], [3, 5, 7, 9], [3, 5, 7, 9],
    ]  # fmt: skip
    del names[5]
    names[4] = "4.snapshot"
    names[4] = "again"
    assert names.order == [3, 4, 7, 9]
    (tmp_path / "3.snapshot").touch()
    (tmp_path / "00000000000000000005.index").mkdir()
    files = Files(str(tmp_path))
    assert dict(files.snapshots()) == {3: "3.snapshot"}
    files["8.snapshot"] = File()
    files.rename("3.snapshot", "4.snapshot")
    assert dict(files.snapshots()) == {4: "4.snapshot", 8: "8.snapshot"}
    files["04.snapshot"] = File()
    assert files.remove("4.snapshot") is not None
    assert files.remove("4.snapshot") is None
    assert dict(files.snapshots()) == {4: "04.snapshot", 8: "8.snapshot"}
    files.check_indexes(4)
    with pytest.raises(OfflineError):
        files.check_indexes(5)
    with pytest.raises(OfflineError):
        files.open("00000000000000000005.index")
    assert files.exists("00000000000000000005.index")
    assert not files.exists("00000000000000000006.index")


FAR = INT32_MAX + 6
#: Base offset, first and last offsets of its batches -> first and last offsets of the pieces.
OVERFLOWS: list[tuple[int, list[tuple[int, int]], list[list[tuple[int, int]]]]] = [
    (5, [(5, 6), (9, 9), (FAR, FAR + 1)], [[(5, 6), (9, 9)], [(FAR, FAR + 1)]]),
    (5, [(6, 6), (INT32_MAX + 4, INT32_MAX + 6), (INT32_MAX + 9, INT32_MAX + 9)],
     [[(6, 6), (INT32_MAX + 4, INT32_MAX + 6)], [(INT32_MAX + 9, INT32_MAX + 9)]]),
    (5, [(5, 5), (FAR, FAR), (2 * FAR, 2 * FAR)], [[(5, 5)], [(FAR, FAR)], [(2 * FAR, 2 * FAR)]]),
]  # fmt: skip


@pytest.mark.parametrize(("base", "batches", "pieces"), OVERFLOWS)
def test_a_segment_is_split_where_an_offset_does_not_fit(
    base: int, batches: list[tuple[int, int]], pieces: list[list[tuple[int, int]]], tmp_path: Path
) -> None:
    """``LocalLog.splitOverflowedSegment``: a piece is named after its first batch, and has the batches that fit it."""
    built = [build_batch([PlainRecord(n, b"k", b"v", 1) for n in sorted({*one})]) for one in batches]
    (tmp_path / f"{base:020}.log").write_bytes(b"".join(built))
    segment = LogSegment(Files(str(tmp_path)), base, Limits())
    size = {one: len(data) for one, data in zip(batches, built, strict=True)}
    made = segment.split(Files(str(tmp_path)))
    assert [(one.base_offset, one.log.size) for one in made] == [
        (piece[0][0], sum(size[one] for one in piece)) for piece in pieces
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("sets", [[(0, 9)], [(100, 104), (105, 109)], [(9, 9), (20, 40), (77, 77)]])
def test_a_loss_counts_the_messages_in_compressed_sets(magic: int, sets: list[tuple[int, int]], tmp_path: Path) -> None:
    """Their headers have neither the number of messages nor the first offset, and compaction leaves gaps."""
    kept = [[n for n in range(first, last + 1) if n % 7 != 3 or n in (first, last)] for first, last in sets]
    time = 1 if magic else -1
    parts = [
        build_wrapper([PlainRecord(n, b"k", b"v", time) for n in one], magic=magic, compression="gzip") for one in kept
    ]
    file = log(tmp_path, *parts, before=b"before")
    assert file.path is not None
    lost = loss_of_range(file.path, 6, 6 + file.size)
    assert lost == Lost(file.size, sum(map(len, kept)), sets[0][0], sets[-1][1])
