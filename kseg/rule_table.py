"""The table of rules: one row per rule, with its severity and its texts.

``kseg.rule_help`` explains the causes and shows an example of each rule.

A message is a template over the facts of a finding, which ``kseg.findings`` fills in:

- ``{bytes:byte}``: a number with its noun, ``1 byte`` or ``2,228 bytes``
- ``{timestamp:time}``: epoch milliseconds as ISO 8601
- ``{offsets}``: the facts ``first`` and ``last``, ``offset 5`` or ``offsets 5 to 7``; ``{sequences}`` likewise
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple


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


class Rule(NamedTuple):
    """A row of the table.

    ``message`` is a template over a finding's facts, ``broker`` is the broker's reaction, and ``remedy`` is what its
    operator can do.
    """

    code: str
    name: str
    severity: Severity
    message: str
    broker: str
    remedy: str

    def broker_for(self, *, framed: bool) -> str | None:
        """Return the broker's reaction; for a file other than a log (``framed``), only rules of the wire have one."""
        return self.broker if not framed or self.code.startswith("K8") or self.name == "partial-entry" else None


_I, _W, _E, _F = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL

# What a broker does.
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
_REBUILT = "Only recovery after an unclean shutdown rebuilds it, for segments after the recovery point."

# What to do.
_COPY = "Copy the partition from another replica."
_RESTORE = "Copy the partition from another replica, or keep its valid batches: `kseg repair PARTITION NEW`."
_CORRECT = (
    "Copy the partition from another replica, or run `kseg repair PARTITION NEW`: it corrects the field if the CRC proves "
    "the value, and keeps all valid batches."
)
_SALVAGE = (
    "Copy the partition from another replica, or keep the records before the fault: "
    "`kseg repair --salvage-records PARTITION NEW`."
)
_INDEX = (
    "Stop the broker, delete the segment's .index file and start the broker: it rebuilds all indexes of the segment."
)
_LINE = "Stop the broker and correct the file, or delete it: the broker writes it again."
_EPOCHS = (
    "Copy the partition from another replica, or run `kseg repair PARTITION NEW`: it writes the file from the batches."
)
_METADATA = "Stop the broker and restore the file from a backup or from another replica."
_NOTHING = "Nothing."
_LOST = (
    "Compare with another replica: `kseg diff A B`. If that replica has the records, copy the partition from it. "
    "If the topic is compacted, validate with `--compacted`."
)
_CLIENT = "Find the client that sent these bytes, and update or correct it."

# Codes by layer, never reused: K1 framing, K2 batch, K3 record, K4 codec, K5 side file, K6 across files, K7 conversion,
# K8 wire.
_TABLE = (
    # K1: framing
    Rule("K101", "truncated-tail", _E, "the last batch is incomplete: {why}",
         "Reads the log up to here without an error. Recovery truncates the rest.",
         "Nothing if the broker was killed while it wrote: it truncates the batch at its start. Otherwise copy the file "
         "again: the copy is incomplete."),
    Rule("K102", "zero-tail", _I, "{bytes:byte} of zeros at the end, as preallocation leaves them{note}",
         "Reads the log up to here without an error. Recovery and a clean shutdown remove the zeros. If a later segment "
         "follows, consumers fail here, and recovery after an unclean shutdown deletes that segment.",
         "Nothing in the newest segment. In an older segment, copy the partition from another replica."),
    Rule("K103", "invalid-size", _E, "invalid size field {size}: {why}", _TRUNCATES, _CORRECT),
    Rule("K104", "unknown-magic", _E, "unknown magic {magic}: {why}",
         "Reads 3 to 127 as v2 without an error. Reads negative values as v0 or v1, which fails.", _CORRECT),
    Rule("K105", "lost-bytes", _E, "{bytes:byte} cannot be read: {why}", _TRUNCATES, _RESTORE),
    Rule("K106", "oversize-entry", _W, "the batch has {size:byte}, the limit is {limit:,}",
         "A leader with that max.message.bytes rejects the batch when it is produced. A stored batch is served and "
         "replicated.",
         "Raise max.message.bytes of the topic, or lower batch.size and max.request.size of its producers."),
    Rule("K107", "read-error", _F, "read error: {why}",
         "Takes the whole log directory offline on an I/O error.",
         "Check the disk and its file system, then copy the partition from another replica."),
    Rule("K108", "partial-entry", _I, "the last batch is incomplete, as at the end of a fetch response: {why}",
         "Cuts the last batch at the size limit of a fetch. The consumer ignores this part and fetches the batch again.",
         "Nothing. To get the whole batch, fetch with a larger max.partition.fetch.bytes."),
    # K2: batches
    Rule("K201", "crc-mismatch", _E, "CRC mismatch: stored {stored:#010x}, computed {computed:#010x}{note}", _TRUNCATES,
         _RESTORE),
    Rule("K202", "non-monotonic-offset", _E, "offset {offset} after offset {previous}{note}",
         "Recovery checks the order only at index entries, and truncates there. Consumers get records twice or skip them.",
         "Copy the partition from another replica, or run `kseg repair PARTITION NEW`: it corrects a base offset that the "
         "batches around it prove."),
    Rule("K203", "offset-gap", _I, "no batch has {offsets}: {why}", "Nothing: a compacted log has gaps.",
         "Nothing if the topic is compacted or has transactions. Otherwise compare with another replica: `kseg diff A B`."),
    Rule("K204", "record-count-mismatch", _E, "the header counts {count:record}: {why}", _CONSUMER, _RESTORE),
    Rule("K205", "max-timestamp-mismatch", _E,
         "largest timestamp: {stored:time} in the header, {actual:time} in the records",
         "Uses the header: the time index, time retention and offsetsForTimes are wrong.",
         "Copy the partition from another replica, or run `kseg repair PARTITION NEW`: it corrects the header."),
    Rule("K206", "reserved-attribute-bits", _W, "reserved attribute bits {bits:#x} are set{where}",
         "Ignores them. A later Kafka version may define them.",
         "Find the producer or proxy that sets them: `kseg dump` shows its producer id. Kafka's own clients never do."),
    Rule("K207", "invalid-offset-range", _E, "last offset delta {delta}: {why}",
         "Recovery splits or truncates the segment where an offset does not fit a 32-bit relative offset.", _RESTORE),
    Rule("K208", "last-offset-mismatch", _I, "last offset: {last} in the header, {record} in the records",
         "Nothing: compaction keeps the header's last offset when it removes the last record.", _NOTHING),
    Rule("K209", "future-timestamp", _W, "timestamp {timestamp:time} is {ahead} in the future",
         "Time retention keeps the segment until that time, and offsetsForTimes returns it.",
         "Correct the producer's clock, and set message.timestamp.after.max.ms, so that the broker rejects such records."),
    Rule("K210", "timestamp-unit", _W, "timestamp {timestamp} looks like {unit}, expected milliseconds",
         "Reads it as milliseconds: time retention deletes the segment at once or never.",
         "Let the producer send timestamps in milliseconds, or set message.timestamp.type=LogAppendTime."),
    Rule("K211", "invalid-timestamp", _E, "negative timestamp {timestamp}: only -1 (no timestamp) is allowed",
         "Rejects it when it is produced (since 0.11). Serves a stored one.",
         "Let the producer send timestamps of 0 or above, or set message.timestamp.type=LogAppendTime."),
    Rule("K212", "leader-epoch-regression", _E, "leader epoch {epoch} is below the previous epoch {previous}",
         "Recovery rebuilds the epoch cache from batches, and no CRC covers their epochs: followers truncate at a wrong "
         "offset.",
         "Copy the partition from another replica, or run `kseg repair PARTITION NEW`: it takes the epoch from the batches "
         "around it."),
    Rule("K213", "producer-epoch-regression", _E,
         "producer {producer_id}: epoch {epoch} is below the previous epoch {previous}",
         "A leader rejects such a batch. Recovery and replication only log it.",
         "Compare with another replica: `kseg diff A B`. Check that no two producers share a transactional.id."),
    Rule("K214", "sequence-gap", _W, "producer {producer_id}: expected sequence {expected}, found {sequence}",
         "A leader rejects such a batch (OutOfOrderSequence) unless the producer's state expired. Recovery only logs it.",
         "Nothing after retention, or if the producer paused longer than producer.id.expiration.ms. "
         "Otherwise compare with another replica: `kseg diff A B`."),
    Rule("K215", "duplicate-sequence", _E, "producer {producer_id}: {sequences} occur twice",
         "A leader recognises duplicates of a producer's last five batches. A duplicate in the log is delivered twice.",
         "Look at both batches: `kseg dump --deep --producer-id N PATH`. Have consumers ignore the duplicates."),
    Rule("K216", "inconsistent-producer", _W, "producer id {producer_id}, base sequence {sequence}: {why}",
         "Rejects such a batch when it is produced.", _CLIENT),
    Rule("K217", "file-name-mismatch", _W, "the file name has offset {name}, but {why}",
         "An index cannot hold offsets outside the range of the name: look-ups miss them.",
         "Rename the segment and its indexes to the first offset of the log, as 20 digits."),
    Rule("K218", "magic-downgrade", _I, "a v{magic} batch after a v{previous} batch",
         "Clears the leader epoch cache. Kafka 4 reads such batches but never writes them.",
         "Nothing. To get one version: `kseg convert any-to-v2 SRC DST`."),
    Rule("K220", "negative-leader-epoch", _E, "negative leader epoch {epoch}",
         "Serves the batch as a leader. A follower fails on it (IllegalArgumentException in LeaderEpochFileCache), so the "
         "partition cannot be replicated.",
         "Run `kseg repair PARTITION NEW`: it takes the epoch from the batches around it."),
    Rule("K223", "append-time-regression", _W,
         "append time {timestamp:time} is {back:,} ms before the previous {previous:time}, under the same leader",
         "Nothing: the time index keeps the largest timestamp. The leader's clock was set back, or batches are out of "
         "order.",
         "Check the clock of the broker (NTP)."),
    Rule("K224", "mixed-codecs", _I, "the batches of one record set use several codecs: {codecs}",
         "Uses the codec of each batch. This is normal in a fetch response: its batches are from several producers.",
         _NOTHING),
    # K3: records
    Rule("K301", "malformed-record", _E, "record {index}: {why}", _OPENED, _SALVAGE),
    Rule("K302", "null-key", _E, "record {index} at offset {offset} has no key",
         "Rejects records without a key for a compacted topic. The cleaner removes stored ones.",
         "Let the producer set a key, or set cleanup.policy=delete for the topic."),
    Rule("K303", "record-offset-mismatch", _E, "record {index}: offset {offset} {why}", _CONSUMER, _SALVAGE),
    Rule("K304", "inner-crc-mismatch", _E,
         "inner message {index}: CRC mismatch: stored {stored:#010x}, computed {computed:#010x}",
         "Checks inner CRCs only when it appends. Old consumers fail on the message, newer ones accept it.", _SALVAGE),
    Rule("K305", "wrapper-offset-mismatch", _E, "the compressed message set has offset {offset}, {why}",
         "A v1 consumer fails if the offset is below the last inner offset. Otherwise all offsets in it are shifted.",
         _COPY),
    Rule("K306", "nested-compression", _E, "inner message {index} is compressed again with {codec}",
         "Rejects it when it is produced. A stored one ends a broker that looks up offsets in it, also at its start, and "
         "consumers fail on it.", _RESTORE),
    Rule("K307", "mixed-wrapper-codecs", _E, "inner message {index} names codec {codec}, its message set {wrapper}",
         "The same as for nested-compression: an inner message must not be compressed.", _RESTORE),
    Rule("K308", "truncated-wrapper", _E, "the last inner message is incomplete: {bytes:byte} left over",
         "Ignores the incomplete message without an error.", _COPY),
    Rule("K309", "malformed-control-record", _E, "control record {index}: {why}",
         "Consumers and the transaction coordinator fail on it.", _COPY),
    Rule("K310", "invalid-header-key", _W, "record {index}: a header key is not valid UTF-8",
         "The consumer replaces the invalid bytes.", "Let the producer encode header keys as UTF-8."),
    Rule("K311", "internal-record", _E, "record {index} is not a valid record of {topic}: {why}",
         "A coordinator cannot load the partition: its groups or transactions stop. With KRaft the process ends.",
         "Copy the partition from another replica. `kseg dump --deep` shows the record."),
    # K4: codecs
    Rule("K401", "unknown-codec", _E, "codec {codec}: {why}", _OPENED, _RESTORE),
    Rule("K402", "undecodable-payload", _E, "the {codec} data cannot be decompressed: {why}", _OPENED, _SALVAGE),
    Rule("K403", "decompression-limit", _E, "the {codec} data decompresses to more than {limit:byte}",
         "Consumers decompress the batch as far as their memory allows. The broker does so for v0 and v1, also at its "
         "start.",
         "Find the producer of the batch: `kseg dump PATH` shows its id. Delete the batch with kafka-delete-records if no "
         "consumer needs it."),
    Rule("K404", "codec-quirk", _I, "{codec}: {why}", _ACCEPTED,
         "Nothing. To compress the batches again: `kseg convert --compression lz4 any-to-v2 SRC DST`."),
    Rule("K405", "claimed-codec", _W, "the attributes name codec {codec}, but the value is not compressed",
         "Tries to decompress the value: consumers fail on it.", _CLIENT),
    Rule("K410", "limit-reached", _W, "more than {limit:,} {what}: {why}", _ACCEPTED,
         "Nothing: kseg limits its memory. The rest of the file was not checked for this."),
    # K5: side files
    Rule("K501", "index-size", _E, "{bytes:byte} left over after the last {size}-byte entry",
         "Truncates an offset or time index to complete entries. In a .txnindex the last entry is lost: read_committed "
         "consumers get aborted records.", _INDEX),
    Rule("K502", "index-not-increasing", _E, "offset {offset} at byte {log_position} of the log {why}",
         f"Uses the index unchecked: fetches start at a wrong position. {_REBUILT}", _INDEX),
    Rule("K503", "index-below-base", _E, "offset {offset} is below {base}, the offset in the file name",
         f"Rebuilds a .txnindex with its segment at every start. Uses other indexes unchecked. {_REBUILT}", _INDEX),
    Rule("K504", "time-index-not-increasing", _E, "timestamp {timestamp:time} of offset {offset} {why}",
         f"Uses the index unchecked: offsetsForTimes returns wrong offsets. {_REBUILT}", _INDEX),
    Rule("K505", "txn-index-version", _E, "expected version 0, found {version}",
         "Checks only the first of the two bytes: below 256 it reads the entry, from 256 on it does not start.", _INDEX),
    Rule("K506", "txn-index-order", _E, "{offsets} of producer {producer_id}: {why}",
         "Nothing: its search can end too early, and read_committed consumers get aborted records.", _INDEX),
    Rule("K507", "snapshot-version", _E, "expected version 1, found {version}", _SNAPSHOT,
         "Nothing: the broker deletes the file at its start. To prevent this, update the broker if a newer one wrote it."),
    Rule("K508", "snapshot-size", _E, "the file has {bytes:byte}, but {why}", _SNAPSHOT,
         "Nothing: the broker deletes the file at its start."),
    Rule("K509", "snapshot-crc", _E, "CRC mismatch: stored {stored:#010x}, computed {computed:#010x}", _SNAPSHOT,
         "Nothing: the broker deletes the file at its start."),
    Rule("K510", "checkpoint-malformed", _E, 'line "{line}": {why}', _OFFLINE, _LINE),
    Rule("K511", "checkpoint-count", _E, "the second line announces {count:entry}, found {found:,}", _OFFLINE, _LINE),
    Rule("K512", "epoch-not-increasing", _E,
         "epoch {epoch} from offset {start_offset} after epoch {previous} from offset {previous_start}: both must increase",
         "Ignores the earlier entries that conflict: followers can truncate too far.", _EPOCHS),
    Rule("K513", "metadata-malformed", _E, "{why}",
         "Does not start. An unreadable .kafka_cleanshutdown still counts as a clean shutdown.", _METADATA),
    Rule("K514", "kraft-snapshot-incomplete", _E, "{why}",
         "Fails to load a snapshot without header. Does not notice a missing footer: the metadata after the cut is lost.",
         "Stop the node, and copy the snapshot of the same name from another node."),
    Rule("K515", "checkpoint-duplicate", _W, "second line for {topic}-{partition}, with offset {offset}",
         "Uses the last line of a partition.", _LINE),
    # K6: across files, of a folder's
    Rule("K601", "index-mismatch", _E, "offset {offset} at byte {log_position} of the log: {why}",
         "After a clean shutdown the broker trusts the index: fetches can start at a wrong position, and the log end can "
         f"be too low. {_REBUILT}", _INDEX),
    Rule("K602", "time-index-mismatch", _E, "timestamp {timestamp:time} of offset {offset}: {why}",
         f"Uses the index unchecked: offsetsForTimes skips records, or retention is wrong. {_REBUILT}", _INDEX),
    Rule("K603", "txn-index-mismatch", _E, "aborted transaction of producer {producer_id} at {offsets}: {why}",
         "Uses the index unchecked: read_committed consumers get aborted records, or miss committed ones.", _INDEX),
    Rule("K604", "segment-overlap", _E, "the segment starts at offset {first}, but {other} ends at offset {last}",
         "Uses both segments: look-ups find the later one by its name, and consumers get records twice or not at all.",
         "Copy the partition from another replica, or run `kseg repair PARTITION NEW`."),
    Rule("K605", "segment-gap", _E, "no segment has {offsets}, after {other}: {why}",
         "Nothing, even if a segment was lost: consumers continue after the gap without an error.", _LOST),
    Rule("K606", "swap-pending", _I, "{why}", "Replaces the segments by the .swap file at its next start.", _NOTHING),
    Rule("K607", "snapshot-mismatch", _E, "producer {producer_id}: {why}",
         "Trusts the snapshot for the log before it: it can reject valid batches or accept duplicates. It can keep a "
         "finished transaction open, which stops the last stable offset, or end an open one.",
         "Stop the broker, delete the partition's .snapshot files and start the broker: it rebuilds them from the log."),
    Rule("K608", "stray-snapshot", _I, "no segment starts at offset {offset}, and a later snapshot exists",
         "Deletes the file at its next start.", _NOTHING),
    Rule("K609", "epoch-mismatch", _E, "epoch {epoch}: {why}",
         "Removes epochs that start after the log end. Otherwise trusts the file, and followers truncate too much or too "
         "little. Only recovery after an unclean shutdown adds epochs of batches, those after the last one.",
         _EPOCHS),
    Rule("K610", "checkpoint-behind-log", _W,
         "the {what} of {topic}-{partition} is {offset}, but the log ends at {end}",
         "Lowers a high watermark to the log end. Below the recovery point it recovers nothing after an unclean shutdown. "
         "The cleaner starts at the log start.",
         "Compare with another replica: `kseg diff A B`. The log lost its end, or another log was copied here."),
    Rule("K611", "log-start-behind-end", _E,
         "the {what} of {topic}-{partition} is {offset}, but the log ends at {end}",
         "Deletes all segments of the partition at its next start, and starts an empty log at that offset.",
         "Before the broker starts, correct the line of the partition in the checkpoint, or copy the right log here."),
    Rule("K612", "orphaned-index", _W, "the log of this index, {log}, does not exist",
         "Deletes the index at its next start.",
         "Nothing if the segment was deleted. Otherwise copy the segment from another replica."),
    Rule("K613", "snapshot-behind-log", _W, "the snapshot is of offset {offset}, but the log ends at {end}",
         "Deletes the snapshot at its next start: the producers' state of the lost records is lost, too.",
         "Compare with another replica: `kseg diff A B`. The log lost its end."),
    Rule("K614", "stale-index-entries", _I,
         "{entries:stale entry} at the end, from before the log was truncated",
         "Ignores them: it knows how many entries are valid, and overwrites the others. It removes them when it rolls the "
         "segment and at a clean shutdown.", _NOTHING),
    Rule("K615", "segment-order", _E,
         "the segment holds {offsets}, which are below those of {other}: the file names are wrong",
         "Looks offsets up by file name: consumers get an out-of-range error or skip records. Recovery after an unclean "
         "shutdown truncates where offsets decrease.",
         "Rename each segment and its indexes to the first offset of its log, as 20 digits."),
    Rule("K616", "missing-index", _W, "{index} is missing",
         "Rebuilds a missing .index with its segment at its next start, which reads the whole segment. After a clean "
         "shutdown it leaves a missing .timeindex empty: look-ups by time read the segment, and retention uses the time of "
         "the file.",
         "Nothing for a missing .index. For a missing .timeindex, delete the segment's .index too: the broker rebuilds "
         "both."),
    Rule("K617", "no-indexes", _I, "{segments:segment} without {what}",
         "Rebuilds missing .index files with their segments at its next start. After a clean shutdown missing .timeindex "
         "files stay empty.",
         "Nothing if only the logs were copied. To add the indexes: `kseg repair --indexes-only PARTITION NEW`."),
    Rule("K621", "missing-batches", _W, "no batch has {offsets}: {why}",
         "Nothing: consumers continue after the gap without an error.", _LOST),
    Rule("K622", "stale-high-watermark", _I,
         "the {what} of {topic}-{partition} is {offset}, but the log ends at {end} after an unclean shutdown",
         "Lowers the high watermark to the log end. A broker that is killed right after it truncated a log leaves this "
         "state, as does a machine that lost unflushed records.",
         "Nothing if another replica has the records: the broker fetches them."),
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
         "Ignores the bytes. librdkafka's Metadata requests for all topics have such bytes.", _NOTHING),
    Rule("K807", "unread-bodies", _I, "{frames:frame} not decoded: {why}", "Nothing: a client knows its own requests.",
         "Give the requests too: `kseg validate --as requests --as responses REQUESTS RESPONSES`."),
    Rule("K808", "several-batches", _E, "{batches:batch} for one partition in a produce request: {why}",
         "A leader rejects the record set (InvalidRecordException).", _CLIENT),
    Rule("K809", "relative-offset-mismatch", _W,
         "inner message {index} has offset {offset}, but a producer counts from 0 (KIP-31)",
         "A leader assigns the offsets by compressing the message set again, which takes CPU time.", _CLIENT),
)  # fmt: skip

#: The fields of a template that are made of the facts ``first`` and ``last``.
RANGES = ("offsets", "sequences")

#: The rules by name.
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _TABLE}
