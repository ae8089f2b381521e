"""kseg, and Kafka's own reader, read back the written values, headers, and every header field."""

from __future__ import annotations

import io
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kseg.errors import UsageError
from kseg.format.compress.codecs import CodecError
from kseg.format.record import encoder, layout
from kseg.format.segment import records_chunk
from kseg.format.segment.records_chunk import Header, Record
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage, fuzzing
from tests.support.fixtures import add_batch_fields
from tests.support.records import CODECS, LEGACY_CODECS, NOW, plain, read, record_lists


@pytest.mark.slow
@given(record_lists(), st.sampled_from(CODECS))
def test_batch_reads_back(records: list[PlainRecord], codec: str) -> None:
    """A written v2 batch has the given records."""
    (batch,), found = read(build_batch(records, compression=codec))
    assert [plain(record) for record in found] == records
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    largest = max(-1, *(record.timestamp for record in records))
    assert batch.max_timestamp == (None if largest == -1 else largest)
    assert (batch.compression, batch.record_count, batch.crc_valid) == (codec, len(records), True)


@pytest.mark.slow
@given(record_lists(), st.sampled_from(CODECS), st.integers(0, NOW))
def test_batch_with_append_time(records: list[PlainRecord], codec: str, moment: int) -> None:
    """With LogAppendTime all records have the batch's timestamp."""
    data = build_batch(records, compression=codec, timestamp_type="LogAppendTime", max_timestamp=moment)
    (batch,), found = read(data)
    assert {record.timestamp for record in found} == {moment} == {batch.max_timestamp}
    assert [record.value for record in found] == [record.value for record in records]


def test_batch_header_fields_are_at_kafkas_positions() -> None:
    """Each field is read by position, as Kafka does."""
    data = build_batch(
        [PlainRecord(7, b"k", b"v", NOW)],
        base_offset=5,
        last_offset=9,
        producer_id=1 << 40,
        producer_epoch=3,
        base_sequence=2147483646,
        partition_leader_epoch=11,
        transactional=True,
        delete_horizon=NOW + 5,
    )
    fields = layout.BATCH_HEADER.unpack_from(data)
    crc = fields[4]
    assert fields == (
        5, len(data) - 12, 11, 2, crc, 0x50, 4, NOW + 5, NOW, 1 << 40, 3, 2147483646, 1,
    )  # fmt: skip
    (batch,), (record,) = read(data)
    assert (batch.delete_horizon, batch.transactional, batch.control) == (NOW + 5, True, False)
    assert (record.timestamp, record.offset, record.sequence) == (NOW, 7, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_empty_batch_is_a_header_alone(codec: str) -> None:
    """Compaction keeps the last batch of a producer without its records."""
    data = build_batch([], base_offset=3, last_offset=8, compression=codec, producer_id=1, producer_epoch=0)
    (batch,), found = read(data)
    assert (len(data), batch.last_offset, found) == (61, 8, [])


@given(st.sampled_from([0, 1]).flatmap(lambda magic: st.tuples(st.just(magic), record_lists(magic))))
def test_messages_read_back(case: tuple[int, list[PlainRecord]]) -> None:
    """Written v0 and v1 messages have the given records."""
    magic, records = case
    batches, found = read(b"".join(build_message(record, magic=magic) for record in records))
    assert [plain(record) for record in found] == records
    assert {batch.magic for batch in batches} == {magic}


@given(
    st.sampled_from([0, 1]).flatmap(lambda magic: st.tuples(st.just(magic), record_lists(magic))),
    st.sampled_from(LEGACY_CODECS),
)
def test_wrappers_read_back(case: tuple[int, list[PlainRecord]], codec: str) -> None:
    """Written compressed sets have the given records."""
    magic, records = case
    (batch,), found = read(build_wrapper(records, magic=magic, compression=codec))
    assert [plain(record) for record in found] == records
    assert (batch.magic, batch.last_offset, batch.compression) == (magic, records[-1].offset, codec)


@given(record_lists(1), st.sampled_from(LEGACY_CODECS), st.integers(0, NOW))
def test_append_time_of_a_wrapper_replaces_the_inner_ones(records: list[PlainRecord], codec: str, moment: int) -> None:
    """The outer timestamp is effective (KIP-32)."""
    data = build_wrapper(records, magic=1, compression=codec, timestamp_type="LogAppendTime", append_time=moment)
    _, found = read(data)
    assert {(record.timestamp, record.timestamp_type) for record in found} == {(moment, "LogAppendTime")}


def test_inner_offsets_are_relative_in_v1_and_absolute_in_v0() -> None:
    """KIP-31: brokers before 0.10 would read relative ones as absolute."""
    records = [PlainRecord(offset, None, b"x") for offset in (100, 101, 105)]
    stored = {}
    for magic in (0, 1):
        data = build_wrapper(records, magic=magic, compression="gzip")
        value = zlib.decompress(data[layout.V0_KEY_AT + 8 * magic + 8 :], 31)
        size = len(value) // 3
        stored[magic] = [int.from_bytes(value[at : at + 8], "big") for at in range(0, len(value), size)]
    assert stored == {0: [100, 101, 105], 1: [0, 1, 5]}


def test_v0_lz4_has_the_checksum_that_old_brokers_want() -> None:
    """KAFKA-3160: over the frame's magic too; brokers before 0.10 reject the right one."""
    record = [PlainRecord(0, None, b"x" * 100)]
    v0, v1 = (build_wrapper(record, magic=magic, compression="lz4") for magic in (0, 1))
    assert b"\x04\x22\x4d\x18\x60\x40\x1a" in v0
    assert b"\x04\x22\x4d\x18\x60\x40\x82" in v1


def test_what_an_entry_cannot_hold_is_refused() -> None:
    """Values outside of a version's range raise."""
    record = PlainRecord(5)
    wrong: list[Any] = [
        lambda: build_batch([]),
        lambda: build_batch([record, record]),
        lambda: build_batch([record], last_offset=4),
        lambda: build_batch([record], last_offset=5 + 2**31),
        lambda: build_batch([record], compression="zip"),
        lambda: build_batch([record], timestamp_type="createtime"),
        lambda: build_message(PlainRecord(5, timestamp=1), magic=0),
        lambda: build_message(PlainRecord(5, headers=(Header("k", None),)), magic=1),
        lambda: build_message(record, magic=2),
        lambda: build_message(record, magic=0, timestamp_type="LogAppendTime"),
        lambda: build_wrapper([], magic=1, compression="gzip"),
        lambda: build_wrapper([record], magic=1, compression="none"),
    ]
    for attempt in wrong:
        with pytest.raises(UsageError):
            attempt()
    with pytest.raises(CodecError, match="zstd"):
        build_wrapper([record], magic=1, compression="zstd")


def _row(record: Record, name: str) -> dict[str, Any]:
    row = records_chunk.record_row(name, record, records_chunk.ENCODERS["base64"])
    for header in row["headers"]:
        header.pop("value_encoding", None)
    return {key: value for key, value in row.items() if not key.endswith("_encoding")}


@pytest.mark.kafka
@settings(
    max_examples=max(1, fuzzing.cases(180) // 60), phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(2), st.sampled_from(CODECS), record_lists(2), st.booleans()),
            st.tuples(st.just(1), st.sampled_from(CODECS[:4]), record_lists(1), st.booleans()),
            st.tuples(st.just(0), st.sampled_from(CODECS[:4]), record_lists(0), st.just(False)),
        ),
        min_size=40,
        max_size=80,
    )
)
def test_kafka_reads_the_same(tmp_path_factory: pytest.TempPathFactory, cases: list[Any]) -> None:
    """One JVM for many batches in separate files: three versions, every codec, both timestamp types."""
    from tools.lab import oracle

    folder = tmp_path_factory.mktemp("built")
    files = []
    for number, case in enumerate(cases):
        files.append(folder / f"{number:020}.log")
        files[-1].write_bytes(_built(*case))
    judged = oracle.rows_of(files)
    for file in files:
        batches, records = read(file.read_bytes())
        mine = [records_chunk.batch_row(file.name, batch) for batch in batches]
        assert mine + [_row(record, file.name) for record in records] == add_batch_fields(judged[file])


def _built(magic: int, codec: str, records: list[PlainRecord], append: bool) -> bytes:
    kind = "LogAppendTime" if append else "CreateTime"
    if magic == 2:
        return build_batch(records, compression=codec, timestamp_type=kind, max_timestamp=NOW if append else None)
    if codec == "none":
        return b"".join(build_message(record, magic=magic, timestamp_type=kind) for record in records)
    return build_wrapper(
        records, magic=magic, compression=codec, timestamp_type=kind, append_time=NOW if append else None
    )


@pytest.mark.parametrize(("magic", "kind"), [(0, "CreateTime"), (1, "CreateTime"), (1, "LogAppendTime")])
def test_a_message_becomes_a_batch_as_in_kafkas_cleaner(magic: int, kind: str) -> None:
    """``MemoryRecords.filterTo`` writes one batch per message: no producer, one record, the leader epoch, the same times."""
    records = [
        PlainRecord(offset, key, b"v" * 9, NOW + offset if magic else -1) for offset, key in ((7, b"k"), (9, None))
    ]
    data = b"".join(build_message(record, magic=magic, timestamp_type=kind) for record in records)
    (chunk,) = chunks_of(Source("s", io.BytesIO(data), len(data)))
    out = bytearray(1000)
    end, largest = encoder.encode_single_batches(
        chunk.window.data, chunk.records, 0, chunk.records.count, chunk.batches, 5, out, 10
    )
    at, sizes = 10, list[int]()
    for record in records:
        size = 12 + int.from_bytes(out[at + 8 : at + 12])
        fields = layout.BATCH_HEADER.unpack_from(out, at)
        attributes = layout.LOG_APPEND_TIME if kind == "LogAppendTime" else 0
        assert fields[:4] == (record.offset, size - 12, 5, 2)
        assert fields[5:] == (attributes, 0, record.timestamp, record.timestamp, -1, -1, -1, 1)
        sizes.append(size)
        at += size
    assert (end, largest) == (at, max(sizes))
    batches, found = read(bytes(out[10:end]))
    assert [plain(record) for record in found] == records
    assert all(batch.crc_valid for batch in batches)


#: Around the ends of varints of each length.
DELTAS = [0, 1, 63, 64, 8191, 8192, 1 << 20, (1 << 20) - 1, (1 << 27) - 1, 1 << 27, (1 << 31) - 1]


@pytest.mark.parametrize("delta", DELTAS)
def test_records_are_written_byte_for_byte(delta: int) -> None:
    """Lengths and deltas are zig-zag varints, as in ``DefaultRecord.writeTo``."""
    for time in (0, delta, -delta, delta << 20):
        records = [PlainRecord(5, b"k", b"v", NOW), PlainRecord(6 + delta, None, b"", NOW + time)]
        last = damage.record(None, b"", offset_delta=1 + delta, timestamp_delta=time)
        if delta < DELTAS[-1]:
            assert build_batch(records)[61:] == damage.record(b"k", b"v") + last
    if delta <= 1 << 20:
        record = PlainRecord(0, b"k" * delta, b"v" * delta, NOW)
        assert build_batch([record])[61:] == damage.record(record.key, record.value)
        for magic in (0, 1):
            message = build_message(replace(record, timestamp=NOW if magic else -1), magic=magic)
            parts = [delta.to_bytes(4) + byte * delta for byte in (b"k", b"v")]
            assert message[damage.FIELDS[magic]["key_size"][0] :] == b"".join(parts)
            assert damage.fix_crc(message, 0) == message
            assert damage.get(message, 0, "size") == len(message) - 12
