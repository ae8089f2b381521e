"""Worker processes: their start, their end, and pools of processes that only read."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kseg.errors import KsegError
from kseg.format.storage import file_access
from kseg.lazy import lazy

if TYPE_CHECKING:
    import multiprocessing
    from concurrent import futures as futures
    from multiprocessing.context import BaseContext
else:
    futures = lazy("concurrent.futures")
    multiprocessing = lazy("multiprocessing")

#: The message if a process of a pool was killed.
KILLED = "one of the processes was killed; is there memory for --jobs?"

# Seconds between two checks for the parent.
_WATCH_PAUSE = 0.1


def context() -> BaseContext:
    """Return how processes start: fork on Linux and BSD, since a fresh interpreter costs 0.1 s per process.

    Windows has no fork, and on macOS a forked process can crash in a library of the system.
    """
    forks = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    return multiprocessing.get_context("fork" if forks else "spawn")


def ignore_sigint() -> None:
    """Ignore SIGINT in a worker: Ctrl-C reaches all processes, and the parent ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with_parent(parent: int, stopped: Any = None) -> None:
    """End this process once the process ``parent`` is gone, killed or not, or ``stopped.value`` is not 0.

    A worker of a pool waits for work without a timeout and would not notice a killed parent. ``parent`` is its id.
    """
    starter = multiprocessing.parent_process()

    def watch() -> None:
        # On Windows getppid() stays the same when the parent ends. A forked process only sees the change of getppid(),
        # as the other forked processes keep its parent's pipe open.
        while os.getppid() == parent and (starter is None or starter.is_alive()) and not (stopped and stopped.value):
            time.sleep(_WATCH_PAUSE)
        os._exit(2)

    threading.Thread(target=watch, daemon=True).start()


def executor(jobs: int, begin: Callable[..., None], *arguments: Any) -> futures.ProcessPoolExecutor:
    """Return a pool of ``jobs`` processes, each of which calls ``begin`` first."""
    return futures.ProcessPoolExecutor(jobs, context(), initializer=begin, initargs=arguments)


@contextmanager
def process_pool(jobs: int) -> Iterator[futures.ProcessPoolExecutor]:
    """Yield a pool of ``jobs`` processes that only read and share the rate limit of this process.

    If the block ends with an exception, such as Ctrl-C, the workers are killed. Raises KsegError if a worker was killed
    by something else.
    """
    others = set(multiprocessing.active_children())
    limit = file_access.current().limit
    with limit.shared(jobs + 1):
        pool = executor(jobs, _begin, os.getpid(), limit.rate)
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            if isinstance(error, futures.BrokenExecutor):
                raise KsegError(KILLED) from None
            raise
        pool.shutdown()


def _begin(parent: int, rate: float | None) -> None:
    ignore_sigint()
    end_with_parent(parent)
    file_access.current().limit.rate = rate
