"""The values at the limits of what a broker reads: checkpoints, ids, leader epochs and the markers of transactions.

The limits are those of the Java methods that read them: ``Integer.parseInt``, ``Pattern.split``, ``Uuid.fromString``,
``LeaderEpochFileCache`` and ``EndTransactionMarker``.
"""

from __future__ import annotations

import base64
import io
import struct
from pathlib import Path
from typing import Any, cast

import pytest

from kseg.format.log_loader import producers as replayed_producers
from kseg.format.log_loader.end_markers import CorruptRecord, EndMarker, end_marker
from kseg.format.log_loader.loaded_files import (
    LeaderEpochCache,
    OfflineError,
    RefusedError,
    check_topic_id,
    read_epochs,
    truncation_offset,
)
from kseg.format.log_loader.log_dir_start import read_identity
from kseg.format.log_loader.partition_files import File
from kseg.format.record.layout import INT32_MAX, INT64_MAX, LOG_APPEND_TIME
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import LeaderEpoch, read_checkpoint_offsets
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed
from kseg.format.storage.java_text import FileFault, UncheckedFault
from kseg.format.storage.source import Source
from tests.support import damage
from tests.support.cli import PLAIN

Epochs = list[tuple[int, int]]


def fate(read: Any, *given: Any) -> Any:
    """Return what a function returns, or how its error ends the broker."""
    try:
        return read(*given)
    except (OfflineError, RefusedError, FileFault) as error:
        ends = isinstance(error, UncheckedFault) or type(error) is RefusedError
        return "refused" if ends else "offline"
    except CorruptRecord:
        return "cut"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []), ("0", []), ("0\n", []), ("0\n0\n", []), ("+0\n+0\n", []),
        ("0\n1\n2 3\n", [(2, 3)]), ("0\n1\n2 3", [(2, 3)]), ("0\r\n2\r\n0 0\r\n1\t 7\r\n", [(0, 0), (1, 7)]),
        ("0\n1\n2 3 \n", [(2, 3)]), ("0\n1\n 2 3\n", "offline"),  # Java leaves out empty fields at the end only
        ("1\n0\n", "offline"), ("-1\n0\n", "offline"), ("x\n", "offline"),
        ("0\nx\n", "offline"), (f"0\n{INT32_MAX + 1}\n", "offline"), ("0\n-1\n", "refused"),
        ("0\n0\n2 3\n", "offline"), ("0\n2\n2 3\n", "offline"), ("0\n1\n2\n", "offline"), ("0\n1\n2 3 4\n", "offline"),
        (f"0\n1\n{INT32_MAX} {INT64_MAX}\n", [(INT32_MAX, INT64_MAX)]),
        (f"0\n1\n{-INT32_MAX - 1} {-INT64_MAX - 1}\n", [(-INT32_MAX - 1, -INT64_MAX - 1)]),
        (f"0\n1\n{INT32_MAX + 1} 0\n", "refused"), (f"0\n1\n{-INT32_MAX - 2} 0\n", "refused"),
        (f"0\n1\n0 {INT64_MAX + 1}\n", "refused"), (f"0\n1\n0 {-INT64_MAX - 2}\n", "refused"), ("0\n1\nx 0\n", "refused"),
        ("0\n200000000\n", "offline"), ("0\n200000001\n", "refused"),  # the list does not fit into the JVM
    ],
)  # fmt: skip
def test_a_checkpoint_is_read_as_java_reads_it(text: str, expected: Epochs | str) -> None:
    """An IOException takes the log directory offline; an exception of a number ends the broker."""
    found = fate(read_epochs, text.encode())
    assert found == (expected if isinstance(expected, str) else [LeaderEpoch(*one) for one in expected])
    if text.count("\n") <= 2:
        return
    lines = "".join(f"t {line}\n" if n > 1 else f"{line}\n" for n, line in enumerate(text.splitlines()))
    found = fate(read_checkpoint_offsets, lines.encode())
    if not isinstance(expected, str):
        assert [tuple(one) for one in found] == [("t", *one) for one in expected]


TOPIC = "8QbGW0sLQ0qIYyEr2a1fZQ"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"version: 0\ntopic_id: {TOPIC}", None), (f"version: 0\ntopic_id: {TOPIC}==\nmore", None),
        (f"a: {INT32_MAX}\nb: {TOPIC}\n", None), (f"a: {INT32_MAX + 1}\nb: {TOPIC}\n", "offline"),
        (f"a: -1\nb: {TOPIC}\n", "offline"), (f"a: x\nb: {TOPIC}\n", "offline"),
        ("", "refused"), ("version: 0", "refused"), ("version: 0\n", "refused"),
        (f"version 0\nb: {TOPIC}", "offline"), (f"version: 0\nb:{TOPIC}", "offline"), ("version: 0\nb: c: d", "offline"),
        (f"version: 0\nb: {TOPIC[1:]}", "refused"), (f"version: 0\nb: {TOPIC}A", "refused"),
        (f"version: 0\nb: {'A' * 22}", "offline"), (f"version: 0\nb: {'A' * 21}B", "offline"),
    ],
)  # fmt: skip
def test_partition_metadata_has_a_version_and_a_topic_id(text: str, expected: str | None) -> None:
    """A broker reads two lines with a colon."""
    assert fate(check_topic_id, text.encode()) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "refused"), (1, "refused"), (99, "refused"), (100, None), (1 << 127, None)]
)
def test_the_first_hundred_directory_ids_are_reserved(number: int, expected: str | None, tmp_path: Path) -> None:
    """``DirectoryId.reserved``."""
    written = base64.urlsafe_b64encode(number.to_bytes(16)).decode().rstrip("=")
    text = f"version=1\ncluster.id=x\nnode.id=1\ndirectory.id={written}\n"
    (tmp_path / "meta.properties").write_text(text)
    found = fate(read_identity, str(tmp_path))
    assert (found if isinstance(found, str) else None) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []), ([(0, 0)], [(0, 0)]), ([(0, 0), (1, 5)], [(0, 0), (1, 5)]),
        ([(0, 0), (0, 5)], [(0, 0)]), ([(0, 5), (0, 5)], [(0, 5)]), ([(0, 5), (0, 4)], [(0, 4)]),
        ([(0, 0), (1, 5), (0, 7)], [(0, 7)]), ([(0, 0), (2, 5), (1, 7)], [(0, 0), (1, 7)]),
        ([(0, 0), (1, 5), (2, 5)], [(0, 0), (2, 5)]), ([(0, 0), (1, 5), (2, 4)], [(0, 0), (2, 4)]),
        ([(0, 3), (1, 5), (2, 3)], [(2, 3)]),
        ([(-1, 0)], "refused"), ([(0, -1)], "refused"), ([(0, 0), (1, -1)], "refused"),
    ],
)  # fmt: skip
def test_a_later_epoch_replaces_those_that_contradict_it(lines: Epochs, expected: Epochs | str) -> None:
    """``LeaderEpochFileCache.assign``: epochs and their offsets both increase."""
    stored = [LeaderEpoch(*line) for line in lines]
    cache = fate(LeaderEpochCache, stored)
    if isinstance(expected, str):
        assert cache == expected
    else:
        assert [tuple(entry) for entry in cache.entries] == expected
        assert cache.changed == (lines != expected)
        assert cache.latest == (expected[-1][0] if expected else -1)


@pytest.mark.parametrize(("epoch", "expected"), [(2, [(0, 0), (2, 5)]), (3, [(0, 0), (2, 5), (3, 9)])])
def test_only_a_batch_of_a_later_epoch_begins_one(epoch: int, expected: Epochs) -> None:
    """Recovery assigns the epoch of a batch that is above the latest."""
    cache = LeaderEpochCache([LeaderEpoch(0, 0), LeaderEpoch(2, 5)])
    cache.assign(epoch, 9)
    assert cache.entries == [LeaderEpoch(*one) for one in expected]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 10, [(0, 0), (1, 5), (2, 9)]), (0, 9, [(0, 0), (1, 5)]), (0, 6, [(0, 0), (1, 5)]), (0, 5, [(0, 0)]), (0, 0, []),
        (4, 10, [(0, 4), (1, 5), (2, 9)]), (5, 10, [(1, 5), (2, 9)]), (6, 10, [(1, 6), (2, 9)]), (6, 9, [(1, 6)]),
    ],
)  # fmt: skip
def test_epochs_are_cut_at_both_ends_of_the_log(start: int, end: int, expected: Epochs) -> None:
    """``truncateFromEndAsyncFlush`` and ``truncateFromStartAsyncFlush``."""
    cache = LeaderEpochCache([LeaderEpoch(0, 0), LeaderEpoch(1, 5), LeaderEpoch(2, 9)])
    cache.truncate_from_end(start, end)
    assert cache.entries == [LeaderEpoch(*one) for one in expected]


@pytest.mark.parametrize(
    ("follower", "end", "leader", "leader_end", "expected"),
    [
        ([(0, 0)], 10, [(0, 0)], 8, 8), ([(0, 0)], 10, [(0, 0)], 12, 10), ([(0, 0)], 10, [(0, 0), (1, 7)], 12, 7),
        ([(0, 0), (1, 5)], 10, [(0, 0), (2, 7)], 20, 5),
        ([(0, 0), (1, 5)], 10, [(0, 0)], 8, 5), ([(0, 0), (1, 9)], 10, [(0, 0)], 8, 8),
        # KIP-279: the answer names an epoch that the follower lacks, so it asks again.
        ([(0, 0), (2, 6)], 10, [(0, 0), (1, 4), (3, 8)], 12, 4),
        ([(2, 6)], 10, [(3, 8)], 12, 8), ([], 10, [(0, 0)], 12, None), ([(0, 0)], 10, [], 12, None),
    ],
)  # fmt: skip
def test_a_follower_truncates_to_where_its_epochs_end(
    follower: Epochs, end: int, leader: Epochs, leader_end: int, expected: int | None
) -> None:
    """Both logs have the same records before the offset at which the epochs part (KIP-101)."""
    caches = [
        LeaderEpochCache([LeaderEpoch(*one) for one in entries], last)
        for entries, last in ((follower, end), (leader, leader_end))
    ]
    assert truncation_offset(*caches) == expected


class _Bytes:
    """A log in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


KEY, VALUE = b"\0\0\0\1", struct.pack(">hi", 0, 9)
TIME = 1_700_000_000_000


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (b"\0\0\0\1", VALUE, (True, 9, TIME + 3)), (b"\0\0\0\0", VALUE, (False, 9, TIME + 3)),
        (b"\0\5\0\1more", VALUE + b"more", (True, 9, TIME + 3)),
        (None, VALUE, "refused"), (b"\0\0\0", VALUE, "cut"), (b"", VALUE, "cut"), (b"\x80\0\0\1", VALUE, "cut"),
        (b"\0\0\0\2", VALUE, "refused"), (b"\0\0\xff\xff", VALUE, "refused"),
        (KEY, None, "refused"), (KEY, b"", "refused"), (KEY, b"\0", "refused"), (KEY, b"\x80\0", "cut"),
        (KEY, b"\0\0", "refused"), (KEY, VALUE[:-1], "refused"), (KEY, b"\0\1" + VALUE[2:], (True, 9, TIME + 3)),
    ],
)  # fmt: skip
def test_a_marker_has_a_type_and_the_epoch_of_its_coordinator(
    key: bytes | None, value: bytes | None, expected: tuple[bool, int, int] | str
) -> None:
    """InvalidRecordException cuts the log while it is recovered; any other exception ends the broker."""
    record = damage.record(key, value, timestamp_delta=3)
    assert marker(record, 1) == (expected if isinstance(expected, str) else EndMarker(*expected))


def marker(payload: bytes, count: int, **fields: int) -> Any:
    data = damage.batch(PLAIN.read_bytes(), payload, count, base_timestamp=TIME, **{"base_offset": 0, **fields})
    with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
        (window,) = reader.windows()
        return fate(end_marker, cast(Any, _Bytes(data)), window.batches, 0)


def test_a_control_batch_has_its_records_whole() -> None:
    """Only the first record is read, and nothing may follow an only one; a batch without records has no marker."""
    record = damage.record(KEY, VALUE)
    body = record[1:-1]
    assert marker(b"", 0) is None
    assert marker(record, -1, last_offset_delta=0) == "cut"
    assert marker(record * 2, 2) == EndMarker(True, 9, TIME)
    assert marker(record + b"x", 2) == EndMarker(True, 9, TIME)
    assert marker(record + b"x", 1) == "cut"
    assert marker(record, 1, attributes=0x30 | LOG_APPEND_TIME, max_timestamp=TIME + 7) == EndMarker(True, 9, TIME + 7)
    for length in range(len(record)):
        assert marker(record[:length], 1) == "cut", length
    for by in (-1, 1):
        assert marker(damage.varint(len(record) - 1 + by) + record[1:] + bytes(3), 2) == "cut"
    for headers, expected in (
        (damage.varint(-1), "cut"),
        (damage.varint(1), "cut"),
        (damage.varint(1) + b"\2a\1", EndMarker(True, 9, TIME)),
        (damage.varint(1) + b"\1\2", "cut"),  # a header without a key
        (damage.varint(2) + b"\2a\1\0\0", EndMarker(True, 9, TIME)),
    ):
        whole = body + headers
        assert marker(damage.varint(len(whole)) + whole, 1) == expected, headers


@pytest.mark.parametrize(("producers", "open_", "kept"), [(2, 0, 2), (3, 0, 2), (3, 3, 3), (5, 5, 4)])
def test_of_a_large_snapshot_the_producers_with_transactions_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producers: int, open_: int, kept: int
) -> None:
    """The memory for producers has a limit: twice as many with an open transaction, which holds back consumers."""
    monkeypatch.setattr(replayed_producers, "MAX_PRODUCERS", 2)
    states = [ProducerState(n, 0, 1, 5, 0, 1, 0, 5 if n < open_ else None) for n in range(producers)]
    path = tmp_path / f"{6:020}.snapshot"
    path.write_bytes(packed(states))
    assert replayed_producers._read_snapshot(File.at(str(path))) == states[:kept]
