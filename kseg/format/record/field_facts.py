"""The meaning of each field of Kafka's formats, and the KIP that added it.

``kseg explain`` shows these facts next to the bytes, and the documentation has them as tables. The names are those of
``fields`` and of ``producer_snapshot.STORED_FIELDS``. Sources: the KIPs, and the classes of Kafka that VERSIONS and FILES
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class Fact(NamedTuple):
    """``source`` is the KIP, or the release for older fields; ``meaning`` is without a full stop."""

    source: str
    meaning: str


class Version(NamedTuple):
    """A version of the message format: its ``kips``, the ``releases`` that write it, and the ``classes`` that read it."""

    releases: str
    kips: tuple[str, ...]
    classes: tuple[str, ...]


_LEGACY_CLASSES = ("LegacyRecord", "AbstractLegacyRecordBatch")
#: Magic -> the version of the message format.
VERSIONS: Mapping[int, Version] = {
    0: Version("Kafka 0.8 and 0.9, and by newer ones up to 3.x for old topics", ("KIP-724",), _LEGACY_CLASSES),
    1: Version(
        "Kafka 0.10, and by newer ones up to 3.x for old topics", ("KIP-31", "KIP-32", "KIP-724"), _LEGACY_CLASSES
    ),
    2: Version("Kafka 0.11 and newer", ("KIP-98", "KIP-101"), ("DefaultRecordBatch", "DefaultRecord")),
}

#: The titles of the KIPs that the facts name (https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Improvement+Proposals).
KIPS: Mapping[str, str] = {
    "KIP-31": "Move to relative offsets in compressed message sets",
    "KIP-32": "Add timestamps to Kafka message",
    "KIP-33": "Add a time based log index",
    "KIP-82": "Add Record Headers",
    "KIP-98": "Exactly Once Delivery and Transactional Messaging",
    "KIP-101": "Use Leader Epoch rather than High Watermark for Truncation",
    "KIP-107": "Add deleteRecordsBefore() API in AdminClient",
    "KIP-110": "Add Codec for ZStandard Compression",
    "KIP-360": "Improve reliability of idempotent/transactional producer",
    "KIP-482": "The Kafka Protocol should Support Optional Tagged Fields",
    "KIP-516": "Topic Identifiers",
    "KIP-534": "Reserve tombstones and transaction markers for delete.retention.ms",
    "KIP-595": "A Raft Protocol for the Metadata Quorum",
    "KIP-630": "Kafka Raft Snapshot",
    "KIP-631": "The Quorum-based Kafka Controller",
    "KIP-724": "Drop support for message formats v0 and v1",
    "KIP-853": "KRaft Controller Membership Changes",
    "KIP-858": "Handle JBOD broker disk failure in KRaft",
    "KIP-966": "Eligible Leader Replicas",
}

_MESSAGE = {
    "offset": Fact(
        "Kafka 0.8", "a compressed set has that of its last message; in v1 its messages count from 0 (KIP-31)"
    ),
    "messageSize": Fact("Kafka 0.8", "at least 14 in v0 and 22 in v1"),
    "crc": Fact("Kafka 0.8", "CRC-32 from magic to the end"),
    "magic": Fact("Kafka 0.8", "at byte 16 in all versions"),
    "attributes": Fact("Kafka 0.8", "bits 0-2 codec; bit 3 timestamp type (KIP-32)"),
    "timestamp": Fact("KIP-32", "epoch ms; v1 only"),
    "keySize": Fact("Kafka 0.8", "-1 is null"),
    "key": Fact("Kafka 0.8", "compaction keeps the last value of each key"),
    "valueSize": Fact("Kafka 0.8", "null is a tombstone"),
    "value": Fact("Kafka 0.8", "of a compressed message: a message set"),
}

#: Group of fields -> name of a field -> its fact. A group is a part of a batch, or the kind of a side file's rows.
FACTS: Mapping[str, Mapping[str, Fact]] = {
    "message": _MESSAGE,
    "batch": {
        "baseOffset": Fact("KIP-98", "offset of the first record"),
        "batchLength": Fact("KIP-98", "at least 49"),
        "partitionLeaderEpoch": Fact("KIP-101", "of the leader that wrote it"),
        "magic": Fact("Kafka 0.8", "at byte 16 in all versions"),
        "crc": Fact("KIP-98", "of the bytes from attributes on"),
        "attributes": Fact(
            "KIP-98",
            "bits 0-2 codec (4 is zstd: KIP-110), 3 timestamp type (KIP-32), 4 transactional, 5 control, 6 delete horizon "
            "(KIP-534)",
        ),
        "lastOffsetDelta": Fact("KIP-98", "compaction keeps it"),
        "baseTimestamp": Fact("KIP-98", "epoch ms, to which deltas add"),
        "maxTimestamp": Fact("KIP-98", "time retention uses it"),
        "producerId": Fact("KIP-98", "id that the broker gave the producer"),
        "producerEpoch": Fact("KIP-98", "a higher one fences the producer"),
        "baseSequence": Fact("KIP-98", "the broker drops repeated batches by it"),
        "recordsCount": Fact("KIP-98", "0 is possible after compaction"),
    },
    "record": {
        "length": Fact("KIP-98", "a varint"),
        "attributes": Fact("KIP-98", "no bit is used"),
        "timestampDelta": Fact("KIP-98", "added to baseTimestamp"),
        "offsetDelta": Fact("KIP-98", "added to baseOffset"),
        "keyLength": Fact("KIP-98", "a varint, -1 is null"),
        "key": Fact("Kafka 0.8", "compaction keeps the last value of each key"),
        "valueLength": Fact("KIP-98", "null is a tombstone"),
        "value": Fact("Kafka 0.8", "the data of the application"),
        "headersCount": Fact("KIP-82", "pairs of key and value"),
        "headerKeyLength": Fact("KIP-82", "a header key is never null"),
        "headerKey": Fact("KIP-82", "UTF-8"),
        "headerValueLength": Fact("KIP-82", "-1 is null"),
        "headerValue": Fact("KIP-82", "any bytes"),
        "version": Fact("KIP-98", "of the key or value of a control record"),
        "type": Fact("KIP-98", "0 abort, 1 commit; 2 to 6 are KRaft's (KIP-595, KIP-630, KIP-853)"),
        "coordinatorEpoch": Fact("KIP-98", "of the transaction coordinator that wrote it"),
    },
    "single message": {
        **_MESSAGE,
        "magic": Fact("Kafka 0.8", "at byte 16 in a log: offset and size are missing"),
    },
    "single wide-crc": {
        **{name: Fact("a tutorial", fact.meaning) for name, fact in _MESSAGE.items()},
        "crc": Fact("a tutorial", "8 bytes, of the value only: Kafka has 4, of all that follows"),
        "magic": Fact("a tutorial", "not at byte 16: offset and size are missing"),
        "attributes": Fact("a tutorial", "bits 0-2 codec"),
    },
    "frame": {
        "size": Fact("Kafka 0.8", "at most socket.request.max.bytes"),
        "header.requestApiKey": Fact("Kafka 0.8", "number of the API"),
        "header.requestApiVersion": Fact("Kafka 0.8", "the layout of the body"),
        "header.correlationId": Fact("Kafka 0.8", "the response repeats it"),
        "header.clientId length": Fact("Kafka 0.8", "never compact, so that every broker can read it"),
        "header.clientId": Fact("Kafka 0.8", "for quotas and logs"),
        "header.numTaggedFields": Fact("KIP-482", "only in flexible versions"),
    },
    "offset_index_entry": {
        "relativeOffset": Fact("Kafka 0.8", "last offset of a batch minus the offset in the file name"),
        "position": Fact("Kafka 0.8", "first byte of that batch in the .log"),
    },
    "time_index_entry": {
        "timestamp": Fact("KIP-33", "largest timestamp so far, epoch ms"),
        "relativeOffset": Fact("KIP-33", "its offset minus the offset in the file name"),
    },
    "aborted_transaction": {
        "version": Fact("KIP-98", "always 0"),
        "producerId": Fact("KIP-98", "of the aborted transaction"),
        "firstOffset": Fact("KIP-98", "of its first batch"),
        "lastOffset": Fact("KIP-98", "of its abort marker"),
        "lastStableOffset": Fact("KIP-98", "read_committed consumers read up to it"),
    },
    "producer_state": {
        "version": Fact("KIP-98", "always 1"),
        "crc": Fact("KIP-98", "CRC-32C of the bytes after it"),
        "entries": Fact("KIP-98", "number of producers"),
        "producerId": Fact("KIP-98", "of the producer"),
        "epoch": Fact("KIP-98", "a higher one fences the producer"),
        "lastSequence": Fact("KIP-98", "the next batch must follow it"),
        "lastOffset": Fact("KIP-98", "last offset of its last batch"),
        "offsetDelta": Fact("KIP-98", "that offset minus its batch's first"),
        "timestamp": Fact("KIP-98", "of its last batch; an old producer expires"),
        "coordinatorEpoch": Fact("KIP-98", "of its last transaction marker"),
        "currentTxnFirstOffset": Fact("KIP-98", "of its open transaction; -1 is none"),
    },
}


def main_source(group: str) -> str:
    """Return the source of most fields of a group."""
    return Counter(fact.source for fact in FACTS[group].values()).most_common(1)[0][0]


class FileFact(NamedTuple):
    """A kind of side file: its ``purpose``, the KIPs, the classes of Kafka that write it."""

    purpose: str
    kips: tuple[str, ...]
    classes: tuple[str, ...]


#: The kind of a side file's rows -> its facts. ``SideFile.columns`` has the meaning of the values.
FILES: Mapping[str, FileFact] = {
    "offset_index_entry": FileFact("finds the batch of an offset without reading the log", (), ("OffsetIndex",)),
    "time_index_entry": FileFact("finds the first offset from a time on", ("KIP-33",), ("TimeIndex",)),
    "aborted_transaction": FileFact(
        "lists aborted transactions, whose records read_committed consumers skip",
        ("KIP-98",),
        ("TransactionIndex", "AbortedTxn"),
    ),
    "producer_state": FileFact(
        "has the last batch of each producer, so that a broker rejects repeated batches after a restart",
        ("KIP-98", "KIP-360"),
        ("ProducerStateManager",),
    ),
    "leader_epoch": FileFact(
        "the first offset of each leader epoch: followers truncate by it",
        ("KIP-101",),
        ("LeaderEpochCheckpointFile", "LeaderEpochFileCache"),
    ),
    "checkpoint_offset": FileFact(
        "one offset per partition: flushed, replicated, log start or cleaned, by its name",
        ("KIP-107",),
        ("OffsetCheckpointFile", "LogManager"),
    ),
    "partition_metadata": FileFact(
        "the topic id: a topic that is created again with the same name has another one",
        ("KIP-516",),
        ("PartitionMetadataFile",),
    ),
    "meta_properties": FileFact(
        "which cluster, node and log directory this is; a broker rejects a foreign one",
        ("KIP-631", "KIP-858"),
        ("MetaProperties",),
    ),
    "quorum_state": FileFact(
        "the vote of this node in the elections of the metadata quorum",
        ("KIP-595", "KIP-853"),
        ("FileQuorumStateStore",),
    ),
    "clean_shutdown": FileFact(
        "exists after a clean shutdown: the next start trusts the files", ("KIP-966",), ("CleanShutdownFileHandler",)
    ),
}
