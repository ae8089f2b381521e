"""The settings of an adopted topic that its folders do not have: its configuration, and how many partitions it has.

A guess deletes no record, whatever the ``server.properties`` say, neither on the disks nor in tiered storage.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import gcd

from kseg.commands.adopt.disks import AdoptedReplica, Disk
from kseg.commands.adopt.old_metadata import OldMetadata
from kseg.errors import NotASegmentError, UnreadableError
from kseg.findings import Finding
from kseg.format.internal_topics.decode import DecodedRecord, decoded_record
from kseg.format.internal_topics.effective_state import Owner, effective, owner_of
from kseg.format.internal_topics.state import Data
from kseg.format.messages.message_reader import jsonable
from kseg.format.record.layout import INT32_MAX
from kseg.format.record.murmur import murmur2
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.sidefiles.checkpoints import checkpoint_offsets
from kseg.format.storage.naming import (
    CONSUMER_OFFSETS,
    KEYED,
    LOG_STARTS,
    REMOTE_INDEX_CACHE,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from kseg.format.storage.source import open_source

#: A folder with a higher number is not of a topic: the partitions before it would all be empty.
MOST_PARTITIONS = 200_000
#: Partitions of a coordinator's topic, if the configuration of the brokers does not say otherwise.
_DEFAULT_PARTITIONS = 50
TIERED = "remote.storage.enable"
_COMPACT = {"cleanup.policy": "compact"}
# The defaults of a broker can be others: seven days, or compaction.
_KEEP = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
#: What brokers set when they create these topics (``AutoTopicCreationManager``).
_INTERNAL: Mapping[str, Mapping[str, str]] = {
    CONSUMER_OFFSETS: {**_COMPACT, "compression.type": "producer", "segment.bytes": "104857600"},
    TRANSACTION_STATE: {
        **_COMPACT,
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
    # Compaction would delete the updates after the last snapshot, which have one key.
    SHARE_GROUP_STATE: {**_KEEP, "compression.type": "producer", "segment.bytes": "104857600"},
    REMOTE_LOG_METADATA: _KEEP,
}


def configuration(
    topic: str, topic_id: str, old: OldMetadata, *, compacted: bool, tiered: bool
) -> tuple[Mapping[str, str], str]:
    """Return the configuration of a topic, and where it is from.

    Args:
        topic: The name on the disks. The metadata can have a later topic of this name.
        topic_id: Its id.
        old: The old metadata.
        compacted: Whether a cleaner has compacted it. It need not be compacted any more: Kafka keeps the entry.
        tiered: Whether it has segments in tiered storage. Without the setting a broker begins the log at its first local
            segment, and deletes the remote ones before it once the setting is there again.
    """
    if topic_id in old.names:
        return old.configs.get(old.names[topic_id], {}), "old metadata"
    if topic in _INTERNAL:
        return _INTERNAL[topic], "a broker's own for this topic"
    why = "guess: nothing expires until you set the retention"
    if compacted:
        why += "; it was compacted: set cleanup.policy=compact if it still is"
    if tiered:
        why += "; it has segments in tiered storage"
    return {**_KEEP, **({TIERED: "true"} if tiered else {})}, why


def needs_defaults(configs: Mapping[str, str]) -> bool:
    """Return whether records of a topic can be deleted because the ``server.properties`` say nothing about them."""
    policy = configs.get("cleanup.policy")
    return (
        configs.get("retention.ms") != "-1" if policy is None else "delete" in policy and "retention.ms" not in configs
    )


def tiered_topics(
    replicas: Iterable[AdoptedReplica], unread: list[tuple[str, str]], damaged: list[tuple[str, str]]
) -> set[str]:
    """Return the ids of the topics with segments in tiered storage, as ``__remote_log_metadata`` has them.

    ``unread`` gets its replicas with a read error, ``damaged`` those with damage: their topics would lose the segments.
    """
    found = set()
    for replica in replicas:
        if replica.partition.topic == REMOTE_LOG_METADATA:
            faults: list[str] = []
            try:
                for path in replica.logs:
                    found |= _tiered_in(path, faults)
            except UnreadableError as error:
                why = str(error).removeprefix(replica.path).lstrip("/: ")
                unread.append((replica.path, f"{why}: run again, or leave its folder out"))
            damaged += [(replica.path, f"{why}: a topic in tiered storage can be missing") for why in faults[:1]]
    return found


def _tiered_in(path: str, faults: list[str]) -> set[str]:
    def report(finding: Finding) -> None:
        if finding.is_error:
            faults.append(f"{os.path.basename(path)}: {finding.rule} at byte {finding.position}")

    try:
        items = effective(REMOTE_LOG_METADATA, [path], lambda _: report).items()
    except NotASegmentError as error:
        faults.append(str(error).removeprefix(os.path.dirname(path)).lstrip("/"))
        return set()
    return {_topic_id(one.key) for one in items if one.entity == "remote segment"}


def _topic_id(key: Data) -> str:
    return str(key["remoteLogSegmentId"]["topicIdPartition"]["id"])


def uses_tier(disks: Iterable[Disk], replicas: Iterable[AdoptedReplica]) -> bool:
    """Return whether a broker had tiered storage: it has made a cache of remote indexes, or their topic."""
    caches = (os.path.join(disk.path, REMOTE_INDEX_CACHE) for disk in disks)
    return any(map(os.path.isdir, caches)) or any(one.partition.topic == REMOTE_LOG_METADATA for one in replicas)


def starts_in_tier(replica: AdoptedReplica) -> bool:
    """Return whether the log begins before its first local segment.

    Of other logs a broker writes the start only if it is after that (``LogManager.checkpointLogStartOffsetsInDir``). But one
    that died within a minute after it deleted a segment leaves such a start, too, so this is a sign only with ``uses_tier``.
    """
    if replica.partition.state or not replica.plan.segments:
        return False  # the entry would be that of another topic of this name
    starts = checkpoint_offsets(os.path.join(replica.disk.path, LOG_STARTS))
    first = replica.plan.segments[0][0]
    return starts.get(replica.partition[:2], first) < first


def partitions_of(topic: str, found: Mapping[int, Sequence[AdoptedReplica]]) -> int:
    """Return how many partitions a topic has without metadata; ``found`` are the replicas by number.

    Coordinators look for a group or transactional id in the partition that is the remainder of its hash, and tiered storage
    for a partition's segments. So the number is one with which each is where it is found: 50 if possible, and else the
    smallest one. If they contradict each other, and for other topics, the highest number is that of the last partition.
    """
    least = max(found, default=-1) + 1
    if topic not in (*KEYED, REMOTE_LOG_METADATA) or not least:
        return least
    divisor = gcd(*(one - number for number, replicas in found.items() for one in _hashes(topic, replicas)))
    candidates = (one for one in (_DEFAULT_PARTITIONS, *range(least, MOST_PARTITIONS)) if one >= least)
    return next((one for one in candidates if divisor % one == 0), least)


def _hashes(topic: str, replicas: Sequence[AdoptedReplica]) -> set[int]:
    """Return the hashes in the first records of a partition that have any. Raises UnreadableError."""
    for path in (path for replica in replicas for path in replica.logs):
        with suppress(NotASegmentError):
            for chunk in chunks_of(open_source(path)):
                if found := {hash_ for decoded in _decoded(topic, chunk) for hash_ in _hash_of(topic, decoded)}:
                    return found
    return set()


def _decoded(topic: str, chunk: Chunk) -> Iterator[DecodedRecord]:
    for row in range(chunk.first, chunk.stop):
        for i in chunk.rows(row) if chunk.batches.record_total[row] else ():
            if record := decoded_record(topic, chunk, i):
                yield record


def _hash_of(topic: str, record: DecodedRecord) -> Iterator[int]:
    """Yield the number whose remainder is the partition of a record, none for a record of an unknown kind.

    Sources: ``SharePartitionKey.asCoordinatorKey``, ``RemoteLogMetadataTopicPartitioner``.
    """
    part = record.value if topic == REMOTE_LOG_METADATA else record.key
    data = jsonable(part.data) if part and part.data else {}
    if topic == REMOTE_LOG_METADATA:
        place = data.get("topicIdPartition") or data.get("remoteLogSegmentId", {}).get("topicIdPartition")
        if place:
            yield _remote_hash(base64.urlsafe_b64decode(f"{place['id']}=="), place["partition"])
    elif topic == SHARE_GROUP_STATE and data:
        yield Owner(topic, f"{data['groupId']}:{data['topicId']}:{data['partition']}").hash
    elif name := owner_of(data):
        yield Owner(topic, name).hash


def _remote_hash(topic_id: bytes, partition: int) -> int:
    """Return the hash of ``Objects.hash`` of the halves of an id, the last one first, and of the number."""
    number = 1
    for half in (topic_id[8:], topic_id[:8]):
        high, low = struct.unpack(">II", half)
        number = 31 * number + (high ^ low)
    return murmur2(struct.pack(">I", (31 * number + partition) & 0xFFFFFFFF)) & INT32_MAX
