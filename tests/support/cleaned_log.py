"""A log whose segments a cleaner replaces, for tests that read it meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from kseg.findings import do_nothing
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.growing_logs import batch, write


class CleanedLog:
    """A log of segments that are replaced as Kafka's cleaner does it (``LocalLog.replaceSegments``)."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._chance = chance
        #: The numbers of the batches in each segment, by the number of its first one.
        self.segments: dict[int, list[int]] = {}
        self._end = 0

    def append(self, segments: int) -> None:
        for _ in range(segments):
            first, self._end = self._end, self._end + self._chance.randrange(1, 9)
            self.segments[first] = list(range(first, self._end))
            write(self._folder, [batch(number) for number in self.segments[first]], first=first)

    def offsets(self) -> list[int]:
        return [number * 4 + i for kept in self.segments.values() for number in kept for i in range(4)]

    def clean(self, between: Callable[[], object] = do_nothing) -> None:
        """Merge some segments, not the last one, without some of their batches. ``between``: when none has the name."""
        names = list(self.segments)[:-1]
        start = self._chance.randrange(len(names))
        merged = names[start : start + self._chance.randrange(1, 5)]
        kept = [number for name in merged for number in self.segments.pop(name) if self._chance.random() < 0.7]
        self.segments = dict(sorted({**self.segments, merged[0]: kept}.items()))
        new = self._folder.parent.parent / "cleaned"
        for path in write(new, [batch(number) for number in kept], first=merged[0]).parent.iterdir():
            os.utime(path, (1_700_000_000, 1_700_000_000))  # the time of the old segments
            path.rename(self._folder / f"{path.name}.swap")
        for name in merged:
            for suffix in (".log", ".index", ".timeindex"):
                path = self._folder / f"{name * 4:020d}{suffix}"
                path.rename(path.with_name(f"{path.name}.deleted"))
        between()
        for suffix in (".log", ".index", ".timeindex"):
            path = self._folder / f"{merged[0] * 4:020d}{suffix}"
            path.with_name(f"{path.name}.swap").rename(path)
        for path in self._folder.glob("*.deleted"):
            path.unlink()

    def truncate(self) -> None:
        """Truncate the last segment in the middle, and append to it what another leader has: batches of one record."""
        last = max(self.segments)
        kept = self.segments[last][: len(self.segments[last]) // 2]
        rest = self.segments[last][len(kept) :]
        others = [_small_batch(number * 4 + i) for number in rest for i in range(4)]
        write(self._folder, [*map(batch, kept), *others], first=last)


def _small_batch(offset: int) -> bytes:
    return build_batch([PlainRecord(offset, key=b"k", value=b"another leader's")], base_offset=offset)
