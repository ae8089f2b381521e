"""The cases on Spark and their goals. Large sizes are hard links, so the disk has each corpus once.

All contenders run in one warm session, so that no start counts. Commands are called in this process and use the session.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyarrow import dataset
from pyspark.sql import functions as f

from bench import corpora, peers
from bench.cases import PEAKS, SLOWDOWN, SPEEDUP, Figure, Goal
from bench.corpora import HOME, Corpus, corpus
from bench.measure import BenchError, Command
from bench.spark import topic
from bench.spark.ready import make_ready
from kseg.cli.main import main as kseg
from kseg.spark.writing import write_segments

GIB = 1 << 30
SMALL = 2000
MASTER = "local[2]"
SHARE = Figure(lambda ours, peer: peer.wall / ours.wall * 100, "{:.0f}% of its speed")
EACH = Figure(lambda ours, peer: ours.wall / SMALL * 1000, "{:.1f} ms each")
_COUNTED = re.compile(r"([\d,]+) records")

#: The work of a contender: a call that returns the number of its records, or None, or a command as a process.
Work = Callable[[], "int | None"] | Command


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders that take turns; ``make`` creates them for a session and the bytes of the large cases.

    ``rounds`` limits the number of rounds. With ``warm``, a first round does not count.
    """

    name: str
    make: Callable[[Any, int], Any]
    goals: tuple[Goal, ...]
    rounds: int = 5
    warm: bool = True


def _linked(name: str, made: Corpus, count: int) -> Path:
    """Make a log directory with ``count`` partitions of that segment."""
    home = HOME / "spark" / name
    shutil.rmtree(home, ignore_errors=True)
    for number in range(count):
        partition = home / f"events-{number}"
        partition.mkdir(parents=True)
        (partition / made.path.name).hardlink_to(made.path)
    return home


def _kseg(*arguments: str) -> Callable[[], int | None]:
    """Return a call of a kseg command in this process."""

    def run() -> int | None:
        done = CliRunner().invoke(kseg, arguments)
        if done.exit_code:
            raise BenchError(f"kseg {' '.join(arguments)} ended with {done.exit_code}: {done.output[-500:]}")
        return counted(done.output)

    return run


def counted(output: str) -> int | None:
    """Return the number of records in the last line that has one, the summary."""
    found = _COUNTED.findall(output)
    return int(found[-1].replace(",", "")) if found else None


def _export(source: Path) -> Callable[[], int | None]:
    target = HOME / "spark" / "exported"

    def run() -> int:
        shutil.rmtree(target, ignore_errors=True)
        _kseg("dump", "--spark", MASTER, "--deep", "--format", "parquet", "-o", str(target), str(source))()
        return _rows(target)

    return run


def _written(frame: Any) -> Callable[[], int | None]:
    """Return a call that has Spark write Parquet, with the codec of kseg's export."""
    target = HOME / "spark" / "written"

    def run() -> int:
        frame.write.mode("overwrite").option("compression", "snappy").parquet(str(target))
        return _rows(target)

    return run


def _rows(folder: Path) -> int:
    """Return the number of rows in Parquet files, from their footers."""
    return int(dataset.dataset(folder, format="parquet").count_rows())


def _load(spark: Any, source: Path, **options: str) -> Any:
    return spark.read.format("kseg").options(**options).load(str(source))


def _count(name: str) -> Case:
    @contextmanager
    def make(spark: Any, size: int) -> Iterator[dict[str, Work]]:
        path = corpus(name).path
        ready = spark.read.format("ready").option("segment", str(path)).load(str(make_ready(path)))
        yield {"kseg": _load(spark, path).count, "ready batches": ready.count}

    return Case(f"count() {name}", make, (Goal("kseg", "ready batches", SHARE, at_least=60),))


def _parquet(name: str) -> Case:
    @contextmanager
    def make(spark: Any, size: int) -> Iterator[dict[str, Work]]:
        folder = _linked("export", corpus(name), 2)
        yield {"dump --spark": _export(folder), "df.write.parquet": _written(_load(spark, folder))}

    return Case(
        f"Parquet, 2 segments {name}",
        make,
        (Goal("dump --spark", "df.write.parquet", SPEEDUP, at_least=2.5),),
        rounds=2,
    )


@contextmanager
def _again(spark: Any, size: int) -> Iterator[dict[str, Work]]:
    folder, target = _linked("again", corpus("lz4"), 2), HOME / "spark" / "segments"
    rows, records = _load(spark, folder), 2 * corpus("lz4").records

    def write(**options: Any) -> Callable[[], int]:
        def run() -> int:
            shutil.rmtree(target, ignore_errors=True)
            write_segments(rows, str(target), compression="lz4", **options)
            return records

        return run

    yield {"write_segments": write(), "sorted first": write(ordered=False), "same_log": write(same_log=True)}


@contextmanager
def _topic(spark: Any, size: int) -> Iterator[dict[str, Work]]:
    with topic.served("lz4") as served:
        reading = spark.read.format("kafka").option("kafka.bootstrap.servers", served.bootstrap)
        theirs = reading.option("subscribe", topic.NAME).option("minPartitions", 2).load()
        ours = _load(spark, served.folder, columns="value")
        length = f.sum(f.length("value"))
        yield {
            "sum of lengths": lambda: ours.agg(length).first()[0],
            "kafka source, sum": lambda: theirs.agg(length).first()[0],
            "dump --spark": _export(served.folder),
            "kafka source, Parquet": _written(theirs),
        }


@contextmanager
def _large(spark: Any, size: int) -> Iterator[dict[str, Work]]:
    made = corpus("1g-lz4")
    folder = _linked("large", made, max(size // made.bytes, 2))
    yield {
        "validate --spark": _kseg("validate", "--spark", MASTER, str(folder)),
        "validate --jobs 2": peers.kseg("validate --jobs 2", "validate", "--jobs", "2", str(folder)),
    }
    corpora.remove("1g-lz4")


@contextmanager
def _growth(spark: Any, size: int) -> Iterator[dict[str, Work]]:
    made = corpus("256m-none")
    small, large = _linked("growth-1", made, 1), _linked("growth-2", made, max(size // made.bytes, 2))
    yield {
        "count() 256 MiB": _load(spark, small).count,
        f"count() {size / GIB:g} GiB": _load(spark, large).count,
        "validate 256 MiB": _kseg("validate", "--spark", MASTER, str(small)),
        f"validate {size / GIB:g} GiB": _kseg("validate", "--spark", MASTER, str(large)),
    }
    corpora.remove("256m-none")


@contextmanager
def _small(spark: Any, size: int) -> Iterator[dict[str, Work]]:
    folder = _linked("small", corpus("10k-one-record-batches"), SMALL)
    yield {
        "validate --spark": _kseg("validate", "--spark", MASTER, str(folder)),
        "count()": _load(spark, folder).count,
        "validate --jobs 2": peers.kseg("validate --jobs 2", "validate", "--jobs", "2", str(folder)),
    }


def cases(size: int) -> tuple[Case, ...]:
    """Return all cases; the large ones read ``size`` bytes."""
    large = f"{size / GIB:g} GiB"
    return (
        _count("none"),
        _count("lz4"),
        _parquet("none"),
        _parquet("lz4"),
        Case(
            "segments again, lz4",
            _again,
            (Goal("write_segments", "sorted first", SPEEDUP, at_least=2),),
            rounds=2,
        ),
        Case(
            "a broker's topic, lz4",
            _topic,
            (
                Goal("sum of lengths", "kafka source, sum", SPEEDUP, at_least=3),
                Goal("dump --spark", "kafka source, Parquet", SPEEDUP, at_least=2),
            ),
            rounds=3,
        ),
        Case(
            f"validate {large}, lz4",
            _large,
            (Goal("validate --spark", "validate --jobs 2", SLOWDOWN, at_most=1.4),),
            rounds=2,
            warm=False,
        ),
        Case(
            f"memory of tasks, 256 MiB to {large}, none",
            _growth,
            (
                Goal(f"count() {large}", "count() 256 MiB", PEAKS, at_most=1.1),
                Goal(f"validate {large}", "validate 256 MiB", PEAKS, at_most=1.1),
            ),
            rounds=1,
            warm=False,
        ),
        Case(
            f"{SMALL} segments of 10 KB",
            _small,
            (
                Goal("validate --spark", "validate --jobs 2", EACH, at_most=20),
                Goal("count()", "count()", EACH, at_most=20),
            ),
            rounds=2,
        ),
    )
