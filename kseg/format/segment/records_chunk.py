"""The records of a run of batches: in columns, as objects and as rows of the row schema.

Objects have Kafka's field names in snake case.

Most work uses columns (``BatchColumns``, ``RecordColumns``). Objects are made one at a time, for what is shown or
returned.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from kseg.findings import Finding
from kseg.format.compress.codecs import codec_name
from kseg.format.record import columns, control_records, framing, layout
from kseg.format.record.columns import BatchColumns, RecordColumns
from kseg.format.record.default_records import MAX_HEADERS, header_field
from kseg.format.record.framing import increment_sequence
from kseg.format.segment.segment_reader import Window
from kseg.schema import BATCH_COLUMNS, RECORD_COLUMNS, Row, names_of
from kseg.text import stored_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """A record header (KIP-82). Bytes of ``key`` that are not UTF-8 are surrogate escapes."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record, with its first 10,000 headers. ``position`` is the byte where its batch begins.

    ``timestamp`` is in epoch milliseconds, None if it is missing. ``sequence`` is None in v0 and v1, and -1 if the
    producer is not idempotent. ``control`` is the decoded marker of a control record, otherwise None. ``producer_id``,
    ``producer_epoch`` and ``partition_leader_epoch`` are those of the batch: None in v0 and v1, and -1 for none.
    ``transaction_state`` is committed, aborted, open or unknown, None outside transactions. ``transactional_id`` is that
    of the producer, None if it is unknown. ``file`` is the path; ``topic`` and ``partition`` are from the name of its
    folder, None if it is not ``TOPIC-NUMBER``.
    """

    position: int
    offset: int
    timestamp: int | None
    timestamp_type: str | None
    sequence: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    control: control_records.ControlRecord | None
    producer_id: int | None = None
    producer_epoch: int | None = None
    partition_leader_epoch: int | None = None
    transaction_state: str | None = None
    transactional_id: str | None = None
    file: str | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def time(self) -> datetime | None:
        """The timestamp in UTC; None without one, and outside of the years 1 to 9999."""
        if self.timestamp is None or not layout.FIRST_MILLISECOND <= self.timestamp <= layout.LAST_MILLISECOND:
            return None
        return _EPOCH + timedelta(milliseconds=self.timestamp)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A v2 record batch, or a v0 or v1 message (a compressed message set if ``compression`` isn't none).

    ``position`` is a byte of the file, ``size`` the whole size in bytes. Timestamps are epoch milliseconds. Fields that
    the version lacks are None. The ``base_offset`` of a compressed message set is None: only decompression shows it.
    ``crc_valid`` is None if the CRC was not checked.
    """

    position: int
    size: int
    magic: int
    base_offset: int | None
    last_offset: int
    record_count: int | None
    compression: str
    timestamp_type: str | None
    base_timestamp: int | None
    max_timestamp: int | None
    crc: int
    crc_valid: bool | None
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    partition_leader_epoch: int | None
    transactional: bool | None
    control: bool | None
    delete_horizon: int | None

    @property
    def last_sequence(self) -> int | None:
        """The sequence of the last record; wraps after Int.MAX like ``DefaultRecordBatch.incrementSequence``."""
        if self.base_sequence is None or self.base_sequence < 0 or self.base_offset is None:
            return self.base_sequence
        return framing.increment_sequence(self.base_sequence, self.last_offset - self.base_offset)


def timestamp_type(magic: int, attributes: int) -> str | None:
    """Return ``CreateTime`` or ``LogAppendTime``, None for v0."""
    if not magic:
        return None
    return layout.TIMESTAMP_TYPES[1 if attributes & layout.LOG_APPEND_TIME else 0]


def record_batch(batches: columns.BatchColumns, row: int) -> RecordBatch:
    """Return one row of the columns as an object."""
    magic, attributes = batches.magic[row], batches.attributes[row]
    codec = attributes & layout.CODEC_MASK
    modern = magic >= 2
    state = batches.crc_state[row]
    base_timestamp = layout.timestamp_or_none(batches.base_timestamp[row])
    return RecordBatch(
        position=batches.position[row],
        size=batches.size[row],
        magic=magic,
        base_offset=batches.base_offset[row] if modern or not codec else None,
        last_offset=batches.last_offset[row],
        record_count=batches.record_count[row] if modern else None,
        compression=codec_name(codec),
        timestamp_type=timestamp_type(magic, attributes),
        base_timestamp=base_timestamp if modern else None,
        max_timestamp=layout.timestamp_or_none(batches.max_timestamp[row]),
        crc=batches.crc[row],
        crc_valid=None if state == columns.CRC_UNCHECKED else state == columns.CRC_GOOD,
        producer_id=batches.producer_id[row] if modern else None,
        producer_epoch=batches.producer_epoch[row] if modern else None,
        base_sequence=batches.base_sequence[row] if modern else None,
        partition_leader_epoch=batches.partition_leader_epoch[row] if modern else None,
        transactional=bool(attributes & layout.TRANSACTIONAL) if modern else None,
        control=bool(attributes & layout.CONTROL) if modern else None,
        delete_horizon=base_timestamp if modern and attributes & layout.DELETE_HORIZON else None,
    )


_BATCH_NAMES = tuple(column.name for column in BATCH_COLUMNS[2:])
_PRODUCER_NAMES = names_of(RECORD_COLUMNS)[names_of(RECORD_COLUMNS).index("control") + 1 :]

#: Returns bytes as (text, name of the encoding to add to the row, or None).
Encoder = Callable[[bytes], tuple[Any, str | None]]


def _auto(data: bytes) -> tuple[str, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


ENCODERS: Mapping[str, Encoder] = {
    "auto": _auto,
    "utf8": lambda data: (data.decode("utf-8", "replace"), None),
    "hex": lambda data: (data.hex(), None),
    "base64": lambda data: (base64.b64encode(data).decode(), None),
}


def unchanged(data: bytes) -> tuple[bytes, None]:
    """Return the bytes themselves: the encoder of rows that ``encoded`` encodes later."""
    return data, None


def encoded(row: Row, encode: Encoder) -> Row:
    """Return a row with its bytes encoded as text."""
    found: Row = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            _put(found, name, value, encode)
        else:
            headers = name == "headers" and isinstance(value, list)
            found[name] = header_rows((Header(**one) for one in value), encode) if headers else value
    return found


def batch_row(file: str, batch: RecordBatch) -> Row:
    """Return a batch as a row of BATCH_COLUMNS."""
    return {"kind": "batch", "file": file, **{name: getattr(batch, name) for name in _BATCH_NAMES}}


def record_row(file: str, record: Record, encode: Encoder) -> Row:
    """Return a record as a row of RECORD_COLUMNS.

    ``key_encoding`` and ``value_encoding`` are added if the encoder names an encoding.
    """
    row: Row = {
        "kind": "record",
        "file": file,
        "position": record.position,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "sequence": record.sequence,
    }
    _put(row, "key", record.key, encode)
    _put(row, "value", record.value, encode)
    row["headers"] = header_rows(record.headers, encode)
    row["control"] = record.control.as_dict() if record.control else None
    for name in _PRODUCER_NAMES:
        row[name] = getattr(record, name)
    return row


def header_rows(headers: Iterable[Header], encode: Encoder) -> list[Row]:
    """Return headers as the list in a record's row. As text, bytes of a key that are not UTF-8 are replaced, as by Kafka."""
    found: list[Row] = []
    for header in headers:
        key = header.key
        entry: Row = {"key": key if encode is unchanged else stored_bytes(key).decode("utf-8", "replace")}
        _put(entry, "value", header.value, encode)
        found.append(entry)
    return found


def _put(row: Row, name: str, data: bytes | None, encode: Encoder) -> None:
    if data is None:
        row[name] = None
        return
    row[name], encoding = encode(data)
    if encoding:
        row[f"{name}_encoding"] = encoding


class ColumnLists(NamedTuple):
    """The record columns as Python lists, which plain Python indexes many times faster than typed buffers."""

    offset: list[int]
    timestamp: list[int]
    key_at: list[int]
    key_size: list[int]
    value_at: list[int]
    value_size: list[int]
    header_count: list[int]


class Chunk:
    """The records of the batches ``first`` to ``stop`` of a window (rows of ``batches``, stop exclusive).

    A large batch is yielded in several chunks that contain only this batch. ``index`` is the index of the chunk's first
    record in the batch (0 otherwise), ``previous_offset`` the offset of the record before it, ``unfinished`` is whether
    more chunks of it follow, ``payload_size`` the size of its decompressed payload in bytes. Count and check batches at
    the first chunk only (``resumed`` is False). The fact columns of ``batches`` describe the whole batch.

    ``payload(row)`` is the buffer that ``key_at`` and the other record positions refer to. A chunk is valid until the
    next one is read.
    """

    def __init__(self, window: Window, records: RecordColumns) -> None:
        self.window = window
        self.batches: BatchColumns = window.batches
        self.records = records
        self.first = 0
        self.stop = 0
        self.payloads: dict[int, memoryview] = {}
        self.index = 0
        self.previous_offset: int | None = None
        self.unfinished = False
        self.payload_size: int | None = None

    @property
    def resumed(self) -> bool:
        """Whether earlier chunks contain the first records of this batch."""
        return self.index > 0

    @cached_property
    def lists(self) -> ColumnLists:
        """The columns that rows are made from. Read it only after the chunk is filled."""
        count = self.records.count
        return ColumnLists(*(memoryview(getattr(self.records, name))[:count].tolist() for name in ColumnLists._fields))

    def rows(self, row: int) -> range:
        """Return the record rows of a batch."""
        first = self.batches.first_record[row]
        return range(first, first + self.batches.record_total[row])

    def payload(self, row: int) -> memoryview:
        """Return the decompressed payload of a compressed batch, the window's buffer for other batches."""
        payload: memoryview = self.payloads.get(row, self.window.view)
        return payload

    def key(self, i: int) -> bytes | None:
        """Return the key of record ``i``, None if it is null."""
        return self._bytes(self.records.batch[i], self.lists.key_at[i], self.lists.key_size[i])

    def value(self, i: int) -> bytes | None:
        """Return the value of record ``i``, None if it is null."""
        return self._bytes(self.records.batch[i], self.lists.value_at[i], self.lists.value_size[i])

    def key_and_value(self, i: int) -> tuple[bytes | None, bytes | None]:
        """Return key and value of record ``i``, for few records of a chunk: ``lists`` would convert all."""
        row, records = self.records.batch[i], self.records
        return (
            self._bytes(row, records.key_at[i], records.key_size[i]),
            self._bytes(row, records.value_at[i], records.value_size[i]),
        )

    def headers(self, i: int, most: int | None = MAX_HEADERS) -> tuple[Header, ...]:
        """Return the headers of record ``i`` in their order, at most the first ``most``."""
        if not self.lists.header_count[i]:
            return ()
        return tuple(
            Header(str(key, "utf-8", "surrogateescape"), None if value is None else bytes(value))
            for key, value in islice(self.header_fields(i), most)
        )

    def header_fields(self, i: int) -> Iterator[tuple[memoryview, memoryview | None]]:
        """Yield key and value of each header of record ``i``."""
        payload = self.payload(self.records.batch[i])
        at = self.records.headers_at[i]
        for _ in range(self.lists.header_count[i]):
            # The deep reader has already checked these sizes.
            size, at = header_field(payload, at, len(payload))
            key = payload[at : at + size]
            size, at = header_field(payload, at + size, len(payload))
            yield key, None if size < 0 else payload[at : at + size]
            at += max(size, 0)

    def control(self, i: int) -> control_records.ControlRecord | None:
        """Return the decoded marker of record ``i``, None for data. An undecodable marker has the type MALFORMED."""
        row = self.records.batch[i]
        if self.batches.magic[row] < 2 or not self.batches.attributes[row] & layout.CONTROL:
            return None
        try:
            return control_records.decode(*self.key_and_value(i))
        except control_records.MalformedControlRecord as error:
            return control_records.ControlRecord("MALFORMED", -1, -1, {"error": str(error)})

    def record(
        self,
        i: int,
        most_headers: int | None = MAX_HEADERS,
        *,
        contents: bool = True,
        transaction: tuple[str | None, str | None] = (None, None),
        place: tuple[str | None, str | None, int | None] = (None, None, None),
    ) -> Record:
        """Return record ``i`` with its first ``most_headers`` headers. Without ``contents``, key, value and headers are
        left out. ``transaction`` has the state and the transactional id, ``place`` file, topic and partition.
        """
        batches = self.batches
        row = self.records.batch[i]
        modern = batches.magic[row] >= 2
        return Record(
            position=batches.position[row],
            offset=self.lists.offset[i],
            timestamp=layout.timestamp_or_none(self.lists.timestamp[i]),
            timestamp_type=timestamp_type(batches.magic[row], batches.attributes[row]),
            sequence=self.sequence(i, row),
            key=self.key(i) if contents else None,
            value=self.value(i) if contents else None,
            headers=self.headers(i, most_headers) if contents else (),
            control=self.control(i),
            producer_id=batches.producer_id[row] if modern else None,
            producer_epoch=batches.producer_epoch[row] if modern else None,
            partition_leader_epoch=batches.partition_leader_epoch[row] if modern else None,
            transaction_state=transaction[0],
            transactional_id=transaction[1],
            file=place[0],
            topic=place[1],
            partition=place[2],
        )

    def sequence(self, i: int, row: int) -> int | None:
        """Return the sequence of record ``i`` of batch ``row``: -1 if the producer is not idempotent, None before v2."""
        if self.batches.magic[row] < 2:
            return None
        base = self.batches.base_sequence[row]
        return base if base < 0 else increment_sequence(base, self.lists.offset[i] - self.batches.base_offset[row])

    def _bytes(self, row: int, at: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.payload(row)[at : at + size])


def record_finding(rule: str, chunk: Chunk, i: int, **facts: Any) -> Finding:
    """Return a finding about one record. ``index`` is its index in the batch."""
    row, offset = chunk.records.batch[i], chunk.records.offset[i]
    at, size = chunk.batches.position[row], chunk.batches.size[row]
    facts = {"index": chunk.index + i - chunk.batches.first_record[row], "offset": offset, **facts}
    return Finding(rule, position=at, end=at + size, offset=offset, last_offset=offset, facts=facts)
