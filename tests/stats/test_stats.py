"""`kseg stats` counts the rows of `kseg dump`: the tests compute its numbers from dump's rows."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.stats import totals as stats_module
from kseg.commands.stats.levels import levels, sorted_by_folder, stats_of
from kseg.format.segment import several_processes
from kseg.format.storage.segment_files import find_segments
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.report.stats_rows import stats_row
from kseg.results import Settings
from tests.support.cli import DAMAGED, MIXED, PLAIN, SEGMENTS
from tests.support.cli import kseg as kseg_process
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import dump_segment, json_rows
from tests.support.statistics import WITH_LOGS

NOW = 1_700_000_000_000
Row = dict[str, Any]


def counted(*paths: Path, deep: bool = True, top: int = 10) -> list[Row]:
    files = sorted_by_folder(file for path in paths for file in find_segments(str(path)))
    found = levels(stats_of(files, Settings(deep=deep)), deep)
    return [stats_row(level, top) for level in found]


def total(*paths: Path, deep: bool = True) -> Row:
    return counted(*paths, deep=deep)[-1]


def dumped(path: Path, deep: bool) -> list[Row]:
    return [row for file in find_segments(str(path)) for row in json_rows(dump_segment(file.path, deep=deep), deep)]


def sums(rows: list[Row], by: str, *names: str) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        group = found.setdefault(str(row[by]), dict.fromkeys(("batches", *names), 0))
        group["batches"] += 1
        for name in names:
            group[name] += row[name]
    return found


def of_batches(rows: list[Row]) -> Row:
    """Return the numbers that need headers only, from the rows of a shallow dump."""
    sound = [row for row in rows if row["crc_valid"]]
    timed = [row for row in sound if row["max_timestamp"] is not None]
    pin = next((row for row in timed if row["max_timestamp"] == max(row["max_timestamp"] for row in timed)), None)
    ours = sums([{**row, "bytes": row["size"]} for row in sound], "magic", "bytes")
    producers = [row for row in sound if (row["producer_id"] or 0) >= 0 and row["magic"] == 2]
    by_id = sums([{**row, "bytes": row["size"], "records": row["record_count"]} for row in producers], "producer_id",
                 "bytes", "records")  # fmt: skip
    epochs = [row for row in sound if (row["partition_leader_epoch"] or 0) >= 0 and row["magic"] == 2]
    return {
        "batches": len(sound),
        "bytes": sum(row["size"] for row in sound),
        "damaged_batches": len(rows) - len(sound),
        "magics": ours,
        "compressions": Counter(row["compression"] for row in sound),
        "batch_size": (min(row["size"] for row in sound), max(row["size"] for row in sound)),
        "max_timestamp": pin and pin["max_timestamp"],
        "max_timestamp_at": pin and (pin["file"], pin["position"], pin["last_offset"]),
        "batches_without_timestamp": len(sound) - len(timed),
        "transactional_batches": sum(bool(row["transactional"]) and not row["control"] for row in sound),
        "control_batches": sum(bool(row["control"]) for row in sound),
        "producers": {int(key): value for key, value in by_id.items()},
        "leader_epochs": Counter(row["partition_leader_epoch"] for row in epochs),
        "last_offset": max(row["last_offset"] for row in sound),
    }


def as_of_batches(row: Row) -> Row:
    """Return the same numbers from a row of stats."""
    at = row["max_timestamp_at"]
    same = ("batches", "bytes", "damaged_batches", "max_timestamp", "batches_without_timestamp", "last_offset",
            "transactional_batches", "control_batches")  # fmt: skip
    return {
        **{name: row[name] for name in same},
        "magics": {
            magic: {name: group[name] for name in ("batches", "bytes")} for magic, group in row["magics"].items()
        },
        "compressions": Counter({name: group["batches"] for name, group in row["compressions"].items()}),
        "batch_size": (row["batch_size"]["min"], row["batch_size"]["max"]),
        "max_timestamp_at": at and (at["file"], at["position"], at["last_offset"]),
        "producers": {one.pop("producer_id"): one for one in row["producers"]["top"]},
        "leader_epochs": Counter({one["partition_leader_epoch"]: one["batches"] for one in row["leader_epochs"]}),
    }


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@pytest.mark.parametrize("folder", WITH_LOGS, ids=lambda folder: folder.name)
def test_counts_of_batches_are_sums_over_dumps_rows(folder: Path, deep: bool) -> None:
    """Each number is recomputed from dump's rows."""
    rows = dumped(folder, deep=False)
    *parts, row = counted(folder, deep=deep, top=1000)
    for level in ("segment", "partition"):
        of_level = [part for part in parts if part["level"] == level]
        for name in ("segments", "file_bytes", "batches", "bytes", "transactional_batches", "control_batches"):
            assert sum(part[name] for part in of_level) == row[name], (level, name)
    assert as_of_batches(row) == of_batches(rows)
    assert row["lost_bytes"] == 0


@pytest.mark.parametrize("folder", WITH_LOGS, ids=lambda folder: folder.name)
def test_counts_of_records_are_sums_over_dumps_rows(folder: Path) -> None:
    """Each number is recomputed from dump's rows."""
    rows = dumped(folder, deep=True)
    stamps = [row["timestamp"] for row in rows if row["timestamp"] is not None]
    data = [row for row in rows if row["control"] is None]
    row = total(folder)
    assert row["records"] == len(rows) == sum(group["records"] for group in row["compressions"].values())
    assert row["min_timestamp"] == min(stamps, default=None)
    assert row["null_keys"] == sum(one["key"] is None for one in data)
    assert row["null_values"] == sum(one["value"] is None for one in data)
    assert row["tombstones"] == sum(one["value"] is None and one["key"] is not None for one in data)
    assert row["headers"] == sum(len(one["headers"]) for one in data)
    assert row["control_records"] == Counter(one["control"]["type"] for one in rows if one["control"])
    by_batch = Counter((one["file"], one["position"]) for one in rows)
    assert row["records_per_batch"]["max"] == max(by_batch.values(), default=0)
    # base64: --bytes writes four characters for three bytes
    assert row["value_bytes"] == sum(_bytes_in(one["value"]) for one in data)
    assert row["key_bytes"] == sum(_bytes_in(one["key"]) for one in data)


def _bytes_in(text: str | None) -> int:
    return 0 if text is None else len(text) // 4 * 3 - text[-2:].count("=")


def test_ratios_are_of_the_payloads_as_python_inflates_them() -> None:
    """The codecs' own test compares them with the libraries; here zlib decompresses a gzip batch."""
    import zlib

    path = SEGMENTS / "4.3.0-v2-gzip" / "00000000000000000000.log"
    data = path.read_bytes()
    compressed = [row for row in dumped(path, deep=False) if row["compression"] == "gzip"]
    payloads = [data[row["position"] + 61 : row["position"] + row["size"]] for row in compressed]
    row = total(path)["compressions"]["gzip"]
    assert row["stored_bytes"] == sum(map(len, payloads))
    assert row["inflated_bytes"] == sum(len(zlib.decompress(payload, 31)) for payload in payloads)
    assert row["ratio"] == round(row["inflated_bytes"] / row["stored_bytes"], 3)


def test_what_headers_do_not_say_is_null() -> None:
    """Shallow counts are not guessed."""
    row = total(MIXED, deep=False)
    assert row["records"] is row["tombstones"] is row["min_timestamp"] is row["control_records"] is None
    assert row["compressions"]["gzip"]["ratio"] is None
    assert row["magics"]["2"]["records"] == 20  # the v2 header counts them
    assert total(PLAIN, deep=False)["records"] == 44


def test_levels_add_up(tmp_path: Path) -> None:
    """Segments, partitions, log dirs: sums of sums agree; offsets are given for a single partition only."""
    for number, folder in enumerate(
        ("4.3.0-v2-none-segments", "0.10.2.2-v1-gzip-segments", "4.3.0-v2-none-idempotent")
    ):
        partition = tmp_path / "logs" / f"topic-{number}"
        partition.mkdir(parents=True)
        for path in (SEGMENTS / folder).glob("*.log"):
            (partition / path.name).write_bytes(path.read_bytes())
    rows = counted(tmp_path)
    by_level: dict[str, list[Row]] = {}
    for row in rows:
        by_level.setdefault(row["level"], []).append(row)
    assert [len(by_level[name]) for name in ("partition", "log_dir", "total")] == [3, 1, 1]
    assert [row["path"] for row in by_level["partition"]] == [str(tmp_path / "logs" / f"topic-{n}") for n in range(3)]
    for name in ("segments", "legacy_segments", "file_bytes", "batches", "bytes", "records", "tombstones", "key_bytes"):
        assert len({sum(row[name] for row in of_level) for of_level in by_level.values()}) == 1, name
    (log_dir,) = by_level["log_dir"]
    assert (log_dir["first_offset"], log_dir["last_offset"], log_dir["leader_epochs"]) == (None, None, [])
    assert (by_level["partition"][0]["first_offset"], by_level["partition"][0]["last_offset"]) == (0, 120)
    assert log_dir["max_timestamp"] == max(row["max_timestamp"] for row in by_level["segment"])
    assert log_dir["max_timestamp_at"]["file"].endswith("topic-0/00000000000000000120.log")
    assert log_dir["legacy_segments"] == len(list((SEGMENTS / "0.10.2.2-v1-gzip-segments").glob("*.log")))


def test_a_folder_that_is_not_in_use_counts_in_its_log_directory(tmp_path: Path) -> None:
    """It needs space until the broker deletes it."""
    for folder in ("orders-0", f"orders-1.{'0' * 32}-delete", "orders-2"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, batch(0, NOW))
    *_, log_dir, of_all = counted(tmp_path)
    assert (log_dir["level"], log_dir["segments"], of_all["segments"]) == ("log_dir", 3, 3)


def test_paths_in_any_order_make_one_partition() -> None:
    """The shell's order of paths mixes folders: a partition is one sum."""
    folders = (SEGMENTS / "4.3.0-v2-none-segments", SEGMENTS / "2.8.2-v2-zstd")
    mixed = [
        folders[0] / "00000000000000000000.log",
        *folders[1].glob("*.log"),
        folders[0] / "00000000000000000024.log",
    ]
    rows = [row for row in counted(*mixed) if row["level"] == "partition"]
    assert [(row["path"], row["segments"]) for row in rows] == [(str(folders[0]), 2), (str(folders[1]), 1)]


def batch(offset: int, timestamp: int = NOW, producer: int = 7, epoch: int = 0) -> bytes:
    record = PlainRecord(offset=offset, timestamp=timestamp, key=b"k", value=bytes(producer % 50))
    built = build_batch([record], base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0)
    return built[:12] + epoch.to_bytes(4, "big") + built[16:]


def write(folder: Path, *batches: bytes) -> Path:
    path = folder / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    return path


def test_the_batch_that_retention_waits_for_is_named(tmp_path: Path) -> None:
    """The batch with the latest timestamp is named."""
    first = batch(0)
    path = write(tmp_path, first, batch(1, NOW * 1000, producer=9), batch(2), batch(3, NOW // 1000))
    row = total(path, deep=False)
    assert row["max_timestamp"] == NOW * 1000
    assert row["max_timestamp_at"] == {
        "file": str(path), "position": len(first), "last_offset": 1, "producer_id": 9,
    }  # fmt: skip
    assert row["odd_timestamps"] == {"microseconds": 1, "seconds": 1}
    shown = kseg("stats", path).stdout
    assert f"at byte {len(first)} of {path}, last offset 1, producer 9" in shown
    assert "look like microseconds" in shown


def test_segments_that_wait_for_an_earlier_one_are_named(tmp_path: Path) -> None:
    """A broker deletes from the oldest segment on, and stops at the first one that is too recent."""
    folder, calm = tmp_path / "topic-0", tmp_path / "calm-0"
    folder.mkdir()
    for offset, timestamp in enumerate((NOW, NOW + 9_000, NOW + 2_000, NOW + 9_000, NOW + 8_000, NOW + 10_000)):
        (folder / f"{offset:020}.log").write_bytes(batch(offset, timestamp))
    calm.mkdir()
    write(calm, batch(0))
    segments = sorted(folder.iterdir())
    rows = counted(tmp_path, deep=False)
    assert [row["held_segments"] for row in rows if row["level"] != "segment"] == [0, 2, 2, 2]
    (delay,) = next(row for row in rows if row["path"] == str(folder))["retention_delays"]
    assert delay == {
        "timestamp": NOW + 9_000, "file": str(segments[1]), "position": 0, "last_offset": 1, "producer_id": 7,
        "held_segments": 2, "held_bytes": sum(segments[i].stat().st_size for i in (2, 4)), "longest_ms": 7_000,
    }  # fmt: skip
    shown = kseg("stats", tmp_path).stdout
    assert "retention    2 segments kept longer: an earlier one has a later timestamp" in shown
    assert f"last offset 1, producer 7: 2 segments, {delay['held_bytes']} bytes, up to 7 seconds longer" in shown


def test_the_number_of_producers_is_limited_and_the_limit_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums stay right and the largest stay known: only the number of ids is dropped."""
    monkeypatch.setattr(stats_module, "MAX_PRODUCERS", 10)
    monkeypatch.setattr(stats_module, "MAX_LEADER_EPOCHS", 10)
    batches = [batch(n, producer=1000 + n, epoch=n) for n in range(100)]
    path = write(tmp_path, *batches)
    row = total(path)
    producers = row["producers"]
    assert (producers["ids"], producers["exact"]) == (None, False)
    assert (producers["batches"], producers["bytes"]) == (100, sum(map(len, batches)))
    assert [one["producer_id"] for one in producers["top"][:2]] == [1049, 1099]  # 49 bytes of value each
    assert [one["partition_leader_epoch"] for one in row["leader_epochs"]] == list(range(90, 100))
    assert row["leader_epochs_left_out"] == 90
    assert total(PLAIN)["producers"]["exact"] is True


def test_damage_is_passed_over_and_noted() -> None:
    """Damage is counted and does not end the run."""
    rows = dumped(DAMAGED, deep=False)
    run = kseg("stats", "--format", "jsonl", DAMAGED)
    row = json.loads(run.stdout.splitlines()[-1])
    assert run.returncode == 1
    assert run.stderr.count(": crc-mismatch at byte ") == 1
    assert as_of_batches(row) == of_batches(rows)
    assert row["damaged_batches"] == 1
    assert row["bytes"] + row["damaged_bytes"] == row["file_bytes"]


def test_what_can_not_be_read_is_2_and_the_rest_is_counted(tmp_path: Path) -> None:
    """One unreadable file must not cost the others."""
    run = kseg("stats", "--format", "jsonl", tmp_path / "absent", PLAIN)
    assert run.returncode == 2
    assert json.loads(run.stdout.splitlines()[-1])["batches"] == total(PLAIN)["batches"]
    (tmp_path / "kept").write_text("mine")
    assert kseg("stats", "-o", tmp_path / "kept", tmp_path / "absent").returncode == 2
    assert (tmp_path / "kept").read_text() == "mine"


def test_several_processes_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums do not depend on the number of processes."""
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    files = sorted_by_folder(find_segments(str(SEGMENTS)))
    one, two = ([stats_row(level, 3) for level in levels(stats_of(files, Settings(), jobs), True)] for jobs in (1, 2))
    assert one == two
    assert len(one) > len(files)


def test_the_table_names_the_files_with_old_versions() -> None:
    run = kseg("stats", MIXED, PLAIN)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert any(str(MIXED) in line and "v0 v1 v2" in line for line in lines)
    assert any(str(PLAIN) in line and "v0" not in line for line in lines)
    assert any("v0 or v1 in 1 of 2 segments" in line for line in lines)


def test_standard_input_is_a_segment_without_a_folder() -> None:
    """A pipe lacks topic and partition."""
    run = kseg_process("stats", "--format", "jsonl", "-", stdin=PLAIN.read_bytes())
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row["level"] for row in rows] == ["segment", "total"]
    assert rows[1]["batches"] == total(PLAIN)["batches"]


def test_the_table_counts_damaged_bytes_once() -> None:
    """Lost bytes include those of batches with a wrong CRC."""
    log = SEGMENTS.parent / "findings" / "crc-mismatch" / f"{0:020}.log"
    row = json.loads(kseg("stats", "--format", "jsonl", log).stdout.splitlines()[0])
    assert row["lost_bytes"] == row["damaged_bytes"] == 267
    assert "267 bytes" in kseg("stats", log).stdout


def test_zeros_at_the_end_of_a_sealed_segment_are_named(tmp_path: Path) -> None:
    """They are an error there, and exit code 1 comes with its reason."""
    for log in (SEGMENTS / "4.3.0-v2-none-segments").glob("*.log"):
        zeros = bytes(500) if log.name == f"{24:020}.log" else b""
        (tmp_path / log.name).write_bytes(log.read_bytes() + zeros)
    done = kseg("stats", tmp_path)
    assert done.returncode == 1
    assert "zero-tail at byte 1071: 500 bytes of zeros" in done.stderr


@pytest.mark.slow
def test_the_total_comes_first(tmp_path: Path) -> None:
    """The total and what stands out come before the rows; healthy segments of several partitions have none."""
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", tmp_path / "orders-0")
    shutil.copytree(SEGMENTS / "0.8.2.2-v0-none", tmp_path / "orders-1")
    broken = tmp_path / "orders-0" / f"{24:020}.log"
    broken.write_bytes(broken.read_bytes()[:-1])
    shown = kseg("stats", tmp_path).stdout
    first, *others = shown.splitlines()
    assert first.startswith("total        7 segments in 2 partitions, ")
    assert [line.split("  ")[0] for line in others[:3]] == [
        "damage",
        "old versions v0 or v1 in 1 of 7 segments",
        "largest",
    ]
    listed = [
        line.split()[0].removeprefix(f"{tmp_path}/") for line in others if line.startswith(" ") and ".log" in line
    ]
    assert listed[-1:] == [f"orders-0/{24:020}.log"]
    verbose = kseg("stats", "-v", tmp_path).stdout
    assert sum(line.startswith(" ") and ".log " in line for line in verbose.splitlines()) == 7
    assert len(kseg("stats", "-q", tmp_path).stdout.splitlines()) < 20
    future = write(tmp_path, batch(0, 4_000_000_000_000))
    assert "the newest timestamp is 2096-10-02T07:06:40.000Z" in kseg("stats", future).stdout


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [12, 13, 40])
def test_of_many_partitions_the_largest_are_listed(tmp_path: Path, partitions: int) -> None:
    """Also if each has a single segment: of a few such partitions the segments are listed. Cells are below their names."""
    for number in range(partitions):
        folder = tmp_path / f"a-topic-with-a-name-{number}"
        folder.mkdir()
        write(folder, *[batch(4 * n, 1_000) for n in range(number + 1)])
    lines = kseg("stats", tmp_path).stdout.splitlines()
    listed = [line for line in lines if line.startswith(f" {tmp_path}/a-topic")]
    assert len(listed) == (12 if partitions == 12 else 6)
    assert any(line == f" {partitions - 6} others: -v lists them" for line in lines) == (partitions > 12)
    head = next(line for line in lines if line.startswith(" path"))
    end = head.index("batches") + len("batches")
    assert all(line[end - 1].isdigit() and line[end] == " " for line in listed)
    assert len([line for line in kseg("stats", "-v", tmp_path).stdout.splitlines() if "0.log " in line]) == partitions


@pytest.mark.slow
@pytest.mark.parametrize("name", ["0.8.2.2-v0-none", "2.8.2-v1-none", "2.8.2-v1-gzip"])
def test_the_size_as_v2_is_about_that_of_a_conversion(name: str, tmp_path: Path) -> None:
    """An operator decides on an upgrade by the estimate: `convert --compression none` writes what `stats` announced."""
    source = SEGMENTS / name / f"{0:020}.log"
    row = json.loads(kseg("stats", "--deep", "--format", "jsonl", source).stdout.splitlines()[-1])
    for option, field in (((), "converted_bytes"), (("--rebatch", 16384), "packed_bytes")):
        target = tmp_path / field / source.name
        target.parent.mkdir()
        done = kseg("convert", "--compression", "none", *option, "any-to-v2", source, target)
        assert done.returncode == 0, done.stderr
        assert row["as_v2"][field] == pytest.approx(target.stat().st_size, rel=0.06)
