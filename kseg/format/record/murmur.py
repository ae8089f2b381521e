"""The hash by which Kafka's own client chooses partitions, and tiered storage those of its metadata."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of Kafka's ``Utils.murmur2``, unsigned."""
    h = _SEED ^ len(data)
    end = len(data) & ~3
    for at in range(0, end, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    if end < len(data):
        h = (h ^ int.from_bytes(data[end:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15
