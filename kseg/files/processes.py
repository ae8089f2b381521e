"""Processes that share the work of this one: those that only read, and what all kinds of them have in common."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kseg.files import pace

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.context import BaseContext


def context() -> BaseContext:
    """How processes are started: fork where there is one, since a fresh interpreter costs 0.1 s a process."""
    import multiprocessing

    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    return multiprocessing.get_context(method)


def deaf_to_ctrl_c() -> None:
    """Of a process: Ctrl-C reaches all of them, and the one that started them sees to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def executor(jobs: int, begin: Callable[..., None], *arguments: Any) -> ProcessPoolExecutor:
    """``jobs`` processes, each of which calls ``begin`` first."""
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(jobs, context(), initializer=begin, initargs=arguments)


@contextmanager
def process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``jobs`` processes that only read, which have one limit for their pace together with this one.

    When the block is left by an exception, as at Ctrl-C, what they do is given up at once.
    """
    import multiprocessing

    others = set(multiprocessing.active_children())
    with pace.shared(jobs + 1):
        pool = executor(jobs, _begin, pace.limited())
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            raise
        pool.shutdown()


def _begin(rate: float | None) -> None:
    deaf_to_ctrl_c()
    pace.limit(rate)
