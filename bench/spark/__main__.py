"""``python -m bench.spark``: make missing corpora, measure, print the table."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException

from bench import peers, table
from bench.cases import PEAKS
from bench.corpora import HOME
from bench.measure import BenchError, Command, Run, run
from bench.spark import topic, workers
from bench.spark.cases import GIB, MASTER, Case, Work, cases, counted
from bench.spark.ready import ReadyBatches
from kseg.errors import KsegError
from kseg.spark import session

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
MARKER = "bench-spark"


def main() -> int:
    """Return 0 if everything was measured, whatever the figures; 1 if something was not; 2 for wrong usage."""
    options = _options()
    wanted = [case for case in cases(options.size * GIB) if not options.only or _named(case, options.only)]
    if not wanted:
        print(f"no case is named so; there are: {', '.join(case.name for case in cases(GIB))}", file=sys.stderr)
        return 2
    peers.prepare()
    engine = f"{peers.engine()}, pyspark {pyspark.__version__}"
    spark = session(MASTER, **{"spark.driver.memory": "2g", "spark.jars": topic.jars()})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(ReadyBatches)
    rows: list[table.Row] = []
    for case in wanted:
        begin = time.perf_counter()
        measured = _measure(spark, case, min(options.rounds, case.rounds), options.size * GIB)
        rows += measured
        for row in measured:
            print(table.line(row), file=sys.stderr, flush=True)
        print(f"{case.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    spark.stop()
    shutil.rmtree(HOME / "spark", ignore_errors=True)  # links to deleted corpora keep their disk space
    how = "wall-clock medians in one warm session (of whole processes for --jobs); the peak is a Python worker's."
    text = table.table(rows, engine, options.rounds, how)
    print(text, end="")
    if options.write:
        table.write(PAGE, text, MARKER)
    return int(any(not row.values for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description="kseg on Spark beside Spark's own ways.")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases with NAME in their name (repeatable)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each contender runs, at most")
    parser.add_argument("--size", type=int, default=8, metavar="GIB", help="what the large cases read (default 8)")
    parser.add_argument(
        "--write", action="store_true", help="keep the table in docs/benchmarks.md, between its markers"
    )
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write keeps the whole table: not with --only")
    return options


def _named(case: Case, names: list[str]) -> bool:
    return any(name in case.name for name in names)


def _measure(spark: Any, case: Case, rounds: int, size: int) -> list[table.Row]:
    runs: dict[str, list[Run]] = {}
    missing: list[str] = []
    try:
        with case.make(spark, size) as contenders:
            for number in range(rounds + case.warm):
                order = list(contenders.items())
                for name, work in order if number % 2 == 0 else reversed(order):
                    done = _run(spark, work)
                    print(f"{case.name}: {name}: {done.wall:.2f} s, {done.cpu:.2f} s of processors", file=sys.stderr)
                    if number or not case.warm:
                        runs.setdefault(name, []).append(done)
        _check(case, runs)
    except (BenchError, KsegError, PySparkException, RuntimeError) as error:  # the others are still measured
        missing.append(str(error) or type(error).__name__)
        print(f"{case.name}: {error}", file=sys.stderr)
        runs = {}
    return table.rows_of(case, runs, missing, {})


def _run(spark: Any, work: Work) -> Run:
    """Return one run; for a call, ``output`` is its count."""
    if isinstance(work, Command):
        return run(work)
    workers.forget(spark)
    begin, before = time.perf_counter(), workers.cpu(spark)
    seen = work()
    wall = time.perf_counter() - begin
    return Run(wall, workers.cpu(spark) - before, workers.peak(spark), f"{seen} records")


def _check(case: Case, runs: Mapping[str, Sequence[Run]]) -> None:
    """Check that contenders of one goal read the same records: reading less must not win."""
    for goal in case.goals:
        if goal.figure is PEAKS:
            continue
        seen = {counted(done.output) for name in (goal.ours, goal.peer) for done in runs[name]}
        if len(seen) != 1 or None in seen:
            raise BenchError(f"{goal.ours} and {goal.peer} saw different things: {seen}")


if __name__ == "__main__":
    sys.exit(main())
