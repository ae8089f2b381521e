"""The partitions that producers choose for keys, and the files of those partitions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kseg.errors import UsageError
from kseg.format.record import murmur
from kseg.format.record.layout import INT32_MAX
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import topic_partition

_MASK = 0xFFFFFFFF
#: Internal topics are partitioned by other functions of other keys.
_INTERNAL = "__"


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash, unsigned."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 & _MASK
    return h


def _absolute_fnv1a(key: bytes) -> int:
    number = fnv1a(key)
    return number if number <= INT32_MAX else _MASK + 1 - number


#: Partitioner -> the number of a key, whose remainder by the number of partitions is the partition; None: any partition.
PARTITIONERS: Mapping[str, Callable[[bytes], int | None]] = {
    # ``BuiltInPartitioner.partitionForKey`` of Kafka's own client; librdkafka's murmur2 and murmur2_random.
    "murmur2": lambda key: murmur.murmur2(key) & INT32_MAX,
    # librdkafka's consistent and consistent_random, its default. The latter chooses any partition for an empty key.
    "crc32": lambda key: zlib.crc32(key) if key else None,
    # Sarama's ``NewHashPartitioner``, its default; librdkafka's fnv1a and fnv1a_random.
    "fnv1a": _absolute_fnv1a,
}


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The partitions of a topic that a partitioner chooses for keys, if the topic has ``total`` partitions.

    ``read``, ``missing`` and ``unread`` are the chosen ones that are in the files, the chosen ones that are not, and the
    others in the files. With ``total`` None their number is not known, and all are read.
    """

    topic: str
    total: int | None
    read: tuple[int, ...]
    missing: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()


def files_of_keys(
    files: Sequence[SegmentFile], keys: Sequence[bytes], partitioner: str, total: int | None = None
) -> tuple[list[SegmentFile], list[PartitionChoice]]:
    """Return the files that have the keys according to a partitioner, and the choice for each topic.

    A topic's number of partitions is ``total``, or the number of its folders if these are numbered without a gap. If it
    is not known, all files of the topic are returned, as are files of internal topics and outside of partition folders.
    Raises UsageError if a topic has more than ``total`` partitions.
    """
    places = [topic_partition(file.path) for file in files]
    numbers: dict[str, set[int]] = {}
    for topic, number in places:
        if topic is not None and number is not None and not topic.startswith(_INTERNAL):
            numbers.setdefault(topic, set()).add(number)
    hashes = [PARTITIONERS[partitioner](key) for key in keys]
    choices = {topic: _choice(topic, found, hashes, total) for topic, found in numbers.items()}
    kept = [
        file
        for file, (topic, number) in zip(files, places, strict=True)
        if topic not in choices or number in choices[topic].read
    ]
    return kept, list(choices.values())


def _choice(topic: str, found: set[int], hashes: Sequence[int | None], total: int | None) -> PartitionChoice:
    if total is not None and total <= max(found):
        raise UsageError(f"--partitions {total}: {topic} has a partition {max(found)}")
    if total is None and 1 < len(found) == max(found) + 1:
        total = len(found)
    if total is None or None in hashes:
        return PartitionChoice(topic, total, tuple(sorted(found)))
    chosen = {number % total for number in hashes if number is not None}
    read, missing, unread = (tuple(sorted(some)) for some in (chosen & found, chosen - found, found - chosen))
    return PartitionChoice(topic, total, read, missing, unread)
