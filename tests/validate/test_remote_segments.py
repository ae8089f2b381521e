"""Segments of Kafka's reference tiered storage, and folders with deleted segments only, are read as a broker's are.

The folders are made of a broker's files under the names that ``RemoteLogManager`` and ``LocalTieredStorage`` give them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cli import kseg_here as kseg
from tests.support.folders import SEGMENTS, validate_folder

LOCAL = SEGMENTS / "4.3.0-v2-none-transactions"
SUFFIXES = (".index", ".timeindex", ".txnindex")
END = 88


def rules(folder: Path) -> list[tuple[str, str]]:
    return [
        (Path(one.file).name, verdict.rule.name) for one in validate_folder(folder) for verdict in one.verdicts
        if verdict.rule.name not in ("last-offset-mismatch", "offset-gap")
    ]  # fmt: skip


def uploaded(log_dir: Path, *, snapshots_at_end: bool = True) -> Path:
    """Copy the segments under their remote names: the producer snapshot of a segment is that of the next one's base."""
    folder = log_dir / "orders-0-t8bLAI8QTMq-SHPI5MB57Q"
    folder.mkdir(parents=True)
    bases = [int(path.stem) for path in sorted(LOCAL.glob("*.log"))]
    for base, following in zip(bases, [*bases[1:], END], strict=True):
        stem = f"{base:020}-{'AbCdEfGhIjKlMnOpQrStU' + '_'}"
        for suffix in (".log", *SUFFIXES):
            if (LOCAL / f"{base:020}{suffix}").exists():
                shutil.copyfile(LOCAL / f"{base:020}{suffix}", folder / (stem + suffix))
        snapshot = LOCAL / f"{following if snapshots_at_end else base:020}.snapshot"
        if snapshot.exists():
            shutil.copyfile(snapshot, folder / (stem + ".snapshot"))
        (folder / (stem + ".leader_epoch_checkpoint")).write_text("0\n1\n0 0\n")
    return folder


def rows(*arguments: object) -> list[dict[str, object]]:
    found = [json.loads(line) for line in kseg(*arguments, "--format", "jsonl").stdout.splitlines()]
    return [{name: value for name, value in row.items() if name != "file"} for row in found]


@pytest.mark.slow
def test_every_command_reads_remote_segments_as_local_ones(tmp_path: Path) -> None:
    """An operator copies the folder of the tier: what it holds is the same log."""
    folder = uploaded(tmp_path)
    assert rules(folder) == []
    assert rows("dump", "--deep", folder) == rows("dump", "--deep", LOCAL)
    statement = "select topic, partition, count(*) as n from records group by all"
    (found,) = rows("sql", statement, folder)
    assert (found["topic"], found["partition"]) == ("orders", 0)
    assert kseg("grep", "-c", ".", folder).stdout.count(".log:") == kseg("grep", "-c", ".", LOCAL).stdout.count(".log:")
    assert "4 aborted, 6 committed" in kseg("transactions", folder).stdout
    assert kseg("diff", folder, LOCAL).returncode == 0
    assert kseg("stats", folder).stdout.splitlines()[0] == kseg("stats", LOCAL).stdout.splitlines()[0]


def test_a_remote_producer_snapshot_is_that_of_the_end_of_its_segment(tmp_path: Path) -> None:
    """A snapshot of the base would forget the producers of the segment when a follower starts from it."""
    found = rules(uploaded(tmp_path, snapshots_at_end=False))
    assert {name for name, rule in found if rule == "snapshot-mismatch"}


def test_a_remote_epoch_file_covers_its_segment(tmp_path: Path) -> None:
    folder = uploaded(tmp_path)
    name = sorted(folder.glob("*.leader_epoch_checkpoint"))[0].name
    (folder / name).write_text("0\n1\n5 0\n")
    assert (name, "epoch-mismatch") in rules(folder)


def test_a_segment_that_two_leaders_uploaded_is_no_damage(tmp_path: Path) -> None:
    """The metadata topic names the segment that counts: no file of the folder does."""
    folder = uploaded(tmp_path)
    first, second, *_ = sorted(folder.glob("*.log"))
    for path in (first, second):
        shutil.copyfile(path, path.with_name(path.name[:20] + "-zzzzzzzzzzzzzzzzzzzzzz.log"))
    found = {rule for _, rule in rules(folder)}
    assert "repeated-upload" in found
    assert not found & {"segment-overlap", "duplicate-sequence", "snapshot-mismatch", "segment-gap", "sequence-gap"}


def test_logs_of_other_plugins_are_not_segments(tmp_path: Path) -> None:
    """Aiven's plugin compresses and encrypts chunks, and writes a manifest next to them."""
    stem = tmp_path / "00000000000000000000-7HIksIf2SQqqpyJoTv077Q"
    stem.with_suffix(".log").write_bytes(b"\x5e\xd8" * 1000)
    stem.with_suffix(".rsm-manifest").write_text("{}")
    assert "no segment found" in kseg("validate", tmp_path).stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "dump", "stats", "grep .", "transactions"])
def test_deleted_segments_are_read_if_a_folder_has_no_others(command: str, tmp_path: Path) -> None:
    """They are what is left after a wrong retention setting."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for path in LOCAL.glob("*.log"):
        shutil.copyfile(path, folder / (path.name + ".deleted"))
    done = kseg(*command.split(), folder)
    assert (done.returncode, done.stderr) == (kseg(*command.split(), LOCAL).returncode, "")
    assert rules(folder) == []
    shutil.copyfile(sorted(LOCAL.glob("*.log"))[-1], folder / sorted(LOCAL.glob("*.log"))[-1].name)
    assert len(rows("stats", folder)) < 5, "a broker's segments in use are the log"


def test_commands_that_cannot_use_remote_names_say_what_to_do(tmp_path: Path) -> None:
    """A broker does not start with such names, so neither a result nor a prediction has them."""
    folder = uploaded(tmp_path / "tier")
    for arguments in (("repair", folder, tmp_path / "new"), ("convert", "any-to-v2", folder, tmp_path / "new")):
        done = kseg(*arguments)
        assert (done.returncode, "kseg tier fetch" in done.stderr) == (2, True), done.stderr
    assert "a broker does not load them" in kseg("recovery", folder).stderr
