"""Work on partitions in this process or, if there is enough of it, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from kseg.format.segment import split_points
from kseg.format.storage.file_access import Progress
from kseg.format.storage.process_pool import add_progress, map_ordered, process_pool


@contextmanager
def parallel_map(
    jobs: int, parts: int, size: int, progress: Progress
) -> Iterator[tuple[Callable[..., Iterator[Any]], Progress]]:
    """Yield ``map``, or a function like it that runs in ``jobs`` processes, and the function that its calls report to.

    One process is enough for a single part, and for a few bytes: ``parts`` with ``size`` bytes in all.
    """
    if jobs == 1 or parts < 2 or size < 2 * split_points.RANGE_SIZE:
        yield map, progress
        return
    with process_pool(jobs, progress) as pool:
        yield partial(map_ordered, pool), add_progress
