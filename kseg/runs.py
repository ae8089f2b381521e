"""A segment's entries as a conversion walks them: opened, judged, and in runs that are treated alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kseg import encoder, survey
from kseg.chunk import Chunk
from kseg.deep_iteration import DeepIterator
from kseg.findings import Finding, Report
from kseg.kernel import BatchColumns
from kseg.segment import SegmentReader


def sound_chunks(reader: SegmentReader, report: Report) -> Iterator[Chunk]:
    """The opened entries of a segment; those that are damaged or out of order are marked not intact."""
    opener = DeepIterator(report)
    last_offset = -1
    faults: list[tuple[str, int, int, int]] = []
    for window in reader.windows():
        for chunk in opener.chunks(window):
            batches = chunk.batches
            last_offset = survey.judge_offsets(batches, chunk.records, chunk.first, chunk.stop, last_offset, faults)
            for fault in faults:
                report(_order_finding(batches, *fault))
            faults.clear()
            yield chunk


def _out_of_order(offset: int, previous: int) -> dict[str, Any]:
    note = "; the next entry goes on from there, so this base offset is wrong" if offset > previous else ""
    return {"offset": offset, "previous": previous, "note": note}


_ORDER_FACTS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "non-monotonic-offset": _out_of_order,
    "invalid-offset-range": lambda offset, delta: {"delta": delta, "why": "no entry can span that"},
    "record-offset-mismatch": lambda offset, index: {"index": index, "offset": offset, "why": "is out of order"},
}


def _order_finding(batches: BatchColumns, rule: str, row: int, offset: int, detail: int) -> Finding:
    facts = _ORDER_FACTS[rule](offset, detail)
    position = batches.position[row]
    return Finding(rule, position=position, end=position + batches.size[row], offset=offset, facts=facts)


def payload_of(chunk: Chunk, row: int) -> Any:
    """What the record columns of entry ``row`` point into, as the bytes or bytearray it is: their slices are fast."""
    view = chunk.payload(row)
    whole = view.obj
    return whole if isinstance(whole, (bytes, bytearray)) and len(whole) == len(view) else view


@dataclass(frozen=True, slots=True)
class Run:
    """Entries ``row`` to ``stop`` of one kind and version, their records ``i`` to ``end``; ends are exclusive."""

    chunk: Chunk
    kind: int
    row: int
    stop: int
    i: int
    end: int

    @property
    def magic(self) -> int:
        return self.chunk.batches.magic[self.row]

    @property
    def room(self) -> int:
        """The most bytes that the records can take in any version."""
        size = len(self.chunk.payload(self.row)) if self.kind == survey.PACKED else self.stored_size
        return size + (self.end - self.i + 1) * encoder.ROOM_PER_RECORD

    @property
    def stored_size(self) -> int:
        return self._behind - self.chunk.batches.at[self.row]

    @property
    def stored(self) -> memoryview:
        """The entries' bytes: within a window they stand one behind the other."""
        return self.chunk.window.view[self.chunk.batches.at[self.row] : self._behind]

    @property
    def _behind(self) -> int:
        return self.chunk.batches.at[self.stop - 1] + self.chunk.batches.size[self.stop - 1]


def runs_of(chunk: Chunk, target: int, *, copies: bool) -> Iterator[Run]:
    """The chunk's entries in runs that are treated alike; see ``survey.kind_of``."""
    batches = chunk.batches
    row = chunk.first
    while row < chunk.stop:
        kind, stop = survey.run_from(batches, row, chunk.stop, target, copies)
        # Of an entry that could not be opened there are no records, and these columns say nothing.
        i = end = 0
        if kind != survey.SKIP:
            i = batches.first_record[row]
            end = batches.first_record[stop - 1] + batches.record_total[stop - 1]
        yield Run(chunk, kind, row, stop, i, end)
        row = stop
