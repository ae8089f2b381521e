"""A pool that runs calls on the executors of a cluster, as a process pool does on one machine.

The job reads a data source whose splits are the calls. This needs neither RDDs, which Spark Connect lacks, nor pandas,
which ``mapInArrow`` needs. Calls and results are pickled, as between processes.
"""

from __future__ import annotations

import base64
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.storage import file_access, remote_files
from kseg.format.storage.file_access import Progress

#: Calls per job. The driver holds all results of a job at once: this many take a few megabytes.
AHEAD = 10_000
#: Maximum calls per task; small files get more, up to this many bytes (2,000 files of 10 KB in groups of eight took 11 s
#: of CPU time). A task costs 10 to 60 ms and is repeated as a whole when an executor is lost.
TASK_CALLS = 8
MOST_TASK_CALLS = 256
TASK_BYTES = 64 * 1024 * 1024

_FORMAT = "kseg-calls"
_SCHEMA = "number bigint, result binary"
_POLL = 0.5
# The message of PythonWorkerFactory after its timeout of 10 s.
_LATE = "failed to connect back"
_TRIES = 3
_OWN = re.compile(r"kseg\.errors\.\w+: (.*)")

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class SparkPool:
    """A pool that collects calls until a result is requested, and then runs them as one job.

    A call is a module-level function and its arguments. A KsegError raised by a call is raised by its result; any other
    exception ends the job. ``size`` is the number of bytes of all ``calls``: ``progress`` is called as tasks end. The
    rate limit of this process is divided among the concurrent tasks, and they read its private keys from the same paths.
    """

    def __init__(self, spark: SparkSession, progress: Progress = do_nothing, size: int = 0, calls: int = 0) -> None:
        self.jobs = slots(spark)
        self.ahead = AHEAD
        self._spark = spark
        self._waiting: list[tuple[Call, _Result]] = []
        self._progress = progress
        self._size = size
        self._calls = calls
        spark.dataSource.register(_CallSource)

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        result = _Result(self)
        self._waiting.append(((work, args), result))
        return result

    def result(self, future: Future[Any]) -> Any:
        return future.result()

    def run(self) -> None:
        """Run the collected calls. Raises KsegError if Spark fails."""
        waiting, self._waiting = self._waiting, []
        count = min(len(waiting), max(4 * self.jobs, -(-len(waiting) // self._task_calls())))
        # Neighbouring files often have similar sizes: distribute them over the tasks.
        tasks = [[(number, call) for number, (call, _) in enumerate(waiting)][first::count] for first in range(count)]
        here = file_access.current()
        rate = here.limit.rate
        given = base64.b85encode(pickle.dumps((rate and rate / self.jobs, here.keys, tasks))).decode()
        reader = self._spark.read.format(_FORMAT).option("tasks", given)
        with one_line_errors():
            share = self._size * len(waiting) // max(self._calls, len(waiting))
            with _with_progress(self._spark, count, share, self._progress):
                rows = _collected(reader)
        for row in rows:
            done, value = pickle.loads(row.result)
            waiting[row.number][1].settle(done, value)

    def _task_calls(self) -> int:
        mean = self._size // max(self._calls, 1)
        return max(TASK_CALLS, min(MOST_TASK_CALLS, TASK_BYTES // mean)) if mean else TASK_CALLS


class _Result(Future[Any]):
    """The result of a call; requesting it starts the job."""

    def __init__(self, pool: SparkPool) -> None:
        super().__init__()
        self._pool = pool

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._pool.run()
        return super().result(timeout)

    def settle(self, done: bool, value: Any) -> None:
        if done:
            self.set_result(value)
        else:
            self.set_exception(value)


class _CallSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _CallReader(*pickle.loads(base64.b85decode(self.options["tasks"])))


class _CallReader(DataSourceReader):
    def __init__(self, rate: float | None, keys: tuple[str, ...], tasks: list[list[tuple[int, Call]]]) -> None:
        self._rate = rate
        self._keys = keys
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        tasks, self._tasks = self._tasks, []  # each task gets only its own calls, not the list of all
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        remote_files.forget()  # the worker may have run a task of an earlier job
        with file_access.file_access(max_rate=self._rate, keys=self._keys):
            for number, (work, args) in partition.value or ():
                try:
                    outcome = (True, work(*args))
                except KsegError as error:
                    outcome = (False, error)
                yield number, pickle.dumps(outcome)


def _collected(reader: DataFrameReader) -> list[Any]:
    """Return the results of the calls. Retries if the planning Python misses Spark's start timeout of 10 s."""
    for _ in range(_TRIES - 1):
        try:
            return reader.load().collect()
        except PySparkException as error:
            if _LATE not in str(error):
                raise
    return reader.load().collect()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn Spark's exceptions into a KsegError of one line. Those of kseg in tasks keep their text."""
    try:
        yield
    except PySparkException as error:
        reason = _reason(error)
        own = _OWN.search(reason)
        raise KsegError(own[1] if own else f"Spark: {reason}") from error


def slots(spark: SparkSession) -> int:
    """Return the number of concurrent tasks; Spark Connect does not report it."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return 4


@contextmanager
def _with_progress(spark: SparkSession, tasks: int, size: int, progress: Progress) -> Iterator[None]:
    """Report progress in bytes as tasks end, and all bytes at the end."""
    if progress is do_nothing:
        yield
        return
    reported = 0
    over = threading.Event()

    def report(done: int) -> None:
        nonlocal reported
        share = max(reported, size * done // tasks)
        progress(share - reported)
        reported = share

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.wait(_POLL):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            report(max([stage.numCompletedTasks for stage in stages if stage], default=0))

    thread = threading.Thread(target=watch, daemon=True)
    try:
        spark.sparkContext.statusTracker()
        thread.start()
    except PySparkException:
        pass  # Spark Connect reports no progress
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
    report(tasks)


def _reason(error: PySparkException) -> str:
    """Return the line of Spark's error text that has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("pyspark.errors.") or "Error: " in line]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0]
