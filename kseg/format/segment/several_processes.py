"""Decide how many processes read files: one begins, and others take over if that ends the work earlier.

The time per byte differs by a factor of 100 between codecs, kinds of records and machines, so it is measured. The results
do not depend on the decision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from kseg.format.storage.file_access import Progress

if TYPE_CHECKING:
    from kseg.format.segment.records_chunk import Chunk

_File = TypeVar("_File")
_Result = TypeVar("_Result")

#: False starts the processes at once. Tests and benchmarks set it.
BEGIN_ALONE = True
# The costs of other processes, as shares of the processor time in which Python and kseg started: both import modules.
_COST_OF_POOL = 0.8
_COST_OF_PROCESS = 0.03
# Seconds of the start that are assumed at least and at most. Windows' clock has steps of 0.016 s, and a program that uses
# kseg as a library did other work before.
_SHORTEST_START, _LONGEST_START = 0.016, 0.2
#: The time per byte is measured in intervals of at least this many seconds.
INTERVAL = 0.004
# The fastest of this number of intervals counts. The first ones contain imports and the first use of memory, others the
# reading of a window of which few batches are decoded yet.
_INTERVALS = 3


def start_seconds() -> float:
    """Return the processor time in which Python and kseg started. Call it before other work."""
    return min(max(time.process_time(), _SHORTEST_START), _LONGEST_START)


def best_jobs(alone: float, work: float, largest: float, jobs: int, start: float) -> int:
    """Return how many processes, at most ``jobs``, end some work first: 1 if this process alone does.

    ``alone`` are the seconds that it takes, ``work`` those of all others together, ``largest`` those of the largest part
    that cannot be divided. ``start`` is the result of ``start_seconds``.
    """
    if alone <= 0 or work <= 0:
        return 1  # the newest segment of a log is often empty, and a log that is written to grows while it is read
    # n processes take n times the cost of one, and the work divided by n: the sum is the least at the square root.
    best = math.ceil(math.sqrt(work / (_COST_OF_PROCESS * start)))
    parts = math.ceil(work / largest) if largest else jobs
    several = min(jobs, parts, best)
    costs = start * (_COST_OF_POOL + several * _COST_OF_PROCESS)
    return several if costs + max(work / several, largest) < alone else 1


class Takeover(Exception):
    """``jobs`` processes would end the work earlier. They read the current file again."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self.jobs = jobs


class Meter:
    """Measures the time per byte of this process. ``progress`` and ``watch`` raise Takeover.

    It is processor time: more processes do not shorten the time in which a disk or ``--max-rate`` lets them wait.
    """

    def __init__(self, sizes: Sequence[int], jobs: int, part: int | None, progress: Progress) -> None:
        self._jobs = jobs
        self._progress = progress
        parts = sizes if part is None else [min(size, part) for size in sizes]
        self._largest = list(accumulate(reversed(parts), max))[::-1]
        self._left = list(accumulate(reversed(sizes)))[::-1]
        self._start = start_seconds()
        self._seconds, self._bytes = 0.0, 0  # of the current interval
        self._per_byte: list[float] = []  # of the last intervals

    def begin(self, number: int) -> None:
        """Begin a file."""
        self._number, self.read, self._at = number, 0, 0
        self._since = time.process_time()

    def progress(self, count: int) -> None:
        """Report that ``count`` more bytes of the file are done."""
        self.read += count
        self._progress(count)
        self._update(self.read)

    def watch(self, chunk: Chunk) -> None:
        """Report that the batches of the chunk are done: windows of compressed batches take long."""
        self._update(chunk.batches.position[chunk.stop - 1])

    def _update(self, position: int) -> None:
        now = time.process_time()
        self._seconds += now - self._since
        self._bytes += position - self._at
        self._since, self._at = now, position
        if self._seconds < INTERVAL or self._bytes <= 0:
            return
        self._per_byte = [*self._per_byte[1 - _INTERVALS :], self._seconds / self._bytes]
        self._seconds, self._bytes = 0.0, 0
        if len(self._per_byte) == _INTERVALS:
            self._decide(position, min(self._per_byte))

    def _decide(self, position: int, per_byte: float) -> None:
        """Raise Takeover if it ends the work earlier."""
        left, largest = self._left[self._number], self._largest[self._number]
        alone = (left - position) * per_byte
        jobs = best_jobs(alone, left * per_byte, largest * per_byte, self._jobs, self._start)
        if jobs > 1:
            raise Takeover(jobs)


def first_alone(
    files: Sequence[_File],
    sizes: Sequence[int],
    jobs: int,
    part: int | None,
    progress: Progress,
    read: Callable[[_File, Meter], _Result],
) -> Generator[_Result, None, tuple[int, int]]:
    """Yield ``read(file, meter)`` of the first files, and return how many they are, and how many processes read the others.

    ``read`` reports to the meter. ``sizes`` are those of the files in bytes. A process reads at least ``part`` bytes of a
    file, whole files if ``part`` is None.
    """
    if jobs > 1 and not BEGIN_ALONE:
        return 0, jobs
    meter = Meter(sizes, jobs, part, progress)
    for number, file in enumerate(files):
        meter.begin(number)
        try:
            result = read(file, meter)
        except Takeover as takeover:
            progress(-meter.read)
            return number, takeover.jobs
        yield result
    return len(files), 1
