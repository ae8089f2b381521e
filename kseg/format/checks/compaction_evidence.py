"""What shows whether offsets that a log lacks are lost, or were removed by the log cleaner."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.record.layout import CONTROL
from kseg.format.record.offset_evidence import LIMIT, SEVERAL, span_of
from kseg.format.segment import segment_chunks
from kseg.format.segment.records_chunk import Chunk
from kseg.format.sidefiles import checkpoints
from kseg.format.storage import local_files, resting_logs
from kseg.format.storage.naming import CLEANER_OFFSETS, CONSUMER_OFFSETS, TRANSACTION_STATE, base_offset_of
from kseg.format.storage.source import open_source

#: Of Kafka's own topics, those with cleanup.policy=compact.
COMPACTED_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

#: The number of gaps up to which losses are as likely as compaction.
_FEW_GAPS = 10


@dataclass(slots=True)
class CompactionEvidence:
    """The signs of compaction in a partition's segments, and what its log directory knows.

    ``log_start`` and ``cleaned`` are its offsets in the checkpoints of log starts and of the cleaner, ``compacted``: the
    topic is known to be compacted. ``thinned``: a batch has fewer records than offsets, or a delete horizon.
    ``keyless_from`` is the base offset of the first segment with a record that has no key. ``unopened``: compressed v0 or v1
    message sets were not decompressed. ``gaps`` is the number of gaps between batches,
    and ``apart`` returns whether keys are repeated between them (``gaps_are_apart``), None if that is not known.

    ``folders`` are those of the partition or of its replicas: a broker can have cleaned them since ``cleaned`` was read.
    """

    log_start: int = 0
    cleaned: int | None = None
    compacted: bool = False
    thinned: bool = False
    unopened: bool = False
    gaps: int = 0
    keyless_from: int | None = None
    apart: Callable[[], bool] | None = None
    folders: Sequence[str] = ()
    _cleaned_before: int | None = None

    def add_keyless(self, base: int) -> None:
        """Add that the segment with this base offset has a record without a key. Segments are added in order."""
        if self.keyless_from is None:
            self.keyless_from = base

    def add_emptied(self) -> None:
        """Add an empty segment with an empty index. The cleaner leaves it, and a repair does not."""
        self.gaps += 1
        self.apart = None

    def explain(
        self,
        first: int,
        last: int,
        base: int,
        orphan: str | None = None,
        *,
        zeros: bool = False,
        unstable: int | None = None,
    ) -> tuple[bool, str]:
        """Return whether offsets ``first`` to ``last`` (inclusive) are lost, and the reason. All segments must be added.

        They are missing in the segment with base offset ``base``, or before it. ``orphan`` is an index of a missing segment
        with such offsets, ``zeros``: the segment before them ends with zeros. ``unstable`` is the first offset of the
        earliest open transaction. The cleaner stops there (``LogCleanerManager.cleanableOffsets``), but an unclean election
        can truncate the marker of a transaction that was cleaned.

        No file of a log directory stores whether a topic is compacted. The ``cleaner-offset-checkpoint`` lists only
        compacted partitions. Only the cleaner leaves batches with fewer records than offsets, and delete horizons. Many gaps
        between batches are a weaker sign, because repairs leave them, too. The cleaner removes records without a key, so
        such a record proves that it has not cleaned there.
        """
        if last < self.log_start:
            return False, f"harmless, the log starts at offset {self.log_start}"
        if zeros:
            return True, "probably lost, because the file ends with zeros"
        if self.cleaned is None or self.cleaned <= last:
            self._look_again()
        if self.cleaned is not None and last < self.cleaned:
            return False, f"probably compacted, because the cleaner has reached offset {self.cleaned}"
        truncated = ""
        if unstable is not None and first > unstable:
            why = f"the transaction of offset {unstable} has no marker"
            truncated = f"lost, or compacted before the log was truncated, because {why}"
        if self.thinned:
            return False, truncated or "probably compacted, because other batches have fewer records than offsets"
        if self.cleaned is not None:
            return (
                False,
                f"lost, or compacted by another broker, because the cleaner has only reached offset {self.cleaned}",
            )
        if self.compacted:
            return False, "compacted or lost"
        if orphan:
            return True, f"lost, because {orphan} belongs to a missing segment"
        if self.keyless_from is not None and self.keyless_from < base:
            return True, "lost, because earlier records have no key, so the log was not compacted"
        if last < (self._cleaned_before or 0):
            return False, "probably compacted, because files of a log cleaner are in the folder"
        if self.keyless_from is not None:
            return True, "probably lost, because a compacted topic has no records without a key"
        if self.gaps >= SEVERAL:
            if self.apart is not None and self.apart():
                return (
                    True,
                    "probably lost, because keys are repeated between the gaps, which a cleaner would have removed",
                )
            why = f"because there are {self.gaps} gaps between batches"
            few = f"compacted or lost, {why} and no other sign"
            return False, truncated or (few if self.gaps <= _FEW_GAPS else f"probably compacted, {why}")
        if self.unopened:
            return False, "compacted or lost (compressed v0 and v1 message sets were not decompressed)"
        return True, "probably lost, because nothing indicates compaction"

    def _look_again(self) -> None:
        """Read the progress of a cleaner once, after the segments were read."""
        if self._cleaned_before is None:
            self._cleaned_before = max(map(resting_logs.cleaned_before, self.folders), default=0)
            for folder in self.folders:
                with suppress(KsegError):
                    offset = checkpoints.checkpoint_offset(folder, CLEANER_OFFSETS)
                    self.cleaned = self.cleaned if offset is None else max(offset, self.cleaned or 0)


def orphan_within(folder: str, indexes: Iterable[str], first: int, last: int) -> str | None:
    """Return the name of an index without a segment if its segment would hold some of these offsets.

    ``indexes`` are the names of those in the folder. A running broker may just have created the segment, or deleted both.
    """
    for name in indexes:
        if first <= int(name[:20]) <= last and local_files.exists(os.path.join(folder, name)):
            return None if local_files.exists(os.path.join(folder, f"{name[:20]}.log")) else name
    return None


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
            for chunk in segment_chunks.chunks_of(open_source(path), gaps.stop_at_damage):
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
        self.joined = self.joined or finding.is_error

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
