"""Next to a broker that writes, rolls, compacts and deletes: no false finding, no crash, and exit code 0."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.format.segment import several_processes
from tests.support.cli import invoke

pytestmark = pytest.mark.kafka

SECONDS = 12.0
# Sequences have gaps after the cleaner, and in this folder no file shows that it ran.
COMMANDS = (
    ("validate", "--format", "jsonl", "--rule", "sequence-gap=info"),
    ("validate", "--format", "jsonl", "--rule", "sequence-gap=info", "--shallow"),
    ("stats", "--format", "jsonl", "--deep"),
    ("dump", "--format", "jsonl", "--deep"),
)
# Who has read the older segment before the cleaner merged a later one into it is told so, and how often that may happen.
MERGED = ": merged by the log cleaner or truncated since it was listed: run kseg again"
# A note, not an error: the files are of the past.
DELETED = "kseg: a broker deleted "
AGAIN = 10


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, float]]:
    """Return a log dir that a broker writes to, and the end time."""
    from tools.lab.kraft import KraftBroker
    from tools.lab.traffic import BROKER

    with KraftBroker("4.3.0", tmp_path_factory.mktemp("live"), BROKER) as broker:
        traffic = subprocess.Popen([sys.executable, "-m", "tools.lab.traffic", broker.bootstrap, str(SECONDS)])
        try:
            while not list(broker.log_dir.glob("transactions-0/*.log")):
                assert traffic.poll() is None
                time.sleep(0.1)
            yield broker.log_dir, time.monotonic() + SECONDS
        finally:
            traffic.kill()
            traffic.wait()


def test_a_live_log_dir_has_no_false_findings(live: tuple[Path, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments grow, roll, are swapped and deleted during each command, also in ranges and with processes."""
    folder, until = live
    whole = several_processes.RANGE_SIZE
    seen: set[str] = set()
    runs = 0
    while time.monotonic() < until or runs < len(COMMANDS):
        command = COMMANDS[runs % len(COMMANDS)]
        in_ranges = runs // len(COMMANDS) % 2 == 1
        monkeypatch.setattr(several_processes, "RANGE_SIZE", 64 * 1024 if in_ranges else whole)
        monkeypatch.setattr(several_processes, "BEGIN_ALONE", not in_ranges)
        done = invoke(*command, folder)
        for _ in range(AGAIN):
            errors = [line for line in done.stderr.splitlines() if DELETED not in line]
            if done.exit_code == 2 and all(line.endswith(MERGED) for line in errors):
                done = invoke(*command, folder)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        reported = [row for row in rows if row["kind"] == "finding" and row["severity"] != "info"]
        assert (done.exit_code, reported[:2]) == (0, []), f"{command}: {reported[:2]} {done.stderr}"
        assert rows, command
        seen |= {path.name for path in folder.glob("*/*.log*")}
        runs += 1
    assert any(name.endswith(".deleted") for name in seen), "nothing vanished: the test proved little"
