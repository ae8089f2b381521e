"""Producer snapshots (``.snapshot``), and the stored fields of all binary side files for ``kseg dump --format hex``.

A snapshot has the broker's state of each producer before an offset (KIP-98, KIP-360)::

    snapshot := version:int16 crc:uint32 count:int32 entry*     -- CRC-32C of all bytes after it

The number in the name is the first offset that the state does not include. Integers are big-endian. Source:
``ProducerStateManager.readSnapshot``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kseg.findings import Finding, Report, do_nothing
from kseg.format.record.crc import crc32c
from kseg.format.record.layout import timestamp_or_none
from kseg.format.sidefiles.side_file_reading import blocks, new_buffer
from kseg.format.storage.source import Source
from kseg.text import count_of

HEADER = struct.Struct(">hIi")  # version, crc, count
#: The fields of ``STORED_FIELDS["producer_state"].entry``.
ENTRY = struct.Struct(">qhiqiqiq")
COUNT = struct.Struct(">i")
VERSION = 1
CRC_BEGINS_AT = 6


class ProducerState(NamedTuple):
    """The state of one producer. ``timestamp`` is epoch milliseconds, None if missing.

    ``last_sequence``, ``last_offset`` and ``offset_delta`` belong to its last batch; -1 if only its epoch is known.
    ``current_txn_first_offset`` is None without an open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int | None
    coordinator_epoch: int
    current_txn_first_offset: int | None


def walk_snapshot(source: Source, report: Report = do_nothing) -> Iterator[tuple[int, ProducerState]]:
    """Yield (byte, producer) of each entry. The CRC is checked after the last one."""
    buffer = new_buffer(source, report)
    if not buffer.fill(HEADER.size):
        if not buffer.failed:
            _wrong_size(0, buffer.available, "the header needs 10", report)
        return
    version, crc, count = HEADER.unpack_from(buffer.view, buffer.start)
    if version != VERSION:
        report(Finding("snapshot-version", 0, HEADER.size, facts={"version": version}))
        return
    computed = crc32c(buffer.view[buffer.start + CRC_BEGINS_AT : buffer.start + HEADER.size])
    buffer.start += HEADER.size
    end = HEADER.size + count * ENTRY.size
    for begin, block in blocks(buffer, ENTRY.size):
        computed = crc32c(block, computed)
        for at, fields in enumerate(ENTRY.iter_unpack(block)):
            position = begin + at * ENTRY.size
            if position < end:
                yield position, decoded(fields)
    if buffer.failed:
        return
    if buffer.position + buffer.available != end:
        _wrong_size(
            HEADER.size, buffer.position + buffer.available, f"{count_of(count, 'producer')} need {end:,}", report
        )
    elif crc != computed:
        report(Finding("snapshot-crc", 0, end, facts={"stored": crc, "computed": computed}))


def decoded(fields: tuple[int, ...]) -> ProducerState:
    """Return the producer of the fields of an entry."""
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first = fields
    time, begun = timestamp_or_none(timestamp), None if first < 0 else first
    return ProducerState(producer_id, epoch, sequence, offset, delta, time, coordinator_epoch, begun)


def _wrong_size(position: int, end: int, why: str, report: Report) -> None:
    report(Finding("snapshot-size", position, end, facts={"bytes": end, "why": why}))


def read_snapshot(data: bytes) -> list[ProducerState] | None:
    """Return the producers of a snapshot, None if it is damaged: a broker then uses an older snapshot, or the log."""
    found: list[Finding] = []
    producers = [producer for _, producer in walk_snapshot(Source("", io.BytesIO(data), len(data)), found.append)]
    return None if found else producers


def packed(producers: Iterable[ProducerState]) -> bytes:
    """Return the bytes of a snapshot of these producers (``ProducerStateManager.writeSnapshot``)."""
    entries = [ENTRY.pack(*(-1 if field is None else field for field in producer)) for producer in producers]
    body = COUNT.pack(len(entries)) + b"".join(entries)
    return HEADER.pack(VERSION, crc32c(body), len(entries))[:CRC_BEGINS_AT] + body


class StoredFields(NamedTuple):
    """(size in bytes, Kafka's name) of the fields before the first entry, and of the fields of each entry."""

    header: tuple[tuple[int, str], ...]
    entry: tuple[tuple[int, str], ...]


#: The kind of a side file's rows (``SideFile.kind``) -> its fields. All other kinds are text.
STORED_FIELDS: Mapping[str, StoredFields] = {
    "offset_index_entry": StoredFields((), ((4, "relativeOffset"), (4, "position"))),
    "time_index_entry": StoredFields((), ((8, "timestamp"), (4, "relativeOffset"))),
    "aborted_transaction": StoredFields(
        (), ((2, "version"), (8, "producerId"), (8, "firstOffset"), (8, "lastOffset"), (8, "lastStableOffset"))
    ),
    "producer_state": StoredFields(
        ((2, "version"), (4, "crc"), (4, "entries")),
        (
            (8, "producerId"), (2, "epoch"), (4, "lastSequence"), (8, "lastOffset"), (4, "offsetDelta"), (8, "timestamp"),
            (4, "coordinatorEpoch"), (8, "currentTxnFirstOffset"),
        ),
    ),
}  # fmt: skip
