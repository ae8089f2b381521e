"""``kseg diff --by-key``: the last committed value of each key in two backups of a compacted partition.

The records of both are split by a hash of the key into files on disk, and each file is compared in memory. So memory depends
on the number of keys in one of at most MOST_BUCKETS files. A key without a record is deleted (KIP-58): the cleaner removes
tombstones some time after it has removed the values, so a missing key without a tombstone is no proof.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import nsmallest
from struct import Struct
from typing import IO

from kseg.commands.diff.replica import files_of
from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.record.layout import ABORTED, COMMITTED
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import drop_control_batches
from kseg.format.sidefiles.transaction_states import SegmentTransactions, TransactionLogs
from kseg.format.storage.atomic_write import temporary_file
from kseg.format.storage.process_pool import add_progress
from kseg.format.storage.source import local_size, open_source

#: Change -> its meaning.
CHANGES = {
    "changed": "both have a value, and they or their headers differ",
    "appeared": "only b has a value",
    "deleted": "only a has a value, and b has the tombstone",
    "gone": "only a has a value, and b has no tombstone: deleted earlier, or lost",
}
MOST_BUCKETS = 256
#: The bytes of logs for each file of keys, and those of a file that are written at once.
_BUCKET_BYTES = 4 * 1024 * 1024
_WRITTEN_AT_ONCE = 64 * 1024

# Side, whether it is a tombstone, offset, timestamp, digest of the value, bytes of the key.
_ENTRY = Struct("<??qq16sI")
_NO_VALUE = bytes(16)


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key that differs: ``change`` is one of CHANGES. Offsets and timestamps are those of its last records, None without.

    Of a deleted key, those in ``b`` are of the tombstone.
    """

    change: str
    key: bytes
    offset_a: int | None
    timestamp_a: int | None
    offset_b: int | None
    timestamp_b: int | None


@dataclass(slots=True)
class KeysRead:
    """What was read of a backup: records with a key, and those that were left out."""

    path: str
    records: int = 0
    keys: int = 0
    null_keys: int = 0
    undecided: int = 0


@dataclass(slots=True)
class KeyComparison:
    """The outcome for two backups of a partition. ``same`` counts keys with equal values, ``counts`` those by change.

    ``differences`` are the first of each change in the order of their offsets. ``unread`` says why one was not read.
    """

    a: KeysRead
    b: KeysRead
    same: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[KeyDifference] = field(default_factory=list)
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    unread: str = ""


def compare_keys(paths: tuple[str, str], limit: int) -> KeyComparison:
    """Compare the keys of two partition folders or segments. ``limit`` is the number of differences of each change."""
    a, b = paths
    found = KeyComparison(KeysRead(a), KeysRead(b))
    try:
        files = [(side, file.path) for side, path in enumerate(paths) for file in files_of(path)]
        size = sum(local_size(path) or 0 for _, path in files)
        with ExitStack() as stack:
            count = min(MOST_BUCKETS, size // _BUCKET_BYTES + 1)
            buckets = [_KeyFile(stack.enter_context(temporary_file())) for _ in range(count)]
            logs = TransactionLogs()
            for side, path in files:
                _split_segment(path, side, found, buckets, logs)
            for bucket in buckets:
                _compare_bucket(bucket, found, limit)
    except KsegError as error:
        found.unread = str(error)
    found.differences = [one for change in CHANGES for one in _first(found.differences, change, limit)]
    return found


def _first(found: list[KeyDifference], change: str, limit: int) -> list[KeyDifference]:
    """Return the first differences of a change: by their offsets in b, then those of a where b has none."""
    of_change = (one for one in found if one.change == change)
    return nsmallest(limit, of_change, key=lambda one: (one.offset_b is None, one.offset_b or one.offset_a or 0))


class _KeyFile:
    """Entries of the keys with one hash, in the order in which they were read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, entry: bytes) -> None:
        self._pieces.append(entry)
        self._size += len(entry)
        if self._size > _WRITTEN_AT_ONCE:
            self._write()

    def _write(self) -> None:
        self._file.write(b"".join(self._pieces))
        self._pieces, self._size = [], 0

    def entries(self) -> Iterator[tuple[bool, bool, int, int, bytes, bytes]]:
        """Yield side, tombstone, offset, timestamp, digest and key of each entry."""
        self._write()
        self._file.seek(0)
        while head := self._file.read(_ENTRY.size):
            *fields, size = _ENTRY.unpack(head)
            yield *fields, self._file.read(size)


def _split_segment(path: str, side: int, found: KeyComparison, buckets: list[_KeyFile], logs: TransactionLogs) -> None:
    read = found.b if side else found.a
    transactions = logs.of(path, listed=True)

    def report(finding: Finding) -> None:
        found.findings.append((path, finding))

    opener = DeepIterator(report)
    with SegmentReader(open_source(path), report=report) as reader:
        for window in reader.windows():
            drop_control_batches(window.batches)
            for chunk in opener.chunks(window):
                for entry, number in _entries(chunk, side, read, transactions):
                    buckets[number % len(buckets)].add(entry)
    add_progress(local_size(path) or 0)


def _entries(chunk: Chunk, side: int, read: KeysRead, transactions: SegmentTransactions) -> Iterator[tuple[bytes, int]]:
    """Yield an entry for each record with a key of a chunk, and the hash of the key."""
    columns, batches = chunk.lists, chunk.batches
    for row in range(chunk.first, chunk.stop):
        rows = chunk.rows(row)
        state = transactions.state(batches, row) if rows else None
        if state not in (None, COMMITTED):
            read.undecided += 0 if state == ABORTED else len(rows)
            continue
        payload = chunk.payload(row)
        for i in rows:
            size = columns.key_size[i]
            if size < 0:
                read.null_keys += 1
                continue
            at = columns.key_at[i]
            key = bytes(payload[at : at + size])
            read.records += 1
            is_tombstone = columns.value_size[i] < 0
            digest = _NO_VALUE if is_tombstone else _digest(chunk, payload, i)
            head = _ENTRY.pack(bool(side), is_tombstone, columns.offset[i], columns.timestamp[i], digest, size)
            yield head + key, zlib.crc32(key)


def _digest(chunk: Chunk, payload: memoryview, i: int) -> bytes:
    """Return the digest of the value and the headers of a record."""
    at = chunk.lists.value_at[i]
    found = blake2b(payload[at : at + chunk.lists.value_size[i]], digest_size=16)
    if chunk.lists.header_count[i]:
        for name, value in chunk.header_fields(i):
            found.update(b"%d:%d:" % (len(name), -1 if value is None else len(value)))
            found.update(name)
            found.update(value or b"")
    return found.digest()


def _compare_bucket(bucket: _KeyFile, found: KeyComparison, limit: int) -> None:
    # The last record of a key in each backup: (offset, timestamp, digest, tombstone).
    last: tuple[dict[bytes, _Last], dict[bytes, _Last]] = ({}, {})
    for side, is_tombstone, offset, timestamp, digest, key in bucket.entries():
        last[side][key] = (offset, timestamp, digest, is_tombstone)
    a, b = last
    found.a.keys += sum(not one[3] for one in a.values())
    found.b.keys += sum(not one[3] for one in b.values())
    for key in a.keys() | b.keys():
        change = _change(a.get(key), b.get(key))
        if change == "same":
            found.same += 1
        elif change:
            found.counts[change] += 1
            in_a, in_b = a.get(key, _NONE), b.get(key, _NONE)
            found.differences.append(KeyDifference(change, key, *in_a[:2], *in_b[:2]))
    if len(found.differences) > 8 * (limit + 1024):
        found.differences = [one for change in CHANGES for one in _first(found.differences, change, limit)]


_Last = tuple[int, int, bytes, bool]
_NONE = (None, None)


def _change(a: _Last | None, b: _Last | None) -> str:
    """Return the change of a key, "same" for equal values, "" if neither has a value."""
    has_a, has_b = a is not None and not a[3], b is not None and not b[3]
    if a is not None and b is not None and has_a and has_b:
        return "same" if a[2] == b[2] else "changed"
    if has_b:
        return "appeared"
    if has_a:
        return "gone" if b is None else "deleted"
    return ""
