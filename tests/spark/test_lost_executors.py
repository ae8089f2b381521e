"""An executor that is killed while it works: Spark repeats its tasks, and the rows are those of one machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from tests.support import pipelines
from tests.support.cli import ROOT, kseg

pytestmark = pytest.mark.spark
_CLUSTER = "local-cluster[2,1,1024]"


def executors_of(parent: int) -> list[int]:
    """Return the executors among the descendants of a process."""
    found, waiting = [], [parent]
    while waiting:
        pid = waiting.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                children = [int(one) for one in task.read_text().split()]
            except OSError:
                continue
            waiting += children
            for child in children:
                try:
                    line = Path(f"/proc/{child}/cmdline").read_bytes()
                except OSError:
                    continue
                if b"CoarseGrainedExecutorBackend" in line and b"java" in line.split(b"\0")[0]:
                    found.append(child)
    return sorted(set(found))


def run_with_a_killed_executor(path: Path) -> tuple[int, int]:
    """Run a pipeline on a cluster, kill an executor once it reads, and return the exit code and the number of kills."""
    command = [sys.executable, "-m", "kseg", "pipeline", "run", "--spark", _CLUSTER, "--max-rate", "16K",
               "--spark-conf", "spark.speculation=true", str(path)]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output: list[str] = []
    reader = threading.Thread(target=lambda: output.extend(process.stdout or ()), daemon=True)
    reader.start()
    kills, until, known = 0, time.monotonic() + 200, 0.0
    while process.poll() is None and time.monotonic() < until:
        alive = executors_of(process.pid)
        known = known or (time.monotonic() if len(alive) >= 2 else 0.0)
        if known and not kills and time.monotonic() - known > 9 and alive:
            os.kill(alive[0], signal.SIGKILL)
            kills += 1
        time.sleep(0.3)
    process.kill()
    reader.join(5)
    if process.stdout:
        process.stdout.close()
    print("".join(output[-4:]), "kills", kills)
    return process.wait(), kills


def test_a_load_with_a_killed_executor_has_each_row_once(tmp_path: Path) -> None:
    """With speculation, which can run a task twice, too."""
    homes = tmp_path / "processes", tmp_path / "spark"
    for home in homes:
        for partition in range(30):
            ignored = shutil.ignore_patterns("ORIGIN", "expect*")
            shutil.copytree(pipelines.TRANSACTIONS, home / "source" / f"orders-{partition}", ignore=ignored)
    paths = [pipelines.config(home, table='file_size = "20 KB"') for home in homes]
    assert kseg("pipeline", "run", "--jobs", 1, paths[0]).returncode == 0
    assert run_with_a_killed_executor(paths[1]) == (0, 1)
    assert pipelines.rows(homes[1], "parquet") == pipelines.rows(homes[0], "parquet")
    assert kseg("pipeline", "verify", "--jobs", 1, paths[1]).returncode == 0
