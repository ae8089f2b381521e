"""Copies of a cluster's metadata log: what they say, which one is newest, and which one a controller can load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg import open_segment
from tests.support import metadata_logs
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import SEGMENTS

REAL = SEGMENTS / "4.3.0-v2-none-internal-cluster-metadata"
SNAPSHOT = "00000000000000000087-0000000001.checkpoint"
LOG = f"{0:020}.log"


def copy(home: Path, *, log: bytes | None = None, without: str = "") -> Path:
    folder = home / "__cluster_metadata-0"
    shutil.copytree(REAL, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl", *filter(None, [without])))
    if log is not None:
        (folder / LOG).write_bytes(log)
    return folder


def compared(*folders: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of copies and of differences, and the summary."""
    rows = [json.loads(line) for line in kseg("diff", "--format", "jsonl", *folders).stdout.splitlines()]
    *others, last = rows
    assert last["kind"] == "metadata-diff"
    kinds = ("metadata-copy", "metadata-difference")
    copies, found = ([row for row in others if row["kind"] == kind] for kind in kinds)
    return copies, found, last


def batch_ends(log: Path) -> dict[int, int]:
    """Return the end in bytes of each batch by the offset after it."""
    with open_segment(log) as segment:
        return {batch.last_offset + 1: batch.position + batch.size for batch in segment.batches()}


@pytest.mark.slow
def test_a_snapshot_says_what_the_log_before_it_says(tmp_path: Path) -> None:
    """Controllers write snapshots at other moments: copies that differ in each byte can say the same."""
    ends = batch_ends(REAL / LOG)
    whole = (REAL / LOG).read_bytes()
    log_only = copy(tmp_path / "log", log=whole[: ends[87]], without="*.checkpoint")
    snapshot_only = copy(tmp_path / "snapshot", without=LOG)
    copies, found, _ = compared(log_only, snapshot_only)
    assert [one["log_end"] for one in copies] == [87, 87]
    assert found == []
    assert kseg("diff", log_only, snapshot_only).returncode == 0


def test_the_newest_whole_copy_is_named(tmp_path: Path) -> None:
    """After the loss of controllers, a cluster continues from one of the copies: which one, and what do the others lack?"""
    whole = (REAL / LOG).read_bytes()
    ends = batch_ends(REAL / LOG)
    middle = sorted(ends)[len(ends) // 2]
    newest = copy(tmp_path / "1")
    torn = copy(tmp_path / "2", log=whole[: ends[middle] + 30])
    damaged = bytearray(whole)
    damaged[len(whole) - 10] ^= 1
    broken = copy(tmp_path / "3", log=bytes(damaged))
    copies, found, last = compared(newest, torn, broken)
    assert [(one["log_end"], one["whole"]) for one in copies[:2]] == [(163, True), (max(middle, 87), True)]
    assert (copies[2]["whole"], last["newest_whole"]) == (False, str(newest))
    assert {one["path"] for one in found if one["entity"] == "topic"} == {str(torn)}
    done = kseg("diff", torn, newest)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(f"newest and whole: {newest}; not alike: ")


def test_a_copy_that_no_controller_can_load_is_not_whole(tmp_path: Path) -> None:
    """Its CRCs are right, and it is the newest: a controller that starts from it ends at its last record."""
    logs = {}
    changes = [metadata_logs.broker(1, 5), metadata_logs.topic("orders", 1), metadata_logs.partition(1, [1])]
    for name, more in (("whole", []), ("twice", [metadata_logs.topic("orders", 2)])):
        folder = metadata_logs.folder_for(tmp_path / name)
        metadata_logs.write_log(folder / LOG, [*changes, *more])
        logs[name] = folder
    copies, _, last = compared(logs["whole"], logs["twice"])
    assert [one["whole"] for one in copies] == [True, False]
    assert 'topic "orders" exists' in copies[1]["faults"][0]
    assert (last["newest"], last["newest_whole"]) == (str(logs["twice"]), str(logs["whole"]))


@pytest.mark.parametrize("left", [0, 200])
def test_a_snapshot_without_its_end_is_not_whole(left: int, tmp_path: Path) -> None:
    """A controller loads it without a word, and lacks what was after the cut: the newest copy can be the worst."""
    older = copy(
        tmp_path / "older", log=(REAL / LOG).read_bytes()[: batch_ends(REAL / LOG)[87]], without="*.checkpoint"
    )
    cut = copy(tmp_path / "cut", without=LOG)
    (cut / SNAPSHOT).write_bytes((REAL / SNAPSHOT).read_bytes()[:left])
    copies, _, last = compared(older, cut)
    assert [one["whole"] for one in copies] == [True, False]
    assert "kraft-snapshot-incomplete" in " ".join(copies[1]["faults"])
    assert last["newest_whole"] == str(older)


def test_what_changed_is_said_in_the_names_of_people(tmp_path: Path) -> None:
    """A recreated topic is another one: its id changed, and the old one is gone."""
    first = [metadata_logs.topic("orders", 1), metadata_logs.partition(1, [1])]
    second = [metadata_logs.topic("orders", 2), metadata_logs.partition(2, [1]), metadata_logs.topic("new", 3)]
    folders = []
    for name, changes in (("a", first), ("b", second)):
        folders.append(metadata_logs.folder_for(tmp_path / name))
        metadata_logs.write_log(folders[-1] / LOG, changes)
    _, found, last = compared(*folders)
    assert {(one["change"], one["entity"], one["name"]) for one in found} == {
        ("deleted", "topic", "orders"), ("appeared", "topic", "orders"), ("appeared", "topic", "new"),
        ("deleted", "partition", "orders-0"), ("appeared", "partition", "orders-0"),
    }  # fmt: skip
    assert last["differences"] == {"partition": 2, "topic": 3}


@pytest.mark.parametrize("command", [("diff",), ("diff", "--format", "csv"), ("diff", "-v")])
def test_a_folder_without_a_log_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    done = kseg(*command, copy(tmp_path / "a"), tmp_path / "__cluster_metadata-0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no segment or snapshot of a metadata log found" in done.stderr


@pytest.mark.parametrize("option", ["--by-key", "--shallow", "--allow=ends-earlier"])
def test_an_option_about_records_is_refused(option: str, tmp_path: Path) -> None:
    """An option without an effect would let a difference pass, or fail, unnoticed."""
    done = kseg("diff", option, copy(tmp_path / "a"), copy(tmp_path / "b"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
