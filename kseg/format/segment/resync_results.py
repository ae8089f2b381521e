"""The results for a damaged place: its findings, how many bytes are lost, and where reading continues."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kseg.findings import Finding
from kseg.format.record import columns, framing
from kseg.format.record.crc import crc32_of, crc32c_of
from kseg.format.record.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_AT,
    SIZE_AT,
    V0_MIN_SIZE,
)
from kseg.format.segment import batch_evidence
from kseg.format.segment.batch_evidence import LOOK_AHEAD, BatchChain, is_valid_batch, is_wrapper
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_search import ResyncScan
from kseg.format.storage import file_type
from kseg.text import count_of, inclusive_range

# A batch can end with fewer zeros by chance.
TORN_ZEROS = 8
# A compressed v0 or v1 message set holds fewer messages.
LIKELY_WRAPPED = 1 << 16
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
    """Return the result for a batch whose CRC proves that it has ``size`` bytes.

    A batch with that size field was read before all of its bytes were written: that is not a finding.
    """
    if damaged.size == size - LOG_OVERHEAD:
        end = buffer.position + size
        return ResyncResult((), end, entry_size=size, magic=damaged.magic, crc_state=columns.CRC_GOOD, recognised=True)
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
    least = framing.smallest_size(damaged.magic)
    if size - LOG_OVERHEAD < least:  # also that of an unknown version
        facts: dict[str, Any] = {"size": damaged.size, "why": f"the minimum of a v{damaged.magic} batch is {least}"}
        rule = "invalid-size"  # but a batch begins after it
        if damaged.magic > 2:
            facts = {"magic": signed_byte(damaged.magic), "why": "the CRC is wrong for every known version"}
            rule = "unknown-magic"
        finding = Finding(rule, buffer.position, end, damaged.offset, damaged.last_offset, facts)
        return ResyncResult((finding,), end, lost=size, recognised=True)
    entry = buffer.view[buffer.start : buffer.start + size]
    zeros = size - len(bytes(entry).rstrip(b"\0"))
    note = ""
    if zeros >= TORN_ZEROS:
        note = f"; the last {count_of(zeros, 'byte')} are zeros{buffer.describe_zeros(end - zeros, end)}"
    stored = framing.read_uint32(buffer.data, buffer.start + (CRC_AT if damaged.magic == 2 else LEGACY_CRC_AT))
    computed = framing.batch_crc(buffer.view, buffer.start, buffer.start + size, damaged.magic)
    note += _wrong_polynomial(entry, damaged.magic, stored)
    mismatch = _description(
        "crc-mismatch", buffer, size, damaged.magic, {"stored": stored, "computed": computed, "note": note}
    )
    torn = None
    after = buffer.available - size
    if (
        note
        and after
        and batch_evidence.zero_run_end(buffer.data, buffer.start + size, buffer.end)
        >= min(batch_evidence.ZERO_RUN, after)
    ):
        why = f"expected {count_of(size, 'byte')}, found {size - zeros:,} and zeros after them"
        torn = _description("truncated-tail", buffer, size, damaged.magic, {"bytes": size - zeros, "why": why})
    return ResyncResult(
        (mismatch,), end, lost=size, entry_size=size, magic=damaged.magic, recognised=True, if_last=torn
    )


def _wrong_polynomial(entry: memoryview, magic: int, stored: int) -> str:
    """Return a note if the stored checksum is right but of the other kind: a client with a wrong implementation."""
    other = crc32_of(entry, ATTRIBUTES_AT, len(entry)) if magic == 2 else crc32c_of(entry, MAGIC_AT, len(entry))
    if stored != other:
        return ""
    used, needed = ("CRC-32", "CRC-32C") if magic == 2 else ("CRC-32C", "CRC-32")
    return f": the stored one is the {used} of the same bytes, but v{magic} needs the {needed}"


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
    if not damaged.position and (frames := file_type.kind_of_frames(bytes(buffer.view[buffer.start : buffer.end]))):
        zeros += f"; {frames}"
    if search.inner:
        zeros += f"; {count_of(search.inner, 'message')} in them can be of a compressed set, with unknown offsets"
    if not damaged.likely:
        at_size = "" if damaged.legal or damaged.size is None else f" (its size field would be {damaged.size})"
        return f"no batch header starts here{at_size}{zeros}"
    if damaged.legal:
        inside = damaged.size is not None and end < damaged.position + LOG_OVERHEAD + damaged.size
        why = "a valid batch begins before its end" if inside else "no batch begins where it would end"
        return f"a batch header starts here, but its CRC is wrong and {why}{zeros}"
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
        why = f"expected {_expected_size(buffer, damaged, written)}, found {written}"
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
    if damaged.last_offset is not None:  # the bytes can be of this batch and of others
        why = f"{why}; {_claim(damaged.offset, damaged.last_offset)}"
    lost = Finding("lost-bytes", began, zeros, facts={"bytes": written, "why": why})
    findings = (*_size_findings(damaged, zeros, size), lost)
    return _torn(buffer, findings, zeros, written, recognised=damaged.likely or search.inner > 0)


def _claim(first: int | None, last: int) -> str:
    """Return a phrase with the offsets in a header: ``first`` is None for a compressed v0 or v1 message set."""
    return f"the header claims {inclusive_range('offset', last if first is None else first, last)}"


def _expected_size(buffer: InputBuffer, damaged: DamagedBatch, written: int) -> str:
    """Return how many bytes a torn batch should have, of which ``written`` are there: its header, or all of it.

    The magic shows the version. Without it, the size field can rule out versions.
    """
    at = damaged.position - buffer.shift
    if written < LOG_OVERHEAD:
        return f"{LOG_OVERHEAD} bytes of offset and size"
    size = framing.read_int32(buffer.data, at + SIZE_AT)
    versions = [min(buffer.data[at + MAGIC_AT], 2)] if written > MAGIC_AT else [0, 1, 2]
    headers = {n: LOG_OVERHEAD + framing.smallest_size(n) for n in versions if size >= framing.smallest_size(n)}
    if written >= max(headers.values(), default=0):
        return count_of(LOG_OVERHEAD + size, "byte") if headers else f"a size of at least {framing.smallest_size(0)}"
    return f"a header of {' or '.join(f'{size} bytes (v{n})' for n, size in headers.items())}"


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


def with_proved_offsets(buffer: InputBuffer, result: ResyncResult, expected: int | None) -> ResyncResult:
    """Return the result with the offsets of headers that no CRC confirms bounded by the batches around them.

    ``expected`` is the offset after the batch before, None if unknown. Offsets are kept if they begin there and the header
    counts as many records, or if the next valid batch confirms that they fit before it. Otherwise the findings name the
    range between the two batches, without a batch after them none, and their messages what the header claims.
    """
    if expected is None:
        return result
    findings = [each for each in (*result.findings, result.if_last) if each and each.last_offset is not None]
    if not findings or all(_is_likely(buffer, each, expected) for each in findings):
        return result
    following = _offset_at(buffer, result.resume)

    def bounded(finding: Finding) -> Finding:
        first, last = finding.offset, finding.last_offset
        if last is None or _is_likely(buffer, finding, expected):
            return finding
        if following is not None and expected <= (last if first is None else first) <= last < following:
            return finding
        told = "note" if "note" in finding.facts else "why"
        facts = {**finding.facts, told: f"{finding.facts.get(told, '')}; {_claim(first, last)}"}
        if following is None or following <= expected:
            return finding._replace(offset=None, last_offset=None, facts=facts)
        return finding._replace(offset=expected, last_offset=following - 1, facts=facts)

    return replace(
        result,
        findings=tuple(bounded(each) for each in result.findings),
        if_last=result.if_last and bounded(result.if_last),
    )


def _is_likely(buffer: InputBuffer, finding: Finding, expected: int) -> bool:
    """Return whether a finding's offsets begin where they should, and the header counts as many records."""
    first, last = finding.offset, finding.last_offset
    if last is None:
        return True
    if first is None or buffer.data[buffer.start + MAGIC_AT] < 2:
        return first in (None, expected) and 0 <= last - expected < (LIKELY_WRAPPED if first is None else 1)
    counted = framing.read_int32(buffer.data, buffer.start + RECORD_COUNT_AT)
    return first == expected and last - first + 1 == counted


def _offset_at(buffer: InputBuffer, position: int) -> int | None:
    """Return the first offset of the valid batch at a position of the file, None for anything else."""
    distance = position - buffer.position
    if distance < 0 or not buffer.fill(distance + LOG_OVERHEAD + V0_MIN_SIZE):
        return None
    at = buffer.start + distance
    size, magic = LOG_OVERHEAD + framing.read_int32(buffer.data, at + SIZE_AT), buffer.data[at + MAGIC_AT]
    if magic > 2 or not 0 < size <= LOOK_AHEAD or not buffer.fill(distance + size):
        return None
    at = buffer.start + distance
    if not is_valid_batch(buffer, at, size, magic) or is_wrapper(buffer.data, at):
        return None
    return framing.read_int64(buffer.data, at)


def signed_byte(value: int) -> int:
    """Return a byte as a signed int8."""
    return value - 256 if value >= 128 else value
