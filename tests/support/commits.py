"""Records of ``__consumer_offsets`` with committed offsets."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kseg.format.writer.records_builder import PlainRecord, build_batch

Commits = Mapping[tuple[str, str, int], bytes | None]


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


def write_commits(folder: Path, *batches: Commits, **fields: Any) -> Path:
    """Write a partition of ``__consumer_offsets``, one batch per mapping of (group, topic, partition) to a value."""
    folder.mkdir(parents=True)
    log, offset = b"", 0
    for commits in batches:
        records = [
            PlainRecord(offset + i, commit_key(*place), value, 1_000)
            for i, (place, value) in enumerate(commits.items())
        ]
        log += build_batch(records, base_offset=offset, **fields)
        offset += len(records)
    (folder / f"{0:020}.log").write_bytes(log)
    return folder
