"""Reading a tutorial's messages one behind the other, and on behind damage. The layout is ``format.wide_message``'s.

Nothing marks where a message begins: behind a length that can't be one, the next is where a CRC proves it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kseg.codecs.compression import CODECS, SIGNATURES, codec_name
from kseg.codecs.libraries import CodecError, DecompressionLimit
from kseg.files.storage import Source
from kseg.findings import Finding, Report
from kseg.format import wide_message
from kseg.format.log_format import CODEC_MASK
from kseg.format.wide_message import KNOWN_MAGICS, OVERHEAD, Fault, Wanted, WideMessage, computed_crc, is_proved
from kseg.frames.parts import Framing, Reading
from kseg.log.deep_iteration import DECOMPRESSION_LIMIT
from kseg.log.rows import BATCH_COLUMNS, RECORD_COLUMNS, Row
from kseg.log.tape import MAX_UNKNOWN_STREAM, Tape

_ROOM = 1024 * 1024
#: The next message behind a broken one is looked for in so many bytes at a time, with so many bytes of CRCs at most.
SEARCH_REACH = 1024 * 1024
_SEARCH_EFFORT = 16 * 1024 * 1024
_OVERLAP = 64 * 1024
# They would be empty messages whose CRC holds: so many in a row are preallocated, or never written.
_ZEROS = bytes(512)


#: Of a message: those of a record, and those of an entry that it has, being both.
COLUMNS = (
    *RECORD_COLUMNS,
    *(column for column in BATCH_COLUMNS if column.name in ("size", "magic", "compression", "crc", "crc_valid")),
)


def messages(source: Source, report: Report, reading: Reading) -> Iterator[Row]:
    """A row of COLUMNS for every message in order, also those whose CRC is wrong, as long as their lengths lead on.

    ``compression`` is what a message claims; its value is inflated where that is true.
    """
    tape = Tape(source, _ROOM, report)
    while tape.fill(OVERHEAD) or tape.available:
        if tape.fill(len(_ZEROS)) and tape.data.startswith(_ZEROS, tape.start):
            _pass_over_zeros(tape, report)
            continue
        found = _next(tape)
        if isinstance(found, WideMessage):
            yield _row(source.name, tape, found, report, reading.verify_crc)
            tape.start = found.end
        else:
            _pass_over(tape, found, report)


def _next(tape: Tape) -> WideMessage | Wanted | Fault:
    """What stands at the tape's start, with as much at hand as that takes; Wanted is what the file doesn't have."""
    while True:
        found = wide_message.read_message(tape.data, tape.start, tape.end)
        if not isinstance(found, Wanted) or tape.lacks(found.bytes) or not tape.fill(found.bytes):
            return found


def _pass_over(tape: Tape, broken: Wanted | Fault, report: Report) -> None:
    """Report what can't be read, and go on where the next message is proved, or nowhere."""
    began = tape.position
    found = _seek(tape)
    lost = tape.position - began
    place, facts = (began, began + lost), {"bytes": lost}
    if isinstance(broken, Fault):
        report(Finding("invalid-size", *place, facts={"size": broken.size, "why": broken.why, **facts}))
    elif found:
        report(Finding("lost-bytes", *place, facts={**facts, "why": "a message whose CRC holds is found behind them"}))
    elif not tape.failed:
        why = f"{lost} bytes are left of the {broken.bytes} that it needs at least"
        report(Finding("truncated-tail", *place, facts={**facts, "why": why}))


def _pass_over_zeros(tape: Tape, report: Report) -> None:
    began = tape.position
    # As many are kept as a message's header has, which begins with zeros itself.
    while tape.fill(OVERHEAD + 1) and tape.position - began < MAX_UNKNOWN_STREAM:
        rest = len(bytes(tape.view[tape.start : tape.end]).lstrip(b"\0"))
        tape.start = tape.end - rest - OVERHEAD
        if rest:
            _seek(tape)
            facts = {"bytes": tape.position - began, "why": "zeros, and what follows them up to the next message"}
            report(Finding("lost-bytes", began, tape.position, facts=facts))
            return
    tape.use_up()
    end = tape.position
    report(Finding("zero-tail", began, end, facts={"bytes": end - began, "note": tape.of_zeros(began, end)}))


def _seek(tape: Tape) -> bool:
    """Have the tape begin where the next message is proved, or at the file's end; whether one is."""
    while True:
        tape.fill(SEARCH_REACH)
        behind = _next_proved(tape)
        if behind is not None:
            tape.start = behind
            return True
        if tape.available < SEARCH_REACH:
            tape.use_up()
            return False
        tape.start = tape.end - _OVERLAP


def _next_proved(tape: Tape) -> int | None:
    """Where in the buffer the next message that is proved begins."""
    data, end, effort = tape.data, tape.end, _SEARCH_EFFORT
    at = tape.start
    while effort > 0:
        # The upper half of a CRC is four zeros.
        at = data.find(b"\0\0\0\0", at + 1, end)
        if at < 0:
            return None
        effort -= OVERHEAD
        if end - at >= OVERHEAD and data[at + 8] in KNOWN_MAGICS:
            found = wide_message.read_message(data, at, end)
            effort -= found.end - at if isinstance(found, WideMessage) else 0
            if is_proved(data, at, end):
                return at
    return None


def _row(file: str, tape: Tape, found: WideMessage, report: Report, verify_crc: bool) -> Row:
    position, end = tape.position, tape.shift + found.end
    codec = found.attributes & CODEC_MASK
    computed = computed_crc(tape.data, found) if verify_crc else None
    if computed is not None and computed != found.crc:
        facts = {"stored": found.crc % (1 << 64), "computed": computed, "note": ", of the value alone"}
        report(Finding("crc-mismatch", position, end, facts=facts))
    if found.magic not in KNOWN_MAGICS:
        facts = {"magic": found.magic, "why": "there are 0 and 1"}
        report(Finding("unknown-magic", position, end, facts=facts))
    reserved = found.attributes & 0xFF & ~CODEC_MASK
    if reserved:
        report(Finding("reserved-attribute-bits", position, end, facts={"bits": reserved, "where": ""}))
    key = bytes(tape.view[found.key_at : found.key_at + found.key_size]) if found.key_size >= 0 else None
    value = bytes(tape.view[found.value_at : found.end]) if found.value_size >= 0 else None
    if value is not None and codec and computed in (None, found.crc):
        value = _inflated(value, codec, (position, end), report)
    known = {
        "kind": "record", "file": file, "position": position, "key": key, "value": value, "headers": [],
        "size": end - position, "magic": found.magic, "compression": codec_name(codec), "crc": found.crc,
        "crc_valid": None if computed is None else computed == found.crc,
    }  # fmt: skip
    return {column.name: known.get(column.name) for column in COLUMNS}


def _inflated(value: bytes, codec: int, place: tuple[int, int], report: Report) -> bytes:
    """The value as its codec leaves it, or as it is stored where it isn't compressed at all."""
    name = codec_name(codec)
    known = CODECS.get(codec)
    if known is None:
        report(Finding("unknown-codec", *place, facts={"codec": codec, "why": "no codec has that number"}))
        return value
    try:
        return bytes(known.decompress(value, DECOMPRESSION_LIMIT, 2, None, None))
    except DecompressionLimit:
        report(Finding("decompression-limit", *place, facts={"codec": name, "limit": DECOMPRESSION_LIMIT}))
    except CodecError as error:
        if value.startswith(SIGNATURES[codec]):
            facts = {"codec": name, "why": str(error).removeprefix(f"{name}: ")}
            report(Finding("undecodable-payload", *place, facts=facts))
        else:
            report(Finding("claimed-codec", *place, facts={"codec": name}))
    return value


WIDE_CRC = Framing(messages, COLUMNS, BATCH_COLUMNS)
