"""A segment of zeros: no command claims that there is nothing in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS

NAME = f"{0:020}.log"
ZEROS = bytes(8192)
#: Arguments of each command that reads segments; {} is the segment or its folder.
COMMANDS = {
    "validate": ["validate", "{}"],
    "dump": ["dump", "{}"],
    "dump --deep": ["dump", "--deep", "{}"],
    "grep": ["grep", "x", "{}"],
    "stats": ["stats", "{}"],
    "explain": ["explain", "{}"],
    "transactions": ["transactions", "{}"],
    "schemas": ["schemas", "{}"],
    "sql": ["sql", "select count(*) from records", "{}"],
    "diff": ["diff", "{}", "{}"],
    "convert": ["convert", "any-to-v2", "{}", "out"],
    "recovery": ["recovery", "{}"],
}


def run(command: str, path: Path, folder: Path) -> tuple[int, str]:
    """Return the exit code of a command and all that it prints."""
    given = [
        each.replace("{}", str(path)) if each != "out" else str(folder / f"out-{path.name}")
        for each in COMMANDS[command]
    ]
    done = invoke(*given)
    return done.exit_code, done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_zeros_are_of_unknown_content(command: str, tmp_path: Path) -> None:
    """Nothing shows whether batches were ever written: exit code 2 and the reason, as a file and as a folder."""
    log = tmp_path / "logs" / "topic-0" / NAME
    log.parent.mkdir(parents=True)
    log.write_bytes(ZEROS)
    places = [log.parent] if command == "recovery" else [log, log.parent]
    for place in places:
        code, text = run(command, place, tmp_path)
        assert code == 2, (place, text)
        assert "nothing shows whether" in " ".join(text.split())


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"grep", "explain", "recovery"}))
def test_zeros_that_are_explained(command: str, tmp_path: Path) -> None:
    """A preallocated segment after another one, and a log that the high watermark knows as empty, change no exit code."""
    rolled, empty = tmp_path / "logs" / "topic-0", tmp_path / "logs" / "topic-1"
    for folder in (rolled, empty):
        folder.mkdir(parents=True)
    data = (SEGMENTS / "4.3.0-v2-none" / NAME).read_bytes()
    (rolled / NAME).write_bytes(data)
    (rolled / f"{44:020}.log").write_bytes(ZEROS)
    (empty / NAME).write_bytes(ZEROS)
    (tmp_path / "logs" / "replication-offset-checkpoint").write_text("0\n1\ntopic 1 0\n")
    for folder in (rolled, empty):
        code, text = run(command, folder, tmp_path)
        assert code == 0, (folder, text)
