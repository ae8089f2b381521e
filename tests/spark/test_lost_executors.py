"""An executor that is killed while it works: Spark repeats its tasks, and the output is that of one machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

import pyarrow.parquet as pq

from tests.support import pipelines
from tests.support.cli import ROOT, kseg
from tests.support.damage import flip
from tests.support.spark_jvm import EXECUTORS

pytestmark = pytest.mark.spark
_SPARK = ("--spark", "local-cluster[2,1,1024]", "--spark-conf", "spark.speculation=true",
          "--spark-conf", "spark.driver.memory=700m", *EXECUTORS)  # fmt: skip
_LIMIT = 200


def children_of(pid: int) -> list[int]:
    """Return the children of a process that still exist: a process or a thread can end at each step."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def line_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def working_executors(parent: int) -> list[int]:
    """Return the executors among the descendants of a process whose Python runs a task or has run one."""
    found, waiting = [], [parent]
    while waiting:
        pid = waiting.pop()
        children = children_of(pid)
        waiting += children
        is_executor = b"CoarseGrainedExecutorBackend" in (line := line_of(pid)) and b"java" in line.split(b"\0")[0]
        if is_executor and any(b"pyspark.daemon" in line_of(child) for child in children):
            found.append(pid)
    return sorted(found)


def run_and_kill(
    output: Path, arguments: Sequence[object], moments: Sequence[Callable[[], bool]]
) -> tuple[int, str, str, int]:
    """Run a command on a cluster, and kill an executor that works at each of the moments.

    Returns the exit code, stdout, stderr and the number of kills.
    """
    output.mkdir()
    command = [sys.executable, "-m", "kseg", *map(str, arguments), *_SPARK]
    with (output / "out").open("w") as out, (output / "err").open("w") as err:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)
    kills, until, before = 0, time.monotonic() + _LIMIT, 0
    try:
        while process.poll() is None and time.monotonic() < until:
            working = [pid for pid in working_executors(process.pid) if pid != before]
            if kills < len(moments) and working and moments[kills]():
                time.sleep(1)
                before = working[-1]
                with suppress(ProcessLookupError):
                    os.kill(before, signal.SIGKILL)
                    kills += 1
            time.sleep(0.2)
    finally:
        process.kill()
        code = process.wait()
    return code, (output / "out").read_text(), (output / "err").read_text(), kills


def copies(folder: Path, damaged: int | None = None) -> Path:
    """Write 30 partitions with transactions, one of them with damage."""
    for partition in range(30):
        ignored = shutil.ignore_patterns("ORIGIN", "expect*")
        shutil.copytree(pipelines.TRANSACTIONS, folder / f"orders-{partition}", ignore=ignored)
    if damaged is not None:
        log = min((folder / f"orders-{damaged}").glob("*.log"))
        log.write_bytes(flip(log.read_bytes(), 300))
    return folder


_QUERY = "select topic, partition, offset, value, control from {} order by partition, offset"


@pytest.mark.parametrize(
    ("command", "rate"),
    [
        (("validate", "--format", "jsonl"), "96K"),
        (("sql", "--format", "jsonl", _QUERY.format("records")), "256K"),
        (("sql", "--format", "jsonl", "--recipe", "gaps"), "512K"),
    ],
)
def test_a_killed_executor_changes_no_row_and_no_verdict(tmp_path: Path, command: tuple[str, ...], rate: str) -> None:
    """With speculation, which can run a task twice, too: the same output, the same damage, the same exit code."""
    source = copies(tmp_path / "logs", damaged=7)
    alone = kseg(*command, source)
    code, out, err, kills = run_and_kill(tmp_path / "spark", [*command, "--max-rate", rate, source], [lambda: True])
    assert kills == 1
    assert (code, out) == (alone.returncode, alone.stdout)
    assert [line for line in err.splitlines() if "orders-7" in line] == [
        line for line in alone.stderr.splitlines() if "orders-7" in line
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of the files of a folder that are no hidden ones."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if "_kseg" not in path.parts}


@pytest.mark.parametrize("command", [("convert", "any-to-v2", "--compression", "lz4"), ("dump", "--format", "jsonl")])
def test_a_killed_executor_leaves_whole_files(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Files of ``convert`` and ``dump``: the same names and bytes as without loss, and no temporary file."""
    source = copies(tmp_path / "logs")
    targets = [tmp_path / "whole", tmp_path / "lost"]
    places = [[source, target] if command[0] == "convert" else [source, "-o", target] for target in targets]
    if command[0] == "convert":
        assert kseg(*command, *places[0]).returncode == 0
    else:
        assert kseg(*command, *places[0], "--spark", "local[2]").returncode == 0
    code, _, err, kills = run_and_kill(tmp_path / "spark", [*command, *places[1], "--max-rate", "96K"], [lambda: True])
    assert (code, kills) == (0, 1), err
    assert contents(targets[1]) == contents(targets[0])
    assert len(contents(targets[0])) >= 30


def test_a_load_with_killed_executors_has_each_row_once(tmp_path: Path) -> None:
    """One is killed while segments are checked, one while rows are loaded; speculation is on."""
    homes = tmp_path / "processes", tmp_path / "spark"
    for home in homes:
        copies(home / "source")
    paths = [pipelines.config(home, table='file_size = "20 KB"') for home in homes]
    assert kseg("pipeline", "run", "--jobs", 1, paths[0]).returncode == 0
    loads = [lambda: True, lambda: any((homes[1] / "lake").rglob("*.parquet"))]
    code, _, err, kills = run_and_kill(tmp_path / "run", ["pipeline", "run", "--max-rate", "64K", paths[1]], loads)
    assert (code, kills) == (0, 2), err
    assert pipelines.rows(homes[1], "parquet") == pipelines.rows(homes[0], "parquet")
    assert kseg("pipeline", "verify", "--jobs", 1, paths[1]).returncode == 0
    for file in (homes[1] / "lake").rglob("*.parquet"):
        assert pq.read_metadata(file).num_rows
