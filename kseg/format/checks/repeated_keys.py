"""Whether the gaps of a log are apart: keys are repeated between them, so that one cleaning did not cause them."""

from __future__ import annotations

from collections.abc import Iterable

from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.record.layout import CONTROL
from kseg.format.record.offset_evidence import LIMIT, span_of
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.segment_chunks import chunks_of
from kseg.format.storage.naming import base_offset_of
from kseg.format.storage.source import open_source
from kseg.rule_table import RULES, Severity


def gaps_are_apart(paths: Iterable[str]) -> bool:
    """Return whether keys are repeated between any two neighbouring gaps of a log, whose segments are in their order.

    The cleaner keeps the last record of each key up to an offset (``Cleaner.cleanSegments``). So no key is repeated before
    a gap that it causes. A replica can have such keys before the gap if it fetched them before its leader was cleaned, but
    then each gap has another leader's cleaning and another pause of the replica. The active segment can have such gaps, too:
    a replica appends what it fetches to its own. False if that is unknown, as with damage.
    """
    gaps = _Gaps()
    try:
        for path in paths:
            gaps.expected = base_offset_of(path) or 0 if gaps.expected < 0 else gaps.expected
            for chunk in chunks_of(open_source(path), gaps.stop_at_damage):
                gaps.add(chunk)
                if gaps.joined:
                    return False
    except KsegError:
        return False
    return gaps.count > 1


class _Gaps:
    """The gaps so far, and the keys since the last one. ``joined``: no key is repeated between two of them, or too many."""

    def __init__(self) -> None:
        self.count = 0
        self.expected = -1
        self.joined = False
        self._keys: set[bytes] = set()
        self._repeated = False

    def stop_at_damage(self, finding: Finding) -> None:
        self.joined = self.joined or RULES[finding.rule].severity >= Severity.ERROR

    def add(self, chunk: Chunk) -> None:
        batches = chunk.batches
        for row in range(chunk.first, chunk.stop):
            if not chunk.resumed:
                last = batches.last_offset[row]
                span = span_of(batches, row, opened=True)
                first = last - span
                self.joined = self.joined or span < 0 or first < self.expected
                if first > self.expected:
                    self.joined = self.joined or bool(self.count and not self._repeated)
                    self.count += 1
                    self._keys.clear()
                    self._repeated = False
                self.expected = 1 + last
            # The keys before the first gap can be those of records that were not cleaned yet.
            if self.count and not self._repeated and not batches.attributes[row] & CONTROL:
                self._add_keys(chunk, row)

    def _add_keys(self, chunk: Chunk, row: int) -> None:
        for i in chunk.rows(row):
            key = chunk.key(i)
            if key is None:
                continue
            if key in self._keys:
                self._repeated = True
                return
            self._keys.add(key)
        self.joined = self.joined or len(self._keys) > LIMIT
