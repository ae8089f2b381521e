"""The worker processes of a command, as the kernel lists them, and a pool without processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kseg.errors import KsegError


def workers_of(pid: int, number: int = 2) -> list[int]:
    """Return the ids of the workers of a process, once it has ``number`` of them: one process begins alone."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found: list[int] = []
    for _ in range(600):
        found = [int(text) for text in children.read_text().split()]
        if len(found) == number:
            return found
        time.sleep(0.05)
    raise AssertionError(f"there are no {number} workers, but {found}")


def wait_for_end(pids: Iterable[int]) -> None:
    """Wait until the processes have ended. Raises AssertionError for one that still runs after 10 seconds."""
    for pid in pids:
        for _ in range(200):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"process {pid} still runs")


class ImmediatePool:
    """A pool that runs each call immediately, in this process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.ahead = 4 * jobs

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args))
        except KsegError as error:
            future.set_exception(error)
        return future

    def result(self, future: Future[Any]) -> Any:
        return future.result()
