"""The codec 0 of Kafka's attributes: the payload is stored as it is."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.format.compress.codecs import Buffer, DecompressionLimit


def decompress(data: Buffer, limit: int, magic: int, quirks: list[str] | None, room: memoryview | None) -> bytes:
    if len(data) > limit:
        raise DecompressionLimit(limit)
    return bytes(data)


def compress(data: Buffer, magic: int, level: int | None) -> bytes:
    return bytes(data)


def decompress_pieces(view: memoryview, magic: int) -> Iterator[Buffer]:
    yield view
