"""The table of rules: one row per rule, with its severity and its texts.

A message is a template over the facts of a finding. ``{count:noun}`` writes a number with its noun: ``1 byte`` or
``2,228 bytes``. ``kseg.rule_help`` explains the causes and shows an example of each rule.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    ``message`` is a template over a finding's facts, ``broker`` is the broker's reaction, and ``remedy`` is what its
    operator can do.
    """

    code: str
    name: str
    severity: Severity
    message: str
    broker: str
    remedy: str = ""

    def broker_for(self, *, framed: bool) -> str | None:
        """Return the broker's reaction; for a file other than a log (``framed``), only rules of the wire have one."""
        return self.broker if not framed or self.code.startswith("K8") or self.name == "partial-entry" else None


_I, _W, _E, _F = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL
_TRUNCATES = "Recovery after an unclean stop truncates the log here and deletes every later segment; a consumer stops."
_CONSUMER = "The broker does not open v2 batches: it serves this one, and the consumer fails on it."
# FileRecords.searchForOffsetFromPosition and UnifiedLog.rebuildProducerState read the base offset of a batch. To do so for
# a compressed v0 or v1 message, they decompress it.
_OPENED = (
    "The broker serves a v2 batch as it is, and the consumer fails on it. Compressed v0 and v1 messages it opens to look up "
    "offsets, also when it starts: one that it can't read ends the process."
)
_SILENT = "Nothing: the broker takes it as it is."
_SNAPSHOT = "Deletes it, and goes by an older snapshot and the log behind that, or by the whole log."
_OFFLINE = "Takes the log dir offline, and stops where it was the last."
_REBUILT = "Only recovery after an unclean stop rebuilds it, of segments from the recovery point on."

# Codes by layer, never reused: K1 framing, K2 batch, K3 record, K4 codec, K5 side file, K6 across files, K7 conversion,
# K8 wire.
_TABLE = (
    # K1: framing
    Rule("K101", "truncated-tail", _E, "the last entry is cut short: {why}",
         "Ends the log here in silence; recovery truncates the rest."),
    Rule("K102", "zero-tail", _I, "{bytes} bytes of zeros at the end, as preallocation leaves them{note}",
         "Ends the log here in silence; recovery or a clean stop cuts them off. With a later segment behind them it serves "
         "them, and consumers fail there; recovery after an unclean stop deletes that segment."),
    Rule("K103", "invalid-size", _E, "the size field says {size}: {why}", _TRUNCATES),
    Rule("K104", "unknown-magic", _E, "magic {magic}: {why}",
         "3 to 127 are parsed as v2 without a word; negative ones as v0 and v1, which fails."),
    Rule("K105", "lost-bytes", _E, "{bytes} bytes are no entry of a log: {why}", _TRUNCATES),
    Rule("K106", "oversize-entry", _W, "{size} bytes in all, more than the limit of {limit}",
         "A leader with that max.message.bytes refuses it on produce; what is stored is served, and replicas follow."),
    Rule("K107", "read-error", _F, "reading failed: {why}",
         "An I/O error takes the whole log dir offline."),
    Rule("K108", "partial-entry", _I, "the last entry is here in part, as far as a fetch had room: {why}",
         "Cuts it off itself where the fetch's limit is; the consumer passes over it, and fetches it next."),
    # K2: batches
    Rule("K201", "crc-mismatch", _E, "the CRC says {stored:#010x}, the bytes say {computed:#010x}{note}", _TRUNCATES),
    Rule("K202", "non-monotonic-offset", _E, "offset {offset} after {previous}{note}",
         "Recovery tests the order only at index entries, and truncates there; consumers see records twice or never."),
    Rule("K203", "offset-gap", _I, "offsets {first} to {last} are not here: {why}",
         "Nothing: gaps are legal in a compacted log."),
    Rule("K204", "record-count-mismatch", _E, "the header counts {count} records: {why}", _CONSUMER),
    Rule("K205", "max-timestamp-mismatch", _E, "the header's largest timestamp is {stored}, the records' is {actual}",
         "Trusts the header: time index, retention and offsetsForTimes go wrong."),
    Rule("K206", "reserved-attribute-bits", _W, "reserved attribute bits {bits:#x} are set{where}",
         "Ignores them; a later format may give them a meaning."),
    Rule("K207", "invalid-offset-range", _E, "last offset delta {delta}: {why}",
         "Recovery splits or truncates the segment where the offset does not fit its 32-bit relative form."),
    Rule("K208", "last-offset-mismatch", _I, "the last record has offset {record}, the header's last offset is {last}",
         "Nothing: compaction keeps the header's last offset when it drops the last record."),
    Rule("K209", "future-timestamp", _W, "timestamp {timestamp} is {ahead} ahead of now",
         "Time retention keeps the segment until that day; offsetsForTimes answers with it."),
    Rule("K210", "timestamp-unit", _W, "timestamp {timestamp} looks like {unit}, not milliseconds",
         "Takes it as milliseconds: retention deletes at once or never."),
    Rule("K211", "invalid-timestamp", _E, "timestamp {timestamp} is negative and not -1",
         "Refused on produce since 0.11; what is stored is served."),
    Rule("K212", "leader-epoch-regression", _E, "leader epoch {epoch} after {previous}",
         "The epoch cache is built from batches at recovery, though no CRC covers them: followers truncate wrongly."),
    Rule("K213", "producer-epoch-regression", _E, "producer {producer_id}: epoch {epoch} after {previous}",
         "A leader fences such a write; on recovery and replication it is only logged."),
    Rule("K214", "sequence-gap", _W, "producer {producer_id}: sequence {sequence} where {expected} was expected",
         "A leader refuses it (OutOfOrderSequence) unless the producer's state expired; recovery only logs it."),
    Rule("K215", "duplicate-sequence", _E, "producer {producer_id}: sequences {first} to {last} stand here again",
         "A leader recognises duplicates of the last five batches; one in the log was delivered twice."),
    Rule("K216", "inconsistent-producer", _W, "producer id {producer_id}, base sequence {sequence}: {why}",
         "Refused on produce."),
    Rule("K217", "file-name-mismatch", _W, "the file name says offset {name}, {why}",
         "Indexes can't hold offsets outside the name's range; lookups miss them."),
    Rule("K218", "magic-downgrade", _I, "a v{magic} entry after v{previous}",
         "Clears the leader epoch cache; Kafka 4 reads such entries but never writes them."),
    Rule("K220", "negative-leader-epoch", _E, "leader epoch {epoch}",
         "Serves it as a leader. A follower fails on it (IllegalArgumentException in LeaderEpochFileCache), so the "
         "partition can't be replicated."),
    Rule("K223", "append-time-regression", _W, "append time {timestamp} after {previous}: {back} ms back under one leader",
         "Nothing: the time index keeps the largest so far. The leader's clock was set back, or batches are out of order."),
    Rule("K224", "mixed-codecs", _I, "batches of one record set are compressed with {codecs}",
         "Takes each batch by its own attributes. Of a fetch that is normal: its batches are several producers'."),
    # K3: records
    Rule("K301", "malformed-record", _E, "record {index}: {why}", _OPENED),
    Rule("K302", "null-key", _E, "record {index} at offset {offset} has no key",
         "The cleaner drops keyless records of a compacted topic; on produce they are refused."),
    Rule("K303", "record-offset-mismatch", _E, "record {index}: offset {offset} {why}", _CONSUMER),
    Rule("K304", "inner-crc-mismatch", _E,
         "inner message {index}: the CRC says {stored:#010x}, the bytes say {computed:#010x}",
         "Inner CRCs are checked only on produce; old consumers fail, newer ones take the message."),
    Rule("K305", "wrapper-offset-mismatch", _E, "the wrapper's offset {offset} {why}",
         "A v1 wrapper offset below its last inner offset fails the consumer; otherwise offsets are silently shifted."),
    Rule("K306", "nested-compression", _E, "inner message {index} is itself compressed with {codec}",
         "A leader rejects it on produce. A stored one ends a broker that looks up offsets in it, also when it starts; the "
         "consumer fails on it."),
    Rule("K307", "mixed-wrapper-codecs", _E, "inner message {index} names {codec}, its wrapper {wrapper}",
         "As for nested-compression: whatever its codec, an inner message may have none."),
    Rule("K308", "truncated-wrapper", _E, "the last inner message is cut short: {bytes} bytes are left over",
         "Drops the torn message without a word."),
    Rule("K309", "malformed-control-record", _E, "control record {index}: {why}",
         "The coordinator's and the consumer's readers fail on it."),
    Rule("K310", "invalid-header-key", _W, "record {index}: a header key is not UTF-8",
         "The consumer replaces what it can't decode."),
    Rule("K311", "internal-record", _E, "record {index} is none of {topic}: {why}",
         "A coordinator can't load the partition: its groups or transactions stand still. With KRaft the process ends."),
    # K4: codecs
    Rule("K401", "unknown-codec", _E, "codec {codec}: {why}", _OPENED),
    Rule("K402", "undecodable-payload", _E, "the {codec} payload can't be decoded: {why}", _OPENED),
    Rule("K403", "decompression-limit", _E, "the {codec} payload grows past {limit} bytes",
         "The consumer inflates it as far as its memory goes; of v0 and v1 the broker does so, too, also when it starts."),
    Rule("K404", "codec-quirk", _I, "{codec}: {why}", _SILENT),
    Rule("K405", "claimed-codec", _W, "the attributes say {codec}, but the value is not compressed",
         "Takes the claim for true: the consumer fails on it."),
    Rule("K410", "limit-reached", _W, "more than {limit} {what}: {why}", _SILENT),
    # K5: side files
    Rule("K501", "index-size", _E, "{bytes} bytes are left over behind the last whole entry of {size}",
         "Cuts an offset or time index down to whole entries; of a .txnindex it misses the last, and consumers that read "
         "committed get aborted records."),
    Rule("K502", "index-not-increasing", _E, "offset {offset} at byte {log_position} of the log {why}",
         f"Looks offsets up in it as it is, and fetches begin at a wrong place. {_REBUILT}"),
    Rule("K503", "index-below-base", _E, "offset {offset} is below the {base} in the file's name",
         f"Rebuilds a .txnindex with its segment at every start. Other indexes it takes as they are. {_REBUILT}"),
    Rule("K504", "time-index-not-increasing", _E, "timestamp {timestamp} of offset {offset} {why}",
         f"Looks times up in it as it is: offsetsForTimes answers wrongly. {_REBUILT}"),
    Rule("K505", "txn-index-version", _E, "version {version}, where only 0 is known",
         "Looks at the first of the two bytes only: below 256 it reads on, above it does not start."),
    Rule("K506", "txn-index-order", _E, "offsets {first} to {last} of producer {producer_id} {why}",
         "Nothing: its search may end too early, and consumers that read committed get aborted records."),
    Rule("K507", "snapshot-version", _E, "version {version}, where only 1 is known", _SNAPSHOT),
    Rule("K508", "snapshot-size", _E, "{bytes} bytes, where {why}", _SNAPSHOT),
    Rule("K509", "snapshot-crc", _E, "the CRC says {stored:#010x}, the bytes say {computed:#010x}", _SNAPSHOT),
    Rule("K510", "checkpoint-malformed", _E, 'the line "{line}" {why}', _OFFLINE),
    Rule("K511", "checkpoint-count", _E, "{found} entries, where {count} are announced", _OFFLINE),
    Rule("K512", "epoch-not-increasing", _E,
         "epoch {epoch} from offset {start_offset} after {previous} from {previous_start}",
         "Forgets the earlier entries that conflict: followers may truncate too far back."),
    Rule("K513", "metadata-malformed", _E, "{why}",
         "Does not start; a .kafka_cleanshutdown that can't be read still counts as one."),
    Rule("K514", "kraft-snapshot-incomplete", _E, "{why}",
         "Without the header, loading it fails; that the footer is missing goes unseen, and so does the metadata cut off."),
    Rule("K515", "checkpoint-duplicate", _W, "{topic}-{partition} stands here again, with offset {offset}",
         "Goes by the last line of a partition."),
    # K6: across files, of a folder's
    Rule("K601", "index-mismatch", _E, "offset {offset} at byte {log_position} of the log: {why}",
         "After a clean stop it looks at none of it: fetches begin at a wrong place, or the log's end is taken for "
         f"lower than it is. {_REBUILT}"),
    Rule("K602", "time-index-mismatch", _E, "timestamp {timestamp} of offset {offset}: {why}",
         f"Looks times up in it as it is: offsetsForTimes passes over records, or retention errs. {_REBUILT}"),
    Rule("K603", "txn-index-mismatch", _E, "the aborted transaction {first} to {last} of producer {producer_id} {why}",
         "Goes by it as it is: consumers that read committed get aborted records, or miss committed ones."),
    Rule("K604", "segment-overlap", _E, "it begins at offset {first}, {other} before it ends at {last}",
         "Takes both as they are: the later is found by its name, and consumers see records twice or not at all."),
    Rule("K605", "segment-gap", _E, "offsets {first} to {last}, right behind {other}, are in no segment: {why}",
         "Nothing, also where a segment was lost: consumers go on behind the gap without a word."),
    Rule("K606", "swap-pending", _I, "{why}",
         "Replaces the segment by the .swap file at its next start."),
    Rule("K607", "snapshot-mismatch", _E, "producer {producer_id} {why}",
         "Goes by it for whatever it needs not read again: right writes are refused, or duplicates taken; a "
         "transaction is taken for open, and holds the last stable offset, or for ended."),
    Rule("K608", "stray-snapshot", _I, "no segment begins at offset {offset}, and a later snapshot is there",
         "Deletes it at its next start: an earlier one left it."),
    Rule("K609", "epoch-mismatch", _E, "epoch {epoch} {why}",
         "Cuts off what begins behind the log's end; else answers by it, and followers truncate too far or too little. "
         "Only recovery after an unclean stop adds epochs of batches, those newer than the last."),
    Rule("K610", "checkpoint-behind-log", _W,
         "the {what} of {topic}-{partition} is {offset}, the log ends at {end}",
         "Lowers a high watermark to the log's end. Below a recovery point it recovers nothing after an unclean stop, and "
         "the cleaner begins anew at the log's start."),
    Rule("K611", "log-start-behind-end", _E,
         "the {what} of {topic}-{partition} is {offset}, the log ends at {end}",
         "Deletes every segment of the partition at its next start, and begins anew at that offset."),
    Rule("K612", "orphaned-index", _W, "there is no {log} to it", "Deletes it at its next start."),
    Rule("K613", "snapshot-behind-log", _W, "a snapshot up to offset {offset}, the log ends at {end}",
         "Deletes it at its next start: what the log lost at its end is lost for its producers, too."),
    Rule("K614", "stale-index-entries", _I,
         "stale entries at its end: {entries}, written before the log was truncated",
         "Ignores them: it knows how many entries are valid and overwrites the others. It drops them when the segment rolls "
         "and at a clean shutdown."),
    Rule("K615", "segment-order", _E,
         "it holds offsets {first} to {last}, which belong before those of {other}: the files' names are wrong",
         "Looks offsets up by the names: consumers are told that offsets are out of range, or skip them. Recovery after an "
         "unclean stop truncates where offsets go back."),
    Rule("K616", "missing-index", _W, "there is no {index} to it",
         "Rebuilds a missing .index with its segment at the next start, in the time that reading it takes. A missing "
         ".timeindex it leaves empty after a clean shutdown: time look-ups read the segment, and retention uses the file's "
         "time."),
    Rule("K617", "no-indexes", _I, "of {segments} segments, not one has {what}: these are logs without their indexes",
         "Rebuilds missing .index files with their segments at its next start; after a clean shutdown missing .timeindex "
         "files stay empty."),
    Rule("K621", "missing-batches", _W, "no batch has the offsets {first} to {last}: {why}",
         "Nothing: consumers continue after the gap without an error."),
    Rule("K622", "stale-high-watermark", _I,
         "the {what} of {topic}-{partition} is {offset}, the log ends at {end}, and the broker was not shut down cleanly",
         "Nothing: it lowers the high watermark to the log's end. A broker that is killed right after it truncated a log "
         "leaves it so, as does a machine that lost records that were not flushed."),
    # K8: wire
    Rule("K801", "frame-size", _E, "the frame's size says {size}: {why}",
         "Ends the connection: a request has at most socket.request.max.bytes."),
    Rule("K802", "frame-cut", _E, "the last frame is cut short: {why}",
         "Waits for the rest until the connection ends, and forgets it."),
    Rule("K803", "unknown-api", _W, "API key {api_key}, version {api_version}: {why}",
         "Ends the connection, unless it is asked for its versions: that it answers in version 0."),
    Rule("K804", "malformed-body", _E, "{what}, version {api_version}: {why}",
         "Ends the connection on a request; a client does on a response."),
    Rule("K805", "unmatched-response", _W, "no request before it has the correlation id {correlation_id}",
         "Answers requests in their order; a client that is answered something else ends the connection."),
    Rule("K806", "body-left-over", _W, "{what}, version {api_version}: {bytes} bytes are left over behind it",
         "Nothing: it looks no further than the body goes. librdkafka's Metadata requests for all topics are so."),
    Rule("K807", "unread-bodies", _I, "{frames} frames are not looked into: {why}",
         "Nothing: a client knows what it has asked."),
    Rule("K808", "several-batches", _E, "{batches} batches in what is produced to one partition: {why}",
         "A leader rejects the record set (InvalidRecordException)."),
    Rule("K809", "relative-offset-mismatch", _W,
         "inner message {index} has offset {offset}, where a producer counts from 0 (KIP-31)",
         "A leader assigns offsets by building the message set again, which costs it the compression."),
)  # fmt: skip

#: The rules by name.
RULES: Mapping[str, Rule] = {rule.name: rule for rule in _TABLE}
