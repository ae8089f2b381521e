"""Read messages that follow each other without boundaries, also after damage.

After a wrong length, the next message is where a valid CRC proves one. A ``MessageLayout`` describes one kind of message:
those of ``record.wide_message``, and v0 and v1 messages without offset and size, each of which is a record set of one batch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kseg.findings import Finding, Report
from kseg.format.compress.codecs import CODECS, CodecError, DecompressionLimit, codec_name
from kseg.format.record import bare_message, wide_message
from kseg.format.record.layout import CODEC_MASK, LOG_OVERHEAD
from kseg.format.record.wide_message import Fault, NeedMoreBytes
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT
from kseg.format.segment.framed_files import BytesSource, Framing, ReadSettings, RecordSet, SetReport, WirePart
from kseg.format.segment.input_buffer import MAX_UNKNOWN_STREAM, InputBuffer
from kseg.format.storage.source import Source
from kseg.schema import BATCH_COLUMNS, RECORD_COLUMNS, Row
from kseg.text import count_of

#: The size of the read buffer in bytes.
ROOM = 1024 * 1024
#: The bytes in which the next message is searched at a time, and the most bytes of CRCs to compute.
SEARCH_REACH = 1024 * 1024
_SEARCH_EFFORT = 16 * 1024 * 1024
_OVERLAP = 64 * 1024
# Zeros would be empty messages with a valid CRC. This many zeros are preallocated or were never written.
_ZEROS = bytes(512)


class _Bounds(Protocol):
    @property
    def end(self) -> int: ...


M = TypeVar("M", bound=_Bounds)


@dataclass(frozen=True, slots=True)
class MessageLayout(Generic[M]):
    """A layout of messages: the smallest size in bytes, and functions that read a message and that prove one by its CRC.

    ``candidate`` matches, without consuming bytes, wherever a message may begin.
    """

    overhead: int
    read: Callable[[bytes | bytearray, int, int], M | NeedMoreBytes | Fault]
    is_proved: Callable[[bytes | bytearray, int, int], bool]
    candidate: re.Pattern[bytes]


def walk(buffer: InputBuffer, layout: MessageLayout[M], report: Report) -> Iterator[M]:
    """Yield each message in order, also those with a wrong CRC; the buffer then begins with the message.

    Reports the bytes that are not messages.
    """
    while buffer.fill(layout.overhead) or buffer.available:
        if buffer.fill(len(_ZEROS)) and buffer.data.startswith(_ZEROS, buffer.start):
            _skip_zeros(buffer, layout, report)
            continue
        found = _next(buffer, layout)
        if isinstance(found, (NeedMoreBytes, Fault)):
            _skip_bytes(buffer, layout, found, report)
        else:
            yield found
            buffer.start = found.end


def _next(buffer: InputBuffer, layout: MessageLayout[M]) -> M | NeedMoreBytes | Fault:
    """Return the message at the start of the buffer, after reading as many bytes as it needs.

    Returns NeedMoreBytes if the file ends within it.
    """
    while True:
        found = layout.read(buffer.data, buffer.start, buffer.end)
        if not isinstance(found, NeedMoreBytes) or buffer.ends_before(found.bytes) or not buffer.fill(found.bytes):
            return found


def _skip_bytes(buffer: InputBuffer, layout: MessageLayout[M], fault: NeedMoreBytes | Fault, report: Report) -> None:
    """Report bytes that cannot be read, and continue at the next proved message, if there is one."""
    began = buffer.position
    found = _seek(buffer, layout)
    lost = buffer.position - began
    place, facts = (began, began + lost), {"bytes": lost}
    if isinstance(fault, Fault):
        report(Finding("invalid-size", *place, facts={"size": fault.size, "why": fault.why, **facts}))
    elif found:
        report(Finding("lost-bytes", *place, facts={**facts, "why": "a message with a correct CRC follows them"}))
    elif not buffer.failed:
        why = f"expected at least {count_of(fault.bytes, 'byte')}, found {lost:,}"
        report(Finding("truncated-tail", *place, facts={**facts, "why": why}))


def _skip_zeros(buffer: InputBuffer, layout: MessageLayout[M], report: Report) -> None:
    began = buffer.position
    # As many zeros are kept as a header begins with.
    while buffer.fill(layout.overhead + 1) and buffer.position - began < MAX_UNKNOWN_STREAM:
        rest = len(bytes(buffer.view[buffer.start : buffer.end]).lstrip(b"\0"))
        buffer.start = buffer.end - rest - layout.overhead
        if rest:
            _seek(buffer, layout)
            facts = {"bytes": buffer.position - began, "why": "zeros, and bytes after them up to the next message"}
            report(Finding("lost-bytes", began, buffer.position, facts=facts))
            return
    buffer.discard_rest()
    end = buffer.position
    report(Finding("zero-tail", began, end, facts={"bytes": end - began, "note": buffer.describe_zeros(began, end)}))


def _seek(buffer: InputBuffer, layout: MessageLayout[M]) -> bool:
    """Move the start of the buffer to the next proved message and return True, or to the file's end and return False."""
    while True:
        buffer.fill(SEARCH_REACH)
        next_start = _next_proved(buffer, layout)
        if next_start is not None:
            buffer.start = next_start
            return True
        if buffer.available < SEARCH_REACH:
            buffer.discard_rest()
            return False
        buffer.start = buffer.end - _OVERLAP


def _next_proved(buffer: InputBuffer, layout: MessageLayout[M]) -> int | None:
    """Return the position in the buffer where the next proved message begins."""
    data, end, effort = buffer.data, buffer.end, _SEARCH_EFFORT
    for match in layout.candidate.finditer(data, buffer.start + 1, end):
        at = match.start()
        effort -= layout.overhead
        found = layout.read(data, at, end)
        effort -= 0 if isinstance(found, (NeedMoreBytes, Fault)) else found.end - at
        if layout.is_proved(data, at, end):
            return at
        if effort <= 0:
            break
    return None


# The upper four bytes of a CRC are 0.
_WIDE_LAYOUT = MessageLayout(
    wide_message.OVERHEAD,
    wide_message.read_message,
    wide_message.is_proved,
    re.compile(rb"(?=\0{4}.{4}[\0\x01])", re.DOTALL),
)

#: The columns of a message: those of a record, and the columns of a batch that apply.
WIDE_COLUMNS = (
    *RECORD_COLUMNS,
    *(column for column in BATCH_COLUMNS if column.name in ("size", "magic", "compression", "crc", "crc_valid")),
)


def _wide_messages(source: Source, report: Report, reading: ReadSettings) -> Iterator[Row]:
    """Yield a row of WIDE_COLUMNS for each message in order, also for those with a wrong CRC.

    ``compression`` is the codec in the attributes. The value is decompressed if it is really compressed.
    """
    buffer = InputBuffer(source, ROOM, report)
    for found in walk(buffer, _WIDE_LAYOUT, report):
        yield _row(source.name, buffer, found, report, reading.verify_crc)


def _row(file: str, buffer: InputBuffer, found: wide_message.WideMessage, report: Report, verify_crc: bool) -> Row:
    position, end = buffer.position, buffer.shift + found.end
    codec = found.attributes & CODEC_MASK
    computed = wide_message.computed_crc(buffer.data, found) if verify_crc else None
    if computed is not None and computed != found.crc:
        facts = {"stored": found.crc % (1 << 64), "computed": computed, "note": " (of the value only)"}
        report(Finding("crc-mismatch", position, end, facts=facts))
    if found.magic not in wide_message.KNOWN_MAGICS:
        facts = {"magic": found.magic, "why": "expected 0 or 1"}
        report(Finding("unknown-magic", position, end, facts=facts))
    reserved = found.attributes & 0xFF & ~CODEC_MASK
    if reserved:
        report(Finding("reserved-attribute-bits", position, end, facts={"bits": reserved, "where": ""}))
    key = bytes(buffer.view[found.key_at : found.key_at + found.key_size]) if found.key_size >= 0 else None
    value = bytes(buffer.view[found.value_at : found.end]) if found.value_size >= 0 else None
    if value is not None and codec and computed in (None, found.crc):
        value = _inflated(value, codec, (position, end), report)
    known = {
        "kind": "record", "file": file, "position": position, "key": key, "value": value, "headers": [],
        "size": end - position, "magic": found.magic, "compression": codec_name(codec), "crc": found.crc,
        "crc_valid": None if computed is None else computed == found.crc,
    }  # fmt: skip
    return {column.name: known.get(column.name) for column in WIDE_COLUMNS}


def _inflated(value: bytes, codec: int, place: tuple[int, int], report: Report) -> bytes:
    """Return the decompressed value, or the stored value if it is not compressed."""
    name = codec_name(codec)
    known = CODECS.get(codec)
    if known is None:
        report(Finding("unknown-codec", *place, facts={"codec": codec, "why": "the codecs are 0 to 4"}))
        return value
    try:
        return bytes(known.decompress(value, DECOMPRESSION_LIMIT, 2, None, None))
    except DecompressionLimit as error:
        facts = {"codec": name, "limit": DECOMPRESSION_LIMIT, "why": str(error)}
        report(Finding("decompression-limit", *place, facts=facts))
    except CodecError as error:
        if value.startswith(known.signature):
            facts = {"codec": name, "why": str(error).removeprefix(f"{name}: ")}
            report(Finding("undecodable-payload", *place, facts=facts))
        else:
            report(Finding("claimed-codec", *place, facts={"codec": name, "what": "value is", "note": ""}))
    return value


WIDE_CRC = Framing(_wide_messages, WIDE_COLUMNS, BATCH_COLUMNS, "kseg.extras.wire.frame_fields:wide_parts")


# The magic, and the attributes that are defined in it.
_CANDIDATE = re.compile(rb"(?=.{4}(?:\0[\0-\x07]|\x01[\0-\x0f]))", re.DOTALL)
_SINGLE_LAYOUT = MessageLayout(bare_message.OVERHEAD, bare_message.read_message, bare_message.is_proved, _CANDIDATE)
_HEADER = struct.Struct(">qiI")  # offset, size, CRC
# Columns of a segment's row that a leader assigns: a single message lacks them.
_OFFSETS = ("offset", "base_offset", "last_offset")


@dataclass(frozen=True, slots=True)
class BareSet(RecordSet):
    """A record set of one message, with an added offset and size that are not in the file.

    ``counted`` is whether the message has a wrong CRC, so that its bytes are already counted as lost.
    """

    counted: bool = False

    def report_for(self, report: Report) -> SetReport:
        """Return a report that changes positions to those of the file."""
        start = self.source.start

        def in_file(finding: Finding) -> None:
            position, end = (at and max(start, at - LOG_OVERHEAD) for at in (finding.position, finding.end))
            report(finding._replace(position=position, end=end, offset=None, last_offset=None))

        return SetReport(in_file, self.sent)

    def lost_bytes(self, count: int) -> int:
        """Return how many of ``count`` lost bytes are in the file and not counted yet."""
        return 0 if self.counted else RecordSet.lost_bytes(self, count)

    def placed_row(self, row: Row) -> Row:
        """Return the row with the values of the file."""
        return {**row, **self.place, **{name: None for name in _OFFSETS if name in row}}


def _bare_messages(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    buffer = InputBuffer(source, ROOM, report)
    for found in walk(buffer, _SINGLE_LAYOUT, report):
        yield _as_set(source.name, buffer, found, report, reading.verify_crc)


def _as_set(
    name: str, buffer: InputBuffer, found: bare_message.BareMessage, report: Report, verify_crc: bool
) -> BareSet:
    position, size = buffer.position, found.end - found.at
    computed = bare_message.computed_crc(buffer.data, found)
    if verify_crc and computed != found.crc:
        facts = {"stored": found.crc, "computed": computed, "note": ""}
        report(Finding("crc-mismatch", position, position + size, facts=facts))
    place = {
        "position": position,
        "size": size,
        "magic": found.magic,
        "compression": codec_name(found.attributes & CODEC_MASK),
        "crc": found.crc,
        "crc_valid": computed == found.crc if verify_crc else None,
    }
    # With the correct CRC, so that the content of a message with a wrong CRC is shown, too.
    data = _HEADER.pack(0, size, computed) + bytes(buffer.view[found.at + 4 : found.end])
    file = BytesSource(memoryview(data), position)
    source = Source(f"{name} (message)", file, position + len(data), position)
    return BareSet(source, place, sent=True, added=LOG_OVERHEAD, counted=place["crc_valid"] is False)


#: v0 and v1 messages without offset and size.
BARE = Framing(_bare_messages, WIDE_COLUMNS, BATCH_COLUMNS, "kseg.extras.wire.frame_fields:message_parts")
