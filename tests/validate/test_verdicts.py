"""Verdicts of files and runs agree with the bytes that were read, checked and lost."""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kseg.findings import RULES, do_nothing
from kseg.format.record import framing as record_framing
from kseg.format.segment.framed_files import ReadSettings, RecordSet, framing
from kseg.format.storage.source import open_source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support.cli import invoke
from tests.support.damage import entries, flip
from tests.support.fuzzing import cases
from tools.make_findings import FINDINGS, FIRST, SEGMENTS

PLAIN = SEGMENTS / "4.3.0-v2-none" / FIRST
DAMAGED = SEGMENTS.parent / "findings" / "crc-mismatch" / FIRST


def test_without_crcs_file_and_run_are_undetermined() -> None:
    """A file whose CRCs were not computed is not called valid, neither by itself nor in the sum."""
    done = invoke("validate", "--no-crc", PLAIN)
    assert f"{PLAIN}: undetermined (CRCs were not checked)\nundetermined: " in done.stdout


@pytest.mark.parametrize("name", ["table", "junit", "html"])
def test_an_ignored_rule_does_not_hide_lost_bytes(name: str) -> None:
    """A rule set to ignore takes the finding away, not the loss: the file is undetermined in every report."""
    done = invoke("validate", "--rule", "crc-mismatch=ignore", "--format", name, DAMAGED)
    assert done.exit_code == 0
    assert "sound" not in done.stdout.split("</style>")[-1]
    assert "undetermined" in done.stdout


def test_a_segment_without_one_readable_batch_is_damaged(tmp_path: Path) -> None:
    """The name makes it a segment for a broker: all its bytes are lost, it is not "not a segment"."""
    dice = random.Random(1)
    data = bytearray(PLAIN.read_bytes())
    for place in entries(bytes(data)):
        data[place.at : place.at + 70] = dice.randbytes(70)
    path = tmp_path / FIRST
    path.write_bytes(data)
    done = invoke("validate", path)
    assert (done.exit_code, f"{len(data):,} bytes lost" in done.stdout) == (1, True)
    other = tmp_path / "data.bin"
    other.write_bytes(data)
    assert invoke("validate", other).exit_code == 2
    path.write_bytes(b"a letter to somebody\n" * 9)
    assert "it looks like text" in invoke("validate", path).stderr


#: Rules that need several files: dump reads one file.
ACROSS_FILES = {rule.name for rule in RULES.values() if rule.code.startswith("K6")} | {"epoch-mismatch"}


def shown_by_dump() -> list[Path]:
    folders = (path.parent for path in FINDINGS.glob("*/expect.jsonl"))
    return sorted(
        folder
        for folder in folders
        if folder.name not in ACROSS_FILES and not (folder / "settings.json").exists() and any(folder.rglob("*.log"))
    )


@pytest.mark.parametrize("folder", shown_by_dump(), ids=lambda folder: folder.name)
def test_dump_exits_as_validate_does(folder: Path) -> None:
    """A reader of damaged rows is warned: dump makes the checks of validate, and has its exit code."""
    (log,) = folder.rglob("*.log")
    validated = invoke("validate", log)
    shown = invoke("dump", "--deep", "--format", "jsonl", log)
    assert shown.exit_code == validated.exit_code
    if validated.exit_code == 1:
        assert f"kseg: {log}: " in shown.stderr


def copied(fixture: str, tmp_path: Path) -> Path:
    folder = tmp_path / "orders-0"
    shutil.copytree(SEGMENTS / fixture, folder)
    return folder


def found(folder: Path, *options: str) -> list[dict[str, Any]]:
    rows = map(json.loads, invoke("validate", "--format", "jsonl", *options, folder).stdout.splitlines())
    return [row for row in rows if row["kind"] == "finding"]


@pytest.mark.parametrize("depth", ["--deep", "--shallow"])
@pytest.mark.parametrize(
    ("fixture", "base"),
    [("4.3.0-v2-none-segments", 48), ("3.9.1-v2-none-transactions", 53), ("0.10.2.2-v1-none-segments", 21)],
)  # fmt: skip
def test_a_missing_segment_is_an_error(fixture: str, base: int, depth: str, tmp_path: Path) -> None:
    """The folder does not show that the topic is compacted, so the offsets of the missing file are lost."""
    folder = copied(fixture, tmp_path)
    for path in folder.glob(f"{base:020}.*"):
        path.unlink()
    assert invoke("validate", depth, folder).exit_code == 1
    (gap,) = [row for row in found(folder, depth) if row["rule"] == "segment-gap"]
    assert (gap["severity"], gap["offset"]) == ("error", base)


@pytest.mark.parametrize("depth", ["--deep", "--shallow"])
@pytest.mark.parametrize(
    ("fixture", "base"),
    [("4.3.0-v2-none-segments", 0), ("4.3.0-v2-none-segments", 24), ("0.10.2.2-v1-none-segments", 0)],
)
@pytest.mark.parametrize("row", [0, 1])
def test_a_missing_batch_is_a_warning(row: int, fixture: str, base: int, depth: str, tmp_path: Path) -> None:
    """At the start of a segment and between batches. Not an error: a repaired partition has such gaps and is valid."""
    folder = copied(fixture, tmp_path)
    for path in [*folder.glob("*index"), *folder.glob("*.snapshot")]:
        path.unlink()
    log = folder / f"{base:020}.log"
    data = log.read_bytes()
    places = entries(data)
    log.write_bytes(data[: places[row].at] + data[places[row].end :])
    first = (
        base
        if row == 0
        else json.loads(invoke("dump", "--shallow", "--format", "jsonl", log).stdout.splitlines()[0])["last_offset"] + 1
    )
    for rule in ("offset-gap=info", "offset-gap=ignore"):
        loud = [row for row in found(folder, depth, "--rule", rule) if row["severity"] != "info"]
        assert [(row["rule"], row["severity"], row["offset"]) for row in loud] == [("missing-batches", "error", first)]
        assert not [row for row in found(folder, depth, "--rule", rule) if row["rule"] == "offset-gap"]
    done = invoke("validate", depth, "--format", "jsonl", folder)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["errors"], summary["warnings"]) == (1, 0)
    assert done.exit_code == 1
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 1000\n")
    assert not [row for row in found(folder, depth) if row["severity"] != "info"]


@pytest.mark.slow
@pytest.mark.parametrize("flip", [(7, 16), (5, 1), (3, 128)])
@pytest.mark.parametrize(
    ("fixture", "base", "row"),
    [
        ("4.3.0-v2-none-segments", 0, 0),
        ("4.3.0-v2-none-segments", 24, 0),
        ("4.3.0-v2-none-segments", 24, 1),
        ("4.3.0-v2-none-segments", 24, 2),
        ("0.10.2.2-v1-none-segments", 21, 0),
    ],
)
def test_a_damaged_base_offset_is_not_blamed_on_other_files(
    fixture: str, base: int, row: int, flip: tuple[int, int], tmp_path: Path
) -> None:
    """The file's name, the batches around it and the next segment's name prove it wrong:

    no other batch is wrong or missing.
    """
    folder = copied(fixture, tmp_path)
    log = folder / f"{base:020}.log"
    data = bytearray(log.read_bytes())
    data[entries(bytes(data))[row].at + flip[0]] ^= flip[1]
    log.write_bytes(data)
    loud = [(Path(row["file"]).name, row["rule"]) for row in found(folder) if row["severity"] != "info"]
    # After the last batch, no batch shows the right offset: it is only out of the segment's reach.
    expected = "invalid-offset-range" if (base, row, flip) == (24, 2, (3, 128)) else "non-monotonic-offset"
    assert expected in {rule for _, rule in loud} <= {"invalid-offset-range", "non-monotonic-offset"}
    assert {name for name, _ in loud} == {log.name}


def test_a_segment_with_another_name_within_its_range_loses_nothing(tmp_path: Path) -> None:
    """All its batches exist: only the name is wrong."""
    folder = copied("4.3.0-v2-none-segments", tmp_path)
    for path in [*folder.glob("*index"), *folder.glob("*.snapshot")]:
        path.unlink()
    (folder / f"{24:020}.log").rename(folder / f"{26:020}.log")
    assert {row["rule"] for row in found(folder)} == {"file-name-mismatch", "no-indexes"}


def test_a_gap_between_segments_of_a_compacted_log_is_none(tmp_path: Path) -> None:
    """The cleaner's traces in the data are evidence, without the log dir's checkpoint."""
    folder = copied("4.3.0-v2-none-compacted-transactions", tmp_path)
    for path in folder.glob(f"{25:020}.*"):
        path.unlink()
    assert invoke("validate", folder).exit_code == 0
    assert {row["rule"] for row in found(folder)} >= {"offset-gap"}


def write_segment(folder: Path, offsets: Sequence[int], damaged: int | None = None) -> None:
    """Write batches of three records, the one with the number ``damaged`` with a wrong CRC."""
    folder.mkdir(exist_ok=True)
    records = [[PlainRecord(offset + n, b"k%d" % n, b"v") for n in range(3)] for offset in offsets]
    data = b"".join(map(build_batch, records))
    if damaged is not None:
        data = flip(data, entries(data)[damaged].end - 1)
    (folder / f"{offsets[0]:020}.log").write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("depth", ["--deep", "--shallow"])
@pytest.mark.parametrize("damaged", [0, 3, 7])
@pytest.mark.parametrize(("base", "rule"), [(60, "segment-gap"), (16, "segment-overlap")])
def test_damage_before_the_last_batch_hides_no_missing_segment(
    base: int, rule: str, damaged: int, depth: str, tmp_path: Path
) -> None:
    """The last batch shows where the segment ends. If it is damaged, the end is not known."""
    folder = tmp_path / "orders-0"
    write_segment(folder, range(0, 24, 3), damaged=damaged)
    write_segment(folder, range(base, base + 24, 3))
    found_rules = {row["rule"] for row in found(folder, depth)}
    assert "crc-mismatch" in found_rules
    assert (rule in found_rules) is (damaged < 7)


def test_the_gap_that_damage_leaves_is_no_sign_of_compaction(tmp_path: Path) -> None:
    """Two gaps between batches are a sign of it, if nothing else explains them."""
    folder = tmp_path / "orders-0"
    write_segment(folder, (0, 3, 6, 9, 60, 63), damaged=1)
    (gap,) = [row for row in found(folder) if row["offset"] == 12]
    assert (gap["rule"], gap["severity"], gap["last_offset"]) == ("missing-batches", "error", 59)


def test_the_gaps_beside_a_damaged_batch_are_signs_of_compaction(tmp_path: Path) -> None:
    """Its header agrees with both neighbours: one damaged byte must not make an error of what a log cleaner has removed."""
    folder = tmp_path / "orders-0"
    write_segment(folder, (0, 5, 10), damaged=1)
    write_segment(folder, (20,))
    assert [row["rule"] for row in found(folder) if row["offset"] == 13] == ["offset-gap"]
    write_segment(folder, (0, 3, 10), damaged=1)  # only one gap
    assert [row["rule"] for row in found(folder) if row["offset"] == 13] == ["segment-gap"]


Log = list[PlainRecord]


def _cleaned(log: Log, end: int) -> Log:
    """Return the log after a cleaning up to an offset, as ``Cleaner.cleanSegments`` does it."""
    newest = {record.key: record.offset for record in log if record.offset < end}
    return [record for record in log if record.offset >= end or newest[record.key] == record.offset]


def _put(folder: Path, log: Log, first: int, magic: int) -> int:
    """Write a segment for each 32 offsets, and return the number of gaps."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for base in range(first // 32 * 32, log[-1].offset + 1, 32):
        records = [record for record in log if base <= record.offset < base + 32]
        data = b"".join(build_message(one, magic=magic) if magic < 2 else build_batch([one]) for one in records)
        (folder / f"{base:020}.log").write_bytes(data)
    return sum(b.offset > a.offset + 1 for a, b in pairwise(log))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(30)))
def test_gaps_of_a_cleaner_are_not_losses_and_losses_not_gaps_of_a_cleaner(seed: int, tmp_path: Path) -> None:
    """A leader that is cleaned several times, a replica that fetches in two parts, and a log that was never cleaned."""
    dice = random.Random(seed)
    folder, magic = tmp_path / "orders-0", dice.choice([0, 1, 2])

    def appended(log: Log, end: int) -> Log:
        keys = dice.randint(4, 40)
        more = range(log[-1].offset + 1 if log else 0, end)
        return [*log, *(PlainRecord(offset, b"%d" % dice.randrange(keys), b"v") for offset in more)]

    leader = appended([], 100)
    for _ in range(dice.randint(0, 2)):
        leader = _cleaned(appended(leader, leader[-1].offset + 64), leader[-1].offset // 32 * 32)
    first_part = leader
    leader = appended(leader, leader[-1].offset + 1 + dice.choice([0, 100]))
    leader = appended(_cleaned(leader, leader[-1].offset // 32 * 32), leader[-1].offset + 40)
    replica = [*first_part, *(record for record in leader if record.offset > first_part[-1].offset)]
    for log in (leader, replica):
        if _put(folder, log, 0, magic) > 3:
            assert not [row for row in found(folder) if row["rule"] in ("missing-batches", "segment-gap")]
    whole = [PlainRecord(offset, b"%d" % dice.randrange(10), b"v") for offset in range(300)]
    lost = sorted(dice.sample(range(20, 280, 26), dice.randint(2, 5)))  # keys are repeated within 11 records
    kept = [record for record in whole if not any(at <= record.offset < at + 14 for at in lost)]
    _put(folder, kept, 0, magic)
    reported = {row["offset"] for row in found(folder) if row["rule"] in ("missing-batches", "segment-gap")}
    assert reported >= set(lost)
    done = invoke("repair", "--dry-run", folder)
    assert done.exit_code == 1, done.stdout


@pytest.mark.parametrize("keyed", [True, False])
def test_many_gaps_are_a_sign_of_compaction_unless_records_have_no_key(keyed: bool, tmp_path: Path) -> None:
    """0.8 left only this sign. A cleaner drops records without a key: one such record proves that no cleaner ran."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for base in (0, 100):
        offsets = [base + n for n in (0, 1, 5, 6, 9, 30, 31)]
        records = [PlainRecord(offset, b"%d" % offset if keyed else None, b"v") for offset in offsets]
        (folder / f"{base:020}.log").write_bytes(b"".join(build_message(record, magic=0) for record in records))
    gaps = [row for row in found(folder) if row["offset"] == 32]
    assert [row["rule"] for row in gaps] == ["offset-gap" if keyed else "segment-gap"]
    assert ("have no key" in gaps[0]["message"]) is not keyed


def test_segments_with_each_others_names_lose_nothing(tmp_path: Path) -> None:
    """All their offsets exist: the names are wrong, and with them the index entries before a file's first offset."""
    folder = copied("4.3.0-v2-none-segments", tmp_path)
    first, second = (folder / f"{base:020}.log" for base in (24, 48))
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    rows = found(folder)
    assert not [row for row in rows if row["rule"] in ("segment-gap", "offset-gap", "segment-overlap")]
    assert [Path(row["file"]).name for row in rows if row["rule"] == "segment-order"] == [second.name]
    before = [row for row in rows if row["rule"] == "time-index-mismatch" and "claims offset 48" in row["message"]]
    assert {Path(row["file"]).name for row in before} == {f"{24:020}.timeindex"}


def test_a_time_index_of_v0_is_not_held_against_times_that_v0_has_not(tmp_path: Path) -> None:
    """With LogAppendTime a broker indexes the time of the append, which a v0 message does not have."""
    folder = copied("2.8.2-v0-none", tmp_path)
    (folder / f"{0:020}.timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_000, 3))
    assert not [row for row in found(folder) if row["severity"] == "error"]


def test_a_missing_index_is_reported_for_each_segment_and_for_a_copy_of_logs_once(tmp_path: Path) -> None:
    """One missing index among others is worth a warning, logs without any index are worth one line."""
    folder = copied("4.3.0-v2-none-segments", tmp_path)
    (folder / f"{48:020}.timeindex").unlink()
    assert [(row["rule"], row["severity"]) for row in found(folder)] == [("missing-index", "warning")]
    for path in folder.glob("*index"):
        path.unlink()
    assert [(row["rule"], row["severity"]) for row in found(folder)] == [("no-indexes", "info")]


def captured_sets() -> list[bytes]:
    """Return the record sets of real producers, from 0.8.2 on, as they were sent."""
    found = []
    for path in sorted((SEGMENTS.parent / "streams").rglob("*.requests")):
        with open_source(str(path)) as source:
            for part in framing("requests").walk(source, do_nothing, ReadSettings()):
                if isinstance(part, RecordSet):
                    data = bytearray((part.source.size or 0) - part.source.start)
                    part.source.readinto(memoryview(data))
                    found.append(bytes(data))
    return found


def test_record_sets_of_producers_are_valid_without_their_requests(tmp_path: Path) -> None:
    """A producer's offsets count from 0, or are all 0: `--as message-set` reports the same as `--as requests`."""
    sets = captured_sets()
    assert len(sets) > 10
    for number, data in enumerate(sets):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert invoke("validate", "--as", "message-set", "--fail-on", "info", path).exit_code == 0, number


@pytest.mark.parametrize(
    "tail", [bytes(8) + b"\0\0\0\x0d", bytes(8) + b"\xff\xff\xff\xfb" + bytes(4), bytes(16), bytes(40)]
)
def test_a_size_below_the_minimum_ends_no_record_set(tail: bytes, tmp_path: Path) -> None:
    """Kafka's reader of a fetched set reads the size as soon as 12 bytes are available, and throws
    CorruptRecordException.
    """
    path = tmp_path / "set"
    path.write_bytes(PLAIN.read_bytes() + tail)
    done = invoke("validate", "--as", "message-set", path)
    size = int.from_bytes(tail[8:12], "big", signed=True)
    assert (done.exit_code, f"invalid size field {size}" in done.stdout) == (1, True)
    path.write_bytes(PLAIN.read_bytes() + tail[:11])
    assert invoke("validate", "--as", "message-set", path).exit_code == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_a_chosen_compression_is_that_of_every_batch(codec: str, tmp_path: Path) -> None:
    """v2 batches are compressed again, too, and keep producer, epoch, timestamps and records."""
    source, target = SEGMENTS / "4.3.0-v2-gzip" / FIRST, tmp_path / FIRST
    assert invoke("convert", "any-to-v2", "--compression", codec, source, target).exit_code == 0

    def rows(path: Path, *options: str) -> list[dict[str, Any]]:
        found = map(json.loads, invoke("dump", "--format", "jsonl", *options, path).stdout.splitlines())
        own = {"file", "position", "size", "crc", "compression"}
        return [{name: value for name, value in row.items() if name not in own} for row in found]

    assert rows(target) == rows(source)
    assert rows(target, "--deep") == rows(source, "--deep")
    shown = map(json.loads, invoke("dump", "--format", "jsonl", target).stdout.splitlines())
    assert {row["compression"] for row in shown} == {codec}


OLD = sorted(path.name for path in SEGMENTS.iterdir() if path.name.count("-v0-") or path.name.count("-v1-"))


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy"])
@pytest.mark.parametrize("name", OLD)
def test_a_chosen_compression_is_that_of_every_message(name: str, codec: str, tmp_path: Path) -> None:
    """Messages that have the target's version already are compressed again; every record is unchanged."""
    version = name.split("-")[1]
    source = next(path for path in sorted((SEGMENTS / name).rglob("*.log")) if path.stat().st_size)
    target = tmp_path / source.name
    done = invoke("convert", f"{version}-to-{version}", "--compression", codec, source, target)
    assert done.exit_code == 0, done.output

    def records(path: Path) -> list[dict[str, Any]]:
        found = map(json.loads, invoke("dump", "--format", "jsonl", "--deep", path).stdout.splitlines())
        return [{key: value for key, value in row.items() if key not in ("file", "position")} for row in found]

    assert records(target) == records(source)
    shown = map(json.loads, invoke("dump", "--format", "jsonl", target).stdout.splitlines())
    assert {(f"v{row['magic']}", row["compression"]) for row in shown} == {(version, codec)}
    assert invoke("validate", tmp_path).exit_code == 0


def test_messages_that_have_the_codec_are_copied(tmp_path: Path) -> None:
    """Needless compression would change bytes."""
    source, target = SEGMENTS / "2.8.2-v1-gzip" / FIRST, tmp_path / FIRST
    assert invoke("convert", "v1-to-v1", "--compression", "gzip", source, target).exit_code == 0
    assert target.read_bytes() == source.read_bytes()


def claiming(magic: int, codec: int, key: bytes | None, value: bytes | None, offset: int = 0) -> bytes:
    """Return a message whose attributes name a codec, though its value is plain."""
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", 1_700_000_000_000) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


CLAIMS = [
    (b"key", b"value"),
    (None, b"value"),
    (b"key", b""),
    (b"key", None),
    (b"", bytes(30)),
    (b"k", b'{"a": 1}' * 50),
]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_value_that_only_claims_to_be_compressed_is_shown(magic: int, codec: int, tmp_path: Path) -> None:
    """A popular tutorial names lz4 with key `key` and value `value`: the content is readable, and is shown and kept."""
    path, target = tmp_path / FIRST, tmp_path / "out" / FIRST
    target.parent.mkdir()
    path.write_bytes(b"".join(claiming(magic, codec, *claim, offset) for offset, claim in enumerate(CLAIMS)))
    assert {(row["rule"], row["severity"]) for row in found(path)} == {("claimed-codec", "error")}
    assert invoke("convert", "any-to-v2", path, target).exit_code == 0
    assert invoke("validate", target).exit_code == 0
    for log in (path, target):
        rows = [json.loads(row) for row in invoke("dump", "--deep", "--format", "jsonl", log).stdout.splitlines()]
        stored = [tuple(part if part is None else part.decode() for part in claim) for claim in CLAIMS]
        assert [(row["key"], row["value"]) for row in rows] == stored


def test_a_topic_that_kafka_compacted_has_lost_nothing(tmp_path: Path) -> None:
    """61 small gaps that the cleaner of 0.8.2.2 left, in six segments: infos, and none is reported as lost."""
    folder = tmp_path / "topic-0"
    shutil.copytree(SEGMENTS / "0.8.2.2-v0-gzip-compacted", folder, ignore=shutil.ignore_patterns("ORIGIN", "*.jsonl"))
    done = invoke("validate", "--format", "jsonl", folder)
    *found, total = map(json.loads, done.stdout.splitlines())
    assert {(row["rule"], row["severity"]) for row in found if row["kind"] == "finding"} == {("offset-gap", "info")}
    assert not [row for row in found if "lost" in row.get("message", "")]
    assert (done.exit_code, total["verdict"], total["infos"]) == (0, "sound", 59)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_v2_batch_that_only_claims_to_be_compressed_is_read_and_corrected(codec: int, tmp_path: Path) -> None:
    """The records are there: kseg shows them, names the cause, and repair gives back the batch that a broker reads."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = folder / FIRST
    records = [PlainRecord(n, b"key %d" % n, b"value" * n, 1_700_000_000_000) for n in range(20)]
    plain = build_batch(records, base_offset=0, partition_leader_epoch=0)
    claiming = bytearray(plain)
    claiming[22] |= codec
    claiming[17:21] = record_framing.batch_crc(memoryview(claiming), 0, len(claiming), 2).to_bytes(4, "big")
    log.write_bytes(claiming)
    assert {(row["rule"], row["severity"]) for row in found(log)} == {("claimed-codec", "error")}
    rows = invoke("dump", "--deep", "--format", "jsonl", log).stdout.splitlines()
    assert [json.loads(row)["key"] for row in rows] == [f"key {n}" for n in range(20)]
    assert "kseg repair" in invoke("convert", "any-to-v2", "--skip-damaged", log, tmp_path / FIRST).output
    assert invoke("repair", folder, tmp_path / "out-0").exit_code == 0
    assert (tmp_path / "out-0" / FIRST).read_bytes() == plain
    # Fewer records than the header counts: not a proof that nothing is compressed.
    cut = bytearray(build_batch(records[:-1], base_offset=0, last_offset=19, partition_leader_epoch=0))
    cut[57:61] = (20).to_bytes(4, "big")
    cut[22] |= codec
    cut[17:21] = record_framing.batch_crc(memoryview(cut), 0, len(cut), 2).to_bytes(4, "big")
    log.write_bytes(cut)
    assert {row["rule"] for row in found(log)} == {"undecodable-payload"}
