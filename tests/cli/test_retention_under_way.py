"""Commands over a log of which a broker deletes segments after they were listed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.cli import SEGMENTS, invoke

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
