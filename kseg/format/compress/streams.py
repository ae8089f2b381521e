"""Decompression in pieces, for payloads that are too large to hold in memory.

``codecs.decompress`` is faster. Both accept the same streams and raise the same errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from kseg.format.compress.codecs import CODECS
from kseg.format.compress.libraries import Buffer, DecompressionLimit


def decompress_pieces(codec_id: int, data: Buffer, *, limit: int, magic: int = 2) -> Iterator[Buffer]:
    """Yield the decompressed bytes of a payload in pieces. Raises as ``codecs.decompress`` does, also between pieces."""
    total = 0
    for piece in CODECS[codec_id].pieces(memoryview(data), magic):
        total += len(piece)
        if total > limit:
            raise DecompressionLimit(limit)
        yield piece
