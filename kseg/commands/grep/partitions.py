"""The partition of a key by Kafka's default partitioner, and the files of that partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kseg.format.storage.source import SegmentFile, topic_partition

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
#: Internal topics are partitioned by other functions of other keys.
_INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The partitions of some keys, in order, in a topic of ``total`` partitions; none if their number is not known."""

    topic: str
    partitions: tuple[int, ...]
    total: int | None


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


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's producers choose for a key by default (``BuiltInPartitioner.partitionForKey``)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def files_of_keys(
    files: Sequence[SegmentFile], keys: Sequence[bytes], total: int | None = None
) -> tuple[list[SegmentFile], list[PartitionChoice]]:
    """Return the files that have the keys according to the default partitioner, and the choice for each topic.

    A topic's number of partitions is ``total``, or the number of its folders if these are numbered without a gap:
    a broker has only some of the partitions. If it is not known, all files of the topic are returned, as are files of a
    topic with a single folder, of internal topics, and outside of partition folders.
    """
    places = [topic_partition(file.path) for file in files]
    numbers: dict[str, set[int]] = {}
    for topic, number in places:
        if topic is not None and number is not None and not topic.startswith(_INTERNAL):
            numbers.setdefault(topic, set()).add(number)
    choices: dict[str | None, PartitionChoice] = {}
    for topic, found in numbers.items():
        if len(found) > 1:
            count = total or (len(found) if len(found) == max(found) + 1 else None)
            numbered = {partition_of_key(key, count) for key in keys} if count else ()
            choices[topic] = PartitionChoice(topic, tuple(sorted(numbered)), count)
    kept = [
        file
        for file, (topic, number) in zip(files, places, strict=True)
        if topic not in choices or not (chosen := choices[topic].partitions) or number in chosen
    ]
    return kept, list(choices.values())
