"""``dump --spark`` and ``convert --spark``:

files are complete or absent, equal to those without Spark, and a run can continue.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.errors import KsegError
from tests.support.cli import SEGMENTS
from tests.support.spark_jobs import FINDINGS, on_spark, run

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import SparkSession

from kseg.spark.jobs.written_files import convert_through

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Old and new partitions of a broker, one of them with damage."""
    for name, source in (
        ("plain-0", SEGMENTS / "4.3.0-v2-none-segments"),
        ("mixed-1", SEGMENTS / "2.8.2-v0v1v2-mixed"),
        ("broken-2", FINDINGS / "crc-mismatch"),
    ):
        shutil.copytree(source, tmp_path / "logs" / name)
    return tmp_path / "logs"


def exported(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "_kseg" / "manifest.jsonl").read_text().splitlines():
        yield json.loads(line)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "options",
    [["--deep"], ["--shallow", "--no-control"], ["--deep", "--offsets", "10:40"], ["--deep", "--key", "key-2"]],
)
def test_the_files_together_are_the_dump(log_dir: Path, tmp_path: Path, options: list[str]) -> None:
    """In the manifest's order they are the output of one run, with the same messages and exit code."""
    out = tmp_path / "out"
    alone = run("dump", "--format", "jsonl", *options, log_dir)
    spread = on_spark("dump", "--format", "jsonl", *options, "-o", out, log_dir)
    assert (spread.exit_code, spread.stdout, spread.stderr) == (alone.exit_code, "", alone.stderr)
    assert "".join((out / name).read_text() for row in exported(out) for name in row["outputs"]) == alone.stdout
    assert spread.exit_code == 1


def test_parquet_is_a_table_with_partitions(spark: SparkSession, log_dir: Path, tmp_path: Path) -> None:
    """Spark reads from it the same rows as from the log; two replicas of a segment have a file each."""
    out = tmp_path / "out"
    shutil.copytree(log_dir, tmp_path / "replica")
    done = on_spark("dump", "--deep", "--format", "parquet", "-o", out, log_dir, tmp_path / "replica")
    assert done.exit_code == 1
    table = spark.read.parquet(str(out))
    wanted = (
        spark.read.format("kseg").option("mode", "dropmalformed").load([str(log_dir), str(tmp_path / "replica")])
    ).drop("damage")
    assert sorted(table.dtypes) == sorted(wanted.dtypes)
    assert table.count() == wanted.count() > 0
    assert table.select(wanted.columns).exceptAll(wanted).count() == 0


def test_an_interrupted_dump_continues(log_dir: Path, tmp_path: Path) -> None:
    """Valid files are kept; missing ones, or those whose source has changed, are written again."""
    out = tmp_path / "out"
    arguments = ("dump", "--format", "csv", "-o", out, log_dir)
    first = on_spark(*arguments)
    names = [name for row in exported(out) for name in row["outputs"]]
    before, content = [(out / name).stat().st_ino for name in names], files_in(out)
    (out / names[0]).unlink()
    left = out / "topic=plain" / ".killed.tmp"
    left.touch()
    (log_dir / "mixed-1" / "00000000000000000000.log").touch()
    changed = {i for i, name in enumerate(names) if i == 0 or "topic=mixed/" in name}
    again = on_spark(*arguments)
    assert (again.exit_code, again.stderr) == (first.exit_code, first.stderr)
    after = [(out / name).stat().st_ino for name in names]
    assert not left.exists()
    assert {i for i, inode in enumerate(after) if inode != before[i]} <= changed
    assert {name: files_in(out)[name] for name in names} == {name: content[name] for name in names}
    other = on_spark(*arguments, "--deep")
    assert (other.exit_code, other.stderr.count("other options")) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--format", "jsonl"], "add -o DIR"),
        (["-o", "out"], "add -o DIR and --format"),
        (["--format", "csv", "-o", "."], "contains the input"),
        (["--format", "csv", "-o", "other"], "contains other files"),
        (["--format", "csv", "-o", "out", "--limit", "3"], "--spark cannot be combined with --limit"),
    ],
)
def test_what_can_not_be_spread_is_refused(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], line: str
) -> None:
    """Options that need one process are rejected."""
    monkeypatch.chdir(log_dir.parent)
    Path("other").mkdir()
    Path("other/file").touch()
    before = files_in(log_dir.parent)
    done = on_spark("dump", *arguments, "logs")
    assert done.exit_code == 2
    assert line in done.stderr
    assert files_in(log_dir.parent) == before


def test_a_log_dir_is_converted_as_without(log_dir: Path, tmp_path: Path) -> None:
    """Folders are equal to the byte, with the same messages, and without the damaged one."""
    alone = run("convert", "any-to-v2", log_dir, tmp_path / "alone")
    spread = on_spark("convert", "any-to-v2", log_dir, tmp_path / "spread")
    assert files_in(tmp_path / "spread") == files_in(tmp_path / "alone")
    assert (spread.exit_code, spread.stderr) == (alone.exit_code, alone.stderr)
    assert spread.stdout.replace("/spread/", "/alone/") == alone.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "logs", "spread"]
    assert on_spark("convert", "any-to-v2", log_dir, tmp_path / "spread").exit_code == 2
    forced = on_spark("convert", "any-to-v2", "--force", "--skip-damaged", log_dir, tmp_path / "spread")
    assert forced.exit_code == 1
    assert len(list((tmp_path / "spread").iterdir())) == 3


def test_a_segment_and_a_folder_are_converted_as_without(log_dir: Path, tmp_path: Path) -> None:
    """The target's name has the base offset, and only the target is created."""
    segment = log_dir / "mixed-1" / "00000000000000000000.log"
    for place in ("alone", "spread"):
        (tmp_path / place).mkdir()
    for direction, source in (("any-to-v2", segment), ("v2-to-v1", log_dir / "plain-0")):
        alone, spread = tmp_path / "alone" / source.name, tmp_path / "spread" / source.name
        assert run("convert", direction, "--lossy", source, alone).exit_code == 0
        assert on_spark("convert", direction, "--lossy", source, spread).exit_code == 0
    assert files_in(tmp_path / "spread") == files_in(tmp_path / "alone")


class _Dying:
    """A pool that runs a number of calls; then the cluster fails."""

    jobs = ahead = 1

    def __init__(self, left: int) -> None:
        self.left = left

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.left -= 1
        if self.left < 0:
            future.set_exception(KsegError("Spark: the cluster is gone"))
        else:
            future.set_result(work(*args))
        return future

    def result(self, future: Future[Any]) -> Any:
        return future.result()


def test_an_interrupted_conversion_continues(log_dir: Path, tmp_path: Path) -> None:
    """The target is absent, finished parts are kept next to it, and the next run does not repeat them."""
    target, staging = tmp_path / "new", tmp_path / ".new.spark.tmp"
    folder = log_dir / "plain-0"
    with pytest.raises(KsegError, match="cluster is gone"):
        convert_through(_Dying(4), str(folder), str(target), ConversionPlan.of("any-to-v2"), lambda path, finding: None)
    assert not target.exists()
    done = {path.name: path.stat().st_ino for path in (staging / "segments").glob("*.log")}
    assert len(done) == 4
    assert on_spark("convert", "any-to-v2", folder, target).exit_code == 0
    assert run("convert", "any-to-v2", folder, tmp_path / "alone").exit_code == 0
    assert files_in(target) == files_in(tmp_path / "alone")
    assert {name: (target / name).stat().st_ino for name in done} == done
    assert not staging.exists()
