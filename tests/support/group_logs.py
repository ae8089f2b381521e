"""Random partitions of ``__consumer_offsets``: commits of all versions, tombstones, transactions and group metadata.

The encoder shares nothing with kseg.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

from tests.support.transactional_logs import ABORT, COMMIT, CONTROL, NOW, TRANSACTIONAL, batch

GROUPS, TOPICS, PARTITIONS = ("g", "h"), ("orders", "clicks"), (0, 1)
#: Producers of transactions, and one that writes without them: not the group coordinator, but a client can.
PRODUCERS, IDEMPOTENT = (1_000, 1_001, 1_002), 2_000
#: The type of keys of group metadata, and a type that Kafka does not know.
_GROUP_METADATA, _UNKNOWN = 2, 99

Pair = tuple[bytes, bytes | None]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def commit_key(group: str, topic: str, partition: int, *, version: int = 1) -> bytes:
    """Return the key of a commit; version 0 is that of Kafka before 0.9."""
    return struct.pack(">h", version) + text(group) + text(topic) + struct.pack(">i", partition)


def commit_value(
    version: int, offset: int, *, metadata: str = "", committed: int = NOW, topic_id: bytes = b""
) -> bytes:
    """Return the value of a commit of version 0 to 4; only version 4 can have a topic id."""
    value = struct.pack(">hq", version, offset)
    if version >= 3:
        value += struct.pack(">i", offset % 5)
    value += bytes([len(metadata) + 1]) + metadata.encode() if version >= 4 else text(metadata)
    value += struct.pack(">q", committed)
    if version == 1:
        value += struct.pack(">q", committed + offset)
    if version >= 4:
        value += bytes((1, 0, len(topic_id))) + topic_id if topic_id else b"\0"
    return value


def group_key(group: str) -> bytes:
    return struct.pack(">h", _GROUP_METADATA) + text(group)


def group_value(generation: int) -> bytes:
    """Return the metadata of a classic group without members, of version 3."""
    return struct.pack(">h", 3) + text("consumer") + struct.pack(">ihhqi", generation, -1, -1, NOW, 0)


def marker(offset: int, producer: int, kind: int) -> bytes:
    """Return the batch of a transaction marker: ABORT or COMMIT."""
    record = (offset, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch(offset, offset, [record], TRANSACTIONAL | CONTROL, producer, 0)


class _RandomRecords:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0

    def pair(self) -> Pair:
        chance = self._chance
        self._number += 1
        group, kind = chance.choice(GROUPS), chance.random()
        if kind < 0.02:
            return struct.pack(">h", _UNKNOWN) + text(group), b"\0\0"
        if kind < 0.12:
            value = None if chance.random() < 0.3 else group_value(self._number)
            return group_key(group), value
        place = group, chance.choice(TOPICS), chance.choice(PARTITIONS)
        version = int(chance.random() > 0.2)
        if chance.random() < 0.2:
            return commit_key(*place, version=version), None
        metadata = chance.choice(("", "by hand"))
        topic_id = chance.choice((b"", bytes([self._number % 255 + 1]) * 16))
        value_version = chance.randrange(5) if version else 0
        return commit_key(*place, version=version), commit_value(
            value_version, self._number, metadata=metadata, committed=NOW + self._number, topic_id=topic_id
        )


def write_random_log(folder: Path, chance: random.Random, *, steps: int = 40) -> Path:
    """Write a partition with batches of several producers, most of them transactional, and their markers."""
    records, sequences = _RandomRecords(chance), dict.fromkeys((*PRODUCERS, IDEMPOTENT), 0)
    log, offset = b"", 0
    for _ in range(steps):
        if chance.random() < 0.2:
            log += marker(offset, chance.choice((*PRODUCERS, IDEMPOTENT)), chance.choice((ABORT, COMMIT, COMMIT)))
            offset += 1
            continue
        count = chance.randint(1, 3)
        pairs = [(offset + i, *records.pair()) for i in range(count)]
        if chance.random() < 0.4:
            log += batch(offset, offset + count - 1, pairs)
        else:
            producer = chance.choice(PRODUCERS) if chance.random() < 0.95 else IDEMPOTENT
            attributes = 0 if producer == IDEMPOTENT else TRANSACTIONAL
            log += batch(offset, offset + count - 1, pairs, attributes, producer, 0, sequences[producer])
            sequences[producer] += count
        offset += count
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(log)
    return folder
