"""Find the block at which the start of a batch and the rest of it have the batch's CRC together.

A CRC is linear: the checksum that is needed before a block follows from the one that is needed after it. So one pass over
both parts tries each block between them, where a CRC for each would take the square of the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from kseg.format.record.crc import crc32c
from kseg.format.record.layout import ATTRIBUTES_AT

_BITS = 32


def matching_cut(front: bytes, back: bytes, cuts: range, expected: int) -> int | None:
    """Return the cut at which ``front[:cut] + back[cut:]`` has the CRC of a v2 batch, None if there is none.

    ``cuts`` are sizes after the header, ascending by the size of a block. ``back`` is as large as the batch.
    """
    found: list[int] = []
    checksum, done = 0, ATTRIBUTES_AT
    for cut in cuts:
        checksum, done = crc32c(memoryview(front)[done:cut], checksum), cut
        found.append(checksum)
    block, rest = cuts.step, memoryview(back)[cuts.start :]
    tables = _tables(block)
    at = len(rest) + -len(rest) % block
    needed = crc32c(bytes(at - len(rest)), expected)
    while at:
        at -= block
        part = bytes(rest[at : at + block])
        after = needed ^ crc32c(part + bytes(block - len(part)))
        needed = 0
        for table in tables:
            needed, after = needed ^ table[after & 255], after >> 8
        if at < len(found) * block and found[at // block] == needed:
            return cuts.start + at
    return None


@cache
def _tables(block: int) -> Sequence[Sequence[int]]:
    """Return the checksums before a block of zeros by those after it, for each byte of these."""
    zeros = bytes(block)
    none = crc32c(zeros)
    # Each row: a checksum after the block, the one before it. Gauss's method makes the first ones single bits.
    rows = [(crc32c(zeros, 1 << bit) ^ none, 1 << bit) for bit in range(_BITS)]
    for bit in range(_BITS):
        pivot = next(n for n in range(bit, _BITS) if rows[n][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        after, before = rows[bit]
        rows = [
            (row[0] ^ after, row[1] ^ before) if n != bit and row[0] >> bit & 1 else row for n, row in enumerate(rows)
        ]
    tables = []
    for low in range(0, _BITS, 8):
        table = [0]
        for _, before in rows[low : low + 8]:
            table += [before ^ other for other in table]
        tables.append(table)
    return tables
