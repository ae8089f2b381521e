"""Reading v0 and v1 messages without offset and size, each as the only entry of a record set."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kseg.codecs.compression import codec_name
from kseg.files.storage import Source
from kseg.findings import Finding, Report
from kseg.format.bare_message import OVERHEAD, BareMessage, computed_crc, is_proved, read_message
from kseg.format.log_format import CODEC_MASK, LOG_OVERHEAD
from kseg.frames.parts import BytesAsFile, Framing, Part, Reading, RecordSet, SetReport
from kseg.frames.unframed import ROOM, Layout, walk
from kseg.frames.wide_crc import COLUMNS
from kseg.log.rows import BATCH_COLUMNS, Row
from kseg.log.tape import Tape

# The magic, and attributes that have a meaning in it.
_CANDIDATE = re.compile(rb"(?=.{4}(?:\0[\0-\x07]|\x01[\0-\x0f]))", re.DOTALL)
_LAYOUT = Layout(OVERHEAD, read_message, is_proved, _CANDIDATE)
_HEADER = struct.Struct(">qiI")  # offset, size, CRC
# What a row of a segment says of these is the leader's, and the message has none.
_OFFSETS = ("offset", "base_offset", "last_offset")


@dataclass(frozen=True, slots=True)
class BareSet(RecordSet):
    """A record set of one message, before which an offset and a size were put that the file does not have."""

    def judge(self, report: Report) -> SetReport:
        """Return a report whose findings have the places that the file has."""
        start = self.source.start

        def in_file(finding: Finding) -> None:
            position, end = (at and max(start, at - LOG_OVERHEAD) for at in (finding.position, finding.end))
            report(replace(finding, position=position, end=end, offset=None, last_offset=None))

        return SetReport(in_file, self.sent)

    def placed(self, row: Row) -> Row:
        """Return the row with what the file has."""
        return {**row, **self.place, **{name: None for name in _OFFSETS if name in row}}


def _messages(source: Source, report: Report, reading: Reading) -> Iterator[Part]:
    tape = Tape(source, ROOM, report)
    for found in walk(tape, _LAYOUT, report):
        yield _as_set(source.name, tape, found, report, reading.verify_crc)


def _as_set(name: str, tape: Tape, found: BareMessage, report: Report, verify_crc: bool) -> BareSet:
    position, size = tape.position, found.end - found.at
    computed = computed_crc(tape.data, found)
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
    # With the CRC that it should have: what is in a message with a wrong one is shown, too.
    data = _HEADER.pack(0, size, computed) + bytes(tape.view[found.at + 4 : found.end])
    file = BytesAsFile(memoryview(data), position)
    source = Source(f"{name} (message)", file, position + len(data), position)
    return BareSet(source, place, sent=True, added=LOG_OVERHEAD)


#: v0 and v1 messages without offset and size.
BARE = Framing(_messages, COLUMNS, BATCH_COLUMNS)
