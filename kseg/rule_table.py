"""The table of rules: one row per rule, with its severity and its texts.

``kseg.rule_help`` explains the causes and shows an example of each rule.

A message is a template over the facts of a finding, which ``kseg.findings`` fills in:

- ``{bytes:byte}``: a number with its noun, ``1 byte`` or ``2,228 bytes``
- ``{timestamp:time}``: epoch milliseconds as ISO 8601
- ``{offsets}``: the facts ``first`` and ``last``, ``offset 5`` or ``offsets 5..7``; ``{sequences}`` likewise
- ``{line:excerpt}``: the start of a text in quotes, or ``zeros``
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kseg import remedies as do
from kseg.remedies import Action, Remedy


class Severity(enum.IntEnum):
    """The severity of a finding. ``FATAL`` means that reading can't continue; a policy can't lower it."""

    IGNORE = 0
    INFO = 1
    WARNING = 2
    ERROR = 3
    FATAL = 4

    @property
    def label(self) -> str:
        """Return the name in every output; fatal findings are errors there."""
        return "error" if self is Severity.FATAL else self.name.lower()


SEVERITIES = {level.name.lower(): level for level in Severity if level is not Severity.FATAL}


def _is_in_metadata_log(file: str) -> bool:
    folder = file.rpartition("/")[0] or os.getcwd()
    return folder.rpartition("/")[2] == "__cluster_metadata-0"


class Rule(NamedTuple):
    """A row of the table.

    ``message`` is a template over a finding's facts, ``broker`` is the broker's reaction, and ``remedy`` is what its
    operator can do, with ``actions`` as commands. ``by_file`` has the remedies of files of which each needs another, by
    name.
    """

    code: str
    name: str
    severity: Severity
    message: str
    broker: str
    remedy: str
    actions: tuple[Action, ...] = ()
    by_file: Mapping[str, Remedy] = {}

    def remedy_for(self, file: str) -> Remedy:
        """Return the remedy of a finding in this file, given by name, path or URL."""
        found = self.by_file.get(file.rpartition("/")[2], Remedy(self.remedy, self.actions))
        replaces = any(line.startswith(do.SWAP) for action in found.actions for line in action.commands)
        return do.METADATA_LOG if replaces and _is_in_metadata_log(file) else found

    def remedies(self) -> Iterator[tuple[str, Remedy]]:
        """Yield the remedies with the name of their file; empty for any file."""
        yield "", Remedy(self.remedy, self.actions)
        yield from self.by_file.items()

    def broker_for(self, *, framed: bool) -> str | None:
        """Return the broker's reaction; for a file other than a log (``framed``), only rules of the wire have one."""
        return self.broker if not framed or self.code.startswith("K8") or self.name == "partial-entry" else None


_I, _W, _E, _F = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL

# The reactions of a broker.
_TRUNCATES = (
    "Recovery after an unclean shutdown truncates the log here and deletes all later segments. A consumer stops here with "
    "an error."
)
_CONSUMER = "The broker does not decode v2 batches: it serves this batch, and consumers fail on it."
# FileRecords.searchForOffsetFromPosition and UnifiedLog.rebuildProducerState read the base offset of a batch. To do so for
# a compressed v0 or v1 message, they decompress it.
_OPENED = (
    "The broker serves a v2 batch unchanged, and consumers fail on it. It decompresses v0 and v1 message sets to look up "
    "offsets, also at its start: an unreadable one ends the process."
)
_ACCEPTED = "Nothing: the broker accepts it."
_SNAPSHOT = (
    "Deletes the file, and rebuilds the state from an older snapshot and the log after it, or from the whole log."
)
_OFFLINE = "Takes the log directory offline, and stops if no other log directory is left."
_OF_CHECKPOINTS = (
    f"{_OFFLINE} If a number cannot be read: does not start (leader-epoch-checkpoint), serves few or no partitions "
    "(replication-offset-checkpoint), ends the log cleaner (cleaner-offset-checkpoint), or takes the file for empty."
)
_REBUILT = "Only recovery after an unclean shutdown rebuilds it, for segments after the recovery point."

# What to do: kseg.remedies has the actions on files.
_CLIENT = "Find the client that sent these bytes, and update or correct it."

# Codes by layer, never reused: K1 framing, K2 batch, K3 record, K4 codec, K5 side file, K6 across files, K7 metadata of
# KRaft, K8 wire.
_TABLE = (
    # K1: framing
    Rule("K101", "truncated-tail", _E, "the last batch is incomplete: {why}",
         "Reads the log up to here without an error. Recovery truncates the rest.",
         *do.TAIL),
    Rule("K102", "zero-tail", _I, "{bytes:byte} of zeros at the end, as preallocation leaves them{note}",
         "Reads the log up to here without an error. Recovery and a clean shutdown remove the zeros. At a start after a "
         "clean shutdown they can end the process. If a later segment follows, consumers fail here, and recovery after an "
         "unclean shutdown deletes that segment.",
         *do.ZEROS),
    Rule("K103", "invalid-size", _E, "invalid size field {size}: {why}", _TRUNCATES, *do.CORRECT),
    Rule("K104", "unknown-magic", _E, "unknown magic {magic}: {why}",
         "Reads 3 to 127 as v2 without an error; clients reject them. Reads negative values as v0 or v1, which fails.",
         *do.CORRECT),
    Rule("K105", "lost-bytes", _E, "{bytes:byte} cannot be read: {why}", _TRUNCATES, *do.RESTORE),
    Rule("K106", "oversize-entry", _W, "the batch has {size:byte}, the limit is {limit:,}",
         "A leader with that max.message.bytes rejects the batch when it is produced. A stored batch is served and "
         "replicated.",
         "Raise max.message.bytes of the topic, or lower batch.size and max.request.size of its producers."),
    Rule("K107", "read-error", _F, "read error: {why}",
         "Takes the whole log directory offline on an I/O error.",
         "Check the disk and its file system. " + do.COPY.text, do.COPY.actions),
    Rule("K108", "partial-entry", _I, "the last batch is incomplete, as at the end of a fetch response: {why}",
         "Cuts the last batch at the size limit of a fetch. The consumer ignores this part and fetches the batch again.",
         "Nothing. To get the whole batch, fetch with a larger max.partition.fetch.bytes."),
    # K2: batches
    Rule("K201", "crc-mismatch", _E, "CRC mismatch: stored {stored:#010x}, computed {computed:#010x}{note}", _TRUNCATES,
         *do.RESTORE),
    Rule("K202", "non-monotonic-offset", _E, "offset {offset} after offset {previous}{note}",
         "Recovery checks the order only at index entries, and truncates there. If the offsets are below the file name, a "
         "broker that recovers the log does not start. Consumers get records twice or skip them.",
         *do.CORRECT),
    Rule("K203", "offset-gap", _I, "no batch has {offsets}: {why}", "Nothing: a compacted log has gaps.",
         "Nothing if the topic is compacted or has transactions. Otherwise compare with another replica: `kseg diff A B`."),
    Rule("K204", "record-count-mismatch", _E, "the header counts {count:record}: {why}", _CONSUMER, *do.SALVAGE),
    Rule("K205", "max-timestamp-mismatch", _E,
         "largest timestamp: {stored:time} in the header, {actual:time} in the records",
         "Uses the header: the time index, time retention and offsetsForTimes are wrong.",
         *do.CORRECT),
    Rule("K206", "reserved-attribute-bits", _W, "reserved attribute bits {bits:#x} are set{where}",
         "Ignores them. A later Kafka version may define them.",
         "Find the producer or proxy that sets them: `kseg dump` shows its producer id. Kafka's own clients never do."),
    Rule("K207", "invalid-offset-range", _E, "{why}",
         "Recovery splits or truncates the segment where an offset does not fit a 32-bit relative offset.", *do.RESTORE),
    Rule("K208", "last-offset-mismatch", _I, "last offset: {last} in the header, {record} in the records",
         "Nothing: compaction keeps the header's last offset when it removes the last record.", *do.NOTHING),
    Rule("K209", "future-timestamp", _W, "timestamp {timestamp:time} is {ahead} in the future",
         "Time retention keeps the segment until that time, and offsetsForTimes returns it.",
         "Correct the producer's clock, and set message.timestamp.after.max.ms, so that the broker rejects such records."),
    Rule("K210", "timestamp-unit", _W, "timestamp {timestamp} looks like {unit}, expected milliseconds",
         "Reads it as milliseconds: time retention deletes the segment at once or never.",
         "Let the producer send timestamps in milliseconds, or set message.timestamp.type=LogAppendTime."),
    Rule("K211", "invalid-timestamp", _E, "negative timestamp {timestamp}: only -1 (no timestamp) is allowed",
         "Replaces it by that of the records when it is produced. Serves a stored one.",
         "Let the producer send timestamps of 0 or above, or set message.timestamp.type=LogAppendTime."),
    Rule("K212", "leader-epoch-regression", _E, "leader epoch {epoch} {why}",
         "Recovery rebuilds the epoch cache from batches, and no CRC covers their epochs: followers truncate at a wrong "
         "offset.",
         *do.CORRECT),
    Rule("K213", "producer-epoch-regression", _E,
         "producer {producer_id}: epoch {epoch} is below the previous epoch {previous}",
         "A leader rejects such a batch. Recovery and replication only log it.",
         "Compare with another replica: `kseg diff A B`. Check that no two producers share a transactional.id."),
    Rule("K214", "sequence-gap", _W, "producer {producer_id}: expected sequence {expected}, found {sequence}",
         "A leader rejects such a batch (OutOfOrderSequence) unless the producer's state expired. Recovery only logs it.",
         "Nothing after retention, or if the producer paused longer than producer.id.expiration.ms. "
         "Otherwise compare with another replica: `kseg diff A B`."),
    Rule("K215", "duplicate-sequence", _E, "producer {producer_id} has {sequences} twice",
         "A leader recognises duplicates of a producer's last five batches. A duplicate in the log is delivered twice.",
         "Look at both batches: `kseg dump --deep --producer-id N PATH`. Have consumers ignore the duplicates."),
    Rule("K216", "inconsistent-producer", _W, "producer id {producer_id}, base sequence {sequence}: {why}",
         "Rejects such a batch when it is produced.", _CLIENT),
    Rule("K217", "file-name-mismatch", _W, "the file name has offset {name}, but {why}",
         "An index cannot hold offsets outside the range of the name: look-ups miss them. If they are below it, a broker "
         "that recovers the log does not start.", *do.NAMES),
    Rule("K218", "magic-downgrade", _I, "a v{magic} batch after a v{previous} batch",
         "Clears the leader epoch cache. Kafka 4 reads such batches but never writes them.",
         "Nothing. To get one version: `kseg convert any-to-v2 SRC DST`."),
    Rule("K220", "negative-leader-epoch", _E, "negative leader epoch {epoch}",
         "Serves the batch as a leader. A follower fails on it (IllegalArgumentException in LeaderEpochFileCache), so the "
         "partition cannot be replicated.",
         "Stop the broker and replace the partition folder by the result of `kseg repair PARTITION NEW`: it takes the epoch "
         "from the batches around it. Delete .kafka_cleanshutdown of the log directory, too.", (do.CORRECTED,)),
    Rule("K221", "leader-epoch-jump", _W,
         "leader epoch {epoch} is {step:,} above the one before: probably wrong, no CRC covers it",
         "A leader serves the batch. A follower with a lower epoch does not append it, so the partition is not replicated. "
         "Recovery takes the epoch into the epoch cache, and followers truncate at a wrong offset.",
         *do.CORRECT),
    Rule("K223", "append-time-regression", _W,
         "append time {timestamp:time} is {back:,} ms before the previous {previous:time}, {leader}",
         "Nothing: the time index keeps the largest timestamp. The leader's clock was set back, or batches are out of "
         "order; or another leader's clock, if v1 messages don't say whose they are.",
         "Check the clock of the broker (NTP)."),
    Rule("K224", "mixed-codecs", _I,
         "the batches of one record set use several codecs: {codecs}; a leader takes the last, {source}",
         "Uses the codec of each batch in a fetch response: its batches are from several producers. In a produce request "
         "the last codec is that of the set, and a leader rejects a second batch.",
         *do.NOTHING),
    Rule("K226", "wrapper-key", _W, "the compressed message set has a key, {key}, besides those of its messages",
         "Ignores the key of a compressed message set.",
         "Nothing if no client depends on the key: `kseg convert` to v2 drops it, because a batch does not have a key."),
    Rule("K227", "segment-offset-overflow", _W,
         "offset {last} is more than {reach:,} above {base}, the segment's base offset: a broker splits the segment here",
         "Splits the segment when it recovers it, such as at the start after an unclean shutdown, and when its cleaner "
         "reads it. All records stay. Brokers before 1.0.2, 1.1.1 and 2.0 fail at both (KAFKA-6264).",
         "Nothing: a broker of version 2.0 or later splits the segment itself. For a copy without a broker: `kseg repair` "
         "splits it in the same way."),
    # K3: records
    Rule("K301", "malformed-record", _E, "record {index}: {why}", _OPENED, *do.SALVAGE),
    Rule("K302", "null-key", _E, "record {index} at offset {offset} has no key",
         "Rejects records without a key for a compacted topic. The cleaner removes stored ones.",
         "Let the producer set a key, or set cleanup.policy=delete for the topic."),
    Rule("K303", "record-offset-mismatch", _E, "record {index}: offset {offset} {why}", _CONSUMER, *do.RESTORE),
    Rule("K304", "inner-crc-mismatch", _E,
         "inner message {index}: CRC mismatch: stored {stored:#010x}, computed {computed:#010x}",
         "Checks inner CRCs only when it appends. Java's and most other consumers stop at the message, librdkafka does not.",
         *do.SALVAGE),
    Rule("K305", "wrapper-offset-mismatch", _E, "the header of the compressed message set claims offset {offset}, {why}",
         "A v1 consumer fails if the offset is below the last inner offset. Otherwise all offsets in it are shifted.",
         *do.CORRECT),
    Rule("K306", "nested-compression", _E, "inner message {index} is compressed again with {codec}",
         "Rejects it when it is produced. A stored one ends a broker that looks up offsets in it, also at its start, and "
         "consumers fail on it.", *do.RESTORE),
    Rule("K307", "mixed-wrapper-codecs", _E, "inner message {index} names codec {codec}, its message set {wrapper}",
         "The same as for nested-compression: an inner message must not be compressed.", *do.RESTORE),
    Rule("K308", "truncated-wrapper", _E, "the last inner message is incomplete: {bytes:byte} left over",
         "Ignores the incomplete message without an error.", *do.SALVAGE),
    Rule("K309", "malformed-control-record", _E, "control record {index}: {why}",
         "Consumers and the transaction coordinator fail on it. After an unclean shutdown the broker does not start.",
         *do.COPY),
    Rule("K310", "invalid-header-key", _W, "record {index}: a header key is not valid UTF-8",
         "The consumer replaces the invalid bytes.", "Let the producer encode header keys as UTF-8."),
    Rule("K311", "internal-record", _E, "record {index} is not a valid record of {topic}: {why}",
         "The group and the share coordinator do not load the partition: its groups stop. The transaction coordinator "
         "loads only the records before it, and does not know the later ones. With KRaft the process ends. With tiered "
         "storage the broker stops reading the topic.",
         "`kseg dump --deep` shows the record. If a newer Kafka wrote it, start brokers of that version. "
         + do.COPY.text, do.COPY.actions),
    Rule("K312", "unknown-control-record", _W, "control record {index}: {why}",
         "A consumer of Kafka 4.3 skips control records of an unknown type, and reads a newer version as version 0. After "
         "an unclean shutdown the broker does not start if a producer wrote an unknown type.",
         "Use a kseg that knows the version of Kafka that wrote the log."),
    Rule("K313", "past-timestamp", _E,
         "record {index} at offset {offset}: timestamp {timestamp:time} is older than the {limit:,} ms that are allowed",
         "Rejects it when it is produced (message.timestamp.before.max.ms). Serves a stored one.",
         "Let the producer send current timestamps, or raise message.timestamp.before.max.ms of the topic."),
    Rule("K314", "negative-timestamp", _W,
         "record {index} at offset {offset}: timestamp {timestamp} is negative, only -1 (no timestamp) is allowed",
         "Accepts it from clients that send it and serves it, unless it compresses the batch again. Its log cleaner fails "
         "at it: a compacted topic is no longer compacted.",
         "For new records: let the producer send timestamps of 0 or above, or set message.timestamp.type=LogAppendTime."),
    # K4: codecs
    Rule("K401", "unknown-codec", _E, "codec {codec}: {why}", _OPENED, *do.RESTORE),
    Rule("K402", "undecodable-payload", _E, "the {codec} data cannot be decompressed: {why}", _OPENED, *do.RESTORE),
    Rule("K403", "decompression-limit", _E, "the {codec} data {why}",
         "Consumers decompress the batch as far as their memory allows. The broker does so for v0 and v1, also at its "
         "start.",
         "Find the producer of the batch: `kseg dump PATH` shows its id. If consumers fail at it, let them seek past "
         "the batch: kafka-delete-records deletes it only with all records before it."),
    Rule("K404", "codec-quirk", _I, "{codec}: {why}", _ACCEPTED,
         "Nothing. To compress the batches again: `kseg convert --compression lz4 any-to-v2 SRC DST`."),
    Rule("K405", "claimed-codec", _E, "the attributes name codec {codec}{note}, but the {what} not compressed", _OPENED,
         *do.CLAIMED),
    Rule("K410", "limit-reached", _W, "more than {limit:,} {what}: {why}", _ACCEPTED,
         "Nothing: kseg limits its memory. The rest of the file was not checked for this."),
    # K5: side files
    Rule("K501", "index-size", _E, "{bytes:byte} left over after the last {size}-byte entry",
         "Truncates an offset or time index to complete entries. In a .txnindex the last entry is lost: read_committed "
         "consumers get aborted records.", *do.INDEX),
    Rule("K502", "index-not-increasing", _E, "offset {offset} at byte {log_position} of the log {why}",
         f"Uses the index unchecked: fetches start at a wrong position. {_REBUILT}", *do.INDEX),
    Rule("K503", "index-below-base", _E, "offset {offset} is below {base}, the offset in the file name",
         f"Rebuilds a .txnindex with its segment at every start. Uses other indexes unchecked. {_REBUILT}", *do.INDEX),
    Rule("K504", "time-index-not-increasing", _E, "timestamp {timestamp:time} of offset {offset} {why}",
         f"Uses the index unchecked: offsetsForTimes returns wrong offsets. {_REBUILT}", *do.INDEX),
    Rule("K505", "txn-index-version", _E, "expected version 0, found {version}",
         "Checks only the first of the two bytes: below 256 it reads the entry, from 256 on it does not start.", *do.INDEX),
    Rule("K506", "txn-index-order", _E, "{offsets} of producer {producer_id}: {why}",
         "Nothing: its search can end too early, and read_committed consumers get aborted records.", *do.INDEX),
    Rule("K507", "snapshot-version", _E, "expected version 1, found {version}", _SNAPSHOT,
         do.DELETED_SNAPSHOT.text + " To prevent this, update the broker if a newer one wrote it.",
         do.DELETED_SNAPSHOT.actions),
    Rule("K508", "snapshot-size", _E, "the file has {bytes:byte}, but {why}", _SNAPSHOT,
         *do.DELETED_SNAPSHOT),
    Rule("K509", "snapshot-crc", _E, "CRC mismatch: stored {stored:#010x}, computed {computed:#010x}", _SNAPSHOT,
         *do.DELETED_SNAPSHOT),
    Rule("K510", "checkpoint-malformed", _E, "{line:excerpt}: {why}", _OF_CHECKPOINTS,
         do.CHECKPOINT, (), do.MALFORMED_CHECKPOINT),
    Rule("K511", "checkpoint-count", _E, "the second line announces {count:entry}, found {found:,}", _OFFLINE,
         do.CHECKPOINT, (), do.CHECKPOINT_COUNT),
    Rule("K512", "epoch-not-increasing", _E,
         "epoch {epoch} from offset {start_offset} after epoch {previous} from offset {previous_start}: both must increase",
         "Ignores the earlier entries that conflict: followers can truncate too far.", *do.EPOCHS),
    Rule("K513", "metadata-malformed", _E, "{why}",
         "Does not start, or takes the log directory offline. An unreadable .kafka_cleanshutdown still counts as a clean "
         "shutdown, and the names in partition.metadata are not read.",
         do.METADATA, (), do.METADATA_FILES),
    Rule("K514", "kraft-snapshot-incomplete", _E, "{why}",
         "Fails to load a snapshot without header. Does not notice a missing footer: the metadata after the cut is lost.",
         "Stop the node, and copy the snapshot of the same name from another node."),
    Rule("K515", "checkpoint-duplicate", _W, "second line for {topic}-{partition}, with offset {offset}",
         "Uses the last line of a partition.", do.CHECKPOINT, (), do.DUPLICATE_LINE),
    Rule("K525", "late-stable-offset", _I,
         "{offsets} of producer {producer_id}: the last stable offset {stable} is after the marker",
         "A follower writes it when it appends several batches at once. A fetch that ends between the marker "
         "and that offset can miss the next aborted transaction of the same producer: read_committed consumers then get its "
         "records.",
         "Nothing: the entry is as Kafka writes it. To correct it, stop the broker, delete the segment's .index file and "
         "start the broker.", do.INDEX.actions),
    # K6: across files, of a folder's
    Rule("K601", "index-mismatch", _E, "offset {offset} at byte {log_position} of the log: {why}",
         "After a clean shutdown the broker trusts the index: fetches can start at a wrong position, and the log end can "
         f"be too low. {_REBUILT}", *do.INDEX),
    Rule("K602", "time-index-mismatch", _E, "timestamp {timestamp:time} of offset {offset}: {why}",
         f"Uses the index unchecked: offsetsForTimes skips records, or retention is wrong. {_REBUILT}", *do.INDEX),
    Rule("K603", "txn-index-mismatch", _E, "aborted transaction of producer {producer_id} at {offsets}: {why}",
         "Uses the index unchecked: read_committed consumers get aborted records, or miss committed ones.", *do.INDEX),
    Rule("K604", "segment-overlap", _E, "the segment starts at offset {first}, but a header of {other} claims offset {last}",
         "Uses both segments: look-ups find the later one by its name, and consumers get records twice or not at all.",
         *do.RESTORE),
    Rule("K605", "segment-gap", _E, "no segment has {offsets}, after {other}: {why}",
         "Nothing, even if a segment was lost: consumers continue after the gap without an error.", *do.LOST),
    Rule("K606", "swap-pending", _I, "{why}", "Replaces the segments by the .swap file at its next start.",
         "Nothing. `kseg repair PARTITION NEW` does the same in a copy."),
    Rule("K607", "snapshot-mismatch", _E, "producer {producer_id}: {why}",
         "Trusts the snapshot for the log before it: it can reject valid batches or accept duplicates. It can keep a "
         "finished transaction open, which stops the last stable offset, or end an open one.",
         *do.SNAPSHOT),
    Rule("K608", "stray-snapshot", _I, "no segment starts at offset {offset}, and a later snapshot exists",
         "Deletes the file at its next start.", *do.NOTHING),
    Rule("K609", "epoch-mismatch", _E, "epoch {epoch}: {why}",
         "Removes epochs that start after the log end. Otherwise trusts the file, and followers truncate too much or too "
         "little. Only recovery after an unclean shutdown adds epochs of batches, those after the last one.",
         *do.EPOCHS),
    Rule("K610", "checkpoint-behind-log", _W,
         "the {what} of {topic}-{partition} is {offset}, but the log ends at {end}",
         "Lowers a high watermark to the log end. Below the recovery point it recovers nothing after an unclean shutdown. "
         "The cleaner starts at the log start.",
         do.COMPARE.text + " The log lost its end, or another log was copied here.", do.COMPARE.actions),
    Rule("K611", "log-start-behind-end", _E,
         "the {what} of {topic}-{partition} is {offset}, but the log ends at {end}",
         "Deletes all segments of the partition at its next start, and starts an empty log at that offset.",
         *do.LOG_START_LINE),
    Rule("K612", "orphaned-index", _W, "the log of this index, {log}, does not exist",
         "Deletes the index at its next start.",
         "Nothing if the segment was deleted. Otherwise it was lost. " + do.COPY.text, do.COPY.actions),
    Rule("K613", "snapshot-behind-log", _W, "the snapshot is of offset {offset}, but the log ends at {end}",
         "Deletes the snapshot at its next start: the producers' state of the lost records is lost, too.",
         do.COMPARE.text + " The log lost its end.", do.COMPARE.actions),
    Rule("K614", "stale-index-entries", _I,
         "{entries:stale entry} at the end, from before the log was truncated",
         "Ignores them: it knows how many entries are valid, and overwrites the others. It removes them when it rolls the "
         "segment and at a clean shutdown.", *do.NOTHING),
    Rule("K615", "segment-order", _E,
         "the segment holds {offsets}, which are below those of {other}: the file names are wrong",
         "Looks offsets up by file name: consumers get an out-of-range error or skip records. Recovery after an unclean "
         "shutdown truncates where offsets decrease.",
         *do.NAMES),
    Rule("K616", "missing-index", _W, "{index} is {what}",
         "Rebuilds a missing .index with its segment at its next start, which reads the whole segment. After a clean "
         "shutdown it leaves a missing .timeindex empty: look-ups by time read the segment, and retention uses the time of "
         "the file.",
         *do.TIME_INDEX),
    Rule("K617", "no-indexes", _I, "{segments:segment} without {what}",
         "Rebuilds missing .index files with their segments at its next start. After a clean shutdown missing .timeindex "
         "files stay empty.",
         *do.ALL_INDEXES),
    Rule("K621", "missing-batches", _E, "no batch has {offsets}: {why}",
         "Nothing: consumers continue after the gap without an error.", *do.LOST),
    Rule("K622", "stale-high-watermark", _I,
         "the {what} of {topic}-{partition} is {offset}, but the log ends at {end} after an unclean shutdown",
         "Lowers the high watermark to the log end. A broker that is killed right after it truncated a log leaves this "
         "state, as does a machine that lost unflushed records.",
         "Nothing if another replica has the records: the broker fetches them."),
    Rule("K623", "producers-without-snapshot", _W,
         "no producer snapshot exists, but the log has {producers:producer} and {open:open transaction}",
         "After a clean shutdown the broker takes the log for one of an old version, and forgets its producers: "
         "read_committed consumers get records of open transactions, also of those that are aborted later. Sequences are "
         "not checked.",
         *do.NO_SNAPSHOT),
    Rule("K624", "missing-epochs", _W,
         "{what} for {epochs:leader epoch} of the batches at offsets {first}..{last}",
         "Does not add the epochs after a clean shutdown: followers that diverged in them truncate too little, and "
         "replicas differ.",
         *do.MISSING_EPOCHS),
    Rule("K630", "zero-segment", _W,
         "all {bytes:byte} are zeros, and nothing shows whether batches were ever written",
         "Takes the segment for an empty one, and appends to it.",
         *do.ZERO_SEGMENT),
    Rule("K635", "repeated-upload", _I, "remote storage has {offsets} twice: {other} has them, too",
         "Reads the segment that the topic __remote_log_metadata names for the leader epoch.",
         "Nothing. Commands that read the folder read these records twice: give them the files to read."),
    # K7: the metadata log of KRaft
    Rule("K701", "metadata-not-replayable", _E, "{who} end at this {record} record: {why}",
         "A node that loads the record ends with a fatal fault, at each start.",
         "The other controllers have this record, too. Keep copies of all __cluster_metadata-0 folders. If a controller has "
         "a snapshot of a later offset, stop the node and copy the snapshot into its folder: the node then starts "
         "from it."),
    Rule("K702", "metadata-snapshot-missing", _E,
         "the log begins at offset {offset}, and no snapshot has the records before it",
         "Does not start.",
         "Stop the node, and copy the newest snapshot (.checkpoint) of another controller into the folder."),
    Rule("K703", "stray-folder", _W, "partition folder {folder}: {why}",
         "Renames the folder to -stray at its next start, and creates an empty log if it has a partition of this name. If "
         "the id is that of another topic, the folder keeps its name, and the partition stays offline.",
         f"{do.UNPLACED}."),
    Rule("K704", "unregistered-directory", _I,
         "broker {node} has not registered this log directory, {directory}, which has {folders}",
         "Registers it at its next start, and reports its partitions to the controllers.",
         "Nothing if the directory is new, or was offline at the end of this log."),
    Rule("K705", "last-replica-fenced", _I,
         "broker {node} is fenced, and no other replica of {partitions:partition} is in sync",
         "No broker leads these partitions until this one is back; an unclean election would lose records.",
         "Nothing if the cluster was stopped. Otherwise start the broker. If its disks are lost, compare the other "
         "replicas: `kseg diff`."),
    Rule("K706", "ghost-controller", _I, "controller {node} is registered, but not a voter",
         "Counts the controller where all nodes have to support a feature: an old one blocks an upgrade.",
         "Nothing if the controller is new, or only observes. Removed ones can be unregistered as of Kafka 4.4 (KIP-1312)."),
    Rule("K707", "upgrade-blocked", _I, "{node} supports less than other nodes: {what}",
         "Refuses to raise these features as long as the node is registered.",
         "Upgrade the node. If it no longer exists: `kafka-cluster unregister` for a broker; a controller as of Kafka 4.4 "
         "(KIP-1312)."),
    # K8: wire
    Rule("K801", "frame-size", _E, "frame size {size}: {why}",
         "Closes the connection: a request has at most socket.request.max.bytes.",
         "Check that the capture starts at a frame and that its kind is right: `--as requests` or `--as responses`."),
    Rule("K802", "frame-cut", _E, "the last frame is incomplete: {why}",
         "Waits for the rest until the connection ends, then ignores the frame.",
         "Nothing if the capture ended there."),
    Rule("K803", "unknown-api", _W, "API key {api_key}, version {api_version}: {why}",
         "Closes the connection. It answers an unknown version of ApiVersions in version 0.",
         "Check that the capture has the right kind: `--as requests` or `--as responses`. A newer Kafka needs a "
         "newer kseg."),
    Rule("K804", "malformed-body", _E, "{what}, version {api_version}: {why}",
         "Closes the connection after such a request. A client does so after such a response.", _CLIENT),
    Rule("K805", "unmatched-response", _W, "no earlier request has the correlation id {correlation_id}",
         "Answers requests in their order. A client that gets another answer closes the connection.",
         "Give the requests and the responses of the same connection, complete and in the same order."),
    Rule("K806", "body-left-over", _W, "{what}, version {api_version}: {bytes:byte} left over after the body",
         "Ignores the bytes. librdkafka's Metadata requests for all topics have such bytes.", *do.NOTHING),
    Rule("K807", "unread-bodies", _I, "{frames:frame} not decoded: {why}", "Nothing: a client knows its own requests.",
         "Give the requests too: `kseg validate --as requests --as responses REQUESTS RESPONSES`."),
    Rule("K808", "several-batches", _E,
         "{batches:batch} for one partition in a produce request, {bytes:byte} together{note}: {why}",
         "A leader rejects the record set (InvalidRecordException).", _CLIENT),
    Rule("K809", "relative-offset-mismatch", _W,
         "inner message {index} has offset {offset}, but a producer counts from 0 (KIP-31)",
         "A leader assigns the offsets by compressing the message set again, which takes CPU time.", _CLIENT),
)  # fmt: skip

#: The fields of a template that are made of the facts ``first`` and ``last``.
RANGES = ("offsets", "sequences")

#: The rules by name.
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _TABLE}
