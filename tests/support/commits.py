"""Records of ``__consumer_offsets`` with committed offsets."""

from __future__ import annotations

import struct


def commit_key(group: str, topic: str, partition: int) -> bytes:
    return struct.pack(">h", 1) + _string(group) + _string(topic) + struct.pack(">i", partition)


def commit_value(offset: int, metadata: str = "", *, committed: int = 1_000, expires: int | None = None) -> bytes:
    """Return a value of version 3, or of version 1 if it has its own time of expiry. Times are epoch milliseconds."""
    if expires is None:
        return struct.pack(">hqi", 3, offset, -1) + _string(metadata) + struct.pack(">q", committed)
    return struct.pack(">hq", 1, offset) + _string(metadata) + struct.pack(">qq", committed, expires)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
