"""Processes that share the work of this one: those that only read, and what all kinds of them have in common."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kseg.errors import KsegError
from kseg.files import pace

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.context import BaseContext

#: What is said where a process of a pool was killed.
KILLED = "one of the processes was killed; is there memory for --jobs?"

# Seconds between two looks for the parent.
_WATCH_PAUSE = 0.1


def context() -> BaseContext:
    """How processes are started: fork where there is one, since a fresh interpreter costs 0.1 s a process."""
    import multiprocessing

    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    return multiprocessing.get_context(method)


def deaf_to_ctrl_c() -> None:
    """Of a process: Ctrl-C reaches all of them, and the one that started them sees to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with_parent(parent: int, stopped: Any = None) -> None:
    """End this process once the process ``parent`` is gone, killed or not, or ``stopped.value`` is not 0.

    A worker of a pool waits for work for ever: nothing else tells it of a parent that was killed. ``parent`` is its id.
    """

    def watch() -> None:
        while os.getppid() == parent and not (stopped and stopped.value):
            time.sleep(_WATCH_PAUSE)
        os._exit(2)

    threading.Thread(target=watch, daemon=True).start()


def executor(jobs: int, begin: Callable[..., None], *arguments: Any) -> ProcessPoolExecutor:
    """``jobs`` processes, each of which calls ``begin`` first."""
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(jobs, context(), initializer=begin, initargs=arguments)


@contextmanager
def process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``jobs`` processes that only read, which have one limit for their pace together with this one.

    When the block is left by an exception, as at Ctrl-C, what they do is given up at once. Raises KsegError where one of
    them was killed.
    """
    import multiprocessing
    from concurrent.futures import BrokenExecutor

    others = set(multiprocessing.active_children())
    with pace.shared(jobs + 1):
        pool = executor(jobs, _begin, os.getpid(), pace.limited())
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            if isinstance(error, BrokenExecutor):
                raise KsegError(KILLED) from None
            raise
        pool.shutdown()


def _begin(parent: int, rate: float | None) -> None:
    deaf_to_ctrl_c()
    end_with_parent(parent)
    pace.limit(rate)
