"""The state of a partition after some of its segments: what later segments and side files are checked against."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kseg.commands.validate.segment_facts import EpochRun, SegmentFacts
from kseg.format.record.bounded_map import LIMIT, BoundedMap

MAX_EPOCHS = 100_000
MAX_SPANS = 10_000


class Extent(NamedTuple):
    """The offsets of a partition's log. ``end`` is exclusive, and None if unknown."""

    start: int
    end: int | None


@dataclass(slots=True)
class PartitionState:
    """The state of a partition after the segments so far. ``end`` is exclusive, None if unknown."""

    # The base offsets of the segments.
    bases: list[int] = field(default_factory=list)
    end: int | None = None
    name: str = ""
    zeros: bool = False
    holes: bool = False
    thinned: bool = False
    keyless: bool = False
    unopened: bool = False
    gaps: int = 0
    # (first offset, last offset, name) of the segments for which these are known.
    spans: list[tuple[int, int, str]] = field(default_factory=list)
    epochs: list[EpochRun] = field(default_factory=list)
    producers: BoundedMap = field(default_factory=BoundedMap)
    # The base offset of the first segment that has a record without a key.
    keyless_from: int | None = None
    open: dict[int, int] = field(default_factory=dict)
    # Whether there were too many producers to know the open transactions of each.
    crowded: bool = False

    def add(self, facts: SegmentFacts) -> None:
        self.holes |= facts.holes or facts.damaged
        self.thinned |= facts.thinned
        self.keyless |= facts.keyless
        self.unopened |= facts.wrapped and not facts.opened
        self.gaps += facts.gaps
        for run in facts.epochs:
            if self.epochs and self.epochs[-1][0] == run[0]:
                self.epochs[-1] = (*self.epochs[-1][:2], run[2])
            elif len(self.epochs) < MAX_EPOCHS:
                self.epochs.append(run)
        if facts.crowded:
            self.producers.forget()  # any of them may have written again
        for producer_id, last in facts.producers.items():
            self.producers.put(producer_id, last)
        self.crowded |= facts.crowded
        for producer_id in facts.ended:
            self.open.pop(producer_id, None)
        for producer_id, first in facts.open.items():
            if producer_id in self.open or len(self.open) < LIMIT:
                self.open.setdefault(producer_id, first)
            else:
                self.crowded = True
