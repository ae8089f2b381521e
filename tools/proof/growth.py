"""``python -m tools.proof.growth [DIMENSION...]``: how the CPU time and the memory of commands grow with their input.

Each command reads n, 2n and 4n of something. The exponent is that of the time added by the last doubling over the time
added by the one before, so that the start of Python does not count: 1 is linear, 2 is quadratic. Other work on the machine
adds CPU time: what looks superlinear is measured again, and the least time of each size counts. ``--write`` keeps the
figure.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.commits import write_commits
from tests.support.metadata_logs import encoded
from tools.proof.bombs import LOG
from tools.proof.figures import report
from tools.proof.limits import CPU_SECONDS, run

#: The exponent above which growth counts as superlinear, and the time below which nothing is concluded.
MOST_EXPONENT, LEAST_SECONDS = 1.4, 1.0
#: How often a pair is measured before it counts as superlinear.
ATTEMPTS = 3
_COMMANDS = (
    "validate --jobs 1", "dump --deep --format jsonl", "stats --deep --top-keys", "grep needle", "transactions",
    "recovery", "repair {} OUT",
)  # fmt: skip


class Growth(NamedTuple):
    dimension: str
    command: str
    n: int
    seconds: tuple[float, ...]
    codes: tuple[int, ...]
    peaks: tuple[int, ...]

    @property
    def exponent(self) -> float:
        first, second, third = self.seconds
        if third - first < LEAST_SECONDS:
            return 0
        return math.log2(max(third - second, 0.01) / max(second - first, 0.01))

    @property
    def superlinear(self) -> bool:
        """Also of a command that failed, or that the limit of CPU time has ended."""
        return self.exponent > MOST_EXPONENT or min(self.codes) < 0


def _partition(folder: Path, parts: Iterator[bytes], topic: str = "orders-0", name: str = LOG) -> Path:
    path = folder / topic
    path.mkdir(parents=True, exist_ok=True)
    with (path / name).open("wb") as log:
        log.writelines(parts)
    return path


def _batch(offset: int, **fields: object) -> bytes:
    return build_batch([PlainRecord(offset, b"k%d" % offset, b"v", 1_700_000_000_000)], **fields)  # type: ignore[arg-type]


def _batches(folder: Path, n: int) -> Path:
    return _partition(folder, map(_batch, range(n)))


def _producers(folder: Path, n: int) -> Path:
    return _partition(
        folder, (_batch(i, producer_id=i, producer_epoch=0, base_sequence=0, transactional=True) for i in range(n))
    )


def _findings(folder: Path, n: int) -> Path:
    return _partition(folder, (_batch(i)[:-1] + b"\7" for i in range(n)))


def _wrong_offset(folder: Path, n: int) -> Path:
    """One batch with the offset of the batch before it."""
    return _partition(folder, (_batch(i - (i == n // 2)) for i in range(n)))


def _segments(folder: Path, n: int) -> Path:
    for i in range(n):
        _partition(folder, iter([_batch(i)]), name=f"{i:020}.log")
    return folder / "orders-0"


def _partitions(folder: Path, n: int) -> Path:
    for i in range(n):
        _partition(folder / "logs", iter([_batch(0)]), f"orders-{i}")
    return folder / "logs"


def _commits(folder: Path, n: int) -> Path:
    path = folder / "__consumer_offsets-0"
    write_commits(path, *({(f"g{i}", "t", i): b"\0\3" + bytes(22)} for i in range(n)))
    return path


def _metadata(folder: Path, n: int) -> Path:
    values = (encoded(("Topic", 0, {"name": f"t{i}", "topicId": f"{i:022}"})) for i in range(n))
    batches = (build_batch([PlainRecord(i, None, value, 1)]) for i, value in enumerate(values))
    return _partition(folder, batches, "__cluster_metadata-0")


#: Dimension -> the smallest n, the maker of the input, and its commands.
DIMENSIONS: dict[str, tuple[int, Callable[[Path, int], Path], tuple[str, ...]]] = {
    "batches": (50_000, _batches, _COMMANDS),
    "producers": (20_000, _producers, _COMMANDS),
    "findings": (20_000, _findings, _COMMANDS),
    "wrong-offset": (50_000, _wrong_offset, ("validate --jobs 1", "repair {} OUT")),
    "segments": (1_000, _segments, _COMMANDS),
    "partitions": (
        500,
        _partitions,
        ("validate --jobs 1", "stats", "recovery", "doctor", "transactions", "repair {} OUT"),
    ),
    "commits": (10_000, _commits, ("validate --jobs 1", "lag", "dump --effective", "stats --deep")),
    "metadata": (2_000, _metadata, ("validate --jobs 1", "dump --effective", "recovery")),
}


def growths(names: list[str]) -> Iterator[Growth]:
    """Yield the growth of each command along each dimension."""
    for name in names or DIMENSIONS:
        n, make, commands = DIMENSIONS[name]
        with tempfile.TemporaryDirectory() as temporary:
            paths = [make(Path(temporary) / str(size) / "logs", size) for size in (n, 2 * n, 4 * n)]
            for command in commands:
                growth = _measured(name, command, n, paths, Path(temporary), 0)
                for attempt in range(1, ATTEMPTS):
                    if growth.superlinear:
                        again = _measured(name, command, n, paths, Path(temporary), attempt)
                        least = tuple(map(min, growth.seconds, again.seconds))
                        growth = again._replace(seconds=least)
                yield growth


def _measured(name: str, command: str, n: int, paths: list[Path], folder: Path, attempt: int) -> Growth:
    found = []
    for number, path in enumerate(paths):
        words = {"{}": str(path), "OUT": str(folder / f"out{attempt}-{number}")}
        line = [words.get(word, word) for word in command.split()]
        if "{}" not in command:
            line.append(str(path.parent if line[0] == "recovery" and path.name != "logs" else path))
        found.append(run(line, folder))
    seconds, peaks, codes, errors = zip(*found, strict=True)
    codes = tuple(-1 if "error, please" in error else code for code, error in zip(codes, errors, strict=True))
    return Growth(name, command, n, seconds, codes, peaks)


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--write"]
    found = []
    for growth in growths(names):
        found.append(growth)
        times = " ".join(f"{seconds:7.2f}" for seconds in growth.seconds)
        peaks = " ".join(f"{peak >> 20:5}" for peak in growth.peaks)
        mark = "SUPERLINEAR" if growth.superlinear else ""
        print(
            f"{growth.dimension:13} {growth.command:28} {growth.n:6} {times} s {peaks} MB {growth.exponent:5.2f} {mark}",
            flush=True,
        )
    above = [f"{growth.command} over {growth.dimension}" for growth in found if growth.superlinear]
    most = max(found, key=lambda growth: growth.exponent)
    said = f": {', '.join(above)}" if above else f", at most n^{most.exponent:.2f}"
    peak = max(max(growth.peaks) for growth in found) >> 20
    figure = (
        f"{len(found)} pairs of a command and a dimension at n, 2n and 4n: "
        f"{len(above)} grow faster than n^{MOST_EXPONENT}, failed or took more than {CPU_SECONDS} s{said}; at most {peak} MB"
    )
    report("growth", figure)


if __name__ == "__main__":
    main()
