"""``python -m bench.planning``: list and plan buckets of many segments, and print time and peak memory as a table."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench import measure, peers, table
from bench.measure import Command, Run, machine, run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
MARKER = "bench-planning"
SEGMENTS = (10_000, 100_000, 1_000_000, 10_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description="Plans of reads of many segments.")
    parser.add_argument("segments", nargs="*", type=int, default=SEGMENTS, help="numbers of segments")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/benchmarks.md")
    options = parser.parse_args()
    measure.TIME_LIMIT = 3600  # ten million take ten minutes
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}; {peers.engine()}. One run each; the time is that of the listing "
        "and the plan, the peak that of the whole process.",
        "",
        "| segments | tasks | time | for each segment | peak |",
        "|--:|--:|--:|--:|--:|",
        *(_line(number, run(_command(number))) for number in options.segments),
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.write:
        table.write(PAGE, text, MARKER)


def _command(segments: int) -> Command:
    program = (sys.executable, "-m", "bench.programs.plan_bucket", str(segments))
    return Command(f"plan of {segments:,} segments", program, own_clock=True)


def _line(segments: int, done: Run) -> str:
    found = done.counted()
    if found["segments"] != segments:
        raise SystemExit(f"planned {found['segments']:,} of {segments:,} segments")
    each = done.wall / segments * 1e6
    return f"| {segments:,} | {found['splits']:,} | {done.wall:.1f} s | {each:.0f} µs | {done.peak / 1e6:,.0f} MB |"


if __name__ == "__main__":
    main()
