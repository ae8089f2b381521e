"""The results for a damaged place: what was found, how many bytes are lost, and where reading continues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg.findings import Finding
from kseg.format.record import columns, framing
from kseg.format.record.layout import (
    CODEC_MASK,
    CRC_AT,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.format.segment import header_scan
from kseg.format.segment.batch_chain import BatchChain
from kseg.format.segment.batch_evidence import (
    is_wrapper,
)
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_search import ResyncScan
from kseg.text import count_of

# A batch can end with fewer zeros by chance.
TORN_ZEROS = 8
# Runs of zeros from this length on are reported: a disk sector or a page was never written.
REPORTED_ZEROS = 512


@dataclass(frozen=True, slots=True)
class ResyncResult:
    """The result for one damaged place.

    ``resume`` is the file position to continue at. If the batch can be read, ``entry_size`` is its whole size in bytes,
    and ``magic`` and ``crc_state`` say how to read it. ``lost`` is the number of unusable bytes. ``torn`` is set if the
    file ends inside a batch. ``recognised`` is set if the bytes begin like a batch, are all zeros, or are followed by a
    batch. ``gave_up`` is set if a stream was not searched to its end. ``if_last`` is reported instead of ``findings``
    if only zeros follow.
    """

    findings: tuple[Finding, ...]
    resume: int
    lost: int = 0
    entry_size: int | None = None
    magic: int = 0
    crc_state: int = columns.CRC_BAD
    torn: bool = False
    recognised: bool = False
    gave_up: bool = False
    if_last: Finding | None = None


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """The header fields of a damaged batch.

    ``size`` is the size field, None if the file ends before it. ``likely`` is whether a broker can have written the
    rest of the header; ``offset`` and ``last_offset`` are then its offsets. ``legal`` is whether a batch of that
    version can have that size, ``most`` the largest size.
    """

    position: int
    size: int | None
    magic: int
    likely: bool
    legal: bool
    most: int
    offset: int | None
    last_offset: int | None


def with_proved_size(buffer: InputBuffer, damaged: DamagedBatch, size: int) -> ResyncResult:
    """Return the result for a batch whose CRC proves that it has ``size`` bytes."""
    facts = {
        "size": damaged.size,
        "proved_size": size - LOG_OVERHEAD,
        "why": f"the CRC proves {size - LOG_OVERHEAD}, and the batch is read with that size",
    }
    return readable("invalid-size", buffer, size, damaged.magic, facts)


def readable(rule: str, buffer: InputBuffer, size: int, magic: int, facts: dict[str, Any]) -> ResyncResult:
    """Return the result for a batch that can be read: ``size`` bytes of version ``magic``."""
    finding = _description(rule, buffer, size, magic, facts)
    end = buffer.position + size
    return ResyncResult((finding,), end, entry_size=size, magic=magic, crc_state=columns.CRC_GOOD, recognised=True)


def _description(rule: str, buffer: InputBuffer, size: int, magic: int, facts: dict[str, Any]) -> Finding:
    """Return a finding about the batch at the buffer's start, with the offsets of its header."""
    row = columns.BatchColumns(1)
    framing.read_header(buffer.data, buffer.start, size - LOG_OVERHEAD, magic, row, 0)
    wrapper = magic < 2 and row.attributes[0] & CODEC_MASK
    first = None if wrapper else row.base_offset[0]
    return Finding(rule, buffer.position, buffer.position + size, first, row.last_offset[0], facts)


def bad_content(buffer: InputBuffer, damaged: DamagedBatch, size: int) -> ResyncResult:
    """Return the result for a batch with valid framing (another batch follows directly) and damaged content."""
    end = buffer.position + size
    if damaged.magic > 2:
        facts = {"magic": signed_byte(damaged.magic), "why": "the CRC is wrong for every known version"}
        finding = Finding("unknown-magic", buffer.position, end, damaged.offset, damaged.last_offset, facts)
        return ResyncResult((finding,), end, lost=size, recognised=True)
    if size - LOG_OVERHEAD < framing.smallest_size(damaged.magic):
        # The size is too small for its version, but a batch begins after it.
        facts = {
            "size": damaged.size,
            "why": f"the minimum of a v{damaged.magic} batch is {framing.smallest_size(damaged.magic)}",
        }
        finding = Finding("invalid-size", buffer.position, end, damaged.offset, damaged.last_offset, facts)
        return ResyncResult((finding,), end, lost=size, recognised=True)
    zeros = _zero_tail_start(buffer, size)
    note = ""
    if zeros >= TORN_ZEROS:
        end = buffer.position + size
        note = f"; the last {count_of(zeros, 'byte')} are zeros{buffer.describe_zeros(end - zeros, end)}"
    stored = framing.read_uint32(buffer.data, buffer.start + (CRC_AT if damaged.magic == 2 else LEGACY_CRC_AT))
    computed = framing.batch_crc(buffer.view, buffer.start, buffer.start + size, damaged.magic)
    mismatch = _description(
        "crc-mismatch", buffer, size, damaged.magic, {"stored": stored, "computed": computed, "note": note}
    )
    torn = None
    after = buffer.available - size
    if (
        note
        and after
        and header_scan.zero_run_end(buffer.data, buffer.start + size, buffer.end) >= min(header_scan.ZERO_RUN, after)
    ):
        why = f"expected {count_of(size, 'byte')}, found {size - zeros:,} and zeros after them"
        torn = _description("truncated-tail", buffer, size, damaged.magic, {"bytes": size - zeros, "why": why})
    return ResyncResult(
        (mismatch,), end, lost=size, entry_size=size, magic=damaged.magic, recognised=True, if_last=torn
    )


def _zero_tail_start(buffer: InputBuffer, size: int) -> int:
    """Return how many zeros the batch at the buffer's start ends with."""
    entry = buffer.view[buffer.start : buffer.start + size]
    return size - len(bytes(entry).rstrip(b"\0"))


def lost_bytes(
    buffer: InputBuffer, damaged: DamagedBatch, search: ResyncScan, best: BatchChain, expected: int | None
) -> ResyncResult:
    """Return the result for bytes that are lost up to the next valid batch."""
    wrapper = is_wrapper(buffer.data, best.position - buffer.shift)
    last = best.offset - 1 if not wrapper and expected is not None and best.offset > expected else None
    lost = best.position - damaged.position
    found = Finding(
        "lost-bytes",
        position=damaged.position,
        end=best.position,
        offset=expected if last is not None else None,
        last_offset=last,
        facts={"bytes": lost, "why": _reason(buffer, damaged, search, best.position)},
    )
    findings = (*_size_findings(damaged, best.position, None), found)
    return ResyncResult(findings, best.position, lost=lost, recognised=True)


def _size_findings(damaged: DamagedBatch, end: int, rest: int | None) -> tuple[Finding, ...]:
    """Return an ``invalid-size`` finding if the other header fields are plausible and the size is not.

    ``rest`` is the number of bytes to the end of the file, None if unknown.
    """
    if not damaged.likely or damaged.size is None:
        return ()
    if damaged.legal and (rest is None or damaged.size + LOG_OVERHEAD <= rest):
        return ()
    why = (
        f"only {count_of((rest or 0) - LOG_OVERHEAD, 'byte')} of the file are left"
        if damaged.legal
        else _illegal(damaged)
    )
    facts = {"size": damaged.size, "why": why}
    return (Finding("invalid-size", damaged.position, end, damaged.offset, damaged.last_offset, facts),)


def _illegal(damaged: DamagedBatch) -> str:
    """Return a phrase with the sizes that a batch of this version can have."""
    return f"expected {framing.smallest_size(min(damaged.magic, 2))} to {damaged.most} for a v{min(damaged.magic, 2)} batch"


def _reason(buffer: InputBuffer, damaged: DamagedBatch, search: ResyncScan, end: int) -> str:
    begin, stop = search.zeros
    if begin <= damaged.position and stop >= end:
        return f"zeros{buffer.describe_zeros(damaged.position, end)}"
    zeros = ""
    if stop - begin >= REPORTED_ZEROS:
        zeros = f"; {stop - begin:,} of them, from byte {begin}, are zeros{buffer.describe_zeros(begin, stop)}"
    if not damaged.likely:
        at_size = "" if damaged.legal or damaged.size is None else f" (its size field would be {damaged.size})"
        return f"no batch header starts here{at_size}{zeros}"
    if damaged.legal:
        return "a batch header starts here, but its CRC is wrong and no valid batch follows" + zeros
    return f"a batch header starts here, but its size field is {damaged.size}{zeros}"


def damaged_tail(buffer: InputBuffer, damaged: DamagedBatch, search: ResyncScan) -> ResyncResult:
    """Return the result for the end of a file: zeros, a torn batch or header with or without zeros after it, or
    garbage.
    """
    began, end = damaged.position, buffer.shift + buffer.end
    size = end - began
    zeros = search.last_zeros[0] if search.last_zeros[1] == end else end
    # A shorter run of zeros is the torn start of an offset and a size.
    if zeros <= began and size >= LOG_OVERHEAD:
        return ResyncResult((_zero_tail(buffer, began, end),), end, recognised=True)
    if size < LOG_OVERHEAD:
        zeros = end
    written = zeros - began
    if damaged.size is None or (zeros < end and written <= RECORD_BATCH_OVERHEAD):
        why = f"expected a header of {LOG_OVERHEAD + framing.smallest_size(2)} bytes, found {written}"
        facts: dict[str, Any] = {"bytes": written, "why": why}
        if size >= LOG_OVERHEAD:
            facts["size"] = framing.read_int32(buffer.data, began - buffer.shift + SIZE_AT)
        torn = Finding("truncated-tail", began, zeros, facts=facts)
        return _torn(buffer, (torn,), zeros, written, recognised=zeros < end)
    declared = damaged.size + LOG_OVERHEAD
    if damaged.likely and damaged.legal and declared > size:
        why = f"expected {count_of(declared, 'byte')}, found {written:,}"
        if zeros < end:
            why += f" and zeros after them{buffer.describe_zeros(zeros, end)}"
        facts = {"bytes": size, "why": why}
        torn = Finding("truncated-tail", began, end, damaged.offset, damaged.last_offset, facts)
        return ResyncResult((torn,), end, lost=size, torn=True, recognised=True)
    why = _reason(buffer, damaged, search, end)
    lost = Finding("lost-bytes", began, zeros, damaged.offset, damaged.last_offset, {"bytes": written, "why": why})
    findings = (*_size_findings(damaged, zeros, size), lost)
    return _torn(buffer, findings, zeros, written, recognised=damaged.likely)


def _torn(
    buffer: InputBuffer, findings: tuple[Finding, ...], zeros: int, lost: int, *, recognised: bool
) -> ResyncResult:
    """Return the result for a torn end. Zeros after it are a finding of their kind."""
    end = buffer.shift + buffer.end
    if zeros < end:
        findings += (_zero_tail(buffer, zeros, end),)
    return ResyncResult(findings, end, lost=lost, torn=True, recognised=recognised)


def _zero_tail(buffer: InputBuffer, begin: int, end: int) -> Finding:
    return Finding("zero-tail", begin, end, facts={"bytes": end - begin, "note": buffer.describe_zeros(begin, end)})


def signed_byte(value: int) -> int:
    """Return a byte as a signed int8."""
    return value - 256 if value >= 128 else value
