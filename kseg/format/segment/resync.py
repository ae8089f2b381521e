"""Handle a damaged batch: read it with another magic, prove its length, or find the next valid batch.

Most damage is a single fault. The CRC of v2 does not cover base offset, size and magic. If one of these fields is
wrong, the CRC proves the right value, and the batch can be read. If the content is wrong, the framing is still valid:
the next batch begins where the size field says. For other damage, ``resync_search`` searches the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kseg.findings import Finding
from kseg.format.record import columns, framing
from kseg.format.record.layout import (
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LEGACY_CRC_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.format.segment import header_scan
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_search import (
    LIKELY,
    LOOK_AHEAD,
    NOTHING,
    PROOF_REACH,
    BatchChain,
    ResyncScan,
    RunningCrc,
    ScanBudget,
    how_likely_batch_begins,
    is_valid_batch_of,
    is_wrapper,
    last_offset_of,
    legacy_crc_holds,
)
from kseg.text import count_of

KEY_REACH = 256 * 1024
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


def resynchronise(
    buffer: InputBuffer, max_size: int, expected: int | None, floor: int | None, budget: ScanBudget, reach: int | None
) -> ResyncResult:
    """Decide how to continue at the batch at the buffer's start, which is incomplete or has a wrong CRC.

    ``expected`` is the offset that should come next, ``floor`` the lowest that may come. At most ``reach`` bytes are
    searched (None: all).
    """
    damaged = _inspect(buffer, max_size)
    declared = _declared_size(buffer, damaged, max_size)
    if declared:
        outcome = _read_as_another(buffer, declared)
        if outcome:
            return outcome
    outcome = _prove_legacy(buffer, damaged)
    if outcome:
        return outcome
    follows = how_likely_batch_begins(buffer, declared, max_size) if declared else NOTHING
    if follows:
        end = buffer.position + declared
        # The size field can still be wrong: a little too small, as large as two batches, or bytes of the batch are missing.
        search = _search(buffer, max_size, floor, budget, damaged, keep=True, around=end)
        ahead = (
            LOOK_AHEAD if follows == LIKELY and budget.allows(LOOK_AHEAD, buffer.position) else RECORD_BATCH_OVERHEAD
        )
        search.run(end + ahead)
        budget.spend(ahead)
        if search.proved:
            return _proved(buffer, damaged, search.proved)
        if search.best and _contradicts(search.best, damaged, end):
            return _lost(buffer, damaged, search, search.first_chain or search.best, expected)
        return _bad_content(buffer, damaged, declared)
    search = _search(buffer, max_size, floor, budget, damaged, keep=False)
    search.run(reach and buffer.position + reach)
    if search.proved:
        return _proved(buffer, damaged, search.proved)
    if search.best and not (search.ended and _may_contain(damaged, search.best, expected)):
        return _lost(buffer, damaged, search, search.best, expected)
    if not search.ended and reach is not None:
        return ResyncResult((), search.at, gave_up=True)
    return _tail(buffer, damaged, search)


def _contradicts(chain: BatchChain, damaged: DamagedBatch, end: int) -> bool:
    """Return whether a chain that begins inside the damaged batch proves that the batch does not end at position
    ``end``.
    """
    if not chain.begins_batch(end):
        return True
    # The value of a v0 or v1 message can end with a batch. In a v2 batch at least a header count follows the value.
    if damaged.magic == 2 or not damaged.likely:
        return True
    return damaged.last_offset is not None and chain.offset == damaged.last_offset + 1


def _may_contain(damaged: DamagedBatch, chain: BatchChain, expected: int | None) -> bool:
    """Return whether the last batch of the file, torn or not, seems to contain that chain in a value.

    That is the case if its header is the expected one, nothing after the chain continues the log, and the chain's
    offsets are not the ones that would follow soon.
    """
    if chain.closed or not (damaged.likely and damaged.legal) or damaged.size is None or damaged.last_offset is None:
        return False
    if damaged.offset != expected or chain.end > damaged.position + LOG_OVERHEAD + damaged.size:
        return False
    return not 0 < chain.offset - damaged.last_offset <= chain.end - damaged.position


def check_oversized_batch(
    buffer: InputBuffer, max_size: int, expected: int | None, budget: ScanBudget
) -> ResyncResult | None:
    """Search a batch with a doubtful size for other batches before its bytes are read. None if nothing contradicts its
    size.
    """
    damaged = _inspect(buffer, max_size)
    outcome = _prove_legacy(buffer, damaged)
    if outcome:
        return outcome
    following = _next_offset(damaged, expected)
    search = _search(buffer, max_size, following, budget, damaged, keep=True)
    search.run(buffer.position + PROOF_REACH)
    if search.proved:
        return _proved(buffer, damaged, search.proved)
    if search.best and search.best.closed and search.best.offset == following:
        return _lost(buffer, damaged, search, search.best, expected)
    return None


def _inspect(buffer: InputBuffer, max_size: int) -> DamagedBatch:
    if not buffer.fill(HEADER_SIZE_UP_TO_MAGIC):
        return DamagedBatch(buffer.position, None, 0, False, False, max_size, None, None)
    # Enough for the key of a v0 or v1 message: the length of the value comes after it.
    buffer.fill(KEY_REACH)
    data, at = buffer.data, buffer.start
    size, magic = framing.read_int32(data, at + SIZE_AT), data[at + MAGIC_AT]
    legal = framing.smallest_size(min(magic, 2)) <= size <= max_size
    if magic >= 2:
        likely = header_scan.is_likely_header(data, at, buffer.end)
    else:
        implied = header_scan.implied_size(data, at, buffer.end, magic)
        likely = framing.plausible(data, at, buffer.end, max_size) or (
            implied > 0 and how_likely_batch_begins(buffer, implied, max_size) > 0
        )
        data, at = buffer.data, buffer.start
    if not likely and buffer.available < RECORD_BATCH_OVERHEAD:
        likely = legal and magic <= 2  # torn inside its header
    offset = last = None
    if likely:
        offset = last = framing.read_int64(data, at)
        if magic >= 2 and buffer.available >= RECORD_BATCH_OVERHEAD:
            last = last_offset_of(data, at)
        elif magic >= 2:
            last = None
        elif is_wrapper(data, at):
            offset = None
    return DamagedBatch(buffer.position, size, magic, likely, legal, max_size, offset, last)


def _declared_size(buffer: InputBuffer, damaged: DamagedBatch, max_size: int) -> int:
    """Return the whole size that the batch declares in bytes, 0 if the file has fewer bytes."""
    size = damaged.size
    if size is None or not framing.smallest_size(0) <= size <= max_size or (size > PROOF_REACH and not damaged.likely):
        return 0
    declared = LOG_OVERHEAD + size
    return declared if not buffer.ends_before(declared) and buffer.fill(declared) else 0


def _next_offset(damaged: DamagedBatch, expected: int | None) -> int | None:
    """Return the offset that should follow the damaged batch, if its header is plausible."""
    last = damaged.last_offset
    if expected is None or last is None or not expected <= last < expected + INT32_MAX:
        return expected
    return last + 1


def _search(
    buffer: InputBuffer,
    max_size: int,
    floor: int | None,
    budget: ScanBudget,
    damaged: DamagedBatch,
    *,
    keep: bool,
    around: int | None = None,
) -> ResyncScan:
    provable = damaged.magic == 2 and damaged.likely and buffer.available >= RECORD_BATCH_OVERHEAD
    proof = RunningCrc(buffer) if provable else None
    declared_end = (
        damaged.position + LOG_OVERHEAD + damaged.size if damaged.likely and damaged.legal and damaged.size else None
    )
    return ResyncScan(
        buffer, max_size, _next_offset(damaged, floor), floor, budget, proof,
        keep=keep, around=around, declared_end=declared_end,
    )  # fmt: skip


def _read_as_another(buffer: InputBuffer, size: int) -> ResyncResult | None:
    """Return the batch read with another magic, if its CRC is valid for that version."""
    named = buffer.data[buffer.start + MAGIC_AT]
    for magic in (2, 1, 0):
        if magic != named and is_valid_batch_of(buffer, size, magic):
            facts = {
                "magic": signed_byte(named),
                "why": f"the CRC is correct for v{magic}, and the batch is read as v{magic}",
            }
            return _readable("unknown-magic", buffer, size, magic, facts)
    return None


def _prove_legacy(buffer: InputBuffer, damaged: DamagedBatch) -> ResyncResult | None:
    """Return a v0 or v1 message with a wrong size field, if its key and value lengths give a size that the CRC
    proves.
    """
    if damaged.size is None or damaged.magic > 1:
        return None
    size = header_scan.implied_size(buffer.data, buffer.start, buffer.end, damaged.magic)
    if not 0 < size <= PROOF_REACH or size == LOG_OVERHEAD + damaged.size or not legacy_crc_holds(buffer, 0, size):
        return None
    return _proved(buffer, damaged, size)


def _proved(buffer: InputBuffer, damaged: DamagedBatch, size: int) -> ResyncResult:
    facts = {
        "size": damaged.size,
        "proved_size": size - LOG_OVERHEAD,
        "why": f"the CRC proves {size - LOG_OVERHEAD}, and the batch is read with that size",
    }
    return _readable("invalid-size", buffer, size, damaged.magic, facts)


def _readable(rule: str, buffer: InputBuffer, size: int, magic: int, facts: dict[str, Any]) -> ResyncResult:
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


def _bad_content(buffer: InputBuffer, damaged: DamagedBatch, size: int) -> ResyncResult:
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


def _lost(
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


def _tail(buffer: InputBuffer, damaged: DamagedBatch, search: ResyncScan) -> ResyncResult:
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
