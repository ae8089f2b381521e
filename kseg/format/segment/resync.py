"""Handle a damaged batch: read it with another magic, prove its length, or find the next valid batch.

Most damage is a single fault. The CRC of v2 does not cover base offset, size and magic. If one of these fields is
wrong, the CRC proves the right value, and the batch can be read. If the content is wrong, the framing is still valid:
the next batch begins where the size field says. For other damage, ``resync_search`` searches the next batch.
"""

from __future__ import annotations

from dataclasses import replace

from kseg.format.record import framing
from kseg.format.record.layout import (
    HEADER_SIZE_UP_TO_MAGIC,
    INT32_MAX,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    SIZE_AT,
)
from kseg.format.segment import batch_evidence
from kseg.format.segment.batch_evidence import (
    LIKELY,
    LOOK_AHEAD,
    NOTHING,
    BatchChain,
    LogBefore,
    how_likely_batch_begins,
    is_valid_batch_of,
    is_wrapper,
    last_offset_of,
    legacy_crc_holds,
)
from kseg.format.segment.input_buffer import InputBuffer
from kseg.format.segment.resync_results import (
    DamagedBatch,
    ResyncResult,
    bad_content,
    damaged_tail,
    lost_bytes,
    readable,
    signed_byte,
    with_proved_offsets,
    with_proved_size,
)
from kseg.format.segment.resync_search import PROOF_REACH, ResyncScan, RunningCrc, ScanBudget

KEY_REACH = 256 * 1024


def resynchronise(
    buffer: InputBuffer, max_size: int, budget: ScanBudget, reach: int | None, before: LogBefore
) -> ResyncResult:
    """Decide how to continue at the batch at the buffer's start, which is incomplete or has a wrong CRC.

    At most ``reach`` bytes are searched (None: all). The offsets of the findings are those that the batches around them
    leave. ``before`` is the log before the damaged batch.
    """
    return with_proved_offsets(buffer, _resynchronise(buffer, max_size, budget, reach, before), before.expected)


def _resynchronise(
    buffer: InputBuffer, max_size: int, budget: ScanBudget, reach: int | None, before: LogBefore
) -> ResyncResult:
    expected = before.expected
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
        search = _search(buffer, max_size, budget, before, damaged, keep=True, around=end)
        ahead = (
            LOOK_AHEAD if follows == LIKELY and budget.allows(LOOK_AHEAD, buffer.position) else RECORD_BATCH_OVERHEAD
        )
        search.run(end + ahead)
        budget.spend(ahead)
        if search.proved:
            return with_proved_size(buffer, damaged, search.proved)
        if search.best and _contradicts(search.best, damaged, end):
            return lost_bytes(buffer, damaged, search, search.first_chain or search.best, expected)
        return bad_content(buffer, damaged, declared)
    search = _search(buffer, max_size, budget, before, damaged, keep=False)
    search.run(reach and buffer.position + reach)
    if search.proved:
        return with_proved_size(buffer, damaged, search.proved)
    if search.best and not (search.ended and _may_contain(damaged, search.best, expected)):
        return lost_bytes(buffer, damaged, search, search.best, expected)
    if not search.ended and reach is not None:
        return ResyncResult((), search.at, gave_up=True)
    return damaged_tail(buffer, damaged, search)


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
    buffer: InputBuffer, max_size: int, budget: ScanBudget, before: LogBefore
) -> ResyncResult | None:
    """Search a batch with a doubtful size for other batches before its bytes are read. None if nothing contradicts its
    size.
    """
    damaged = _inspect(buffer, max_size)
    outcome = _prove_legacy(buffer, damaged)
    if outcome:
        return outcome
    following = _next_offset(damaged, before.expected)
    search = _search(buffer, max_size, budget, replace(before, floor=following), damaged, keep=True)
    search.run(buffer.position + PROOF_REACH)
    if search.proved:
        return with_proved_size(buffer, damaged, search.proved)
    if search.best and search.best.closed and search.best.offset == following:
        return lost_bytes(buffer, damaged, search, search.best, before.expected)
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
        likely = batch_evidence.is_likely_header(data, at, buffer.end)
    else:
        implied = batch_evidence.implied_size(data, at, buffer.end, magic)
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
    budget: ScanBudget,
    before: LogBefore,
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
    floor = _next_offset(damaged, before.floor)
    return ResyncScan(
        buffer, max_size, floor, budget, proof, before, keep=keep, around=around, declared_end=declared_end
    )


def _read_as_another(buffer: InputBuffer, size: int) -> ResyncResult | None:
    """Return the batch read with another magic, if its CRC is valid for that version."""
    named = buffer.data[buffer.start + MAGIC_AT]
    for magic in (2, 1, 0):
        if magic != named and is_valid_batch_of(buffer, size, magic):
            facts = {
                "magic": signed_byte(named),
                "why": f"the CRC is correct for v{magic}, and the batch is read as v{magic}",
            }
            return readable("unknown-magic", buffer, size, magic, facts)
    return None


def _prove_legacy(buffer: InputBuffer, damaged: DamagedBatch) -> ResyncResult | None:
    """Return a v0 or v1 message with a wrong size field, if its key and value lengths give a size that the CRC proves."""
    if damaged.size is None or damaged.magic > 1:
        return None
    size = batch_evidence.implied_size(buffer.data, buffer.start, buffer.end, damaged.magic)
    if not 0 < size <= PROOF_REACH or size == LOG_OVERHEAD + damaged.size or not legacy_crc_holds(buffer, 0, size):
        return None
    return with_proved_size(buffer, damaged, size)
