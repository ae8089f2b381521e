"""Payloads with bytes as they are: those of codec 0, and those of other codecs, which store what they cannot make smaller.

LZ4 and snappy compare fewer positions the longer they find nothing, so they can also store text that follows noise. That
is why the codecs are tried with the bytes after noise.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.engine import lazy
from kseg.format.compress.codecs import Buffer, DecompressionLimit

if TYPE_CHECKING:
    import snappy
    from lz4 import frame
else:
    snappy, frame = lazy("snappy"), lazy("lz4.frame")

#: The block of LZ4 in Kafka's writer, and the largest that snappy compresses at once.
BLOCK = 64 * 1024
#: The most bytes of noise: as many are left for the bytes that are tried.
_MOST_BEFORE = BLOCK // 2
# zlib decides for each block of 16,383 literals and matches whether to store it.
_DEFLATE_BLOCK = 16_000
# Which positions LZ4 and snappy compare is chance: noise of several sizes is tried.
_TRIES, _STEP = 8, 61
_NOISE = hashlib.shake_128(b"").digest(2 * BLOCK)


def can_be_stored(data: bytes, before: int) -> bool:
    """Return whether gzip, snappy or LZ4 can store these bytes as they are in a payload, after ``before`` other bytes.

    At most the first ``BLOCK`` bytes are tried. It takes 0.1 ms for random bytes, and 1 ms for text.
    """
    start = data[:_DEFLATE_BLOCK]
    stored = sum(_is_stored_after(data, min(before, _MOST_BEFORE) + _STEP * number) for number in range(_TRIES))
    return 2 * stored > _TRIES or start in zlib.compress(start + _NOISE[: 2 * _DEFLATE_BLOCK - len(start)], 1)


def _is_stored_after(data: bytes, before: int) -> bool:
    """Return whether snappy or LZ4 store the bytes after as many bytes of noise, with noise after them."""
    data = data[: BLOCK - before]
    noise = _NOISE[:before]
    if data in snappy.compress(noise + data):
        return True
    block = noise + data + _NOISE[BLOCK : 2 * BLOCK - before - len(data)]
    return data in frame.compress(block, block_size=frame.BLOCKSIZE_MAX64KB, compression_level=0)


def decompress(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> bytes:
    if len(data) > limit:
        raise DecompressionLimit(limit)
    return bytes(data)


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    return bytes(data)


def decompress_pieces(view: memoryview, magic: int) -> Iterator[Buffer]:
    yield view
