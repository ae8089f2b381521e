"""Check that a KRaft snapshot is complete: its first record is a header, its last a footer (KIP-630)."""

from __future__ import annotations

from kseg.findings import Finding, Report
from kseg.format.segment.records_chunk import Chunk

_HEADER, _FOOTER = "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"


class SnapshotEnds:
    """Keeps the types of the first and the last record of the chunks of a snapshot."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._last: str | None = None

    def append(self, chunk: Chunk) -> None:
        if not chunk.records.count:
            return
        if self._first is None:
            self._first = _type_of(chunk, 0)
        self._last = _type_of(chunk, chunk.records.count - 1)

    def check(self, size: int, report: Report) -> None:
        """Report a missing header or footer of a file of ``size`` bytes. Call it after the last chunk."""
        if self._first != _HEADER:
            why = f"the first record is not a {_HEADER} ({self._first or 'there is none'})"
            report(Finding("kraft-snapshot-incomplete", 0, facts={"why": why}))
        elif self._last != _FOOTER:
            why = f"the last record is not a {_FOOTER} ({self._last})"
            report(Finding("kraft-snapshot-incomplete", size, facts={"why": why}))


def _type_of(chunk: Chunk, i: int) -> str:
    control = chunk.control(i)
    return control.type if control else "it is data"
