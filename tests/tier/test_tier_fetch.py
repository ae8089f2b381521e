"""``kseg tier fetch``: partitions of a bucket become the folders that the broker had, or nothing is written."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import invoke
from tests.support.tiered_objects import AIVEN, EXPECT, REFERENCE, STEMS, copied, flip, key_file

BUCKET, BEFORE = REFERENCE / "bucket", REFERENCE / "before" / "tiered-0"
(FOLDER,) = BUCKET.iterdir()


def fetch(bucket: Path, target: Path, *options: object) -> tuple[int, list[dict[str, Any]], str]:
    done = invoke("tier", "fetch", bucket, "-o", target, "--format", "jsonl", *options)
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_partition_of_the_reference_is_the_one_before(tmp_path: Path) -> None:
    """Logs, indexes, snapshots, epochs and topic id are those of the broker before it deleted them."""
    code, (row,), _ = fetch(BUCKET, tmp_path / "new")
    assert (code, row["log_end"], row["holes"], row["left_out"]) == (0, 19, [], [])
    written = sorted((tmp_path / "new" / "tiered-0").iterdir())
    assert len(written) == 10
    for path in written:
        assert path.read_bytes() == (BEFORE / path.name).read_bytes(), path.name
    assert invoke("validate", tmp_path / "new").stdout.startswith("sound: 2 files, 8 side files, 19 batches")


def test_a_partition_of_the_plugin_has_the_hashes_of_the_broker(tmp_path: Path) -> None:
    code, (row,), _ = fetch(AIVEN, tmp_path / "new", "--kek", key_file(tmp_path), "--partition", "tiered-0")
    assert (code, row["first_offset"], row["log_end"], row["bytes"]) == (0, 0, 9149, 1_596_202)
    for name, expected in EXPECT["decoded"].items():
        assert hashlib.sha256((tmp_path / "new" / name).read_bytes()).hexdigest() == expected["sha256"]
    found = invoke("validate", tmp_path / "new")
    assert (found.exit_code, found.stdout.startswith("sound: 2 files, 9 side files")) == (0, True)


def test_a_damaged_object_writes_nothing(tmp_path: Path) -> None:
    """Not even the partitions and segments before it."""
    objects = copied(tmp_path)
    flip(objects / f"{STEMS[1]}.log", 1000)
    code, rows, stderr = fetch(tmp_path / objects.parent.name, tmp_path / "new", "--kek", key_file(tmp_path))
    assert (code, rows, "the AES-GCM tag does not match" in stderr) == (2, [], True), stderr
    assert not [path for path in tmp_path.iterdir() if "new" in path.name]


def test_a_damaged_object_is_repaired(tmp_path: Path) -> None:
    """With --skip-damaged: its other chunks are the broker's, and ``kseg repair`` keeps their batches."""
    objects = copied(tmp_path)
    flip(objects / f"{STEMS[1]}.log", 165_000)
    options = ("--kek", key_file(tmp_path), "--skip-damaged")
    code, (row,), stderr = fetch(tmp_path / objects.parent.name, tmp_path / "new", *options)
    assert (code, row["bytes"], "are read as 0xff" in stderr) == (1, 1_596_202, True), stderr
    done = invoke("repair", tmp_path / "new" / "tiered-0", tmp_path / "repaired")
    assert done.exit_code == 1, done.output
    assert invoke("validate", tmp_path / "repaired").exit_code == 0


def upload(folder: Path, source: str, base: int, segment_id: str) -> None:
    """Add objects as those of another upload; only the log has its content."""
    for path in sorted(folder.glob(f"{source}*")):
        shutil.copyfile(path, folder / f"{base:020}-{segment_id}{path.name[43:]}")


def test_of_two_uploads_of_the_same_offsets_one_is_written(tmp_path: Path) -> None:
    """Two leaders can upload the same offsets (KAFKA-15168)."""
    folder = tmp_path / "bucket" / FOLDER.name
    shutil.copytree(FOLDER, folder)
    upload(folder, f"{0:020}", 0, "zzzzzzzzzzzzzzzzzzzzzw")
    code, (row,), _ = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["segments"], row["log_end"], len(row["left_out"])) == (0, 2, 19, 1)
    assert "other segments have its offsets" in row["left_out"][0]
    assert len(list((tmp_path / "new" / "tiered-0").glob("*.log"))) == 2


def test_missing_offsets_are_named(tmp_path: Path) -> None:
    """The folder is written, and the exit code is that of a loss."""
    folder = tmp_path / "bucket" / FOLDER.name
    shutil.copytree(FOLDER, folder)
    first = next(folder.glob(f"{0:020}*.log"))
    first.write_bytes(first.read_bytes()[:-50])
    code, (row,), _ = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, row["holes"]) == (1, ["9..9"])
    first.write_bytes(b"")
    code, _, stderr = fetch(tmp_path / "bucket", tmp_path / "newer")
    assert (code, "it has no valid batch: --skip-damaged leaves it out" in stderr) == (2, True), stderr
    assert not (tmp_path / "newer").exists()
    code, (row,), stderr = fetch(tmp_path / "bucket", tmp_path / "newer", "--skip-damaged")
    assert (code, row["first_offset"]) == (1, 10)
    assert "it has no valid batch" in stderr


@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot"])
def test_damage_of_plain_objects_is_said(suffix: str, tmp_path: Path) -> None:
    """The reference has no checksums of its own: what was written is checked, and exit code 0 means that it is sound."""
    folder = tmp_path / "bucket" / FOLDER.name
    shutil.copytree(FOLDER, folder)
    damaged = max(folder.glob(f"*{suffix}"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 0x40
    damaged.write_bytes(bytes(data) if suffix == ".log" else b"garbage")
    code, _, stderr = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, "damaged in the bucket: `kseg validate" in stderr) == (1, True), stderr


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_an_incomplete_object_is_damage(cut: int, tmp_path: Path) -> None:
    """Nobody writes to an object: a cut last batch is lost, for ``validate`` and in what was fetched."""
    folder = tmp_path / "bucket" / FOLDER.name
    shutil.copytree(FOLDER, folder)
    last = max(folder.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-cut])
    done = invoke("validate", "--format", "jsonl", folder)
    found = [row for row in map(json.loads, done.stdout.splitlines()) if row.get("rule") == "truncated-tail"]
    assert ([row["severity"] for row in found], done.exit_code) == (["error"], 1)
    code, _, stderr = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, "damaged in the bucket: `kseg validate" in stderr) == (1, True), stderr


@pytest.mark.parametrize(
    ("options", "text"), [(["--partition", "other-0"], "has no segment of it"), (["more"], "expected one BUCKET")]
)
def test_wrong_arguments(options: list[str], text: str, tmp_path: Path) -> None:
    code, _, stderr = fetch(BUCKET, tmp_path / "new", *options)
    assert (code, text in stderr) == (2, True), stderr


def test_an_output_that_exists_stays(tmp_path: Path) -> None:
    code, _, stderr = fetch(BUCKET, tmp_path)
    assert (code, "exists: give a folder that does not" in stderr) == (2, True), stderr
    assert invoke("tier", "fetch", BUCKET).exit_code == 2


def test_a_name_of_two_topics_is_refused(tmp_path: Path) -> None:
    """A topic was created again: their offsets have nothing in common."""
    for topic_id in (FOLDER.name[-22:], "BBBBBBBBBBBBBBBBBBBBBA"):
        shutil.copytree(FOLDER, tmp_path / "bucket" / f"tiered-0-{topic_id}")
    code, _, stderr = fetch(tmp_path / "bucket", tmp_path / "new")
    assert (code, "of two topics" in stderr) == (2, True), stderr
    code, (row,), _ = fetch(tmp_path / "bucket" / "tiered-0-BBBBBBBBBBBBBBBBBBBBBA", tmp_path / "new")
    assert (code, row["topic_id"]) == (0, "BBBBBBBBBBBBBBBBBBBBBA")


def test_repair_and_convert_name_the_command() -> None:
    """They read a folder twice, and write names that a broker loads."""
    for arguments in (("repair", FOLDER, "new"), ("convert", "any-to-v2", FOLDER, "new")):
        done = invoke(*arguments)
        assert (done.exit_code, f"kseg tier fetch {FOLDER} -o DIR" in done.stderr) == (2, True), done.stderr
