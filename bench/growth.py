"""Processor time per byte over sizes and numbers: a curve that rises at one end shows a cost that grows too fast."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench import corpora, peers, plot
from bench.corpora import CORPORA, SEGMENT, Corpus, Recipe
from bench.measure import run

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "plots" / "benchmark-growth.svg"
#: The number of runs, of which the fastest counts, and the seconds after which no further run starts.
RUNS, SECONDS = 5, 1.0
#: The size of a segment of few batches, in bytes.
TINY = 20_000
#: About the size of the corpora whose size does not vary, in bytes.
SIZE = 64 << 20
#: The largest segment. More bytes are several partitions, which are links to it.
LARGEST = 1 << 30

WORK = CORPORA / "growth"
LOG_DIR, REPLICA, TARGET = WORK / "a", WORK / "b", WORK / "out"
_PARTITION = LOG_DIR / "orders-0"
_ALONE = ("--jobs", "1")

#: The curves of the left and of the right plot of a row: codec and command. Those on the right write their input again.
READING = {
    "validate none": ("none", ("validate", *_ALONE, str(LOG_DIR))),
    "validate": ("lz4", ("validate", *_ALONE, str(LOG_DIR))),
    "stats": ("lz4", ("stats", "--deep", *_ALONE, str(LOG_DIR))),
    "grep": ("lz4", ("grep", "-F", "no-such-order", *_ALONE, str(LOG_DIR))),
    "recovery": ("lz4", ("recovery", *_ALONE, str(LOG_DIR))),
    "diff": ("lz4", ("diff", *_ALONE, str(LOG_DIR), str(REPLICA))),
}
WRITING = {
    "dump": ("lz4", ("dump", "--deep", "--format", "jsonl", *_ALONE, str(LOG_DIR))),
    "convert": ("lz4", ("convert", "v2-to-v1", "--lossy", *_ALONE, str(LOG_DIR), str(TARGET))),
    "repair": ("lz4", ("repair", str(LOG_DIR), str(TARGET))),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """Corpora that differ in one number. ``make`` writes the corpus for a number and a codec into LOG_DIR.

    ``without`` are curves that are not measured.
    """

    title: str
    numbers: tuple[int, ...]
    make: Callable[[int, str], Corpus]
    without: tuple[str, ...] = ()


def _of_size(size: int, codec: str) -> Corpus:
    found = corpora.repeated(corpora.corpus(codec), _PARTITION / SEGMENT, min(size, LARGEST))
    times = max(size // LARGEST, 1)
    for number in range(1, times):
        shutil.copytree(_PARTITION, LOG_DIR / f"orders-{number}", copy_function=_link)
    return Corpus(LOG_DIR, times * found.batches, times * found.records, times * found.bytes)


def _of_records(size: int, codec: str) -> Corpus:
    recipe = Recipe(2, codec, records=max(SIZE // (size + 20), 64), kind=str(size))
    return corpora.made(recipe, _PARTITION / SEGMENT)


def _of_producers(number: int, _: str) -> Corpus:
    recipe = Recipe(2, "none", records=SIZE // 280, batch_size=0, kind="200", producers=number)
    return corpora.made(recipe, _PARTITION / SEGMENT)


def _with_findings(number: int, codec: str) -> Corpus:
    """Change a byte in the records of ``number`` batches, evenly distributed."""
    found = _of_size(SIZE, codec)
    with (_PARTITION / SEGMENT).open("r+b") as log:
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
    _PARTITION.rmdir()
    return corpora.segments(base, _PARTITION, number, -(-base.batches // number), indexed=True)


GROWTHS = (
    Growth("bytes", tuple(1 << power for power in (20, 22, 24, 26, 28, 30, 33)), _of_size),
    Growth("bytes of a record", (10, 100, 1_000, 10_000, 100_000, 1_000_000), _of_records),
    Growth("producers, one record per batch", (1, 10, 100, 1_000, 10_000, 100_000), _of_producers, ("validate none",)),
    Growth("damaged batches", (1, 10, 100, 1_000), _with_findings, ("convert",)),
    Growth("segments with indexes", (1, 10, 100, 1_000), _of_segments),
)


def measure(report: Callable[[str], None]) -> list[plot.Panel]:
    """Return two panels per growth: nanoseconds of processor time per byte. ``report`` receives a line per point.

    The time of a segment of TINY bytes, which is that of the start, is subtracted.
    """
    start: dict[str, float] = {}
    for codec in ("none", "lz4"):
        _empty()
        _of_size(TINY, codec)
        shutil.copytree(LOG_DIR, REPLICA)
        for name, command in _commands(codec):
            start[name] = min(_seconds(name, command) for _ in range(3))
    panels = []
    for growth in GROWTHS:
        curves: dict[str, list[tuple[float, float]]] = {}
        for codec in ("none", "lz4"):
            wanted = [(name, command) for name, command in _commands(codec) if name not in growth.without]
            for number in growth.numbers if wanted else ():
                _empty()
                found = growth.make(number, codec)
                shutil.copytree(LOG_DIR, REPLICA, copy_function=_link)
                for name, command in wanted:
                    if name in WRITING and found.bytes > LARGEST:
                        continue
                    per_byte = max(_seconds(name, command) - start[name], 0) / found.bytes * 1e9
                    curves.setdefault(name, []).append((number, per_byte))
                    report(f"{growth.title}: {name} {number:,}: {per_byte:.2f} ns per byte")
        for group in (READING, WRITING):
            panels.append(plot.Panel(growth.title, {name: curves[name] for name in group if name in curves}))
    shutil.rmtree(WORK)
    return panels


def _commands(codec: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the curves of a codec and their commands."""
    for name, (own, command) in (READING | WRITING).items():
        if codec == own:
            yield name, command


def _empty() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    _PARTITION.mkdir(parents=True)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _seconds(name: str, arguments: tuple[str, ...]) -> float:
    """Return the processor time of a command, the least of RUNS."""
    command = replace(peers.kseg(name, *arguments, output=False), codes=(0, 1))
    times: list[float] = []
    while len(times) < RUNS and sum(times) < SECONDS:
        shutil.rmtree(TARGET, ignore_errors=True)
        times.append(run(command).cpu)
    return min(times)
