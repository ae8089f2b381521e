"""Whether uncompressed messages after lost bytes are the log's own, or of a compressed set whose header is lost.

A codec stores bytes as they are if it cannot make them smaller. So the messages of a v1 set can be in its payload as they
were, with a valid CRC. Their offsets count from the start of the set (KIP-31): read as messages of the log, they would have
wrong offsets. v0 has absolute offsets in sets, too.

One of these proves that messages are the log's own:

- Their offsets are too large: a set with as many messages does not fit into the lost bytes.
- They continue the offsets of an uncompressed message, and no compressed set is known in the segment, or the lost bytes have
  room for the missing messages only.
- They follow each other directly for 1 MiB. A payload has a length or a tag between its blocks, mostly each 64 KiB, and a
  broker accepts batches of 1 MB by default.
- The next batch directly follows, with the next offset. After messages of a set, its offset would be larger.
- The codecs make their bytes smaller.

Few incompressible messages at the start of a partition lack a proof. They count as lost, as their offsets are not known. A
producer with gzip level 0 stores all bytes: text in its sets can pass for the log's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.format.compress.codecs import CodecError, decompress
from kseg.format.compress.stored_bytes import BLOCK, can_be_stored
from kseg.format.record import framing
from kseg.format.record.layout import (
    CODEC_MASK,
    INT32_MAX,
    LEGACY_ATTRIBUTES_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    SIZE_AT,
    V0_KEY_AT,
    V0_MIN_SIZE,
    V1_KEY_AT,
    V1_MIN_SIZE,
)
from kseg.format.segment.batch_evidence import LOOK_AHEAD, BatchChain, LogBefore, is_wrapper
from kseg.format.segment.input_buffer import InputBuffer

if TYPE_CHECKING:
    from kseg.format.segment.resync_search import ScanBudget

#: Each inner message has another CRC and another offset: however compressible it is, it takes this many bytes of a payload.
LEAST_INNER = 8
#: Fewer messages can be missing without a trace, with the header of their set.
MOST_CUT = 32
#: Fewer lost bytes have one message or set, mostly.
FEWEST_SETS = 32 * 1024
#: LZ4 ends with a mark of 4 bytes, gzip with a CRC and a size.
LEAST_TRAILER = 4
#: The most messages of a set.
MOST_INNER = 1 << 16
#: Larger offsets than this are not relative, unless many bytes are lost: also bytes can be missing without a trace.
MOST_RELATIVE = 512
#: The size of a v1 message without key and value.
LEAST_MESSAGE = LOG_OVERHEAD + V1_MIN_SIZE
#: The most bytes to which the payload of the next set is decompressed.
MOST_PAYLOAD = 4 * 1024 * 1024
#: What one try to compress messages costs: 1 ms, in which as many bytes are searched.
COST = 1024 * 1024


def first_own(buffer: InputBuffer, chain: BatchChain, lost: int, before: LogBefore, budget: ScanBudget) -> int:
    """Return the number of the first batch of a chain that is proved to be the log's own.

    The chain is in the buffer. ``lost`` is the number of lost bytes before it. Each compression counts as ``COST`` bytes
    that were checked without result.
    """
    begin = 0
    while begin < chain.bare:
        position, offset, _ = chain.batches[begin]
        end, missing = _run_end(chain, begin), position - chain.position + lost
        if offset >= before.base and (
            buffer.data[position - buffer.shift + MAGIC_AT] == 0
            or chain.end - position >= LOOK_AHEAD
            or _is_not_relative(buffer, chain, begin, missing, before)
        ):
            break
        if offset >= before.base and budget.allows(COST, position):
            budget.spend(COST)
            leads = end == chain.bare < len(chain.batches) and _leads_to(buffer, chain, end)
            if leads or not can_be_stored(_bytes_of(buffer, chain, begin, end), missing):
                break
        begin = end
    return begin


def _is_not_relative(buffer: InputBuffer, chain: BatchChain, begin: int, lost: int, before: LogBefore) -> bool:
    """Return whether an offset is too large for a set in the lost bytes, or continues uncompressed messages before them.

    The bytes of the offset can be damaged themselves, as no CRC covers them: then it is mostly larger than a segment's.
    """
    offset = chain.batches[begin][1]
    if offset > max(before.base, before.following or 0) + INT32_MAX:
        return False
    if offset > (MOST_INNER if before.is_unknown else max(MOST_RELATIVE, min(lost // LEAST_INNER, MOST_INNER))):
        return True
    return before.following is not None and _continues(buffer, chain, begin, lost, before)


def _continues(buffer: InputBuffer, chain: BatchChain, begin: int, lost: int, before: LogBefore) -> bool:
    """Return whether messages continue uncompressed ones before the lost bytes.

    The lost bytes have room for the missing messages. And no compressed set is known in the segment, or the messages that
    would be before these in a set do not fit into them, or the messages end with the file, without the trailer of gzip or
    LZ4, and few bytes or no offset are lost.
    """
    offset, last, following = chain.batches[begin][1], chain.batches[chain.bare - 1][1], before.following or 0
    fits = 0 <= offset - following <= lost // LEAST_MESSAGE
    if fits and before.is_plain and chain.bare == len(chain.batches):
        return True
    if (offset + 1) * LEAST_MESSAGE > lost:  # the header of the set, too
        is_compacted = last - offset >= chain.bare - begin or (offset >= MOST_CUT and not before.is_start)
        return fits or (is_compacted and offset >= following)
    at_end = chain.bare == len(chain.batches) and not buffer.fill(chain.end - buffer.position + LEAST_TRAILER)
    # The offsets in the first set of a partition are those of the log.
    is_own_start = not before.is_start or before.base == 0
    return at_end and is_own_start and (offset == following or (fits and lost <= FEWEST_SETS))


def _run_end(chain: BatchChain, begin: int) -> int:
    """Return the number of the message after those from number ``begin`` on with consecutive offsets.

    Where a set ends and the log's own messages follow, an offset is missing.
    """
    end = begin + 1
    while end < chain.bare and chain.batches[end][1] == chain.batches[end - 1][1] + 1:
        end += 1
    return end


def _bytes_of(buffer: InputBuffer, chain: BatchChain, begin: int, end: int) -> bytes:
    start = chain.batches[begin][0]
    stop = chain.batches[end][0] if end < len(chain.batches) else chain.end
    return bytes(buffer.view[start - buffer.shift : min(stop, start + BLOCK) - buffer.shift])


def _leads_to(buffer: InputBuffer, chain: BatchChain, number: int) -> bool:
    """Return whether the batch ``number`` of a chain begins with the offset after the message before it."""
    position, first, last = chain.batches[number]
    at = position - buffer.shift
    if is_wrapper(buffer.data, at):
        size = LOG_OVERHEAD + framing.read_int32(buffer.data, at + SIZE_AT)
        first = last - _span(bytes(buffer.view[at : at + size]))
    return first == chain.batches[number - 1][2] + 1


def _span(wrapper: bytes) -> int:
    """Return the last inner offset of a compressed set minus the first one, or a number too large if it is unreadable."""
    magic = wrapper[MAGIC_AT]
    at = (V1_KEY_AT if magic else V0_KEY_AT) + 8  # after the length of the null key, and of the value
    try:
        codec = wrapper[LEGACY_ATTRIBUTES_AT] & CODEC_MASK
        payload = bytes(decompress(codec, wrapper[at:], limit=MOST_PAYLOAD, magic=magic))
    except CodecError:
        return 1 << 62
    offsets, at = [], 0
    while at + LOG_OVERHEAD + V0_MIN_SIZE <= len(payload):
        offsets.append(framing.read_int64(payload, at))
        at += LOG_OVERHEAD + max(framing.read_int32(payload, at + SIZE_AT), V0_MIN_SIZE)
    return offsets[-1] - offsets[0] if offsets else 1 << 62
