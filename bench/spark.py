"""``python -m bench.spark``: ``count()`` over a segment against the same rows in Arrow batches made beforehand.

Both go through Spark's Python data source, with the same splits, in one session, taking turns, warm: what is compared
is what kseg does in a task (read, check, inflate, gather) besides what Spark asks of any source that yields batches.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.corpora import HOME, corpus
from kseg.spark import session
from kseg.spark.source import KsegDataSource, KsegReader

#: kseg's share of the bytes a second that ready batches get through.
GOAL = 0.6


class Prebuilt(DataSource):
    """Arrow files, one a split, mapped into memory."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return KsegDataSource({"path": self.options["segment"]}).schema()

    def reader(self, schema: Any) -> DataSourceReader:
        return _PrebuiltReader(self.options["path"])


class _PrebuiltReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def main() -> int:
    """0 when measured, whatever came out."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="corpora (default none and lz4)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    options = parser.parse_args()
    spark = session("local[2]", **{"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(Prebuilt)
    for name in options.only or ("none", "lz4"):
        _measure(spark, name, options.rounds)
    spark.stop()
    return 0


def _measure(spark: SparkSession, name: str, rounds: int) -> None:
    made = corpus(name)
    folder = HOME / "spark" / name
    size = _prebuild(str(made.path), folder)
    contenders: dict[str, Callable[[], int]] = {
        "kseg": spark.read.format("kseg").load(str(made.path)).count,
        "ready batches": spark.read.format("prebuilt").option("segment", str(made.path)).load(str(folder)).count,
    }
    seconds: dict[str, list[float]] = {contender: [] for contender in contenders}
    for number in range(rounds + 1):  # the first warms up
        for contender, count in contenders.items():
            begin = time.perf_counter()
            counted = count()
            if number:
                seconds[contender].append(time.perf_counter() - begin)
            if counted != made.records:
                raise SystemExit(f"{contender} counted {counted} records where {made.records} are")
    best = {contender: min(taken) for contender, taken in seconds.items()}
    share = best["ready batches"] / best["kseg"]
    for contender, taken in best.items():
        print(f"{name}: count() of {contender}: {taken:.2f} s, {size / taken / 1e6:.0f} MB/s of Arrow batches")
    print(f"{name}: kseg at {share:.0%} of ready batches' speed; the goal is {GOAL:.0%}", flush=True)


def _prebuild(path: str, folder: Path) -> int:
    """Each split's batches as a file; returns their bytes in all."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.arrow"):
        old.unlink()
    source = KsegDataSource({"path": path})
    reader = KsegReader(source._options(None))
    size = 0
    for number, split in enumerate(reader.partitions()):
        batches = reader.read(split)
        first = next(batches)
        with pa.OSFile(str(folder / f"{number:03d}.arrow"), "wb") as out, pa.ipc.new_file(out, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
                size += batch.nbytes
    return size


if __name__ == "__main__":
    sys.exit(main())
