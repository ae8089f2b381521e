"""The text of kafka-dump-log, line by line as DumpLogSegments of Kafka 4.3.0 printed it, for scripts that parse it."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from kseg.commands.dump import dump_log_lines
from kseg.format.record import control_records
from kseg.format.segment.records_chunk import Header, Record, RecordBatch

BATCH = RecordBatch(
    position=123,
    size=79,
    magic=2,
    base_offset=47,
    last_offset=48,
    record_count=2,
    compression="none",
    timestamp_type="CreateTime",
    base_timestamp=1,
    max_timestamp=2,
    crc=1817592087,
    crc_valid=True,
    producer_id=4000,
    producer_epoch=3,
    base_sequence=2147483647,
    partition_leader_epoch=7,
    transactional=False,
    control=False,
    delete_horizon=None,
)
MESSAGE = RecordBatch(
    position=0,
    size=97,
    magic=0,
    base_offset=None,
    last_offset=44,
    record_count=None,
    compression="gzip",
    timestamp_type=None,
    base_timestamp=None,
    max_timestamp=None,
    crc=17686485,
    crc_valid=False,
    producer_id=None,
    producer_epoch=None,
    base_sequence=None,
    partition_leader_epoch=None,
    transactional=None,
    control=None,
    delete_horizon=None,
)
RECORD = Record(0, 48, 2, "CreateTime", 0, b"c", b"d", (), None)


@pytest.mark.parametrize(
    ("path", "start", "lines"),
    [
        (
            "a//b/../00000000000000000042.log",
            42,
            ["Dumping a/b/../00000000000000000042.log", "Log starting offset: 42"],
        ),
        ("s3://a/x.log", None, ["Dumping s3://a/x.log"]),
        (
            "d/00000000000000000047-0000000009.checkpoint",
            None,
            ["Dumping d/00000000000000000047-0000000009.checkpoint", "Snapshot end offset: 47, epoch: 9"],
        ),
        ("d/bootstrap.checkpoint", None, ["Dumping d/bootstrap.checkpoint", "KRaft bootstrap snapshot"]),
    ],
)
def test_a_file_begins_as_kafka_begins_it(path: str, start: int | None, lines: list[str]) -> None:
    """The headings are those that scripts search for."""
    assert list(dump_log_lines.header_lines(path, start)) == lines


def test_a_v2_batch_tells_the_wrapped_sequence() -> None:
    """Sequences wrap after Int.MAX as in Kafka."""
    assert dump_log_lines.batch_line(BATCH) == (
        "baseOffset: 47 lastOffset: 48 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 4000 "
        "producerEpoch: 3 partitionLeaderEpoch: 7 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 123 CreateTime: 2 size: 79 magic: 2 compresscodec: none "
        "crc: 1817592087 isvalid: true"
    )


def test_a_delete_horizon_is_a_java_optional() -> None:
    """The notation is Java's."""
    line = dump_log_lines.batch_line(replace(BATCH, delete_horizon=1800000000000))
    assert " deleteHorizonMs: OptionalLong[1800000000000] position: " in line


def test_a_v0_message_has_no_timestamp_type() -> None:
    """v0 lacks the field, and Kafka prints NoTimestampType."""
    assert dump_log_lines.batch_line(MESSAGE) == (
        "offset: 44 position: 0 NoTimestampType: -1 size: 97 magic: 0 compresscodec: gzip crc: 17686485 isvalid: false"
    )


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (b"k3", None, "| offset: 48 CreateTime: 2 keySize: 2 valueSize: -1 sequence: 0 headerKeys: [] key: k3"),
        (None, b"v2", "| offset: 48 CreateTime: 2 keySize: -1 valueSize: 2 sequence: 0 headerKeys: [] payload: v2"),
        (None, None, "| offset: 48 CreateTime: 2 keySize: -1 valueSize: -1 sequence: 0 headerKeys: []"),
        (b"", b"", "| offset: 48 CreateTime: 2 keySize: 0 valueSize: 0 sequence: 0 headerKeys: [] key:  payload: "),
    ],
)
def test_null_is_left_out_and_empty_is_not(key: bytes | None, value: bytes | None, line: str) -> None:
    """A null key is not printed, an empty one is."""
    assert dump_log_lines.record_line(replace(RECORD, key=key, value=value), BATCH) == line


def test_header_keys_are_not_quoted() -> None:
    record = replace(RECORD, timestamp=None, headers=(Header("h1", b"x"), Header("h,2", None), Header("\udcff", b"")))
    assert dump_log_lines.record_line(record, BATCH) == (
        "| offset: 48 CreateTime: -1 keySize: 1 valueSize: 1 sequence: 0 headerKeys: [h1,h,2,\ufffd] key: c payload: d"
    )


def test_a_legacy_record_has_its_own_crc() -> None:
    # One inner message: null key, value v2, offset 43, in a gzip message set by Kafka's builder.
    inner = bytes.fromhex("000000000000002b00000010d5960a780000ffffffff000000027632")
    payload = gzip.decompress(gzip.compress(inner))
    crc = dump_log_lines.message_crc(payload, 0, key_at=22, value_end=len(payload))
    record = Record(0, 43, None, None, None, None, b"v2", (), None)
    expected = "| offset: 43 NoTimestampType: -1 keySize: -1 valueSize: 2 isValid: true crc: 3583380088 payload: v2"
    assert dump_log_lines.record_line(record, MESSAGE, inner_crc=crc) == expected
    plain = replace(MESSAGE, compression="none", crc=3583380088, crc_valid=True)
    assert dump_log_lines.record_line(record, plain) == expected
    damaged = payload[:-1] + b"3"
    assert dump_log_lines.message_crc(damaged, 0, key_at=22, value_end=len(damaged)) == (3583380088, False)


@pytest.mark.parametrize(
    ("type_id", "value", "text"),
    [
        (0, "00000000000c", " endTxnMarker: ABORT coordinatorEpoch: 12"),
        (1, "00000000000b", " endTxnMarker: COMMIT coordinatorEpoch: 11"),
        (
            2,
            "00000000000102000000010002000000010000",
            ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}',
        ),
        (3, "00000000018bcfe5680000", ' SnapshotHeader {"version":0,"lastContainedLogTimestamp":1700000000000}'),
        (4, "000000", ' SnapshotFooter {"version":0}'),
        (5, "0000000100", ' KRaftVersion {"version":0,"kRaftVersion":1}'),
        (
            6,
            "000002000000010102030405060708fffefdfcfbfaf9f8020c4301225c2f1f7f0ae280a8086272c3b66b657223850000000001000000",
            ' KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AQIDBAUGBwj__v38-_r5-A",'
            '"endpoints":[{"name":"C\\u0001\\"\\\\/\\u001F\x7f\\n\u2028","host":"bröker","port":9093}],'
            '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}',
        ),
        (77, "010203", " controlType: UNKNOWN(77)"),
    ],
)
def test_a_control_record_has_its_marker_and_not_data(type_id: int, value: str, text: str) -> None:
    key = b"\0\0" + type_id.to_bytes(2, "big")
    payload = bytes.fromhex(value)
    record = replace(RECORD, sequence=-1, key=key, value=payload, control=control_records.decode(key, payload))
    line = dump_log_lines.record_line(record, replace(BATCH, control=True))
    assert line == f"| offset: 48 CreateTime: 2 keySize: 4 valueSize: {len(payload)} sequence: -1 headerKeys: []{text}"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        # Java 17's replacement; Python's "replace" differs in surrogates only.
        ("c328eda080", "\ufffd(\ufffd"),
        ("eda0", "\ufffd"),
        ("41edbf41", "A\ufffdA"),
        ("f0908041", "\ufffdA"),
        ("c0af", "\ufffd\ufffd"),
        ("f09f9880", "\U0001f600"),
    ],
)
def test_undecodable_text_is_replaced_as_java_does(data: str, text: str) -> None:
    """Bytes that are not UTF-8 get Java's replacement characters."""
    assert dump_log_lines.java_text(bytes.fromhex(data)) == text
