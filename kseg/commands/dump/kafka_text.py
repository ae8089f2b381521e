"""The lines that kafka-dump-log prints for a segment, byte for byte, for the scripts that parse them.

Shallow: ``header_lines``, a ``batch_line`` for each entry, ``trailing_line``, as ``kafka-dump-log --files F`` prints
them. Deep: a ``record_line`` for each record behind its batch's line, as with ``--deep-iteration``, or with
``--print-data-log`` (``print_data``). Source: ``org.apache.kafka.tools.DumpLogSegments`` of Kafka 4.3.0.

Nothing is escaped here, since Kafka doesn't: a key with a line feed makes two lines. Whoever writes to a terminal has
to make the text harmless first. Where the tool would end with a stack trace, the line stands without what it can't say.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from kseg.commands.dump.text_pieces import utf8_slices
from kseg.format.internal_topics.decode import decode
from kseg.format.internal_topics.kafka_text import decoded_parts, jackson
from kseg.format.record import layout
from kseg.format.record.control_records import ControlRecord
from kseg.format.segment.objects import Record, RecordBatch
from kseg.format.storage.naming import snapshot_id

_BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
_SLASHES = re.compile(r"/{2,}")
# A surrogate in UTF-8: Java's String makes one U+FFFD of it (measured with Java 17), Python two or three.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
NO_TIMESTAMP_TYPE = "NoTimestampType"

# A record's line: offset, timestamp's type, timestamp, sizes of key and value, what versions tell, key and value.
_RECORD = "| offset: %s %s: %s keySize: %s valueSize: %s%s"
_KEY, _PAYLOAD = " key: %s", " payload: %s"
_RECORD_WITH_DATA = _RECORD + _KEY + _PAYLOAD
# Of v2: sequence, keys of headers.
_MIDDLE = " sequence: %s headerKeys: [%s]"

Data = bytes | memoryview

# The label of a KRaft control record; only the first has a colon.
_KRAFT_LABELS = {
    "LEADER_CHANGE": "LeaderChange:",
    "SNAPSHOT_HEADER": "SnapshotHeader",
    "SNAPSHOT_FOOTER": "SnapshotFooter",
    "KRAFT_VERSION": "KRaftVersion",
    "KRAFT_VOTERS": "KRaftVoters",
}


def header_lines(path: str, log_start_offset: int | None) -> Iterator[str]:
    """What stands before the entries of a file. ``log_start_offset`` is the number in its name, None where none is."""
    # java.io.File drops doubled slashes; those of a URL are not a path's.
    yield f"Dumping {path if '://' in path else _SLASHES.sub('/', path)}"
    name = PurePosixPath(path).name
    checkpoint = snapshot_id(name)
    if checkpoint is not None:
        yield f"Snapshot end offset: {checkpoint[0]}, epoch: {checkpoint[1]}"
    elif name == _BOOTSTRAP_CHECKPOINT:
        yield "KRaft bootstrap snapshot"
    elif log_start_offset is not None:
        yield f"Log starting offset: {log_start_offset}"


def batch_line(batch: RecordBatch) -> str:
    """The line of an entry, of any version. A CRC not checked is ``isvalid: unchecked``; Kafka always checks."""
    if batch.magic >= 2:
        horizon = "OptionalLong.empty" if batch.delete_horizon is None else f"OptionalLong[{batch.delete_horizon}]"
        what = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count}"
            f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
            f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
            f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
            f" isTransactional: {_boolean(batch.transactional)} isControl: {_boolean(batch.control)}"
            f" deleteHorizonMs: {horizon}"
        )
    else:
        what = f"offset: {batch.last_offset}"
    return (
        f"{what} position: {batch.position} {_timestamp(batch, batch.max_timestamp)}"
        f" size: {batch.size} magic: {batch.magic} compresscodec: {batch.compression}"
        f" crc: {batch.crc} isvalid: {_boolean(batch.crc_valid)}"
    )


def record_line(
    record: Record,
    batch: RecordBatch,
    *,
    print_data: bool,
    inner_crc: tuple[int, bool] | None = None,
    topic: str | None = None,
) -> str:
    """The line of a record of ``batch``; with ``print_data`` its key and value, but never those of a control record.

    Of a v0 or v1 message Kafka tells the CRC, too. Within a wrapper it is the inner message's own, ``inner_crc``, which
    ``message_crc`` finds; without, the line lacks it. It can't be had from the record: LogAppendTime hides what it
    was made of. With an internal ``topic`` key and value are as its decoder prints them.
    """
    if batch.magic >= 2:
        keys = ",".join(java_text(header.key.encode("utf-8", "surrogateescape")) for header in record.headers)
        middle = v2_fields(record.sequence, keys)
    else:
        middle = legacy_crc(batch, inner_crc)
    line = format_record_line(
        batch.timestamp_type or NO_TIMESTAMP_TYPE,
        record.offset,
        -1 if record.timestamp is None else record.timestamp,
        record.key,
        record.value,
        middle,
        print_data and not batch.control and topic is None,
    )
    if record.control:
        return line + control_text(record.control)
    if topic is not None:
        parts = decoded_parts(topic, decode(topic, record.key, record.value), record.offset)
        line += "".join(label % part for label, part in zip((_KEY, _PAYLOAD), parts, strict=True) if part is not None)
    return line


def format_record_line(
    kind: str, offset: int, timestamp: int, key: Data | None, value: Data | None, middle: str, print_data: bool
) -> str:
    """A record's line from its parts; ``middle`` stands between the sizes and the data."""
    # The commonest case first: this runs once a record.
    if print_data and key is not None and value is not None:
        return _RECORD_WITH_DATA % (
            offset, kind, timestamp, len(key), len(value), middle, java_text(key), java_text(value)
        )  # fmt: skip
    sizes = [-1 if data is None else len(data) for data in (key, value)]
    line = _RECORD % (offset, kind, timestamp, *sizes, middle)
    if print_data and key is not None:
        line += _KEY % java_text(key)
    if print_data and value is not None:
        line += _PAYLOAD % java_text(value)
    return line


def compose_pieces(
    kind: str, offset: int, timestamp: int, key: memoryview | None, value: memoryview | None, middle: Iterable[str]
) -> Iterator[str]:
    """Yield the line, with its end, that ``format_record_line`` returns for a record with large data, in pieces."""
    yield format_record_line(kind, offset, timestamp, key, value, "", False)
    yield from middle
    for label, data in ((_KEY, key), (_PAYLOAD, value)):
        if data is not None:
            yield label % ""
            yield from map(java_text, utf8_slices(data))
    yield "\n"


def v2_fields(sequence: int | str | None, header_keys: str) -> str:
    """What a v2 record's line has between the sizes and the data; ``header_keys`` are joined with commas."""
    return _MIDDLE % (sequence, header_keys)


def modern_middle_pieces(sequence: int | None, header_keys: Iterable[memoryview]) -> Iterator[str]:
    """Yield what ``v2_fields`` returns, in pieces."""
    before, after = (_MIDDLE % (sequence, "\n")).split("\n")
    yield before
    for n, key in enumerate(header_keys):
        yield "," if n else ""
        yield from map(java_text, utf8_slices(key))
    yield after


#: What ``line_writer`` is to put where ``record_template`` has marks. A null goes with what stands before it, as far
#: as the mark for nothing.
TEMPLATE_CELLS = ("offset", "timestamp", "key_size", "value_size", "sequence", "headers", "nothing", "key", "value")


def record_template(kind: str, mark: str) -> str:
    """The line, with its end, of a v2 record with data: ``kind`` is its timestamp's type, marks stand for the rest."""
    middle = v2_fields(mark, mark) + mark
    return _RECORD_WITH_DATA % (mark, kind, mark, mark, mark, middle, mark, mark) + "\n"


def trailing_line(path: str, size: int) -> str:
    """The last line of a file whose last ``size`` bytes are no entry."""
    return f"Found {size} invalid bytes at the end of {PurePosixPath(path).name}"


def message_crc(payload: bytes | memoryview, magic: int, key_at: int, value_end: int) -> tuple[int, bool]:
    """The stored CRC of a message within a wrapper, and whether it holds.

    ``payload`` is the inflated value of the wrapper, ``key_at`` the byte in it where the key begins (or would), as in
    ``kernel.RecordColumns``, ``value_end`` the byte behind the value.
    """
    at = key_at - 4 - (layout.V1_KEY_AT if magic == 1 else layout.V0_KEY_AT)
    stored = int.from_bytes(payload[at + layout.LEGACY_CRC_AT : at + layout.MAGIC_AT], "big")
    return stored, stored == zlib.crc32(payload[at + layout.MAGIC_AT : value_end])


def java_text(data: bytes | memoryview) -> str:
    """UTF-8 as ``new String(bytes, UTF_8)`` decodes it: what is not UTF-8 becomes U+FFFD, as often as in Java."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", bytes(data)).decode("utf-8", "replace")


def _timestamp(batch: RecordBatch, timestamp: int | None) -> str:
    # A record is told with the type of its batch, even where an inner message names another.
    return f"{batch.timestamp_type or NO_TIMESTAMP_TYPE}: {-1 if timestamp is None else timestamp}"


def legacy_crc(batch: RecordBatch, inner_crc: tuple[int, bool] | None) -> str:
    """What a v0 or v1 message's line says of its CRC."""
    if batch.compression == "none":
        return f" isValid: {_boolean(batch.crc_valid)} crc: {batch.crc}"
    return "" if inner_crc is None else f" isValid: {_boolean(inner_crc[1])} crc: {inner_crc[0]}"


def control_text(control: ControlRecord) -> str:
    """What a control record's line ends with; nothing where Kafka would throw."""
    if control.type == "MALFORMED":
        return ""
    if control.type in ("ABORT", "COMMIT"):
        return f" endTxnMarker: {control.type} coordinatorEpoch: {control.fields['coordinator_epoch']}"
    label = _KRAFT_LABELS.get(control.type)
    if label is None:
        return f" controlType: UNKNOWN({control.type_id})"
    return f" {label} {jackson(_camel_cased(control.fields))}"


def _camel_cased(node: object) -> object:
    if isinstance(node, dict):
        return {re.sub("_(.)", lambda part: part[1].upper(), name): _camel_cased(value) for name, value in node.items()}
    return [_camel_cased(item) for item in node] if isinstance(node, list) else node


def _boolean(value: bool | None) -> str:
    return "unchecked" if value is None else str(value).lower()
