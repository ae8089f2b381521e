"""Commands over a log of which a broker deletes segments after they were listed."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.cli import SEGMENTS, invoke
from tests.support.transactional_logs import COMMIT, CONTROL, TRANSACTIONAL, batch

COMMANDS: dict[str, list[str]] = {
    "validate": ["validate", "--jobs", "1", "--format", "jsonl"],
    "stats": ["stats", "--jobs", "1", "--format", "jsonl"],
    "grep": ["grep", "--jobs", "1", "--count", "."],
    "dump": ["dump", "--shallow", "--format", "jsonl"],
    "transactions": ["transactions", "--format", "jsonl"],
    "doctor": ["doctor", "--jobs", "1"],
    "sql-records": ["sql", "--format", "jsonl", "select partition, count(*) n from records group by all order by 1"],
    "sql-batches": [
        "sql",
        "--format",
        "jsonl",
        "select file, sum(record_count) n from batches group by all order by 1",
    ],
    "sql-segments": ["sql", "--format", "jsonl", "select file, records from segments order by 1"],
    "sql-transactions": ["sql", "--format", "jsonl", "select count(*) n from transactions"],
}


@contextmanager
def deleted_when_opened(victims: set[str]) -> Iterator[None]:
    """Delete segments with their indexes right before they are opened."""
    open_file = os.open

    def opened(path: Any, *given: Any, **named: Any) -> int:
        if str(path) in victims:
            for suffix in (".log", ".index", ".timeindex"):
                Path(path).with_suffix(suffix).unlink(missing_ok=True)
        return open_file(path, *given, **named)

    with patch.object(os, "open", opened):
        yield


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with three partitions of several segments."""
    for number in range(3):
        folder = tmp_path / "logs" / f"orders-{number}"
        ignored = shutil.ignore_patterns("ORIGIN", "expect.jsonl", "*.snapshot")
        shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder, ignore=ignored)
    return tmp_path / "logs"


def segments(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("*.log")))


@pytest.mark.parametrize("name", COMMANDS)
def test_segments_that_retention_deletes_are_left_out(name: str, logs: Path) -> None:
    """The answer is that of the log after the deletion, and one note has the number of files."""
    command = [*COMMANDS[name], str(logs)]
    victims = {*segments(logs / "orders-1")[:2], segments(logs / "orders-2")[0]}
    before = invoke(*command)
    with deleted_when_opened(victims):
        done = invoke(*command)
    after = invoke(*command)
    assert done.stdout == after.stdout != before.stdout or name in ("doctor", "transactions", "sql-transactions")
    assert (done.exit_code, after.exit_code) == (0, 0), done.stderr
    notes = done.stderr.replace(after.stderr, "").splitlines()
    assert notes == ["kseg: a broker deleted 3 files before kseg could read them"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "validate"])
def test_a_segment_in_the_middle_that_is_gone_is_an_error(name: str, logs: Path) -> None:
    """Retention deletes the oldest segments: the records of this one can be in the one before it, as the cleaner left it."""
    victim = segments(logs / "orders-1")[1]
    with deleted_when_opened({victim}):
        done = invoke(*COMMANDS[name], str(logs))
    assert done.exit_code == 2
    assert "a broker deleted" not in done.stderr or name == "doctor"  # its check takes it for a deletion, as validate
    assert f"{victim}: merged by the log cleaner or truncated since it was listed: run kseg again" in done.stderr


@pytest.mark.parametrize("has_its_name", [False, True])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("validate", "doctor")])
def test_a_segment_that_the_cleaner_replaces_is_an_error(name: str, has_its_name: bool, logs: Path) -> None:
    """It renames the old files before the new one, also at the start of a log: the records are not deleted ones."""
    victim, swap = Path(segments(logs / "orders-1")[0]), Path(f"{segments(logs / 'orders-1')[0]}.swap")
    open_file, begun = os.open, False

    def opened(path: Any, *given: Any, **named: Any) -> int:
        nonlocal begun
        if str(path) != str(victim) or begun:
            return open_file(path, *given, **named)
        begun = True
        shutil.copy(victim, swap)
        victim.rename(f"{victim}.deleted")
        try:
            return open_file(path, *given, **named)
        finally:
            if has_its_name:
                swap.rename(victim)

    with patch.object(os, "open", opened):
        done = invoke(*COMMANDS[name], str(logs))
    assert begun
    assert done.exit_code == 2
    assert f"{victim}: merged by the log cleaner" in done.stderr
    assert "a broker deleted" not in done.stderr


def test_a_transaction_whose_marker_was_deleted_ended_before_the_log(tmp_path: Path) -> None:
    """Retention deletes the segments in order: also the one that was read, with the records of the transaction."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    plain = [batch(first, first + 3, [(n, b"k", b"v") for n in range(first, first + 4)]) for first in (7, 11)]
    marker = batch(6, 6, [(6, struct.pack(">hh", 0, COMMIT), struct.pack(">hi", 0, 0))], TRANSACTIONAL | CONTROL, 7, 0)
    open_one = batch(0, 5, [(n, b"k", b"v") for n in range(6)], TRANSACTIONAL, 7, 0, 0)
    for base, data in ((0, open_one), (6, marker + plain[0]), (11, plain[1])):
        (folder / f"{base:020}.log").write_bytes(data)
    first, second, _ = segments(folder)
    open_file = os.open

    def opened(path: Any, *given: Any, **named: Any) -> int:
        if str(path) == second:
            for victim in (first, second):
                Path(victim).unlink(missing_ok=True)
        return open_file(path, *given, **named)

    command = ("transactions", "--format", "jsonl", tmp_path)
    with patch.object(os, "open", opened):
        done = invoke(*command)
    assert (done.exit_code, done.stdout) == (0, invoke(*command).stdout)
