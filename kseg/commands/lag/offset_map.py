"""Translates offsets for another cluster, where the records have others: the map that ``kseg lag --offset-map`` reads."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from kseg.errors import UsageError

_MAP_FIELDS = ("partition", "src_first", "src_last", "dst_first")


class MappedRun(NamedTuple):
    """Records without a hole: ``src_first`` to ``src_last`` of the source, from ``dst_first`` on in the other cluster."""

    src_first: int
    src_last: int
    dst_first: int


class OffsetMap:
    """The runs of records by topic and partition."""

    def __init__(self, runs: Mapping[tuple[str, int], Iterable[MappedRun]]) -> None:
        self._runs = {place: sorted(found) for place, found in runs.items()}

    def target(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the offset of the first record at or after ``offset``, the end after the last one; None without a run."""
        runs = self._runs.get((topic, partition))
        if not runs:
            return None
        found = bisect_right(runs, offset, key=lambda run: run.src_first) - 1
        if found >= 0 and offset <= runs[found].src_last:
            return runs[found].dst_first + offset - runs[found].src_first
        if found + 1 < len(runs):
            return runs[found + 1].dst_first
        return runs[-1].dst_first + runs[-1].src_last - runs[-1].src_first + 1


#: The characters of a line of a map of offsets, at most: a topic's name has 249.
_LONGEST_LINE = 10_000


def read_offset_map(path: str) -> OffsetMap:
    """Read a map: one JSON object per line, with ``topic``, ``partition``, ``src_first``, ``src_last`` and ``dst_first``.

    Raises UsageError with the line that is not one.
    """
    runs: dict[tuple[str, int], list[MappedRun]] = defaultdict(list)
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(iter(partial(lines.readline, _LONGEST_LINE), ""), 1):
                if line.strip():
                    topic, partition, run = _parsed(f"{path}, line {number}", line)
                    runs[topic, partition].append(run)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error
    return OffsetMap(runs)


def _parsed(place: str, line: str) -> tuple[str, int, MappedRun]:
    try:
        row = json.loads(line)
        topic, numbers = row["topic"], [row[name] for name in _MAP_FIELDS]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(f"{place}: expected a JSON object with topic, {', '.join(_MAP_FIELDS)}") from error
    if not isinstance(topic, str) or not all(type(number) is int and number >= 0 for number in numbers):
        raise UsageError(f"{place}: expected a text as topic, and numbers from 0 on")
    run = MappedRun(*numbers[1:])
    if run.src_last < run.src_first:
        raise UsageError(f"{place}: src_last is below src_first")
    return topic, numbers[0], run
