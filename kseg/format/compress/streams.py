"""Decompression piece by piece, for payloads that are too large to be held in memory.

``codecs.decompress`` is faster. These read the same streams, and raise the same errors.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from kseg.format.compress import codecs, lz4_frames, snappy_blocks, zstd_frames
from kseg.format.compress.libraries import Buffer, CodecError, DecompressionLimit

#: The most bytes of one piece, as far as the codec lets that be chosen.
PIECE = 1 << 20


def decompress_pieces(codec_id: int, data: Buffer, *, limit: int, magic: int = 2) -> Iterator[Buffer]:
    """Yield the decompressed bytes of a payload in pieces. Raises as ``codecs.decompress`` does, also midway."""
    total = 0
    for piece in _STREAMS[codec_id](memoryview(data), magic):
        total += len(piece)
        if total > limit:
            raise DecompressionLimit(limit)
        yield piece


def _gzip(view: memoryview, magic: int) -> Iterator[Buffer]:
    try:
        yield from codecs.gzip_pieces(view, PIECE)
    except zlib.error as error:
        raise CodecError(f"gzip: {error}") from None


_STREAMS: dict[int, Callable[[memoryview, int], Iterator[Buffer]]] = {
    1: _gzip,
    2: snappy_blocks.decompress_pieces,
    3: lz4_frames.decompress_pieces,
    4: zstd_frames.decompress_pieces,
}
