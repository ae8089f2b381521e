"""Worker processes: ordered results with a bounded look-ahead, and an end without processes that are left over."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kseg.engine import lazy
from kseg.errors import KsegError
from kseg.findings import do_nothing
from kseg.format.storage import file_access, interrupts
from kseg.format.storage.file_access import Progress

if TYPE_CHECKING:
    import multiprocessing
    from concurrent import futures
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess
else:
    futures = lazy("concurrent.futures")
    multiprocessing = lazy("multiprocessing")

#: The message if a process of a pool was killed.
KILLED = "a worker process was killed, perhaps for lack of memory: use fewer --jobs"

# Seconds between two checks for the parent.
_WATCH_PAUSE = 0.1
# Seconds between two reports of the bytes that the workers have read.
_PROGRESS_PAUSE = 0.2
# Seconds to wait for killed workers. A worker that waits for a dead network disk ends later.
_KILL_PATIENCE = 5.0


_T = TypeVar("_T")


class Pool(Protocol):
    """Runs calls elsewhere, such as in processes. ``ahead``: how many results may be outstanding before one is used."""

    jobs: int
    ahead: int

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]: ...

    def result(self, future: Future[Any]) -> Any: ...


def map_ordered(pool: Pool | None, work: Callable[..., _T], *arguments: Iterable[Any]) -> Iterator[_T]:
    """Yield the results of ``work`` for each tuple of arguments, in order. Calls run in ``pool``, or here.

    At most ``pool.ahead`` calls are submitted before their results are used. Raises the first exception of a call.
    """
    if pool is None:
        return map(work, *arguments)
    return map(pool.result, submit_ordered(pool, partial(pool.submit, work), *arguments))


def submit_ordered(pool: Pool, submit: Callable[..., _T], *arguments: Iterable[Any]) -> Iterator[_T]:
    """Yield what ``submit`` returns for each tuple of arguments, in their order, up to ``pool.ahead`` tuples later."""
    waiting: deque[_T] = deque()
    for given in zip(*arguments, strict=False):
        waiting.append(submit(*given))
        if len(waiting) > pool.ahead:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()


class _Processes:
    """The pool of ``process_pool``."""

    def __init__(self, executor: ProcessPoolExecutor, jobs: int, progress: Progress, counter: Any) -> None:
        self.jobs = jobs
        self.ahead = 4 * jobs
        self.workers: dict[int, BaseProcess] = {}
        self._executor = executor
        self._progress = progress
        self._counter = counter
        self._reported = 0

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        # Until _begin a worker would handle signals as its parent does. A worker that is not in the list is not killed.
        with interrupts.delayed(), interrupts.blocked(), _without_collections():
            future = self._executor.submit(work, *args)
            workers = self._executor._processes
            for worker in workers.values():
                # Without a worker the executor terminates the others, and waits for them: since Python 3.12 with a lock
                # that the next call of submit needs. They ignore SIGTERM.
                worker.terminate = worker.kill  # type: ignore[method-assign]
            self.workers.update(workers)  # a broken executor forgets them
        return future

    def kill(self) -> None:
        """Kill the workers and wait for their end, as ``ProcessPoolExecutor.kill_workers`` of Python 3.14 does."""
        manager: Any = self._executor._executor_manager_thread
        self._executor.shutdown(wait=False, cancel_futures=True)
        for worker in self.workers.values():
            worker.kill()
        until = time.monotonic() + _KILL_PATIENCE
        for worker in self.workers.values():
            worker.join(max(0.0, until - time.monotonic()))
        if manager:  # it closes a pipe that the interpreter's exit would write to
            manager.join(max(0.0, until - time.monotonic()))

    def result(self, future: Future[Any]) -> Any:
        """Return the result of a call, and report the bytes that the workers read meanwhile."""
        while self._counter and not futures.wait([future], timeout=_PROGRESS_PAUSE).done:
            self._report_progress()
        self._report_progress()
        return future.result()

    def _report_progress(self) -> None:
        if self._counter:
            done = self._counter.get_obj().value  # without the lock, which a killed worker may hold
            self._progress(done - self._reported)
            self._reported = done


@contextmanager
def _without_collections() -> Iterator[None]:
    """Fork workers in this block whose garbage collector is off until ``_begin``.

    A collection in a worker that was forked next to the threads of other libraries has crashed on their objects.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def process_pool(jobs: int, progress: Progress = do_nothing) -> Iterator[Pool]:
    """Yield a pool of ``jobs`` processes that share the rate limit of this process.

    ``progress`` is called with the bytes that calls add with ``add_progress``. If the block ends with an exception, such
    as Ctrl-C, the workers are killed. Files that they write must be in a folder that is removed then. Raises KsegError if
    a worker was killed by something else.
    """
    limit = file_access.current().limit
    counter = None if progress is do_nothing else context().Value("q", 0)
    with limit.shared(jobs + 1):
        executor = start_executor(jobs, os.getpid(), limit.rate, counter)
        pool = _Processes(executor, jobs, progress, counter)
        try:
            yield pool
        except BaseException as error:
            pool.kill()
            if isinstance(error, futures.BrokenExecutor):
                raise KsegError(KILLED) from None
            raise
        executor.shutdown()


def start_executor(jobs: int, *arguments: Any) -> ProcessPoolExecutor:
    """Return an executor of ``jobs`` processes, each of which calls ``_begin`` first."""
    return futures.ProcessPoolExecutor(jobs, context(), initializer=_begin, initargs=arguments)


def context() -> BaseContext:
    """Return how processes start: fork on Linux and BSD, since a fresh interpreter costs 0.1 s per process.

    Windows lacks fork, and on macOS a forked process can crash in a library of the system.
    """
    forks = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    return multiprocessing.get_context("fork" if forks else "spawn")


# In a worker: the counter of bytes of all workers, None if nobody reads it. In a process without workers: the receiver.
_counter: Any = None
_receiver: Progress = do_nothing


def _begin(parent: int, rate: float | None, counter: Any) -> None:
    """Prepare a worker. Ctrl-C and a service manager's SIGTERM reach all processes: the parent ends its workers."""
    global _counter
    _counter = counter
    gc.freeze()  # a collection would copy the pages of the parent's objects, and could free those of its threads
    gc.enable()
    interrupts.ignore()
    file_access.current().limit.rate = rate
    _end_with_parent(parent)


def add_progress(count: int) -> None:
    """Report that ``count`` more bytes are done, in a worker or in a block of ``progress_to``."""
    if _counter:
        with _counter.get_lock():
            _counter.value += count
    else:
        _receiver(count)


@contextmanager
def progress_to(progress: Progress) -> Iterator[None]:
    """Call ``progress`` with the bytes of ``add_progress`` in this block: the work of a pool runs in this process."""
    global _receiver
    before, _receiver = _receiver, progress
    try:
        yield
    finally:
        _receiver = before


def _end_with_parent(parent: int) -> None:
    """End this process once the process ``parent`` is gone, killed or not.

    A worker waits for work without a timeout and would not notice a killed parent. ``parent`` is its id.
    """
    starter = multiprocessing.parent_process()

    def watch() -> None:
        # On Windows getppid() stays the same when the parent ends. A forked process only sees the change of getppid(),
        # as the other forked processes keep its parent's pipe open.
        while os.getppid() == parent and (starter is None or starter.is_alive()):
            time.sleep(_WATCH_PAUSE)
        os._exit(2)

    threading.Thread(target=watch, daemon=True).start()
