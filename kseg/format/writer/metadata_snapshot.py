"""Write the records of a cluster's metadata as a KRaft snapshot, which is also the format of ``bootstrap.checkpoint``.

A snapshot is a control batch with its header, batches of records, and a control batch with its footer (KIP-630). Sources:
``BootstrapDirectory``, ``BatchFileWriter``, ``MetadataRecordSerde``.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, NamedTuple

from kseg.format.internal_topics.decode import FRAME_VERSION
from kseg.format.messages.definitions import RECORDS, Definition, definition
from kseg.format.messages.message_reader import Message
from kseg.format.messages.message_writer import encode, uvarint
from kseg.format.writer.records_builder import PlainRecord, build_batch

#: The name of the snapshot whose records a controller appends to an empty metadata log.
# ControlRecordType, and the message of each.
_HEADER, _FOOTER = (3, "SnapshotHeaderRecord"), (4, "SnapshotFooterRecord")
_CONTROL_KEY = struct.Struct(">hh")
_RECORDS_PER_BATCH = 1000


class MetadataRecord(NamedTuple):
    """A record: the name of its message, its version, and its fields with Kafka's names."""

    name: str
    version: int
    data: Message


def encoded_record(record: MetadataRecord) -> bytes:
    """Return the value of a record. Raises the errors of ``encode``."""
    found = _definition(record.name, record.version)
    assert found.api_key is not None, record.name
    frame = uvarint(FRAME_VERSION) + uvarint(found.api_key) + uvarint(record.version)
    return frame + encode(found, record.version, record.data)


def write_snapshot(records: Iterable[MetadataRecord], out: IO[bytes]) -> int:
    """Write a snapshot with these records to ``out``, and return their number."""
    now = time.time_ns() // 1_000_000
    out.write(control_batch(_HEADER, {"version": 0, "lastContainedLogTimestamp": now}, 0, now))
    offset = 1
    for values in _in_batches(map(encoded_record, records)):
        batch = [PlainRecord(offset + n, None, value, now) for n, value in enumerate(values)]
        out.write(build_batch(batch, partition_leader_epoch=0))
        offset += len(batch)
    out.write(control_batch(_FOOTER, {"version": 0}, offset, now))
    return offset - 1


def control_batch(kind: tuple[int, str], data: Message, offset: int, timestamp: int, *, leader_epoch: int = 0) -> bytes:
    """Return a batch with one control record of KRaft: ``kind`` is its type and its message."""
    number, name = kind
    record = PlainRecord(offset, _CONTROL_KEY.pack(0, number), encode(_definition(name, 0), 0, data), timestamp)
    return build_batch([record], partition_leader_epoch=leader_epoch, control=True)


def _definition(name: str, version: int) -> Definition:
    found = definition(RECORDS, name, version)
    if found is None:
        raise KeyError(f"{name} has no version {version}")
    return found


def _in_batches(values: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(islice(values, _RECORDS_PER_BATCH)):
        yield batch
