"""A file that several paths lead to is read once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kseg.format.storage.segment_files import SegmentFile, find_segments, once_each
from kseg.format.storage.source import STDIN
from tests.support.cli import SEGMENTS, kseg

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
