"""A file that several paths lead to is read once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kseg import scan, stats
from kseg.format.storage.segment_files import SegmentFile, find_segments, once_each
from kseg.format.storage.source import STDIN
from tests.support.cli import SEGMENTS, invoke
from tests.support.cli import kseg_here as kseg

LOG = "00000000000000000023.log"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    folder = tmp_path / "dir" / "topic-0"
    shutil.copytree(SEGMENTS / "0.10.2.2-v1-gzip-segments", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "stats", "dump", "transactions", "recovery"])
def test_repeated_paths_change_no_output(command: str, partition: Path) -> None:
    """Repeated batches look like overlapping segments, and double each total."""
    log_dir = partition.parent
    link = log_dir.parent / "link"
    link.symlink_to(log_dir, target_is_directory=True)
    once = kseg(command, log_dir)
    again = [log_dir, f"{log_dir}/", link, partition] + ([] if command == "recovery" else [partition / LOG])
    done = kseg(command, *again)
    assert (done.returncode, done.stdout) == (once.returncode, once.stdout)
    assert kseg(command, partition, partition).stdout == kseg(command, partition).stdout


OF_SEVERAL = (
    ["dump"], ["grep", "x"], ["stats"], ["transactions"], ["lag"], ["schemas"], ["sql", "select count(*) from records"],
    ["dump", "--deep", "--format", "csv"],
)  # fmt: skip


@pytest.fixture
def new_disk(tmp_path: Path) -> Path:
    """A log directory that a broker has formatted, and that has no partition yet."""
    folder = tmp_path / "new-disk"
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    (folder / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("words", OF_SEVERAL, ids=lambda words: words[0])
def test_a_log_directory_without_partitions_is_no_error_next_to_others(
    words: list[str], partition: Path, new_disk: Path
) -> None:
    """A broker with several disks has one after a disk was added; alone, it is one line."""
    log_dir = partition.parent
    expected = invoke(*words, log_dir)
    for paths in ([log_dir, new_disk], [new_disk, log_dir]):
        done = invoke(*words, *paths)
        assert (done.exit_code, done.stdout, done.stderr) == (expected.exit_code, expected.stdout, expected.stderr)
    alone = invoke(*words, new_disk)
    assert alone.exit_code == 2
    assert alone.stderr.count("no segment found") == alone.stderr.count("\n") == 1


def test_a_new_disk_is_an_empty_replica(partition: Path, new_disk: Path, tmp_path: Path) -> None:
    """diff compares it; repair, kseg.scan and kseg.stats leave it out."""
    done = invoke("diff", "--format", "jsonl", partition.parent, new_disk)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["verdict"] for row in rows if "partition" in row and "verdict" in row] == ["missing-in-b"]
    both = [partition.parent, new_disk]
    assert invoke("repair", *both, tmp_path / "new").exit_code == 0
    assert scan(both).to_table().num_rows == scan(partition.parent).to_table().num_rows > 0
    assert [*stats(both)] == [*stats(partition.parent)]


def test_a_named_file_is_returned_with_its_folder(partition: Path) -> None:
    """In a folder, a segment is checked with its indexes and can be the active one."""
    listed = list(find_segments(str(partition)))
    named = SegmentFile(os.path.relpath(partition / LOG))
    assert once_each([named, *listed]) == listed
    assert once_each([named, SegmentFile(str(partition / LOG))]) == [named]


def test_different_files_stay(partition: Path) -> None:
    """A link in a folder is a separate segment; standard input and URLs are not on this disk."""
    (partition / "00000000000000000099.log").symlink_to(partition / LOG)
    listed = list(find_segments(str(partition)))
    assert len(once_each(listed)) == 4
    others = [SegmentFile(STDIN), SegmentFile("memory://a/0.log"), SegmentFile("memory://b/0.log")]
    assert once_each(others) == others
