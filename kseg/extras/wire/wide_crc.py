"""Read the messages of ``record.wide_message``, also after damage."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kseg.extras.wire.unframed import ROOM, MessageLayout, walk
from kseg.findings import Finding, Report
from kseg.format.compress.codecs import CODECS, CodecError, DecompressionLimit, codec_name
from kseg.format.record.layout import CODEC_MASK
from kseg.format.record.wide_message import KNOWN_MAGICS, OVERHEAD, WideMessage, computed_crc, is_proved, read_message
from kseg.format.segment.deep_reader import DECOMPRESSION_LIMIT
from kseg.format.segment.framed_files import Framing, ReadSettings
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.storage.source import Source
from kseg.schema import BATCH_COLUMNS, RECORD_COLUMNS, Row

# The upper four bytes of a CRC are 0.
_WIDE_LAYOUT = MessageLayout(OVERHEAD, read_message, is_proved, re.compile(rb"(?=\0{4}.{4}[\0\x01])", re.DOTALL))

#: The columns of a message: those of a record, and the columns of a batch that apply.
COLUMNS = (
    *RECORD_COLUMNS,
    *(column for column in BATCH_COLUMNS if column.name in ("size", "magic", "compression", "crc", "crc_valid")),
)


def messages(source: Source, report: Report, reading: ReadSettings) -> Iterator[Row]:
    """Yield a row of COLUMNS for each message in order, also for those with a wrong CRC.

    ``compression`` is the codec in the attributes. The value is decompressed if it is really compressed.
    """
    buffer = InputBuffer(source, ROOM, report)
    for found in walk(buffer, _WIDE_LAYOUT, report):
        yield _row(source.name, buffer, found, report, reading.verify_crc)


def _row(file: str, buffer: InputBuffer, found: WideMessage, report: Report, verify_crc: bool) -> Row:
    position, end = buffer.position, buffer.shift + found.end
    codec = found.attributes & CODEC_MASK
    computed = computed_crc(buffer.data, found) if verify_crc else None
    if computed is not None and computed != found.crc:
        facts = {"stored": found.crc % (1 << 64), "computed": computed, "note": " (of the value only)"}
        report(Finding("crc-mismatch", position, end, facts=facts))
    if found.magic not in KNOWN_MAGICS:
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
    return {column.name: known.get(column.name) for column in COLUMNS}


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


WIDE_CRC = Framing(messages, COLUMNS, BATCH_COLUMNS, "kseg.extras.wire.frame_fields:wide_parts")
