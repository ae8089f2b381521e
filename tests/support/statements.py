"""120 statements about Kafka's formats and broker: the command that shows each on a file, and its expected output.

The files are in ``fixtures/statements``; ``tools.make_statements`` packs their bytes without kseg. The page
``docs/reference/statements.md`` is made of these rows, and ``test_statements`` runs them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.docs.terminal import Printed, Terminal

STATEMENTS_FOLDER = Path(__file__).parents[2] / "fixtures" / "statements"


@dataclass(frozen=True, slots=True)
class Statement:
    """A row: ``command``, one or several, prints every text of ``seen``, and the last one exits with ``code``.

    A statement that a file cannot show lacks a command, and ``seen`` is the reason.
    """

    number: int
    text: str
    command: str
    seen: Sequence[str]
    code: int = 0
    width: int = 240

    @property
    def name(self) -> str:
        """The name of its test."""
        return f"{self.number:03}-{re.sub(r'[^a-z0-9]+', '-', self.text.lower()).strip('-')[:60]}"

    @property
    def files(self) -> Sequence[str]:
        """The files and folders of ``fixtures/statements`` in the command."""
        words = dict.fromkeys(shlex.split(self.command.replace(";", " ")))
        return [word for word in words if (STATEMENTS_FOLDER / word).exists()]

    def run(self, terminal: Terminal, folder: Path) -> Printed:
        """Return the output of the commands in a copy of the files, and the last exit code."""
        printed = [terminal.run(one, folder, width=self.width) for one in self.command.split("; ")]
        return Printed("\n".join(one.styled for one in printed), printed[-1].code)

    def lines(self, printed: Printed) -> Sequence[str]:
        """Return the lines of the output that have the texts of ``seen``."""
        found = (next(line for line in printed.text.splitlines() if text in line) for text in self.seen)
        return list(dict.fromkeys(" ".join(line.split()) for line in found))


def _shown(number: int, text: str, command: str, *seen: str, code: int = 0, width: int = 240) -> Statement:
    return Statement(number, text, command, seen, code, width)


def _outside(number: int, text: str, why: str) -> Statement:
    return Statement(number, text, "", (why,))


_HEX = "kseg dump --deep --format hex"
_SET = "kseg validate --as message-set"
_SENT = "kseg validate --as requests"
_BOTH = "--as requests --as responses metadata.bin"

STATEMENTS = (
    _shown(1, "A log is a file of batches, to which records are appended; reading it needs nothing else",
           "kseg dump --deep v0.log", "10", "k10", "12", "v12"),
    _shown(2, "A request holds the same bytes as the log", "kseg dump --as requests --format hex produce.bin",
           "42 94 d9 2d", "crc 0x4294d92d, valid CRC-32"),
    _shown(3, "An entry is an offset (int64), a size (int32) and a message", f"{_HEX} v0.log",
           "offset 10", "messageSize 20: bytes after this field"),
    _shown(4, "The size does not count the 12 bytes of offset and size", "kseg dump --format hex v0-claims-lz4.log",
           "batch at 0, 34 bytes", "messageSize 22", code=1),
    _shown(5, "A v0 message has CRC, magic, attributes, key and value", f"{_HEX} v0.log",
           "crc 0x4294d92d", "magic 0: v0", "attributes compression none", "keySize 3", "valueSize 3"),
    _shown(6, "The smallest v0 message has 14 bytes", "kseg dump --as message --format hex message-14.bin",
           "message at 0, 14 bytes"),
    _shown(7, "A length of -1 is null, and null is not empty", f"{_HEX} v0-min.log", "keySize -1: null", "keySize 0"),
    _shown(8, "A message with key and value has 22 bytes, and the CRC covers it",
           "kseg dump --as message --format hex message-22.bin", "message at 0, 22 bytes", "valid CRC-32", code=1),
    _shown(9, "Without its key it has 19 bytes: the length -1 has 4 bytes",
           "kseg dump --as message --format hex message-19.bin", "message at 0, 19 bytes", "keySize -1: null", code=1),
    _shown(10, "Attributes can name lz4 although the value is plain",
           "kseg dump --deep --format jsonl v0-claims-lz4.log",
           "claimed-codec", '"offset":0,"timestamp":null', '"key":"key","value":"value"', code=1),
    _shown(11, "The hex view shows that value as it is", "kseg dump --as message --format hex message-22.bin",
           "value 5 bytes, text, not compressed with", code=1),
    _shown(12, "A single message lacks offset and size; several can follow each other",
           "kseg dump --as message two-messages.bin", "second", code=1),
    _shown(13, "The attributes of v0 are the codec; the other bits are 0", "kseg validate -v v0-bits.log",
           "reserved attribute bits 0x8 are set", "reserved attribute bits 0x80 are set"),
    _shown(14, "Codecs: 0 none, 1 gzip, 2 snappy, 3 lz4; 5 to 7 are not defined",
           "kseg validate v0-codecs-5-to-7.log", "codec 5: ", "codec 7: ", code=1),
    _shown(15, "v0 does not define codec 4, also if its value is plain", "kseg validate v0-claims-zstd.log",
           "the attributes name codec zstd, which v0 does not define, but the value is not compressed", code=1),
    _shown(16, "zstd data in v0 is rejected", "kseg validate v0-zstd.log", "zstd does not exist in v0", code=1),
    _shown(17, "The CRC-32 covers magic to end, neither itself nor offset and size",
           "kseg validate v0-crc.log v0-flipped-offset.log", "CRC mismatch: stored 0x00000001",
           "prove that its base offset is 1", code=1),
    _shown(18, "A producer can send any offset", f"{_SENT} produce-any-offsets.bin", "sound: 1 file, 3 batches"),
    _shown(19, "A message set has neither a count nor a length", f"{_SET} set-of-three.bin; {_SENT} produce-v2.bin",
           "3 batches, 3 records"),
    _shown(20, "A message set in a response can end within a message", f"{_SET} set-cut.bin set-cut-in-header.bin",
           "partial-entry", "expected 34 bytes, found 20"),
    _shown(21, "A compressed message set is the value of one message",
           "kseg dump --deep v0-gzip.log v0-snappy.log v0-snappy-raw.log v0-lz4.log "
           "v0-lz4-old-checksum.log",
           "k10", "k14"),
    _shown(22, "The outer message is read without (shallow), the inner ones with decompression (deep)",
           "kseg dump --format jsonl v0-gzip.log; kseg dump --deep v0-gzip.log",
           '"last_offset":14,"record_count":null', "k10", "k14"),
    _shown(23, "An inner message is never compressed again", "kseg validate nested.log",
           "inner message 0 is compressed again with gzip", code=1),
    _shown(24, "An inner size below 14 is corrupt", "kseg validate inner-size-13.log",
           "its size is 13, but the minimum is 14", code=1),
    _shown(25, "A broker ignores an incomplete inner message at the end", "kseg validate inner-cut.log",
           "the last inner message is incomplete: 29 bytes left over", "Ignores the incomplete message", code=1),
    _shown(26, "A compressed message set needs a value", "kseg validate wrapper-null.log", "the value is null", code=1),
    _shown(27, "The outer message can have a key, too", f"{_HEX} wrapper-key.log; kseg validate wrapper-key.log; "
           "kseg convert v0-to-v2 wrapper-key.log keyless.log", "key 13 bytes, text",
           "the compressed message set has a key, partition-key", "lost     wrapper-keys: 1 key"),
    _shown(28, "Inner messages have CRCs of their own", "kseg validate inner-crc.log",
           "inner message 1: CRC mismatch: stored 0x00000001", code=1),
    _shown(29, "A produce request has one compressed message set per partition (KAFKA-1718)",
           f"{_SENT} produce-two-wrappers.bin produce-two-codecs.bin",
           "2 batches for one partition in a produce request", "KAFKA-1718", code=1),
    _shown(30, "Together they could exceed max.message.bytes",
           f"{_SENT} --max-message-bytes 200 produce-two-wrappers.bin",
           "278 bytes together, above max.message.bytes 200", code=1),
    _shown(31, "If a set has several codecs, a leader takes the last",
           f"{_SET} set-of-codecs.bin; {_SENT} produce-two-codecs.bin",
           "several codecs: gzip, snappy; a leader takes the last, snappy",
           code=1),
    _shown(32, "The offset of a compressed message set is that of its last message",
           "kseg validate wrapper-first-offset.log", "claims offset 10, but its last inner offset is 14", code=1),
    _shown(33, "A fetch from offset N begins with the first entry whose offset is at least N",
           "kseg dump --offsets 12: v0-gzip.log; kseg dump --deep --offsets 12: v0-gzip.log", "14", "k12"),
    _shown(34, "The first offset of a compressed message set is known only after decompression",
           "kseg validate inner-crc.log", "?..11", code=1),
    _shown(35, "Offsets increase", "kseg validate equal-offsets.log decreasing-offsets.log",
           "offset 5 after offset 5: offsets must increase", "offset 3 after offset 5", code=1),
    _shown(36, "The size of an entry is 12 plus its message; max.message.bytes limits it",
           "kseg validate --max-message-bytes 100 100-bytes.log", "the batch has 101 bytes, the limit is 100", code=1),
    _shown(37, "The limit applies to requests", f"{_SENT} --max-message-bytes 100 produce-two-wrappers.bin",
           "the limit is 100", code=1),
    _shown(38, "The default of max.message.bytes is 1,048,588",
           "kseg convert --compression none any-to-v2 v2-grows.log grown.log; kseg validate grown.log",
           "the batch has 2,097,074 bytes, the limit is 1,048,588"),
    _shown(39, "The limit applies again after a batch is compressed again",
           "kseg convert --compression none any-to-v2 v2-grows.log plain.log",
           "the largest batch now has 2,097,074 bytes: check max.message.bytes of the topic"),
    _shown(40, "compression.type of a topic compresses batches again",
           "kseg convert --compression lz4 any-to-v2 v2-gzip.log as-lz4.log", "gzip 1 -> lz4 1"),
    _shown(41, "A compacted topic takes no record without a key",
           f"kseg validate --compacted v0-min.log; {_SENT} --compacted produce-null-key.bin",
           "record 0 at offset 2 has no key", "produce-null-key.bin", code=1),
    _shown(42, "Keys are in the records: headers alone do not show them",
           "kseg validate --shallow --compacted v0-min.log", "it checks the keys of records", code=2),
    _shown(43, "Fewer than 12 bytes at the end are ignored", "kseg validate tail-11.log tail-small-12.log",
           "expected 12 bytes of offset and size, found 11", code=1),
    _shown(44, "A v0 header has 26 bytes with the offset and the size; the magic shows the version",
           "kseg validate tail-header.log; kseg validate tail-v0-header.log",
           "expected a header of 26 bytes (v0) or 34 bytes (v1) or 61 bytes (v2), found 12", "found 20", code=1),
    _shown(45, "A size below 14 is an error, also in an incomplete entry", f"{_SET} set-size-12.bin",
           "invalid size field 12: the minimum of a batch is 14", code=1),
    _shown(46, "Fewer bytes than the size says: the entry is incomplete", "kseg validate tail-25-of-28.log tail-v1.log",
           "expected 32 bytes, found 29", "expected 40 bytes, found 30", code=1),
    _shown(47, "A negative size is an error", "kseg validate tail-negative.log", "its size field would be -5", code=1),
    _shown(48, "A broker truncates invalid bytes at the end",
           "kseg convert --skip-damaged any-to-v2 tail-25-of-28.log kept.log", "29 bytes lost in total", code=1),
    _shown(49, "A consumer can leave out CRCs (check.crcs=false)", "kseg validate --no-crc v0-crc.log",
           "undetermined", code=0),
    _outside(50, "A CRC misses 0.0047 % of faults", "An estimate of the author; a file has one CRC, right or wrong."),
    _outside(51, "A broker counts rejected bytes (bytesRejectedRate)",
             "A metric of a running broker. `kseg validate --format prometheus` has metrics of files."),
    _shown(52, "v1 inner offsets are relative; absolute = outer - last inner + inner (KIP-31)",
           f"{_HEX} v1-wrapper.log",
           "record 10", "offset 0", "record 14", "offset 4"),
    _shown(53, "After compaction relative offsets have gaps, but they never repeat",
           f"{_SENT} produce-v1-gap.bin; kseg validate v1-gap.log v1-zero.log",
           "inner message 1 has offset 2, but a producer counts from 0",
           "offset 14 is not above the previous offset 14", code=1),
    _shown(54, "v1 has a timestamp and its type; the smallest has 22 bytes (KIP-32)",
           "kseg dump --deep --format jsonl v1-append-time.log", '"timestamp_type":"LogAppendTime"'),
    _shown(55, "The type of the timestamp is shown", f"{_HEX} v1-append-time.log", "LogAppendTime", "CreateTime"),
    _shown(56, "Append times do not decrease under one leader", "kseg validate append-time-back.log",
           "is 1 ms before the previous"),
    _shown(57, "message.timestamp.before.max.ms and after.max.ms limit timestamps",
           "kseg validate --timestamp-before-max-ms 86400000 v1-year-2001.log; "
           "kseg validate --timestamp-after-max-ms 3600000 v1-2100.log; kseg validate v1-minus-5.log v2-minus-5.log",
           "timestamp 2001-09-09T01:46:40.000Z is older than the 86,400,000 ms that are allowed",
           "timestamp 2100-01-01T00:00:00.000Z is", "negative timestamp -5", code=1),
    _shown(58, "A time index leads from times to offsets (KIP-33)",
           "kseg validate -v time-index-0 time-index-1",
           "time-index-mismatch", "time-index-not-increasing", code=1),
    _shown(59, "Retention uses the largest timestamp, otherwise the time of the file",
           "kseg stats v1.log; kseg stats v2-no-timestamps.log", "time retention uses it",
           "time retention uses the time of the file"),
    _shown(60, "Without timestamps retention starts again where a replica is copied", "kseg stats v2-no-timestamps.log",
           "no timestamp 1 batch: time retention uses the time of the file"),
    _shown(61, "A follower refuses offsets that are out of order", "kseg validate decreasing-offsets.log",
           "offset 3 after offset 5", code=1),
    _shown(62, "A leader replaces the offsets of a produce request", f"{_SENT} produce-any-offsets.bin", "sound"),
    _shown(63, "Integers are varints with ZigZag", f"{_HEX} v2-delta-2-40.log", "80 80 80 80 80 40",
           "timestampDelta 1099511627776"),
    _outside(64, "Other protocols: MQTT, DNS, chat protocols, JBoss MQ", "Not Kafka."),
    _shown(65, "A frame is a size (int32) and a message", f"{_SENT} frame-negative.bin frame-cut.bin",
           "frame size -1", "expected 148 bytes, found 40", code=1),
    _shown(66, "A request has ApiKey, ApiVersion, CorrelationId and ClientId",
           "kseg dump --as requests --format hex metadata.bin",
           "requestApiKey 3: Metadata", "requestApiVersion 0", "correlationId 2", "clientId 8 bytes"),
    _shown(67, "A ClientId can be null", "kseg dump --as requests --format hex client-null.bin",
           "clientId length -1: null"),
    _shown(68, "The API and its version define the body",
           "kseg dump --as requests --format jsonl produce.bin metadata.bin",
           '"acks":1', '"topics":[{"name":"orders"}]'),
    _shown(69, "A response has a CorrelationId and the body", f"kseg dump {_BOTH} metadata-answer.bin",
           '"host":"localhost","port":9092'),
    _shown(70, "The CorrelationId pairs a response with its request", f"kseg validate {_BOTH} answer-of-another.bin",
           "no earlier request has the correlation id 99"),
    _shown(71, "A produce request has a message set per partition",
           "kseg dump --as requests --format jsonl produce.bin",
           '"topic":"orders","topic_id":null,"partition":0', '"key":"k12"'),
    _shown(72, "Each field of a frame is next to its bytes", "kseg dump --as requests --format hex metadata.bin",
           "00 00 00 1e", "size 30: bytes after this field"),
    _shown(73, "Frames in 80 columns show the API and the CorrelationId", "kseg dump --as requests produce.bin",
           "api_name   correlation_id   offset", "Produce                 1", width=80),
    _shown(74, "Records do not contain a schema; larger batches compress better", "kseg stats --deep v2-grows.log",
           "compressed"),
    _outside(75, "Producers push, consumers pull, over sockets",
           "kseg reads files and opens no connection to a broker."),
    _shown(76, "A v2 batch has a header of 13 fields and 61 bytes", f"{_HEX} v2.log", "baseOffset 0",
           "recordsCount 2", "61  3e"),
    _shown(77, "Its attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control; later bits unused",
           "kseg dump --format hex v2-attributes.log; kseg dump --format hex v2-commit.log", "LogAppendTime",
           "transactional, control", "reserved attribute bits 0x80 are set"),
    _shown(78, "Its attributes can name a codec although the records are plain",
           "kseg validate v2-claims-gzip.log; kseg validate v2-claims-snappy.log",
           "the attributes name codec gzip, but the records are not compressed",
           "the attributes name codec snappy, but the records are not compressed", code=1),
    _shown(79, "The CRC-32C covers attributes to end, not leader epoch, magic, length and offset",
           "kseg validate v2-crc.log; kseg validate v2-epoch-outside-crc.log", "stored 0x00000001",
           "sound: 1 file, 1 batch"),
    _shown(80, "It is CRC-32C, not CRC-32", "kseg validate v2-crc32.log",
           "the stored one is the CRC-32 of the same bytes, but v2 needs the CRC-32C", code=1),
    _shown(81, "The magic is read first", "kseg validate v2-magic-7.log", "unknown magic 7", code=1),
    _shown(82, "Compressed records follow the count directly",
           "kseg dump --deep v2-gzip.log v2-snappy.log v2-lz4.log v2-zstd.log", "k0", "k1"),
    _shown(83, "Compaction keeps the first and last offset and sequence", "kseg validate v2-cleaned.log",
           "last offset: 5 in the header, 3 in the records"),
    _shown(84, "Compaction keeps an empty batch for its producer", "kseg validate v2-empty.log", "1 batch, 0 records"),
    _shown(85, "Sequences show duplicates and gaps, and follow 2,147,483,647 with 0",
           "kseg validate v2-repeated.log v2-gap.log v2-wraps.log", "producer 7 has sequence 1",
           "expected sequence 1, found 5",
           code=1),
    _shown(86, "A broker keeps the state of producers in snapshots", "kseg validate snapshot-0",
           "producer 7: last sequence: 9 in the snapshot, 1 in the log", code=1),
    _shown(87, "The first timestamp can be older than all records after compaction", f"{_HEX} v2-cleaned.log",
           "baseTimestamp", "timestampDelta"),
    _shown(88, "A control batch has one record; its key is a version and a type", f"{_HEX} v2-commit.log",
           "version 0", "type 1: COMMIT"),
    _shown(89, "Type 0 is ABORT, type 1 is COMMIT", "kseg dump --deep v2-abort.log v2-commit.log",
           "ABORT producer 7 epoch 0", "COMMIT producer 7 epoch 0"),
    _shown(90, "A newer version or an unknown type can occur",
           "kseg dump --deep v2-control-newer.log; kseg validate -v v2-control-newer.log v2-control-short.log",
           "COMMIT producer 7 epoch 0, key version 5", "UNKNOWN-9", "version 5 of its key, expected 0", "type 9 is unknown",
           "key of 2 bytes, but the minimum is 4", code=1),
    _shown(91, "Control records are not for applications", "kseg dump --deep --no-control v2-commit.log", "k0"),
    _shown(92, "read_committed consumers do not get aborted transactions", "kseg transactions v2-abort.log",
           "1 aborted"),
    _shown(93, "A record has length, attributes, timestamp delta, offset delta, key, value and headers",
           f"{_HEX} v2.log",
           "length 31", "timestampDelta 0", "offsetDelta 1: offset 1", "headersCount 3"),
    _shown(94, "The attributes of a record are unused", "kseg validate v2-record-bits.log",
           "bits 0x55 are set in a record"),
    _shown(95, "Lengths and counts cannot be negative, but -1 for null",
           "kseg validate v2-negative-key.log v2-negative-count.log", "its key length is -9, but the minimum is -1",
           "the header counts -1 records", code=1),
    _shown(96, "A header has a key and a value, which can be null", f"{_HEX} v2.log", "headerKey 1 byte, text: h",
           "headerValueLength 0", "headerValueLength -1: null"),
    _shown(97, "The key of a header is never null", "kseg validate v2-header-without-key.log", "or one has no key",
           code=1),
    _shown(98, "There are v0, v1 and v2", "kseg stats mixed.log", "old versions v0 or v1 in 1 of 1 segment"),
    _shown(99, "v1 is v0 with 8 bytes more and a fourth attribute bit", "kseg dump --format hex v1-append-time.log",
           "timestamp 2023-11-14T22:13:20.000Z", "LogAppendTime"),
    _shown(100, "A length has 4 bytes in v0 and v1, and 1 byte or more in v2",
           f"{_HEX} mixed.log", "00 00 00 03", "keyLength 3"),
    _shown(101, "Each version has another overhead per record",
           "kseg stats --deep mixed.log; kseg stats --deep v1-thousand.log", "v0 26.0, v1 34.0, v2 68.0 bytes per record",
           "as v2        about 75,780 bytes, now 41,780", "estimate     none 15,780, gzip "),
    _shown(102, "One log can have several versions", "kseg stats mixed.log", "v0 v1 v2"),
    _outside(103, "A Java object has twice the size of its message", "Memory of a running JVM."),
    _shown(104, "A broker keeps partitions in folders", "kseg stats time-index-0", "total        1 segment"),
    _shown(105, "Consumer groups have members and a protocol: range, round-robin, sticky",
           "kseg dump --deep --format jsonl __consumer_offsets-0", "GroupMetadata", '"range"'),
    _shown(106, "/brokers/ids: a record of each broker", "kseg dump --effective __cluster_metadata-0", "broker-1",
           "9092"),
    _shown(107, "/brokers/topics, /config/topics: topics, partitions and their settings",
           "kseg dump --effective __cluster_metadata-0", "orders", "retention.ms", "replicas"),
    _shown(108, "/controller, /controller_epoch: who is the controller",
           "kseg dump --deep __cluster_metadata-0; kseg dump __cluster_metadata-0/quorum-state",
           'LEADER_CHANGE {"version":0,"leader_id":1'),
    _shown(109, "/isr_change_notification: changes of replicas in sync",
           "kseg dump --deep --format jsonl __cluster_metadata-0",
           "PartitionChange", '"isr":[1]'),
    _shown(110, "/cluster/id: the cluster's id", "kseg dump log-dir/meta.properties", "AAECAwQFBgcICQoLDA0ODw"),
    _outside(111, "zookeeper.connect with a chroot",
           "A setting in server.properties, which is not a file of a log directory."),
    _outside(112, "Spark reads topics from brokers",
             "kseg's Spark source reads segments instead: [Query with Spark](../how-to/query-with-spark.md)."),
    _shown(113, "A tutorial's message has a CRC (int64) of the value only, and a header of 18 bytes",
           "kseg dump --as wide-crc --format hex tutorial-two.bin", "message at 0, 48 bytes",
           "crc 0xfd722276, valid CRC-32 of the value"),
    _shown(114, "Its fields in order; the next message is at 48",
           "kseg dump --as wide-crc --format hex tutorial-two.bin",
           "message at 48, 31 bytes"),
    _shown(115, "Its CRC does not cover the key", "kseg validate --as wide-crc tutorial-wrong-crc.bin; "
           "kseg validate --as wide-crc tutorial-other-key.bin", "(of the value only)", "sound: 1 file, 1 batch"),
    _shown(116, "Its codec is 1 although the value is plain", "kseg dump --as wide-crc tutorial.bin",
           "claimed-codec", "gzip", code=1),
    _shown(117, "kseg names the option for such a file", "kseg dump tutorial.bin", "read them with `--as wide-crc`",
           code=2),
    _shown(118, "As a real v0 message it has 44 bytes", "kseg dump --as message --format hex tutorial-as-v0.bin",
           "message at 0, 44 bytes"),
    _shown(119, "Such a file can be counted", "kseg dump --as wide-crc tutorial-two.bin", "second"),
    _shown(120, "A leader rewrites the messages of an old client, and rejects two compressed message sets (KAFKA-1718)",
           f"{_SENT} --compression-type lz4 produce-v2.bin produce-two-wrappers.bin",
           "magic 1 becomes 2, none becomes lz4", "INVALID_RECORD", code=1),
)  # fmt: skip
