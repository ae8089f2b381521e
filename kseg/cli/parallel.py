"""Work on partitions in this process or, if there is enough of it, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from kseg.format.segment import split_points
from kseg.format.storage.file_access import Progress
from kseg.format.storage.process_pool import map_ordered, process_pool, progress_to


@contextmanager
def parallel_map(jobs: int, parts: int, size: int, progress: Progress) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield ``map``, or a function like it that runs in ``jobs`` processes.

    One process is enough for a single part, and for a few bytes: ``parts`` with ``size`` bytes in all. ``progress`` is
    called with the bytes that the calls pass to ``add_progress``.
    """
    if jobs == 1 or parts < 2 or size < 4 * split_points.RANGE_SIZE:
        with progress_to(progress):
            yield map
        return
    with process_pool(jobs, progress) as pool:
        yield partial(map_ordered, pool)
