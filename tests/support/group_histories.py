"""The logs of a simulated consumer group: commits, generations and appends at known times."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.commits import commit_key, commit_value

MINUTE = 60_000
START = 1_700_000_040_000  # the start of a minute


def generation_record(generation: int, members: int, group: str = "g") -> tuple[bytes, bytes]:
    """Return key and value of GroupMetadata, version 3: the state of a classic group."""
    name = group.encode()
    member = struct.pack(">h1shh1sh1siii", 1, b"m", -1, 1, b"c", 1, b"h", 1_000, 1_000, 0) + struct.pack(">i", 0)
    value = struct.pack(">hh8sihhqi", 3, 8, b"consumer", generation, -1, -1, START, members) + member * members
    return struct.pack(">hh", 2, len(name)) + name, value


class Simulated:
    """A group, its topic and its log files: each event has a time in milliseconds after START."""

    def __init__(self, folder: Path, topic: str = "orders") -> None:
        self.folder = folder
        self.topic = topic
        self.commits: list[PlainRecord] = []
        self.logs: defaultdict[int, list[PlainRecord]] = defaultdict(list)

    def append(self, at: int, count: int = 1, partition: int = 0) -> None:
        log = self.logs[partition]
        log += [PlainRecord(len(log) + i, b"k", b"v", START + at) for i in range(count)]

    def commit(self, at: int, offset: int, partition: int = 0, group: str = "g") -> None:
        value = commit_value(offset, committed=START + at)
        self.record(at, commit_key(group, self.topic, partition), value)

    def record(self, at: int, key: bytes, value: bytes | None) -> None:
        self.commits.append(PlainRecord(len(self.commits), key, value, START + at))

    def write(self, *, without: Iterable[int] = (), first: int = 0) -> Path:
        """Write the files. ``without`` are offsets of commits that the cleaner removed, ``first`` starts the logs."""
        kept = [one for one in self.commits if one.offset not in set(without)]
        _write(self.folder / "__consumer_offsets-0", kept)
        for partition, records in self.logs.items():
            _write(self.folder / f"{self.topic}-{partition}", [one for one in records if one.offset >= first])
        return self.folder


def _write(folder: Path, records: list[PlainRecord]) -> None:
    """Write a segment with one batch for records of one time whose offsets follow each other."""
    batches: list[list[PlainRecord]] = []
    for one in records:
        if batches and batches[-1][-1].timestamp == one.timestamp and batches[-1][-1].offset + 1 == one.offset:
            batches[-1].append(one)
        else:
            batches.append([one])
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(build_batch(batch, base_offset=batch[0].offset) for batch in batches)
    (folder / f"{records[0].offset:020}.log").write_bytes(data)
