"""How many processes read files: the decision follows the measured time per byte, and changes no result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from kseg.commands.validate.validate_ranges import validate_files
from kseg.findings import do_nothing
from kseg.format.segment import several_processes
from kseg.format.segment.several_processes import Job, Meter, best_jobs, parts_of_files, sampled_jobs
from kseg.format.storage import process_pool
from kseg.format.storage.file_access import Progress
from kseg.format.storage.segment_files import SegmentFile, find_segments
from kseg.results import Settings
from tests.support.cli import SEGMENTS
from tests.support.processes import ImmediatePool

MIB = 1 << 20


def processes(
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    per_mib: float,
    *,
    jobs: int = 2,
    part: int | None = 16 * MIB,
    start: float = 0.05,
) -> tuple[int, int]:
    """Return the number of files that one process reads alone, and the number of processes for the others.

    A MiB takes ``per_mib`` seconds, and the start of Python ``start``. Files are read in windows of 4 MiB.
    """
    now = start
    monkeypatch.setattr(time, "process_time", lambda: now)

    def read(size: int, meter: Meter) -> int:
        nonlocal now
        for at in range(0, size, 4 * MIB):
            now += per_mib * 4
            meter.progress(min(4 * MIB, size - at))
        meter.progress(0)
        return size

    started: list[int] = []

    @contextmanager
    def pool(jobs: int, progress: Progress) -> Iterator[ImmediatePool]:
        started.append(jobs)
        yield ImmediatePool(jobs)

    monkeypatch.setattr(process_pool, "process_pool", pool)
    job: Job[int, int, int] = Job(lambda size, same, pool: [size], abs, read, part)
    with parts_of_files(sizes, sizes, jobs, job) as by_file:
        alone = sum(part is None for _, parts in by_file for part, _ in parts)
    return alone, started[0] if started else 1


@pytest.mark.parametrize(
    ("size", "per_mib", "jobs"),
    [(64, 0.0002, 1), (1024, 0.0002, 2), (32, 0.001, 1), (256, 0.001, 2), (64, 0.005, 2), (8, 0.005, 1)],
)
def test_processes_are_started_if_they_save_time(
    monkeypatch: pytest.MonkeyPatch, size: int, per_mib: float, jobs: int
) -> None:
    """The size from which they do depends on the time per byte."""
    assert processes(monkeypatch, [size * MIB], per_mib)[1] == jobs


def test_the_decision_scales_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is three times as slow starts processes three times as slowly, too."""

    def smallest(slow: int) -> int:
        sizes = range(16, 1024, 4)
        return next(n for n in sizes if processes(monkeypatch, [n * MIB], slow / 1000, start=slow / 20)[1] > 1)

    assert abs(smallest(1) - smallest(3)) <= 8


def test_a_clock_that_has_not_advanced_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows it advances every 16 ms."""
    assert processes(monkeypatch, [256 * MIB], 0.001, start=0.0) == (0, 2)


def test_a_file_that_cannot_be_split_limits_what_processes_save(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [512 * MIB, MIB, MIB]
    assert processes(monkeypatch, sizes, 0.001, part=None) == (3, 1)
    assert processes(monkeypatch, sizes, 0.001) == (0, 2)


def test_empty_files_at_the_end_need_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest segment of a log is empty after a roll."""
    assert processes(monkeypatch, [16 * MIB, 0, 0], 0.001) == (3, 1)


@pytest.mark.parametrize("left", [0.0, -0.5])
def test_a_log_that_grows_needs_no_processes(left: float) -> None:
    """More bytes than the log had at first are read, so less than nothing is left."""
    assert best_jobs(left, left, 0, 2, 0.05) == 1
    assert best_jobs(left, 1, 1, 2, 0.05) == 1


def test_slow_files_after_fast_ones_are_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision is made anew in each file."""
    monkeypatch.setattr(several_processes, "_COST_OF_POOL", 2.0)
    assert processes(monkeypatch, [4 * MIB] * 100, 0.0005) == (100, 1)
    done, jobs = processes(monkeypatch, [4 * MIB] * 100, 0.002)
    assert done < 10
    assert jobs == 2


def test_little_work_gets_few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process costs a fork: 64 of them for a second of work would end later than 20."""
    done, jobs = processes(monkeypatch, [1024 * MIB], 0.001, jobs=64)
    assert (done, 20 < jobs < 32) == (0, True)
    assert processes(monkeypatch, [100 * 1024 * MIB], 0.001, jobs=64) == (0, 64)


def test_the_work_of_a_taken_over_file_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress bar does not pass its end, wherever other processes take over. The results are the same."""
    files = list(find_segments(str(SEGMENTS)))
    expected: list[int] = []
    results = list(validate_files(files, Settings(), 1, expected.append))
    for at in (1, 7, 30):
        left = at

        def take_over(meter: Meter, position: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise several_processes._EnoughMeasured(2)

        monkeypatch.setattr(Meter, "_update", take_over)
        done: list[int] = []
        assert list(validate_files(files, Settings(), 2, done.append)) == results
        assert sum(done) == sum(expected)


@pytest.mark.parametrize(("size", "jobs"), [(8, 1), (256, 2)])
def test_a_sample_is_measured_without_imports_and_the_start_of_a_file(
    monkeypatch: pytest.MonkeyPatch, size: int, jobs: int
) -> None:
    """Each of these takes as long as many MiB: they would start processes for the smallest of files."""
    now, imported = 0.05, False
    monkeypatch.setattr(time, "process_time", lambda: 0.05)
    monkeypatch.setattr(time, "thread_time", lambda: now)

    def sample(file: SegmentFile, end: int) -> None:
        nonlocal now, imported
        now += 0.002 + end * 0.001 / MIB + (not imported) * 0.1
        imported = True

    files = [SegmentFile("absent.log"), SegmentFile("small.log")]
    assert sampled_jobs(files, [size * MIB, MIB], 2, sample) == jobs


class _WaitingPool(ImmediatePool):
    """A pool that runs a call when its result is used."""

    def __init__(self) -> None:
        super().__init__(2)
        self.ahead = 3
        self.submitted: list[tuple[tuple[int, int], Future[Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        self.submitted.append((args[0], Future()))
        return self.submitted[-1][1]

    def result(self, future: Future[Any]) -> Any:
        future.set_result(None)


def test_giving_up_a_file_cancels_its_other_parts() -> None:
    """The next file has all of its parts, and no more parts of the first one are planned than wait at once."""
    pool = _WaitingPool()
    job: Job[int, tuple[int, int], None] = Job(lambda file, size, _: ((file, n) for n in range(10)), do_nothing)
    seen = []
    with parts_of_files([0, 1], [1, 1], 2, job, pool=pool) as by_file:
        for file, parts in by_file:
            for part, _ in parts:
                seen.append(part)
                if file == 0:
                    parts.close()
    assert seen == [(0, 0), *((1, n) for n in range(10))]
    of_first = [future for (file, _), future in pool.submitted if file == 0]
    assert [future.cancelled() for future in of_first] == [False, *[True] * pool.ahead]


def test_leaving_the_files_cancels_all_parts() -> None:
    """What a command no longer needs, such as after ``| head``, is not begun."""
    pool = _WaitingPool()
    job: Job[int, tuple[int, int], None] = Job(lambda file, size, _: ((file, n) for n in range(2)), do_nothing)
    with parts_of_files([0, 1], [1, 1], 2, job, pool=pool) as by_file:
        next(next(by_file)[1])
    assert [future.cancelled() for _, future in pool.submitted] == [False, True, True, True]
