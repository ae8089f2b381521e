"""Processor time per byte over sizes and numbers: a curve that rises at one end shows a cost that grows too fast."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench import corpora, peers, plot
from bench.corpora import CORPORA, SEGMENT, Corpus, Recipe
from bench.measure import Command, run

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "plots" / "benchmark-growth.svg"
#: The number of runs, of which the fastest counts.
RUNS = 3
#: About the size of the corpora whose size does not vary, in bytes.
SIZE = 64 << 20
WORK = CORPORA / "growth"


@dataclass(frozen=True, slots=True)
class Growth:
    """Corpora that differ in one number. ``make`` returns the corpus for a number and the name of a curve."""

    title: str
    numbers: tuple[int, ...]
    curves: tuple[str, ...]
    make: Callable[[int, str], Corpus]


def _of_size(size: int, codec: str) -> Corpus:
    return corpora.repeated(corpora.corpus(codec), WORK / SEGMENT, size)


def _of_records(size: int, codec: str) -> Corpus:
    recipe = Recipe(2, codec, records=max(SIZE // (size + 20), 64), kind=str(size))
    return corpora.made(recipe, WORK / SEGMENT)


def _of_producers(number: int, codec: str) -> Corpus:
    recipe = Recipe(2, codec, records=SIZE // 280, batch_size=0, kind="200", producers=number)
    return corpora.made(recipe, WORK / SEGMENT)


def _with_findings(number: int, codec: str) -> Corpus:
    """Change a byte in the records of ``number`` batches, evenly distributed."""
    found = _of_size(SIZE, codec)
    with found.path.open("r+b") as log:
        for batch in range(found.batches):
            header = log.read(61)
            after = log.tell() + int.from_bytes(header[8:12], "big") - 49
            if batch * number // found.batches != (batch + 1) * number // found.batches:
                log.seek(20, 1)
                byte = log.read(1)
                log.seek(-1, 1)
                log.write(bytes((byte[0] ^ 1,)))
            log.seek(after)
    return found


def _of_segments(number: int, codec: str) -> Corpus:
    base = corpora.corpus(codec)
    return corpora.segments(base, WORK / "orders-0", number, -(-base.batches // number), indexed=True)


GROWTHS = (
    Growth("bytes of the file", tuple(1 << power for power in (20, 22, 24, 26, 28, 30)), ("none", "lz4"), _of_size),
    Growth("bytes of a record", (10, 100, 1_000, 10_000, 100_000, 1_000_000), ("none", "lz4"), _of_records),
    Growth("producers, one record per batch", (1, 10, 100, 1_000, 10_000, 100_000), ("none",), _of_producers),
    Growth("damaged batches", (1, 10, 100, 1_000), ("none", "lz4"), _with_findings),
    Growth("segments with indexes", (1, 10, 100, 1_000), ("none", "lz4"), _of_segments),
)


def measure(report: Callable[[str], None]) -> list[plot.Panel]:
    """Return a panel per growth: nanoseconds of processor time per byte. ``report`` receives a line per point.

    The time of a file of 10 KB, which is that of the start, is subtracted.
    """
    start = _seconds(corpora.corpus("10k-one-record-batches"))
    panels = []
    for growth in GROWTHS:
        curves: dict[str, list[tuple[float, float]]] = {}
        for codec in growth.curves:
            for number in growth.numbers:
                shutil.rmtree(WORK, ignore_errors=True)
                WORK.mkdir(parents=True)
                found = growth.make(number, codec)
                per_byte = max(_seconds(found) - start, 0) / found.bytes * 1e9
                curves.setdefault(codec, []).append((number, per_byte))
                report(f"{growth.title}: {codec} {number:,}: {per_byte:.2f} ns per byte")
        panels.append(plot.Panel(growth.title, curves))
    shutil.rmtree(WORK, ignore_errors=True)
    return panels


def _seconds(found: Corpus) -> float:
    """Return the processor time of ``validate``, the least of RUNS."""
    command: Command = peers.kseg("kseg", "validate", "--jobs", "1", str(found.path))
    command = replace(command, codes=(0, 1))
    return min(run(command).cpu for _ in range(RUNS))
