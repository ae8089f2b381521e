"""The entries of index files, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.format.sidefiles.indexes import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY, AbortedTxn, OffsetEntry, TimeEntry


def read_offset_index(data: bytes, base_offset: int) -> Iterator[OffsetEntry]:
    """Yield the entries as stored, including preallocated zeros."""
    for relative, position in OFFSET_ENTRY.iter_unpack(data):
        yield OffsetEntry(base_offset + relative, position)


def read_time_index(data: bytes, base_offset: int) -> Iterator[TimeEntry]:
    """Yield the entries as stored, including preallocated zeros."""
    for timestamp, relative in TIME_ENTRY.iter_unpack(data):
        yield TimeEntry(timestamp, base_offset + relative)


def read_txn_index(data: bytes) -> Iterator[AbortedTxn]:
    """Yield the entries as stored."""
    for version, *fields in ABORTED_TXN.iter_unpack(data):
        yield AbortedTxn._make((*fields, version))
