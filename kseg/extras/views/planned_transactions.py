"""The transactions of a log by offset, from the events of its segments that an inventory has.

``TransactionLogs`` has them by position in the one folder of a log, and reads the log for them. Here no byte of a segment is
read again, and the segments can be of several replicas.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, NamedTuple

from kseg.errors import NotASegmentError, VanishedError
from kseg.format.record.columns import BatchColumns
from kseg.format.record.layout import ABORTED, COMMITTED, CONTROL, INT64_MAX, OPEN, TRANSACTIONAL, UNKNOWN
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.transaction_events import chunk_events, log_events
from kseg.format.sidefiles.checkpoints import checkpoint_offset
from kseg.format.sidefiles.last_stable_offset import open_in_newest_snapshot
from kseg.format.storage.naming import LOG_STARTS, base_offset_of
from kseg.format.storage.source import open_source
from kseg.format.writer import rewritten_rows

#: What happens in a transaction: data of a producer, or one of its markers. LOST are offsets that lost bytes can have had.
DATA, COMMIT, ABORT, LOST = range(4)
#: (producer id, offset, DATA, COMMIT or ABORT), or (first lost offset, offset after the last one, LOST).
ProducerEvent = tuple[int, int, int]
#: First and last offset of a transaction, both inclusive.
Span = tuple[int, int]
#: The most events of a segment that an inventory has.
MOST_EVENTS = 1_000_000


class EventCollector:
    """Collects the events of a segment: the markers of each producer, and the first batch of data before each of them."""

    def __init__(self) -> None:
        self.columns: tuple[array[int], array[int], array[int]] = (array("q"), array("q"), array("q"))
        self._begun: set[int] = set()

    def add_chunk(self, chunk: Chunk, selected: Any, without: Container[int] = ()) -> None:
        """Add the events of a chunk's selected batches, but not those of the batches at the positions ``without``."""
        batches = chunk.batches
        for row, offset, marker in chunk_events(chunk, selected):
            if batches.position[row] not in without:
                self.add(batches.producer_id[row], offset, marker.type if marker else "")

    def add(self, producer_id: int, offset: int, marker: str) -> None:
        """Add a marker, COMMIT or ABORT, or a batch of data."""
        if marker:
            self._begun.discard(producer_id)
        elif producer_id in self._begun:
            return
        else:
            self._begun.add(producer_id)
        self._append(producer_id, offset, DATA if not marker else ABORT if marker == "ABORT" else COMMIT)

    def add_loss(self, first: int, end: int) -> None:
        """Add that offsets ``first`` to ``end`` (exclusive) are lost: a marker can have been there."""
        self._begun.clear()
        self._append(first, end, LOST)

    def _append(self, *event: int) -> None:
        for column, value in zip(self.columns, event, strict=True):
            column.append(value)

    def events(self) -> list[ProducerEvent]:
        return list(zip(*self.columns, strict=True))


class SegmentEvents(NamedTuple):
    """The events of a segment without damage, and the offset after its last batch; None without a batch."""

    events: Sequence[ProducerEvent]
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class PlannedTransactions:
    """``aborted``: spans of aborted transactions by producer id, ascending. ``open``: first offsets of open ones.

    ``unknown``: spans of transactions by producer id, ascending, whose marker can be among lost bytes. ``log_start``: the
    first offset that was not deleted.
    """

    aborted: Mapping[int, Sequence[Span]]
    open: Mapping[int, int]
    unknown: Mapping[int, Sequence[Span]] = field(default_factory=dict)
    log_start: int = 0

    def within(self, first: int, end: int) -> PlannedTransactions:
        """Return the transactions that touch offsets ``first`` to ``end`` (exclusive)."""
        return replace(self, aborted=_near(self.aborted, first, end), unknown=_near(self.unknown, first, end))

    def of_segments(self, base_offsets: Sequence[int]) -> list[PlannedTransactions]:
        """Return those that touch each of a log's segments, which have these base offsets, ascending."""
        near: list[dict[int, list[Span]]] = [{} for _ in base_offsets]
        for producer, spans in self.aborted.items():
            for first, last in spans:
                begin = max(bisect_right(base_offsets, first) - 1, 0)
                for found in near[begin : bisect_right(base_offsets, last)]:
                    found.setdefault(producer, []).append((first, last))
        return [replace(self, aborted=found) for found in near]

    def accepts(self, batches: BatchColumns, row: int) -> bool:
        """Return whether a consumer with read_committed gets the records of a batch."""
        if batches.base_offset[row] >= min(self.open.values(), default=INT64_MAX):
            return False
        is_control = batches.magic[row] >= 2 and batches.attributes[row] & CONTROL
        return not is_control and self.state(batches, row) in (None, COMMITTED)

    def state(self, batches: BatchColumns, row: int) -> str | None:
        """Return the state of a batch's transaction; None outside transactions."""
        if batches.magic[row] < 2 or not batches.attributes[row] & TRANSACTIONAL:
            return None
        producer_id, offset = batches.producer_id[row], batches.base_offset[row]
        if offset >= self.open.get(producer_id, INT64_MAX):
            return OPEN
        if _holds(self.unknown.get(producer_id, ()), offset):
            return UNKNOWN
        return ABORTED if _holds(self.aborted.get(producer_id, ()), offset) else COMMITTED

    def transactional_id(self, batches: BatchColumns, row: int) -> str | None:
        """Return None: the transactional ids are in the log directory of one replica."""
        return None


def _near(spans: Mapping[int, Sequence[Span]], first: int, end: int) -> dict[int, list[Span]]:
    near = {
        producer: [span for span in found if span[1] >= first and span[0] < end] for producer, found in spans.items()
    }
    return {producer: found for producer, found in near.items() if found}


def _holds(spans: Sequence[Span], offset: int) -> bool:
    """Return whether an offset is in a span. A producer has one transaction at a time: its spans do not overlap."""
    i = bisect_right(spans, (offset, INT64_MAX))
    return i > 0 and offset <= spans[i - 1][1]


def outcomes(
    parts: Iterable[tuple[Sequence[ProducerEvent], int]], begun: Mapping[int, int] | None = None
) -> PlannedTransactions:
    """Return the transactions of the parts of a log: the events of each, and the offset where the part ends.

    ``begun`` are the first offsets of the transactions that are open before them, by producer id.
    """
    still = dict(begun or {})
    torn: dict[int, int] = {}  # offset after the last loss within an open transaction
    aborted: dict[int, list[Span]] = defaultdict(list)
    unknown: dict[int, list[Span]] = defaultdict(list)
    known = -1  # the events up to here are those of the parts before
    for events, end in parts:
        for producer, offset, kind in sorted(events, key=itemgetter(1)):
            if kind == LOST:
                if producer < end and offset > known:  # else another part has these offsets
                    torn |= dict.fromkeys(still, min(offset, end))
            elif not known <= offset < end:  # a base offset that no CRC covers can be any
                continue
            elif kind == DATA:
                still.setdefault(producer, offset)
            elif (start := still.pop(producer, None)) is not None:
                if (after := torn.pop(producer, None)) is not None:
                    unknown[producer].append((start, after - 1))
                    start = after
                if kind == ABORT:
                    aborted[producer].append((start, offset))
        known = end
    return PlannedTransactions(
        {producer: sorted(found) for producer, found in aborted.items()}, still,
        {producer: sorted(found) for producer, found in unknown.items()},
    )  # fmt: skip


def transactions_of_log(paths: Sequence[str], known: Mapping[str, SegmentEvents]) -> PlannedTransactions | None:
    """Return the transactions of a whole log, whose segments are in offset order, from the events that are ``known``.

    The headers of the others are read. None if some are damaged, deleted or missing: then only the log itself shows which
    transactions are certain. Raises UnreadableError.
    """
    parts: list[tuple[Sequence[ProducerEvent], int]] = []
    bases = [base_offset_of(path) or 0 for path in paths]
    for path, base, following in zip(paths, bases, (*bases[1:], None), strict=True):
        found = known.get(path) or _read_events(path)
        if found is None:
            return None
        end = base if found.next_offset is None else found.next_offset
        if following is not None and end != following:
            return None  # segments are missing, or a log cleaner has removed records
        parts.append((found.events, end))
    newest, begun = open_in_newest_snapshot(paths)
    log_start = checkpoint_offset(os.path.dirname(paths[0]), LOG_STARTS) or 0 if paths else 0
    return PlannedTransactions(outcomes(parts).aborted, outcomes(parts[newest:], begun).open, log_start=log_start)


def _read_events(path: str) -> SegmentEvents | None:
    """Return the events of a segment, None if it is damaged, out of order or deleted. Raises UnreadableError."""
    found, end = EventCollector(), base_offset_of(path) or 0
    with (
        suppress(VanishedError, NotASegmentError),
        SegmentReader(open_source(path, listed=True)) as reader,
    ):
        for batches, events in log_events(reader):
            ascends, last = rewritten_rows.offsets_ascend(batches, end - 1, INT64_MAX)
            if not ascends:
                return None
            for row, offset, marker in events:
                found.add(batches.producer_id[row], offset, marker.type if marker else "")
            end = last + 1
        if not reader.damaged:
            return SegmentEvents(found.events(), end)
    return None
