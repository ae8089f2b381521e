"""Read v0 and v1 messages without offset and size, each as a record set with one batch."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kseg.extras.wire.unframed import ROOM, MessageLayout, walk
from kseg.extras.wire.wide_crc import COLUMNS
from kseg.findings import Finding, Report
from kseg.format.compress.codecs import codec_name
from kseg.format.record.bare_message import OVERHEAD, BareMessage, computed_crc, is_proved, read_message
from kseg.format.record.layout import CODEC_MASK, LOG_OVERHEAD
from kseg.format.segment.framed_files import BytesSource, Framing, ReadSettings, RecordSet, SetReport, WirePart
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.source import Source
from kseg.schema import BATCH_COLUMNS, Row

# The magic, and the attributes that are defined in it.
_CANDIDATE = re.compile(rb"(?=.{4}(?:\0[\0-\x07]|\x01[\0-\x0f]))", re.DOTALL)
_SINGLE_LAYOUT = MessageLayout(OVERHEAD, read_message, is_proved, _CANDIDATE)
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


def _messages(source: Source, report: Report, reading: ReadSettings) -> Iterator[WirePart]:
    buffer = InputBuffer(source, ROOM, report)
    for found in walk(buffer, _SINGLE_LAYOUT, report):
        yield _as_set(source.name, buffer, found, report, reading.verify_crc)


def _as_set(name: str, buffer: InputBuffer, found: BareMessage, report: Report, verify_crc: bool) -> BareSet:
    position, size = buffer.position, found.end - found.at
    computed = computed_crc(buffer.data, found)
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
BARE = Framing(_messages, COLUMNS, BATCH_COLUMNS, "kseg.extras.wire.frame_fields:message_parts")
