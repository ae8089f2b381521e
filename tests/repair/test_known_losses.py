"""A repaired partition is valid for ``kseg validate`` with the report of the repair, and only its losses are accepted."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support import damage
from tests.support.cli import invoke
from tests.support.damaged_logs import SEGMENTS, DamagedLog, cut, flip_bit, insert, overwrite, truncate, zero
from tests.support.fuzzing import cases

IN_PLACE = (flip_bit, zero, overwrite, cut, insert, truncate)
PARTITIONS = tuple(
    SEGMENTS / name
    for name in (
        "4.3.0-v2-none-segments",
        "4.3.0-v2-none-transactions",
        "4.3.0-v2-none-transactions-v2",
        "4.3.0-v2-none-idempotent",
        "4.3.0-v2-lz4",
        "4.3.0-v2-zstd",
        "4.3.0-v2-none-compacted",
        "4.3.0-v2-none-compacted-transactions",
        "4.3.0-v2-none-consumer-offsets",
        "3.9.1-v2-none-transactions",
        "0.10.2.2-v1-none-segments",
        "0.10.2.2-v1-gzip-segments",
    )
)
CHUNKS = 4


def copied(partition: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "in" / "t-0"
    ignored = shutil.ignore_patterns("ORIGIN", "expect.jsonl", "*.json")
    shutil.copytree(partition, source, ignore=ignored)
    return source


def repaired(source: Path, target: Path) -> Path:
    """Repair a partition; return the report."""
    report = target.with_suffix(".jsonl")
    result = invoke("repair", "--format", "jsonl", "-o", report, source, target)
    assert result.exit_code in (0, 1), result.output
    return report


def case(seed: int, folder: Path) -> list[str]:
    """Damage a partition, repair it and validate the result; return what is wrong."""
    dice = random.Random(seed)
    source = copied(dice.choice(PARTITIONS), folder)
    logs = sorted(source.glob("*.log"))
    for path in dice.sample(logs, min(len(logs), dice.choice([1, 1, 2, 3]))):
        log = DamagedLog(path.read_bytes(), path.name)
        for _ in range(dice.choice([1, 1, 2, 4])):
            if len(log.data) > 1:
                dice.choice(IN_PLACE)(log, dice)
        path.write_bytes(log.data)
    if len(logs) > 1 and dice.random() < 0.1:
        dice.choice(logs).unlink()
    target = folder / "out" / "t-0"
    target.parent.mkdir()
    report = repaired(source, target)
    if not list(target.glob("*.log")):
        return []
    result = invoke("validate", "--format", "jsonl", "--baseline", report, target)
    if result.exit_code == 0:
        return []
    found = [json.loads(line) for line in result.stdout.splitlines()]
    errors = [row for row in found if row.get("severity") == "error" and not row.get("known")]
    return [f"seed {seed}: {result.exit_code}: {row['rule']}: {row['message']}" for row in errors] or [
        f"seed {seed}: {result.output}"
    ]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_repaired_partitions_are_valid_with_their_report(chunk: int, tmp_path: Path) -> None:
    """The losses of an honest repair are known, so that nightly runs do not fail for ever."""
    count = max(1, cases(40) // CHUNKS)
    wrong = [what for seed in range(chunk * count, (chunk + 1) * count) for what in case(seed, tmp_path / "case")]
    assert wrong == []


def errors_of(result: Result) -> list[dict[str, Any]]:
    found = map(json.loads, result.stdout.splitlines())
    return [row for row in found if row.get("severity") == "error" and not row.get("known")]


def test_other_losses_are_not_accepted(tmp_path: Path) -> None:
    """Only offsets that the report lists are known to be lost, each of a finding's."""
    source = copied(PARTITIONS[0], tmp_path / "case")
    middle = source / f"{48:020d}.log"
    middle.write_bytes(damage.flip(middle.read_bytes(), damage.entries(middle.read_bytes())[1].at + 70))
    target = tmp_path / "out" / "t-0"
    target.parent.mkdir()
    report = repaired(source, target)
    assert invoke("validate", target).exit_code == 1
    assert invoke("validate", "--baseline", report, target).exit_code == 0
    for name in target.glob(f"{72:020d}.*"):
        name.unlink()
    result = invoke("validate", "--format", "jsonl", "--baseline", report, target)
    assert result.exit_code == 1
    assert [row["rule"] for row in errors_of(result)] == ["segment-gap"]
    cut_report = tmp_path / "cut.jsonl"
    cut_report.write_text(report.read_text().splitlines()[0] + "\n")
    assert invoke("validate", "--baseline", cut_report, target).exit_code == 2


@pytest.mark.parametrize("moved", ["t-0", "other-3"])
def test_a_report_belongs_to_a_partition(moved: str, tmp_path: Path) -> None:
    """The report applies where the folder is moved to, if it keeps its name; not to another partition."""
    source = copied(PARTITIONS[0], tmp_path / "case")
    (source / f"{48:020d}.log").write_bytes(b"")
    target = tmp_path / "out" / "t-0"
    target.parent.mkdir()
    report = repaired(source, target)
    place = tmp_path / "logs" / moved
    shutil.copytree(target, place)
    assert invoke("validate", "--baseline", report, place).exit_code == (0 if moved == "t-0" else 1)


@pytest.mark.parametrize("lost", [True, False])
def test_offsets_after_an_empty_first_segment_are_in_the_report(lost: bool, tmp_path: Path) -> None:
    """The log starts with the name of its first segment, though no batch shows that."""
    source = copied(PARTITIONS[0], tmp_path / "case")
    (source / f"{0:020}.log").unlink()
    (source / f"{24:020}.log").write_bytes(b"")
    middle = source / f"{48:020}.log"
    middle.write_bytes(middle.read_bytes()[:10]) if lost else middle.unlink()
    target = tmp_path / "out" / "t-0"
    target.parent.mkdir()
    report = repaired(source, target)
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    ranges = [(row["offset"], row["last_offset"]) for row in rows if row["kind"] in ("lost", "missing")]
    assert set(ranges) == ({(24, 47), (48, 71)} if lost else {(24, 71)})  # the emptied and the cut file each have a row
    assert invoke("validate", target).exit_code == 1
    assert invoke("validate", "--baseline", report, target).exit_code == 0


@pytest.mark.parametrize("how", ["the log is zeros", "its tail is zeros", "the log is gone"])
def test_a_lost_end_that_a_side_file_proves_is_a_loss(how: str, tmp_path: Path) -> None:
    """A power failure leaves zeros where the snapshot of the clean shutdown shows records."""
    source = copied(PARTITIONS[0], tmp_path / "case")
    if how == "the log is gone":
        (source / f"{120:020}.log").unlink()
        lost = (120, 120)
    else:
        for path in source.glob(f"{120:020}.*"):
            path.unlink()
        (source / f"{121:020}.snapshot").rename(source / f"{120:020}.snapshot")
        last = source / f"{96:020}.log"
        size = last.stat().st_size
        kept = 0 if how == "the log is zeros" else 714
        last.write_bytes(last.read_bytes()[:kept] + bytes(size - kept))
        lost = (96 if kept == 0 else 112, 119)
    target = tmp_path / "out" / "t-0"
    target.parent.mkdir()
    report = tmp_path / "report.jsonl"
    assert invoke("repair", source, target, "--format", "jsonl", "-o", report).exit_code == 1
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(row["offset"], row["last_offset"]) for row in rows if row["kind"] == "lost"] == [lost]
    assert invoke("validate", "--baseline", report, target).exit_code == 0


def test_an_empty_segment_gives_its_name_to_the_file_with_its_batches(tmp_path: Path) -> None:
    """A copy under a wrong name, and the original emptied: two files of the source would have one name in the result."""
    source = copied(PARTITIONS[0], tmp_path / "case")
    kept = (source / f"{96:020}.log").read_bytes()
    (source / f"{24:020}.log").write_bytes(kept)
    (source / f"{96:020}.log").write_bytes(b"")
    target = tmp_path / "out" / "t-0"
    target.parent.mkdir()
    report = repaired(source, target)
    assert (target / f"{96:020}.log").read_bytes() == kept
    assert invoke("validate", "--baseline", report, target).exit_code == 0
