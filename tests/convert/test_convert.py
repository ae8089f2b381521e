"""Converting keeps every record, does not change the source, and leaves no unfinished target."""

from __future__ import annotations

import gc
import json
import re
import shlex
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kseg.cli.convert_command import convert as command
from kseg.cli.main import main
from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.converted_segment import check_size
from kseg.commands.convert.transcode import Conversion, WrongVersionError
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kseg.format.segment.records_chunk import Chunk, Header, Record
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer import records_builder
from kseg.format.writer.output_guards import DamagedError, index_paths
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from kseg.results import Settings
from tests.support.cli import invoke, kseg_here
from tests.support.fixtures import FOLDERS, expected
from tests.support.fuzzing import cases
from tests.support.index_entries import read_offset_index, read_time_index
from tests.support.records import LEGACY_CODECS, NOW, plain, read, record_lists
from tests.support.repairing import digests

main.add_command(command)

NAME = "00000000000000000000.log"
SEGMENTS = [folder / name for folder in FOLDERS for name in expected(folder) if name.endswith(".log")]
OLD_SEGMENTS = [path for path in SEGMENTS if "v0" in path.parent.name or "v1" in path.parent.name]


def label(segment: Path) -> str:
    return f"{segment.parent.name}/{segment.stem.lstrip('0') or 0}"


Content = tuple[Any, ...]


def content_of(record: Record) -> Content:
    """Return the content of a record that every version has; a v0 record counts as CreateTime without a timestamp."""
    kind = record.timestamp_type or "CreateTime"
    return record.offset, record.timestamp, kind, record.key, record.value, record.headers


def records_of(path: Path) -> list[Record]:
    return read(path.read_bytes())[1]


def run(*args: object) -> Result:
    return invoke("convert", *args)


def test_fixtures_of_both_old_versions_are_there() -> None:
    """An empty list of cases would let all tests below pass."""
    assert len(OLD_SEGMENTS) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("segment", SEGMENTS, ids=label)
def test_any_to_v2_says_the_same(segment: Path, tmp_path: Path) -> None:
    """Converted records equal those of the source."""
    target = tmp_path / segment.name
    (one,) = convert(str(segment), str(target), ConversionPlan.of("any-to-v2")).segments
    before, after = records_of(segment), records_of(target)
    assert [content_of(record) for record in after] == [content_of(record) for record in before]
    assert one.records == len(before)
    assert one.lost == {}
    result = validate_segment(SegmentFile(str(target)), Settings())
    assert [verdict.message for verdict in result.verdicts if verdict.severity > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("segment", SEGMENTS, ids=label)
def test_entries_keep_their_bounds_and_v2_its_bytes(segment: Path, tmp_path: Path) -> None:
    """Batches keep their offsets as in Kafka's cleaner, so that replicas that are converted separately stay aligned."""
    target = tmp_path / segment.name
    convert(str(segment), str(target), ConversionPlan.of("any-to-v2"))
    source = segment.read_bytes()
    before, after = read(source)[0], read(target.read_bytes())[0]
    assert [batch.last_offset for batch in before] == [batch.last_offset for batch in after]
    assert [batch.compression for batch in before] == [batch.compression for batch in after]
    assert [batch.max_timestamp for batch in before] == [batch.max_timestamp for batch in after]
    written = target.read_bytes()
    for old, new in zip(before, after, strict=True):
        assert new.magic == 2
        if old.magic == 2:
            old_bytes = source[old.position : old.position + old.size]
            assert written[new.position : new.position + new.size] == old_bytes


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("segment", OLD_SEGMENTS[::4], ids=label)
def test_rebatched_and_recompressed(segment: Path, codec: str, tmp_path: Path) -> None:
    """Other batches and another codec leave the records unchanged."""
    target = tmp_path / segment.name
    convert(str(segment), str(target), ConversionPlan.of("any-to-v2", compression=codec, rebatch=700))
    batches, after = read(target.read_bytes())
    before = records_of(segment)
    assert [content_of(record) for record in after] == [content_of(record) for record in before]
    if all(batch.magic < 2 for batch in read(segment.read_bytes())[0]):
        assert {batch.compression for batch in batches} == {codec}


def test_rebatch_fills_batches_to_the_size_asked_for(tmp_path: Path) -> None:
    """The requested batch size is reached and not exceeded."""
    records = [PlainRecord(offset, b"key", b"v" * 50, NOW + offset) for offset in range(1000)]
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(b"".join(build_message(record, magic=1) for record in records))
    convert(str(source), str(target), ConversionPlan.of("v1-to-v2", rebatch=4000))
    batches, after = read(target.read_bytes())
    assert [plain(record) for record in after] == records
    assert all(3900 < batch.size <= 4000 for batch in batches[:-1])


def test_rebatch_never_mixes_append_times(tmp_path: Path) -> None:
    """A LogAppendTime batch has one timestamp for all its records (KIP-32)."""
    kinds = ["LogAppendTime", "LogAppendTime", "CreateTime", "LogAppendTime"]
    stamps = [NOW, NOW + 1, NOW + 1, NOW + 1]
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(
        b"".join(
            build_message(PlainRecord(offset, timestamp=stamp), magic=1, timestamp_type=kind)
            for offset, (kind, stamp) in enumerate(zip(kinds, stamps, strict=True))
        )
    )
    convert(str(source), str(target), ConversionPlan.of("v1-to-v2", rebatch=10_000))
    batches, after = read(target.read_bytes())
    assert [(record.timestamp_type, record.timestamp) for record in after] == list(zip(kinds, stamps, strict=True))
    assert len(batches) == 4


@pytest.mark.slow
@pytest.mark.parametrize("segment", SEGMENTS, ids=label)
@pytest.mark.parametrize("version", [0, 1])
def test_downwards_what_the_version_can_hold_is_kept(segment: Path, version: int, tmp_path: Path) -> None:
    """The summary counts every loss."""
    middle, target = tmp_path / "middle.log", tmp_path / segment.name
    convert(str(segment), str(middle), ConversionPlan.of("any-to-v2"))
    zstd = any(batch.compression == "zstd" for batch in read(middle.read_bytes())[0])
    compression = "gzip" if zstd else "keep"
    plan = ConversionPlan.of(f"v2-to-v{version}", lossy=True, compression=compression)
    (one,) = convert(str(middle), str(target), plan).segments
    batches, after = read(target.read_bytes())
    before = [record for record in records_of(middle) if record.control is None]
    lost = {kind: loss.count for kind, loss in one.lost.items()}
    assert {batch.magic for batch in batches} <= {version}
    keys = (0, 3, 4) if version == 0 else (0, 1, 2, 3, 4)
    assert [[content_of(record)[key] for key in keys] for record in after] == [
        [content_of(record)[key] for key in keys] for record in before
    ]
    assert lost.get("headers", 0) == sum(len(record.headers) for record in before)
    assert lost.get("control-records", 0) == sum(record.control is not None for record in records_of(middle))
    if version == 0:
        assert lost.get("timestamps", 0) == sum(record.timestamp is not None for record in before)


@st.composite
def old_logs(draw: st.DrawFn, magic: int) -> bytes:
    """A log of one old version: messages and compressed sets of every codec, both timestamp types."""
    out = b""
    start = draw(st.sampled_from([0, 1, 2**31, 2**40]))
    for _ in range(draw(st.integers(1, 5))):
        records = draw(record_lists(magic, max_size=4))
        # Offsets are close to each other: a segment spans no more offsets than an index can hold.
        shifted = [_shifted(record, start - records[0].offset) for record in records]
        kind = draw(st.sampled_from(["CreateTime", "LogAppendTime"])) if magic else "CreateTime"
        codec = draw(st.sampled_from(("none", *LEGACY_CODECS)))
        if codec == "none":
            out += b"".join(build_message(record, magic=magic, timestamp_type=kind) for record in shifted)
        else:
            moment = NOW if kind == "LogAppendTime" else None
            out += build_wrapper(shifted, magic=magic, compression=codec, timestamp_type=kind, append_time=moment)
        start = shifted[-1].offset + draw(st.integers(1, 30))
    return out


def _shifted(record: PlainRecord, shift: int) -> PlainRecord:
    return PlainRecord(record.offset + shift, record.key, record.value, max(-1, record.timestamp), record.headers)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.sampled_from([0, 1]).flatmap(lambda magic: st.tuples(st.just(magic), old_logs(magic))), packed=st.booleans()
)
def test_up_and_down_again(case: tuple[int, bytes], packed: bool, tmp_path: Path) -> None:
    """v1 to v2 to v1, and v0 to v2 to v0, lose no record, and keep the offsets of each batch unless packed."""
    version, data = case
    first, second, third = (tmp_path / name for name in ("1.log", "2.log", "3.log"))
    first.write_bytes(data)
    up = ConversionPlan.of(f"v{version}-to-v2", rebatch=500 if packed else None, force=True)
    convert(str(first), str(second), up)
    convert(str(second), str(third), ConversionPlan.of(f"v2-to-v{version}", lossy=True, force=True))
    before, after = read(data), read(third.read_bytes())
    assert after[1] == [_at(record, other.position) for record, other in zip(before[1], after[1], strict=True)]
    if not packed:
        assert [(b.last_offset, b.compression) for b in before[0]] == [(b.last_offset, b.compression) for b in after[0]]


def _at(record: Record, position: int) -> Record:
    from dataclasses import replace

    return replace(record, position=position)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=record_lists(2), codec=st.sampled_from(["none", "gzip", "snappy", "lz4"]), version=st.sampled_from([0, 1])
)
def test_down_and_up_again(records: list[PlainRecord], codec: str, version: int, tmp_path: Path) -> None:
    """v2 to v1 to v2 loses headers, v2 to v0 to v2 timestamps too, and the summary counts them."""
    first, second, third = (tmp_path / name for name in ("1.log", "2.log", "3.log"))
    records = [_shifted(record, 0) for record in records]
    first.write_bytes(build_batch(records, compression=codec))
    down = ConversionPlan.of(f"v2-to-v{version}", lossy=True, force=True)
    (one,) = convert(str(first), str(second), down).segments
    convert(str(second), str(third), ConversionPlan.of(f"v{version}-to-v2", force=True))
    after = [plain(record) for record in read(third.read_bytes())[1]]
    assert after == [
        PlainRecord(record.offset, record.key, record.value, record.timestamp if version else -1) for record in records
    ]
    lost = {kind: loss.count for kind, loss in one.lost.items()}
    stamps = sum(record.timestamp != -1 for record in records)
    wanted = {
        "headers": sum(len(record.headers) for record in records),
        "timestamps": 0 if version else stamps,
        "leader-epochs": 1,
    }
    assert lost == {kind: count for kind, count in wanted.items() if count}


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_v0_and_v1_into_each_other(codec: str, tmp_path: Path) -> None:
    """Inner offsets change from absolute to relative, and LZ4's header checksum from wrong to right (KAFKA-3160)."""
    records = [PlainRecord(offset, b"k", b"v" * 20) for offset in (7, 8, 11)]
    old = build_wrapper(records, magic=0, compression=codec)
    new = build_wrapper(records, magic=1, compression=codec)
    first, second, third = (tmp_path / name for name in ("1.log", "2.log", "3.log"))
    first.write_bytes(old)
    convert(str(first), str(second), ConversionPlan.of("v0-to-v1"))
    convert(str(second), str(third), ConversionPlan.of("v1-to-v0", lossy=True))
    assert second.read_bytes() == new
    assert third.read_bytes() == old


def test_losses_are_listed(tmp_path: Path) -> None:
    """The summary counts the content that an older version can't hold."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(
        build_batch(
            [PlainRecord(0, b"k", b"v", NOW, (Header("h", b"1"),))],
            producer_id=9, producer_epoch=0, base_sequence=0, transactional=True, partition_leader_epoch=2,
        )
        + build_batch([PlainRecord(1, bytes(4), bytes(6), NOW)], producer_id=9, producer_epoch=0, transactional=True,
                      control=True, partition_leader_epoch=2)
        + build_batch([], base_offset=2, last_offset=4, producer_id=9, producer_epoch=0, base_sequence=1,
                      partition_leader_epoch=2)
    )  # fmt: skip
    assert run("v2-to-v0", source, target).exit_code == 2
    done = run("v2-to-v0", "--lossy", "--format", "jsonl", source, target)
    assert done.exit_code == 0
    assert {kind: loss["count"] for kind, loss in json.loads(done.stdout)["lost"].items()} == {
        "headers": 1, "timestamps": 1, "transactions": 1, "sequences": 2, "leader-epochs": 3, "control-records": 1,
        "empty-batches": 1,
    }  # fmt: skip
    text = run("v2-to-v0", "--lossy", "--force", source, target)
    assert "lost     control-records: 1 control record, offset 1" in text.stdout


def test_the_offsets_of_markers_are_known_gaps(tmp_path: Path) -> None:
    """Older versions have no batch without a record for them. The command of the message keeps them from failing checks."""
    source, target = tmp_path / "orders-0", tmp_path / "new" / "orders-0"
    source.mkdir()
    target.parent.mkdir()
    one: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    (source / NAME).write_bytes(
        build_batch([PlainRecord(0, None, b"v", NOW)], base_sequence=0, **one)
        + build_batch([PlainRecord(1, bytes(4), bytes(6), NOW)], control=True, **one)
        + build_batch([PlainRecord(2, None, b"v", NOW)], base_sequence=1, **one)
    )
    done = run("v2-to-v1", "--lossy", source, target)
    assert "no batch has the offsets of 1 control record now" in done.stderr
    (write,) = re.findall("`(kseg validate --write-baseline .*?)`", done.stderr)
    assert kseg_here("validate", target).returncode == 1
    kseg_here(*shlex.split(write.replace("FILE", str(tmp_path / "known")))[1:])
    assert kseg_here("validate", target, "--baseline", tmp_path / "known").returncode == 0
    assert "control record now" not in run("v2-to-v2", "--compression", "gzip", source, tmp_path / "other").stderr


def test_zstd_needs_another_codec_downwards(tmp_path: Path) -> None:
    """Older versions lack zstd: without another codec the conversion is rejected."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(build_batch([PlainRecord(3, None, b"v")], compression="zstd"))
    with pytest.raises(UsageError, match="byte 0 is compressed with zstd"):
        convert(str(source), str(target), ConversionPlan.of("v2-to-v1", lossy=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.log"]
    convert(str(source), str(target), ConversionPlan.of("v2-to-v1", lossy=True, compression="lz4"))
    assert read(target.read_bytes())[0][0].compression == "lz4"


def test_a_version_that_is_neither_is_an_error(tmp_path: Path) -> None:
    """A segment of a third version is not converted silently."""
    source = tmp_path / "in.log"
    first = build_message(PlainRecord(0), magic=0)
    source.write_bytes(first + build_message(PlainRecord(1), magic=1))
    with pytest.raises(WrongVersionError, match=f"byte {len(first)} is v1"):
        convert(str(source), str(tmp_path / NAME), ConversionPlan.of("v0-to-v2"))
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("direction", [f"v{a}-to-v{b}" for a in range(3) for b in range(3)])
@pytest.mark.parametrize("versions", [(0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_the_advice_for_other_versions_ends_at_the_target(
    direction: str, versions: tuple[int, ...], tmp_path: Path
) -> None:
    """Who follows it gets the version that was asked for, not another one."""
    source, target = tmp_path / "in.log", int(direction[-1])
    ones = [build_message(PlainRecord(n), magic=n) if n < 2 else build_batch([PlainRecord(n)]) for n in versions]
    source.write_bytes(b"".join(ones))
    todo, steps = [direction], 0
    while todo:
        done = run("--lossy", "--compression", "gzip", todo[0], source, step := tmp_path / f"{steps}.log")
        steps += 1
        assert steps < 5
        if done.exit_code == 0:
            source = step
            todo.pop(0)
        else:
            todo = re.findall(r"\w+-to-v\d", done.stderr.partition("accepts only")[2])
            assert todo, done.stderr
    assert {batch.magic for batch in read(source.read_bytes())[0]} == {target}


@pytest.mark.parametrize(
    "options",
    [
        ["v2-to-v1"],
        ["v1-to-v0"],
        ["v2-to-v3"],
        ["v0-to-v0"],
        ["v0-to-v1", "--compression", "zstd"],
        ["v0-to-v1", "--rebatch", "1000"],
        ["any-to-v2", "--rebatch", "0"],
        ["any-to-v2", "--rebatch", str(1 << 30)],
    ],
)
def test_contradictions_end_with_2(options: list[str], tmp_path: Path) -> None:
    """Contradicting options are rejected before any work."""
    source = tmp_path / "in.log"
    source.write_bytes(build_message(PlainRecord(0), magic=0))
    assert run(*options, source, tmp_path / NAME).exit_code == 2
    assert list(tmp_path.iterdir()) == [source]


# --- indexes ---


def big_log(entries: int = 300) -> bytes:
    """v1 messages of 230 bytes: an index entry every 18th."""
    return b"".join(
        build_message(PlainRecord(100 + 2 * i, b"key", b"v" * 193, NOW + (i % 7) * 1000 + i), magic=1)
        for i in range(entries)
    )


def test_indexes_follow_the_brokers_rule(tmp_path: Path) -> None:
    """An index entry precedes each batch that begins more than 4096 bytes after the last entry's (LogSegment.recover)."""
    source, target = tmp_path / "in.log", tmp_path / "00000000000000000100.log"
    source.write_bytes(big_log())
    convert(str(source), str(target), ConversionPlan.of("v1-to-v2"))
    batches = read(target.read_bytes())[0]
    by_position = {batch.position: batch for batch in batches}
    index, time_index = index_paths(target)
    offsets = list(read_offset_index(index.read_bytes(), 100))
    size = batches[0].size
    step = 4096 // size + 1
    assert {batch.size for batch in batches} == {size}
    assert [entry.log_position for entry in offsets] == [n * step * size for n in range(1, len(offsets) + 1)]
    assert len(offsets) == (len(batches) - 1) // step
    for entry in offsets:
        assert by_position[entry.log_position].last_offset == entry.offset
    times = list(read_time_index(time_index.read_bytes(), 100))
    largest = max(batches, key=lambda batch: batch.max_timestamp or -1)
    assert times[-1] == (largest.max_timestamp, largest.last_offset)
    assert times == sorted(set(times))


@pytest.mark.parametrize("magic", [0, 2])
@pytest.mark.parametrize(("last", "fits"), [(100 + 2**31 - 1, True), (100 + 2**31, False), (99, False)])
def test_offsets_that_no_index_can_hold_are_refused(magic: int, last: int, fits: bool, tmp_path: Path) -> None:
    """A broker splits such a segment (LogSegmentOffsetOverflowException), even if it needs few index entries."""
    source, target = tmp_path / "in.log", tmp_path / "00000000000000000100.log"
    records = [PlainRecord(offset) for offset in sorted({min(last, 100), last})]
    source.write_bytes(
        b"".join(build_batch([record]) if magic else build_message(record, magic=0) for record in records)
    )
    done = run("any-to-v2", source, target)
    assert done.exit_code == (0 if fits else 2)
    if not fits:
        # An offset too far from the segment's own first offset is damage; otherwise the target's name excludes it.
        refused = (
            f"the header claims {'last ' if magic else ''}offset {last}"
            if last > 100
            else f"offset {last} does not fit a segment that starts"
        )
        assert refused in done.stderr
        assert list(tmp_path.iterdir()) == [source]


def test_a_target_past_2_gib_is_refused() -> None:
    """Positions in an index are int32; v2 can take more space than v0, so a segment can outgrow them."""
    check_size(Conversion("in", "out", bytes_after=2**31 - 1))
    with pytest.raises(KsegError, match="2 GiB"):
        check_size(Conversion("in", "out", bytes_after=2**31))


def test_no_timestamps_no_time_index_entries(tmp_path: Path) -> None:
    """v0 records give an empty time index."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(b"".join(build_message(PlainRecord(i, value=bytes(3000)), magic=0) for i in range(9)))
    convert(str(source), str(target), ConversionPlan.of("v0-to-v2"))
    index, time_index = index_paths(target)
    assert (len(index.read_bytes()) // 8, time_index.read_bytes()) == (4, b"")


# --- damage ---


def damaged_log() -> tuple[bytes, list[PlainRecord]]:
    """Five batches:

    the second has a wrong CRC, the third can't be decompressed though its CRC is valid, the fourth is out of order.
    """
    records = [PlainRecord(offset, b"k%d" % offset, b"v" * 30, NOW) for offset in range(5)]
    entries = [bytearray(build_message(record, magic=1)) for record in records]
    entries[1][-1] ^= 0xFF
    entries[2] = bytearray(records_builder.wrap(memoryview(b"\0" * 40), 1, 1, 0, 2, NOW))
    entries[3] = entries[0][:]
    return b"".join(entries), [records[0], records[4]]


@pytest.mark.parametrize("fault", ["flipped", "cut"])
def test_damage_is_reported_once(fault: str, tmp_path: Path) -> None:
    source, target = tmp_path / "in.log", tmp_path / NAME
    data, _ = damaged_log()
    source.write_bytes(data if fault == "flipped" else data[:-1])
    for options, code in ([], 2), (["--skip-damaged"], 1):
        done = run("v1-to-v2", *options, source, target)
        assert done.exit_code == code
        reported = [line.partition(" at byte ")[2].partition(":")[0] for line in done.stderr.splitlines()]
        assert reported
        assert len(reported) == len(set(reported))


def test_damage_stops_it(tmp_path: Path) -> None:
    """Without --skip-damaged, damage ends the conversion without a target."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    data, _ = damaged_log()
    source.write_bytes(data)
    with pytest.raises(DamagedError, match="crc-mismatch at byte"):
        convert(str(source), str(target), ConversionPlan.of("v1-to-v2"))
    done = run("v1-to-v2", source, target)
    assert (done.exit_code, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == [source]
    assert source.read_bytes() == data


@pytest.mark.parametrize("direction", ["v1-to-v2", "v0-to-v1"])
def test_damage_is_skipped_on_demand(direction: str, tmp_path: Path) -> None:
    """The exit code is 1, and validation of the result finds no error, whether valid batches were converted or copied."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    data, sound = damaged_log()
    source.write_bytes(data + b"\x01" * 11)
    done = run(direction, "--skip-damaged", "--format", "jsonl", source, target)
    assert done.exit_code == 1
    row = json.loads(done.stdout)
    assert (row["skipped"], row["records"]) == (3, 2)
    assert row["lost_bytes"] == len(data) + 11 - sum(len(build_message(record, magic=1)) for record in sound)
    assert [plain(record) for record in read(target.read_bytes())[1]] == sound


@pytest.mark.parametrize("epoch", [-1, 1 << 30])
def test_only_a_repair_knows_which_leader_epoch_is_right(epoch: int, tmp_path: Path) -> None:
    """A result with a wrong one could not be replicated. Targets without the epochs of the source can be written."""
    source, target = tmp_path / "t-0" / NAME, tmp_path / "new"
    source.parent.mkdir()
    epochs = [1, 1, epoch, 1, 1]
    records = [[PlainRecord(2 * n + i, b"k", b"v", NOW) for i in range(2)] for n in range(len(epochs))]
    batches = [build_batch(each, partition_leader_epoch=one) for each, one in zip(records, epochs, strict=True)]
    source.write_bytes(b"".join(batches))
    for codec in ("none", "zstd"):
        done = run("any-to-v2", "--skip-damaged", "--compression", codec, source.parent, target)
        assert (done.exit_code, target.exists()) == (2, False)
        assert "run `kseg repair` first" in done.stderr
    for n, options in enumerate((["v2-to-v1", "--lossy"], ["any-to-v2", "--for-another-cluster"])):
        done = run(*options, "--skip-damaged", source.parent, tmp_path / str(n))
        assert "leader-epoch-regression" in done.stderr or "negative-leader-epoch" in done.stderr
        assert len(read((tmp_path / str(n) / NAME).read_bytes())[1]) == 10
    assert invoke("repair", source.parent, tmp_path / "repaired").exit_code == 0
    assert run("any-to-v2", "--compression", "zstd", tmp_path / "repaired", tmp_path / "after").exit_code == 0
    assert (tmp_path / "after" / "leader-epoch-checkpoint").read_text().splitlines()[2:] == ["1 0"]


@pytest.mark.parametrize("offset", [0, 3, 1 << 40])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_wrong_base_offset_costs_one_entry(offset: int, codec: str, tmp_path: Path) -> None:
    """A base offset is outside the CRC; one that is too high must not make the batches after it look wrong."""
    sets = [[PlainRecord(100 + 3 * n + i, b"k", b"v", NOW) for i in range(3)] for n in range(6)]
    entries = [bytearray(build_batch(records, compression=codec)) for records in sets]
    entries[2][:8] = offset.to_bytes(8, "big")
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(b"".join(entries))
    done = run("v2-to-v1", "--lossy", "--skip-damaged", source, target)
    assert done.exit_code == 1
    assert done.stderr.count("non-monotonic-offset") == 1
    # Out of the segment's reach, the value is disproved, and the batches around it prove the right one.
    kept = [record for n, records in enumerate(sets) if n != 2 or offset == 1 << 40 for record in records]
    assert [plain(record) for record in read(target.read_bytes())[1]] == kept


def test_a_zero_tail_is_no_damage(tmp_path: Path) -> None:
    """A preallocated segment of a killed broker ends in zeros: no record is lost."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(build_message(PlainRecord(0), magic=0) + bytes(10_000))
    assert run("v0-to-v2", source, target).exit_code == 0
    assert target.stat().st_size == RECORD_BATCH_OVERHEAD + 7


@pytest.mark.parametrize("direction", ["v1-to-v2", "v2-to-v1"])
def test_an_empty_segment_stays_empty(direction: str, tmp_path: Path) -> None:
    """An empty segment gives an empty target, not an error."""
    source, target = tmp_path / "in" / NAME, tmp_path / NAME
    source.parent.mkdir()
    source.write_bytes(b"")
    convert(str(source), str(target), ConversionPlan.of(direction, lossy=True))
    assert [path.read_bytes() for path in (target, *index_paths(target))] == [b"", b"", b""]


def test_no_segment_no_target(tmp_path: Path) -> None:
    """An input that is not a segment leaves no target."""
    source = tmp_path / "in.log"
    source.write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(KsegError, match="not a Kafka log segment"):
        convert(str(source), str(tmp_path / NAME), ConversionPlan.of("v1-to-v2"))
    with pytest.raises(UnreadableError):
        convert(str(tmp_path / "absent.log"), str(tmp_path / NAME), ConversionPlan.of("v1-to-v2"))
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.slow
@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_bytes_there_is_a_result_or_a_reason(tmp_path: Path, data: st.DataObject) -> None:
    """Damage anywhere gives a valid result with the valid batches, or a KsegError."""
    log = bytearray(data.draw(old_logs(1)))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(log)
    for path in (target, *index_paths(target)):
        path.unlink(missing_ok=True)
    try:
        convert(str(source), str(target), ConversionPlan.of("any-to-v2", skip_damaged=True))
    except KsegError:
        assert not target.exists()
        return
    read(target.read_bytes())


# --- folders, names, the source ---

#: A producer snapshot without producers: version 1, the CRC-32C of the count, and the count.
SNAPSHOT = struct.pack(">hIi", 1, crc32c(bytes(4)), 0)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    half = len(big_log()) // 2
    (folder / "00000000000000000100.log").write_bytes(big_log()[:half])
    (folder / "00000000000000000400.log").write_bytes(big_log()[half:])
    (folder / "00000000000000000400.snapshot").write_bytes(SNAPSHOT)
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: 1xUDBJiRSg-Lt5ZPGMHaKg\n")
    (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    (folder / "00000000000000000100.index").write_bytes(b"stale")
    (folder / "00000000000000000100.log.deleted").write_bytes(b"")
    yield folder
    assert (folder / "00000000000000000100.index").read_bytes() == b"stale"
    assert (folder / "00000000000000000100.log").read_bytes() + (
        folder / "00000000000000000400.log"
    ).read_bytes() == big_log()


def test_partition_folder(partition: Path, tmp_path: Path) -> None:
    """All segments of a partition are converted, with new side files."""
    target = tmp_path / "new" / "topic-0"
    target.parent.mkdir()
    result = convert(str(partition), str(target), ConversionPlan.of("v1-to-v2"))
    logs = sorted(target.glob("*.log"))
    assert [content_of(record) for log in logs for record in records_of(log)] == [
        content_of(record) for record in read(big_log())[1]
    ]
    assert sorted(path.name for path in target.iterdir()) == sorted(
        [
            *(f"{base:020}{suffix}" for base in (100, 400) for suffix in (".log", ".index", ".timeindex")),
            *(f"{offset:020}.snapshot" for offset in (400, 699)), "partition.metadata", "leader-epoch-checkpoint",
        ]
    )  # fmt: skip
    assert result.left_out == ["00000000000000000100.log.deleted"]
    assert (target / "00000000000000000400.snapshot").read_bytes() == SNAPSHOT
    assert [one.target for one in result.segments] == [str(log) for log in logs]
    assert list(target.parent.iterdir()) == [target]


def test_a_log_dir_becomes_one(partition: Path, tmp_path: Path) -> None:
    """Each partition gets a folder of its own name; a damaged one is left out, and the others are converted."""
    logs, target = tmp_path / "logs", tmp_path / "new"
    for name in ("topic-0", "topic-1", "topic-2"):
        shutil.copytree(partition, logs / name)
    (logs / "meta.properties").write_text("version=1")
    broken = logs / "topic-1" / "00000000000000000400.log"
    broken.write_bytes(broken.read_bytes()[:-1])
    done = run("v1-to-v2", logs, target)
    assert done.exit_code == 2
    assert sorted(path.name for path in target.iterdir()) == ["topic-0", "topic-2"]
    reported = [line for line in done.stderr.splitlines() if "not copied" not in line]
    assert len(reported) == 2
    assert "1 partition not written" in reported[1]
    assert f"{broken}: truncated-tail" in reported[0]
    assert "meta.properties" in done.stderr
    convert(str(partition), str(tmp_path / "alone-0"), ConversionPlan.of("v1-to-v2"))
    for path in (tmp_path / "alone-0").iterdir():
        assert (target / "topic-0" / path.name).read_bytes() == path.read_bytes()
    again = run("v1-to-v2", logs, target)
    assert (again.exit_code, again.stderr.count("\n")) == (2, 1)
    assert "topic-0 exists: add --force" in again.stderr
    assert run("v1-to-v2", "--force", "--skip-damaged", logs, target).exit_code == 1
    assert sorted(path.name for path in target.iterdir()) == ["topic-0", "topic-1", "topic-2"]
    jsonl = run("v1-to-v2", "--force", "--skip-damaged", "--format", "jsonl", logs, target)
    text = run("v1-to-v2", "--force", "--skip-damaged", logs, target)
    records = [json.loads(line)["records"] for line in jsonl.stdout.splitlines()]
    assert "total of 6 segments" in text.stdout
    assert f"records  {sum(records)}, read" in text.stdout


def test_damage_in_one_segment_leaves_no_folder(partition: Path, tmp_path: Path) -> None:
    """A partition is converted completely or not at all."""
    folder = tmp_path / "copy-0"
    folder.mkdir()
    for log in partition.glob("*.log"):
        (folder / log.name).write_bytes(log.read_bytes())
    broken = folder / "00000000000000000400.log"
    broken.write_bytes(broken.read_bytes()[:-1])
    target = tmp_path / "new-0"
    assert run("v1-to-v2", folder, target).exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy-0", "topic-0"]


def test_a_swap_file_is_for_a_broker(partition: Path, tmp_path: Path) -> None:
    """A .swap file replaces segments that can be partly deleted already (LogLoader)."""
    swap = partition / "00000000000000000100.log.swap"
    swap.write_bytes(b"")
    with pytest.raises(UnreadableError, match="swap"):
        convert(str(partition), str(tmp_path / "new-0"), ConversionPlan.of("v1-to-v2"))


def test_an_existing_target_is_kept_without_force(partition: Path, tmp_path: Path) -> None:
    """An existing target is never replaced by accident."""
    source = partition / "00000000000000000100.log"
    target = tmp_path / NAME
    for taken in (target, *index_paths(target)):
        taken.write_bytes(b"mine")
        assert run("v1-to-v2", source, target).exit_code == 2
        assert taken.read_bytes() == b"mine"
        taken.unlink()
    assert run("v1-to-v2", source, target).exit_code == 0
    index_paths(target)[0].write_bytes(b"mine")
    assert run("v1-to-v2", "--force", source, target).exit_code == 0
    assert index_paths(target)[0].stat().st_size % 8 == 0
    assert read(target.read_bytes())[0][0].magic == 2
    assert run("v1-to-v2", partition, tmp_path / "topic-1").exit_code == 0
    assert run("v1-to-v2", partition, tmp_path / "topic-1").exit_code == 2
    assert run("v1-to-v2", "--force", partition, tmp_path / "topic-1").exit_code == 0


def test_force_never_replaces_what_kseg_did_not_write(partition: Path, tmp_path: Path) -> None:
    """A good backup in the place of DST stays: a copy of Kafka's files, or a result to which a broker has appended."""
    shutil.copytree(partition, tmp_path / "backup-0")
    assert run("v1-to-v2", partition, tmp_path / "used-0").exit_code == 0
    with max((tmp_path / "used-0").glob("*.log")).open("ab") as log:
        log.write(b"appended")
    alone = Path(shutil.copytree(partition, tmp_path / "alone")) / NAME
    for other in set(alone.parent.iterdir()) - {alone, *index_paths(alone)}:
        other.unlink()
    alone.touch()
    for source, target in (
        (partition, "backup-0"),
        (partition, "used-0"),
        (partition / "00000000000000000100.log", alone),
    ):
        before = digests(tmp_path)
        result = run("v1-to-v2", "--force", source, tmp_path / target)
        assert (result.exit_code, digests(tmp_path)) == (2, before)
        assert "kseg did not write" in result.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_segment_has_no_folder_for_a_target(partition: Path, tmp_path: Path) -> None:
    """A file and a folder as source and target contradict each other."""
    source = partition / "00000000000000000100.log"
    (tmp_path / "new").mkdir()
    done = run("any-to-v2", "--force", source, tmp_path / "new")
    assert (done.exit_code, done.stdout) == (2, "")
    assert str(tmp_path / "new" / source.name) in done.stderr


def test_the_source_cannot_be_the_target(partition: Path, tmp_path: Path) -> None:
    """Converting in place would destroy the source."""
    log = partition / "00000000000000000100.log"
    link = tmp_path / "link.log"
    link.symlink_to(log)
    hard = tmp_path / "hard.log"
    hard.hardlink_to(log)
    for source, target in [(log, log), (log, link), (log, hard), (partition, partition), (partition, partition / "in"),
                           (partition, tmp_path), (log, partition)]:  # fmt: skip
        done = run("any-to-v2", "--force", source, target)
        assert (done.exit_code, done.stdout) == (2, "")
    assert run("any-to-v2", "-", tmp_path / NAME).exit_code == 2


def test_the_modification_time_is_kept(tmp_path: Path) -> None:
    """Retention uses it for records without timestamps; Kafka's cleaner keeps it, too."""
    import os

    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(build_message(PlainRecord(0), magic=0))
    os.utime(source, ns=(10**18, 10**18))
    convert(str(source), str(target), ConversionPlan.of("v0-to-v2"))
    assert target.stat().st_mtime_ns == 10**18


def test_a_large_entry_is_pointed_out(tmp_path: Path) -> None:
    """A batch above the broker's limit is reported: replicas may reject it."""
    source, target = tmp_path / "in.log", tmp_path / NAME
    source.write_bytes(build_message(PlainRecord(0, b"", bytes(1024 * 1024 - 30)), magic=0))
    done = run("v0-to-v2", source, target)
    assert f"{target.stat().st_size:,} bytes" in done.stderr
    assert target.stat().st_size > 1024 * 1024 + LOG_OVERHEAD


@pytest.mark.kafka
def test_kafka_reads_converted_fixtures_the_same(tmp_path: Path) -> None:
    """Every fixture to v2, and the old ones to each other: Kafka's reader returns the same records for the copies."""
    from tools.lab import oracle

    sources: dict[Path, Path] = {}
    for segment in SEGMENTS:
        for number, plan in enumerate(_plans(segment)):
            target = tmp_path / f"{number}-{segment.parent.name}-{segment.name}"
            convert(str(segment), str(target), plan)
            sources[target] = segment
    read_by_kafka = oracle.rows_of(list(sources))
    assert len(read_by_kafka) > len(SEGMENTS)
    for target, segment in sources.items():
        wanted = [row for row in expected(segment.parent)[segment.name] if row["kind"] == "record"]
        assert [row for row in read_by_kafka[target] if row["kind"] == "error"] == []
        assert [_rows_by_kafka(row) for row in read_by_kafka[target] if row["kind"] == "record"] == [
            _rows_by_kafka(row) for row in wanted
        ]


@pytest.mark.kafka
@pytest.mark.parametrize("version", [0, 1])
def test_kafka_reads_what_was_converted_downwards(version: int, tmp_path: Path) -> None:
    """Every fixture by way of v2: all content that the old version can hold, with valid inner CRCs and offsets."""
    from tools.lab import oracle

    sources: dict[Path, Path] = {}
    for segment in SEGMENTS:
        middle, target = tmp_path / "middle.log", tmp_path / f"{segment.parent.name}-{segment.name}"
        zstd = any(row.get("compression") == "zstd" for row in expected(segment.parent)[segment.name])
        convert(str(segment), str(middle), ConversionPlan.of("any-to-v2", force=True))
        plan = ConversionPlan.of(f"v2-to-v{version}", lossy=True, compression="snappy" if zstd else "keep")
        convert(str(middle), str(target), plan)
        sources[target] = segment
    read_by_kafka = oracle.rows_of(list(sources))
    names = ("offset", "key", "value", "timestamp") if version else ("offset", "key", "value")
    for target, segment in sources.items():
        wanted = [row for row in expected(segment.parent)[segment.name] if row["kind"] == "record"]
        rows = read_by_kafka[target]
        assert {row["magic"] for row in rows if row["kind"] == "batch"} <= {version}
        assert [row for row in rows if row["kind"] == "error"] == []
        assert [[row[name] for name in names] for row in rows if row["kind"] == "record"] == [
            [row[name] for name in names] for row in wanted if row["control"] is None
        ]


def _plans(segment: Path) -> list[ConversionPlan]:
    plans = [ConversionPlan.of("any-to-v2"), ConversionPlan.of("any-to-v2", compression="zstd", rebatch=600)]
    if "-v0-" in segment.parent.name:
        plans.append(ConversionPlan.of("v0-to-v1"))
    if "-v1-" in segment.parent.name:
        plans.append(ConversionPlan.of("v1-to-v2", compression="none"))
    return plans


def _rows_by_kafka(row: dict[str, Any]) -> dict[str, Any]:
    kind = row["timestamp_type"] or "CreateTime"
    kept = {name: row[name] for name in ("offset", "timestamp", "key", "value", "headers", "control")}
    return {**kept, "timestamp_type": kind}


@pytest.mark.slow
def test_chunks_are_let_go_without_the_collector(tmp_path: Path) -> None:
    """Memory stays constant: a chunk in a reference cycle would keep its payloads until a rare garbage collection."""
    gc.collect()
    gc.disable()
    try:
        source = next(path for path in OLD_SEGMENTS if path.parent.name == "2.8.2-v1-gzip")
        convert(str(source), str(tmp_path / source.name), ConversionPlan.of("any-to-v2"))
        assert [found for found in gc.get_objects() if isinstance(found, Chunk)] == []
    finally:
        gc.enable()


def test_copied_batches_without_a_checkpoint_get_one(tmp_path: Path) -> None:
    """A broker that loads the log after a clean shutdown has the epochs of its batches then."""
    source = tmp_path / "orders-0"
    source.mkdir()
    batches = [
        build_batch([PlainRecord(n, b"k", b"v", NOW + n)], partition_leader_epoch=epoch)
        for n, epoch in enumerate((3, 3, 5))
    ]
    (source / f"{0:020}.log").write_bytes(b"".join(batches))
    assert run("any-to-v2", source, tmp_path / "new").exit_code == 0
    assert (tmp_path / "new" / f"{0:020}.log").read_bytes() == b"".join(batches)
    assert (tmp_path / "new" / "leader-epoch-checkpoint").read_text() == "0\n2\n3 0\n5 2\n"


def test_totals_of_several_partitions_have_no_offsets(tmp_path: Path) -> None:
    """Their offsets have nothing in common; each partition has its own."""
    for number, first in ((0, 100), (1, 5)):
        folder = tmp_path / "logs" / f"orders-{number}"
        folder.mkdir(parents=True)
        record = PlainRecord(first, b"k", b"v", NOW, (Header("h", b"x"),))
        (folder / f"{first:020}.log").write_bytes(build_batch([record]))
    done = run("v2-to-v1", "--lossy", "-v", tmp_path / "logs", tmp_path / "new")
    lost = [line.strip() for line in done.stdout.splitlines() if "headers" in line]
    assert [line.partition(", ")[2] for line in lost] == ["", "offset 100", "offset 5"]
    quiet = run("v2-to-v1", "--lossy", "-q", tmp_path / "logs", tmp_path / "other")
    assert quiet.stdout.count("  batches") == 1


@pytest.mark.parametrize("last", ["a marker", "an emptied batch", "a record that the cleaner removed"])
def test_the_log_end_stays_where_the_last_batches_have_no_record(tmp_path: Path, last: str) -> None:
    """A broker would give their offsets again, and the commits of groups would be out of range."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    kept = [PlainRecord(offset, b"k", b"v", NOW) for offset in range(5)]
    marker = build_batch(
        [PlainRecord(5, bytes(4), bytes(6), NOW)], producer_id=9, producer_epoch=0, transactional=True, control=True
    )
    gone = marker if last == "a marker" else build_batch([], base_offset=5, last_offset=5)
    cut = build_batch(kept, last_offset=5)
    (folder / f"{0:020}.log").write_bytes(cut if last.startswith("a record") else build_batch(kept) + gone)
    done = run("v2-to-v1", "--lossy", folder, tmp_path / "new")
    assert (done.exit_code, "ends at offset" in done.stderr) == (0, False)
    assert kseg_here("validate", tmp_path / "new").returncode == 1
    (write,) = re.findall("`(kseg validate --write-baseline .*?)`", done.stderr)
    kseg_here(*shlex.split(write.replace("FILE", str(tmp_path / "known")))[1:])
    assert kseg_here("validate", tmp_path / "new", "--baseline", tmp_path / "known").returncode == 0
    assert [path.name for path in sorted((tmp_path / "new").glob("*.log"))] == [f"{0:020}.log", f"{6:020}.log"]
    assert not (tmp_path / "new" / f"{6:020}.log").stat().st_size
    done = run("v2-to-v1", "--lossy", folder / f"{0:020}.log", tmp_path / "alone.log")
    assert "alone.log ends at offset 5, its source at 6" in done.stderr
    whole = tmp_path / "whole-0"
    whole.mkdir()
    (whole / f"{0:020}.log").write_bytes(build_batch(kept))
    assert run("v2-to-v1", "--lossy", whole, tmp_path / "same").exit_code == 0
    assert len(list((tmp_path / "same").glob("*.log"))) == 1


@pytest.mark.parametrize(("direction", "codec"), [("v2-to-v1", "keep"), ("v1-to-v2", "keep"), ("v1-to-v1", "snappy")])
def test_an_append_time_below_minus_one_stays(tmp_path: Path, direction: str, codec: str) -> None:
    """Brokers serve it. Only the largest timestamp of the records' own is -1 at least."""
    source, target = tmp_path / NAME, tmp_path / "new" / NAME
    target.parent.mkdir()
    records = [PlainRecord(offset, b"k", b"v", -60_000) for offset in range(3)]
    options: dict[str, Any] = {"compression": "gzip", "timestamp_type": "LogAppendTime"}
    if direction.startswith("v2"):
        source.write_bytes(build_batch(records, max_timestamp=-60_000, **options))
    else:
        source.write_bytes(build_wrapper(records, magic=1, append_time=-60_000, **options))
    assert run("--lossy", "--compression", codec, direction, source, target).exit_code == 0
    rows = [json.loads(line) for line in invoke("dump", "--deep", "--format", "jsonl", target).stdout.splitlines()]
    assert [row["timestamp"] for row in rows if row["kind"] == "record"] == [-60_000] * 3
