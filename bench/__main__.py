"""``python -m bench``: make missing corpora and install missing peers, measure, print the table."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench import codec_readers, corpora, growth, instructions, peers, plot, table
from bench.cases import CASES, Case
from bench.corpora import Corpus
from bench.dump_cases import DUMP_CASES
from bench.grep_cases import GREP_CASES
from bench.measure import BenchError, Command, Run, alternate, run
from bench.parallel_cases import PARALLEL_CASES
from bench.rewrite_cases import REWRITE_CASES
from bench.sql_cases import SQL_CASES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
#: A case starts no further round after this many seconds.
QUICK_SECONDS, FULL_SECONDS = 8.0, 240.0
_SUMMARY = re.compile(r"([\d,]+) batch(?:es)?, ([\d,]+|records not counted)")


def main() -> int:
    """Return 0 if everything was measured, whatever the figures; 1 if something was not; 2 for wrong usage."""
    options = _options()
    known = (*CASES, *DUMP_CASES, *PARALLEL_CASES, *REWRITE_CASES, *GREP_CASES, *SQL_CASES)
    cases = [case for case in known if case.quick or not options.quick]
    if options.only and not options.instructions:
        cases = [case for case in known if any(name in case.name for name in options.only)]
    if not cases:
        print(f"no case is named so; there are: {', '.join(case.name for case in known)}", file=sys.stderr)
        return 2
    if options.codecs:
        table.write(codec_readers.PAGE, codec_readers.text(_progress), codec_readers.MARKER)
        return 0
    peers.prepare()
    if options.growth:
        growth.PICTURE.write_text(plot.svg(growth.measure(_progress), "ns per byte"), encoding="utf-8")
        return 0
    if options.instructions:
        text = instructions.table(options.only or instructions.CORPORA, _progress)
        table.write(PAGE, text, instructions.MARKER)
        return 0
    rounds = options.rounds or (2 if options.quick else 5)
    rows: list[table.Row] = []
    engine = peers.engine()
    for case in cases:
        begin = time.perf_counter()
        measured = _measure(case, rounds, QUICK_SECONDS if options.quick else FULL_SECONDS)
        rows += measured
        for row in measured:
            print(table.line(row), file=sys.stderr, flush=True)
        print(f"{case.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    if engine != peers.engine():
        print(f"kseg was built anew meanwhile: {engine}, now {peers.engine()}", file=sys.stderr)
    text = table.table(rows, engine, rounds)
    print(text, end="")
    if options.write:
        table.write(PAGE, text)
    return int(any(not row.values for row in rows))


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="kseg against its floor and its peers.")
    parser.add_argument("--quick", action="store_true", help="two rounds, and no case of more than 1 GiB")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases with NAME in their name (repeatable)")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each contender runs (default 5)")
    parser.add_argument(
        "--write", action="store_true", help="keep the table in docs/benchmarks.md, between its markers"
    )
    parser.add_argument("--growth", action="store_true", help="only draw time per byte into docs/plots, 6 minutes")
    parser.add_argument("--instructions", action="store_true", help="only count instructions per corpus, 15 minutes")
    parser.add_argument("--codecs", action="store_true", help="only measure the libraries that read LZ4 and Snappy")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write keeps the whole table: not with --only")
    return options


def _measure(case: Case, rounds: int, seconds: float) -> list[table.Row]:
    """Return the rows of one case. The rows of a contender that fails are empty; the others run."""
    missing: list[str] = []
    commands: list[Command] = []
    runs: dict[str, list[Run]] = {}
    failed: dict[str, str] = {}
    try:
        made = {name: corpora.corpus(name) for name in case.inputs}
        for contender in case.contenders:
            try:
                commands.append(contender(made))
            except BenchError as error:
                missing.append(str(error))
        for corpus in made.values():
            run(peers.cat(corpus))  # into the page cache: the benchmark does not measure disks
        runs, failed = alternate(commands, rounds * case.times, seconds, partial(_check, made))
    except BenchError as error:
        missing.append(str(error))
    finally:
        for name in case.inputs:
            corpora.remove(name)
    for why in (*missing, *failed.values()):
        print(f"{case.name}: {why}", file=sys.stderr)
    return table.rows_of(case, runs, missing, failed)


def _check(made: Mapping[str, Corpus], command: Command, done: Run) -> None:
    """Check that a contender that counts records has read its whole corpus: reading less must not win."""
    for corpus in made.values():
        if not {str(corpus.path), *map(str, corpus.logs)} & set(command.argv):
            continue
        counted = done.counted()
        summary = _SUMMARY.search(done.output)
        if summary is not None:
            counted = {"batches": int(summary[1].replace(",", ""))}
            if summary[2][0].isdigit():
                counted["records"] = int(summary[2].replace(",", ""))
        if command.output and not counted:
            raise BenchError(f"{command.name} does not say how much it saw: {done.output[-200:]}")
        if "--shallow" in command.argv:
            counted.pop("records", None)
        for what, number in counted.items():
            expected = getattr(corpus, what, number)
            if number != expected:
                raise BenchError(f"{command.name} counted {number} {what} where {expected} are")


if __name__ == "__main__":
    sys.exit(main())
