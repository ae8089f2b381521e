"""The full explanation of each rule: cause, consequence, remedy and a real example.

``kseg rules NAME`` and the documentation show it. The examples are output of kseg for the damaged files in
``fixtures/findings``; ``tools.make_rule_examples`` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kseg.findings import known_rule
from kseg.rule_table import Rule

EXAMPLES = Path(__file__).with_name("rule_examples.jsonl")


@dataclass(frozen=True, slots=True)
class Example:
    """A command that reports a rule, and its output.

    ``damage`` describes how the file differs from the one that a broker wrote. ``output`` has several lines.
    """

    command: str
    damage: str
    output: str


@dataclass(frozen=True, slots=True)
class RuleHelp:
    """The explanation of one rule. ``rule.broker`` is the consequence, ``rule.remedy`` the remedy.

    ``example`` is None for a rule that no file can show.
    """

    rule: Rule
    cause: str
    example: Example | None


@cache
def _examples() -> Mapping[str, Example]:
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    return {row.pop("rule"): Example(**row) for row in rows}


def rule_help(name: str) -> RuleHelp:
    """Return the explanation of the rule with that name or code. Raises UsageError for an unknown name."""
    rule = known_rule(name)
    return RuleHelp(rule, CAUSES[rule.name], _examples().get(rule.name))


# A common cause.
_CHANGED = "Bytes changed on the disk or during a copy: a bad disk, bad memory, or a faulty copy tool."

#: The usual cause of a finding, by rule.
CAUSES: Mapping[str, str] = {
    "truncated-tail": (
        "The file ends inside a batch. The broker or the machine stopped while it wrote, or the file was copied "
        "while the broker wrote to it, or the copy was interrupted."
    ),
    "zero-tail": (
        "The file ends with bytes that were never written. The broker preallocates segments (log.preallocate), or "
        "the machine stopped before the file system wrote the data."
    ),
    "invalid-size": f"The size field of a batch header contradicts the batch. {_CHANGED}",
    "unknown-magic": f"The magic byte of a batch header is not 0, 1 or 2, or is not that of the batch. {_CHANGED}",
    "lost-bytes": (
        f"No valid batch starts at these bytes. kseg skips them and continues at the next valid batch. {_CHANGED}"
    ),
    "oversize-entry": (
        "The batch is larger than max.message.bytes of the topic (`--max-message-bytes`; default 1,048,588). The "
        "limit was lowered later, or the batch was written by a tool, not by a broker."
    ),
    "read-error": (
        "The operating system returned an error for these bytes: a failing disk or a damaged file system. A file that "
        "cannot be read for another reason, such as an error of the server of a URL, is only unread: rows of JSON Lines and "
        "CSV name it by this rule, without the fact `errno`."
    ),
    "partial-entry": (
        "A fetch response ends at its size limit, often inside a batch. In a file of records from a fetch this is "
        "normal."
    ),
    "crc-mismatch": f"The checksum in the batch header is not that of the batch's bytes. {_CHANGED}",
    "non-monotonic-offset": (
        "The base offset of a batch is not above the offsets before it, or the batches around it prove another one. "
        "No CRC covers the base offset, so a flipped bit in it is not noticed. Other causes are files that were "
        "joined and brokers with a faulty log."
    ),
    "offset-gap": (
        "Offsets between two batches are missing. Compaction removes records, and transaction markers take offsets. "
        "In other topics batches were lost."
    ),
    "record-count-mismatch": (
        "The header counts other records than the batch has. The producer, a proxy or a conversion tool wrote a "
        "wrong header, with a correct CRC."
    ),
    "max-timestamp-mismatch": (
        "The header's largest timestamp is not that of its records. A client or a tool wrote a wrong header, with a "
        "correct CRC. Brokers before 0.11 also wrote such headers when they converted messages."
    ),
    "reserved-attribute-bits": (
        "Attribute bits without a meaning are set. A producer or a proxy wrote a wrong header, or a later Kafka "
        "version uses the bits."
    ),
    "invalid-offset-range": (
        "The last offset of a batch is below its first one, or too far above the base offset of its segment. "
        f"{_CHANGED}"
    ),
    "last-offset-mismatch": "The last record of a batch was removed. Compaction does that and keeps the header.",
    "future-timestamp": (
        "The timestamp is more than a day in the future. The clock of the producer is wrong, or the application "
        "sets timestamps by itself."
    ),
    "timestamp-unit": (
        "The timestamp has the size of one in seconds, microseconds or nanoseconds. The application sets timestamps "
        "in a wrong unit."
    ),
    "invalid-timestamp": (
        "Timestamps are milliseconds since 1970, or -1 for none. The application sets a negative one."
    ),
    "leader-epoch-regression": (
        "A batch has a lower leader epoch than a batch before it. No CRC covers the epoch, so a flipped bit in it "
        "is not noticed. Another cause is files of two replicas in one folder."
    ),
    "producer-epoch-regression": (
        "A producer wrote with an old epoch after a newer one. Two producers share a transactional.id and the old "
        "one was not rejected, or batches were lost or reordered."
    ),
    "sequence-gap": (
        "A producer numbers its batches, and numbers are missing. Batches were lost, were removed by retention or "
        "compaction, or the broker forgot the producer after producer.id.expiration.ms."
    ),
    "duplicate-sequence": (
        "Two batches of a producer have the same numbers. The broker did not recognise a retry, or a batch was "
        "copied twice."
    ),
    "inconsistent-producer": (
        "The producer fields of a batch contradict each other. A client or a tool wrote a wrong header."
    ),
    "file-name-mismatch": (
        "The name of a segment is its base offset, as 20 digits. The file was renamed, or copied under another name."
    ),
    "magic-downgrade": (
        "A batch has an older format than a batch before it. message.format.version of the topic was lowered, or "
        "files of different brokers are in one folder."
    ),
    "leader-epoch-jump": (
        "The leader epoch of a batch is more than 1,000,000 above the one before it. An epoch is one election of a leader. "
        "So this is a guess: the bytes changed on the disk or during a copy. No CRC covers them."
    ),
    "negative-leader-epoch": (
        "The leader epoch of a v2 batch is below 0. No leader appended the batch: a client or a tool wrote the file, or the "
        "cleaner of Kafka 4 did. It writes the batches of v0 and v1 that it compacts as v2, without an epoch."
    ),
    "append-time-regression": (
        "The broker sets the timestamps of this topic (LogAppendTime), and they decrease. The clock of the leader "
        "was set back, or batches are out of order."
    ),
    "mixed-codecs": "The record set has batches with different codecs. Several producers wrote them.",
    "malformed-record": (
        "The CRC of the batch is correct, but a record in it cannot be decoded. A client, a proxy or a conversion "
        "tool wrote a faulty batch."
    ),
    "wrapper-key": (
        "A producer set a key on the outer message of a compressed message set, for example to choose the partition. "
        "Kafka's own clients write null there."
    ),
    "unknown-control-record": "A newer Kafka wrote the log, or its bytes were changed before the CRC was computed.",
    "past-timestamp": (
        "The record is older than `--timestamp-before-max-ms`, the topic's message.timestamp.before.max.ms. The producer "
        "sends old data, or its clock is wrong."
    ),
    "null-key": (
        "The topic is compacted (`--compacted`), and a record has no key. Producers wrote before the topic was "
        "compacted, or the broker was older than 0.9."
    ),
    "record-offset-mismatch": (
        "An offset in a batch is outside of the batch's range, or does not increase. A client or a tool wrote a "
        "faulty batch."
    ),
    "inner-crc-mismatch": (
        "A message in a compressed v0 or v1 message set has a wrong CRC, but the set's own CRC is correct. A client "
        "compressed a damaged message."
    ),
    "wrapper-offset-mismatch": (
        "The offset of a compressed v0 or v1 message set should be that of its last message. A client, a broker "
        "before 0.10 or a tool wrote another one."
    ),
    "nested-compression": (
        "A message in a compressed message set is itself a compressed message set. Kafka never writes this."
    ),
    "mixed-wrapper-codecs": (
        "A message in a compressed message set names another codec than the set. Kafka never writes this."
    ),
    "truncated-wrapper": (
        "The decompressed messages end inside a message. A client compressed an incomplete buffer, as old clients "
        "did with parts of a fetch response."
    ),
    "malformed-control-record": (
        "A control record (a transaction marker, or a record of KRaft) cannot be decoded, or its batch has wrong "
        "attributes. A tool wrote it."
    ),
    "invalid-header-key": "Header keys are UTF-8 (KIP-82). The producer used another encoding.",
    "internal-record": (
        "The record is in an internal topic, and Kafka 4.3 cannot load its key or value. A client wrote to the topic "
        "directly, or the record is of a newer Kafka version: then the message names the version, the type or the number "
        "that is unknown. What Kafka skips or ignores has no finding: keys of unknown types in topics of coordinators, "
        "bytes after the end of their keys and values, and values of unknown versions in __transaction_state."
    ),
    "unknown-codec": (
        "The attributes name a codec that does not exist, or not in this format version. A client or a proxy wrote "
        "a faulty batch."
    ),
    "undecodable-payload": (
        "The CRC of the batch is correct, but its data cannot be decompressed. A client compressed it wrongly."
    ),
    "decompression-limit": (
        "The data grows very much when it is decompressed. This can be an attack (a decompression bomb), or many "
        "equal bytes. A batch with more than 4 records for each compressed byte is also above the limit: offsets that "
        "increase need more, and so is a record of more than 64 MiB that is 32 times as large as its batch: it can be valid."
    ),
    "codec-quirk": (
        "The compressed data differs from the specification of the codec, in a way that Kafka accepts. Some client "
        "libraries write it so."
    ),
    "claimed-codec": (
        "The attributes name a codec, but the records are readable without decompressing. A client set the codec without "
        "compressing."
    ),
    "limit-reached": (
        "The file has more of something than kseg keeps in memory or shows. Such files are rare, and some are made "
        "to exhaust memory."
    ),
    "index-size": (
        "The size of the index is not a multiple of its entry size. The broker or the machine stopped while it "
        "wrote, or the copy is incomplete."
    ),
    "index-not-increasing": f"Offsets or positions in an offset index do not increase. {_CHANGED}",
    "index-below-base": (
        "An index has an offset below the base offset in its name. The file was renamed, or belongs to another segment."
    ),
    "time-index-not-increasing": f"Timestamps or offsets in a time index decrease. {_CHANGED}",
    "txn-index-version": f"An entry of a transaction index has an unknown version. {_CHANGED}",
    "txn-index-order": f"The entries of a transaction index are not in the order of their markers. {_CHANGED}",
    "late-stable-offset": (
        "The replica was a follower and appended several batches at once, with the marker, the next transaction of the "
        "same producer, and one of another producer. Kafka updates its producers with all batches of an append before it "
        "computes the last stable offset of an aborted transaction, so the later transaction counts as open. A leader "
        "appends one batch at a time and does not write such entries."
    ),
    "snapshot-version": (
        f"The producer snapshot has an unknown version: a newer broker wrote it, or bytes changed. {_CHANGED}"
    ),
    "snapshot-size": (
        "The size of a producer snapshot is not that of its entries. The broker or the machine stopped while it "
        "wrote, or the copy is incomplete."
    ),
    "snapshot-crc": f"The checksum in a producer snapshot is not that of its bytes. {_CHANGED}",
    "checkpoint-malformed": (
        "A line of a checkpoint file is not in its format. The file was edited, or the machine stopped while it was "
        "written."
    ),
    "checkpoint-count": (
        "A checkpoint file has other lines than its second line announces. The file was edited, or is incomplete."
    ),
    "epoch-not-increasing": (
        "The epochs or offsets in a leader-epoch-checkpoint do not increase. The file was edited, or bytes changed."
    ),
    "metadata-malformed": (
        "A metadata file (partition.metadata, meta.properties, quorum-state or .kafka_cleanshutdown) cannot be "
        "read. The file was edited, or the machine stopped while it was written."
    ),
    "kraft-snapshot-incomplete": (
        "A KRaft snapshot starts with a header record and ends with a footer record. One is missing: the file is "
        "incomplete."
    ),
    "checkpoint-duplicate": (
        "A checkpoint file has two lines for one partition. The file was edited, or two files were joined."
    ),
    "index-mismatch": (
        "An entry of an offset index does not name the start of the batch with that offset. The index belongs to "
        "another log, or its log was changed or replaced without it."
    ),
    "time-index-mismatch": (
        "An entry of a time index contradicts the timestamps in the log. The index belongs to another log, or its "
        "log was changed or replaced without it. Or a broker truncated the newest segment after a clean restart: "
        "Kafka 4.3 then forgets the largest timestamp in it."
    ),
    "txn-index-mismatch": (
        "The transaction index and the markers in the log contradict each other. The index belongs to another log, "
        "or an entry is missing."
    ),
    "segment-overlap": (
        "Two segments hold the same offsets. A segment was restored from a backup or copied from another replica, "
        "or a cleaner stopped between its steps."
    ),
    "segment-gap": (
        "No segment holds these offsets. A segment file was deleted or not copied. In a compacted topic the cleaner "
        "removes all records of a segment."
    ),
    "swap-pending": (
        "The cleaner, or the split of a segment, was stopped after it wrote the new file and before it deleted the "
        "old ones."
    ),
    "snapshot-mismatch": (
        "A producer snapshot contradicts the batches before it. It belongs to another replica's log, or the log was "
        "changed without it."
    ),
    "stray-snapshot": "The broker deletes the snapshot of a deleted segment later, and was stopped before that.",
    "epoch-mismatch": (
        "The leader-epoch-checkpoint contradicts the epochs of the batches. The file belongs to another replica, or "
        "the log was changed or replaced without it."
    ),
    "checkpoint-behind-log": (
        "A checkpoint names an offset that the log does not have. Records at the log end were lost, or the "
        "partition folder was replaced by an older copy."
    ),
    "log-start-behind-end": (
        "The log starts after its end, as the checkpoint has it. Segments were lost, or the partition folder was "
        "replaced by an older copy."
    ),
    "orphaned-index": (
        "An index exists without its segment. The segment was deleted or not copied, or the broker was stopped "
        "while it deleted it."
    ),
    "snapshot-behind-log": (
        "A producer snapshot is of an offset that the log does not have. Records at the log end were lost."
    ),
    "stale-index-entries": (
        "The broker truncated the log, and its memory-mapped index still holds the removed entries in the file."
    ),
    "segment-order": (
        "The offsets in a segment do not fit its place among the names. Two files have each other's name."
    ),
    "missing-index": (
        "A segment has no offset or time index, although other segments have them. The file was deleted or not copied."
    ),
    "no-indexes": "No segment of the folder has this index. Only the logs were copied, as many backups do.",
    "repeated-upload": (
        "Two segments in remote storage have the same offsets. A leader uploaded a segment and failed before it finished. "
        "The next leader uploaded it again, with its own segment boundaries. Kafka deletes the first one later."
    ),
    "metadata-not-replayable": (
        "A record of the metadata log contradicts the records before it: a topic exists twice, or a broker or a partition "
        "that a record changes does not exist. Its bytes are right. The log was joined from two others, edited, or written "
        "by a faulty version of Kafka."
    ),
    "metadata-snapshot-missing": (
        "The metadata log begins after offset 0, but the snapshot with the records before it is missing. The file was "
        "deleted, or the copy is incomplete."
    ),
    "stray-folder": (
        "The metadata log next to the folder does not place the partition on this broker: its topic was deleted, or created "
        "again with another id, or moved to other brokers. Or the folder is a copy, or the log is older than the folder."
    ),
    "unregistered-directory": (
        "A broker registers its log directories at each start. This one was added, restored or offline since."
    ),
    "last-replica-fenced": (
        "At the end of the log the broker did not answer the controllers, others did, and only it had all records of some "
        "partitions."
    ),
    "ghost-controller": (
        "The controller was removed from the voters, or it never was one. A controller registers at each start, and stays "
        "registered."
    ),
    "upgrade-blocked": (
        "The node registered with an older Kafka than others. It was not upgraded yet, or it is gone and still registered."
    ),
    "missing-batches": (
        "Offsets inside a segment, or at its start, are missing. Batches were lost, or the cleaner removed them."
    ),
    "producers-without-snapshot": (
        "The producer snapshots were deleted, or not copied with the log. A broker writes one when it rolls a segment, and "
        "at a clean shutdown."
    ),
    "missing-epochs": (
        "The leader-epoch-checkpoint was deleted, or not copied with the log. The broker writes a new one with the newest "
        "epoch only. Or a broker removed the replica and got it again: it can then write the entries of the old replica, "
        "none after a truncation, over those of the new one (LeaderEpochFileCache, seen in Kafka 4.3)."
    ),
    "zero-segment": (
        "The only segment of a partition, or a segment that is read by itself, has no byte other than zero. Either it was "
        "preallocated (log.preallocate) and never written to, or the machine stopped before the file system wrote the data."
    ),
    "stale-high-watermark": (
        "The broker was killed right after it truncated a log, or the machine lost records that were not flushed."
    ),
    "frame-size": (
        "The first four bytes of a frame are its size. The capture lost bytes, does not start at a frame, or is of "
        "another protocol (TLS)."
    ),
    "frame-cut": "The file ends inside a frame. The capture stopped there, or the connection was closed.",
    "unknown-api": (
        "kseg does not know the API or its version. The client is newer than kseg, or the bytes are not a request."
    ),
    "malformed-body": (
        "The body of a request or response does not have the format of its API and version. The client is faulty, "
        "or the capture lost bytes."
    ),
    "unmatched-response": (
        "The correlation id of a response belongs to no request. The requests are of another connection, or some "
        "are missing."
    ),
    "body-left-over": (
        "The frame is longer than its body. Some clients send more than the version of the API defines."
    ),
    "unread-bodies": "A response does not name its API. kseg needs the requests of the connection to decode it.",
    "several-batches": (
        "A producer sends one batch per partition. This request has several, of different versions, or a compressed "
        "message set among others."
    ),
    "relative-offset-mismatch": (
        "In v1 a producer numbers the messages of a compressed set from 0. This client uses other numbers."
    ),
}
