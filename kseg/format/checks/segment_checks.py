"""Every check of a segment's batches and records, for commands that read it window by window."""

from __future__ import annotations

from kseg.findings import Report
from kseg.format.checks.check_state import CheckSettings, CheckState
from kseg.format.checks.internal_topic_checks import check_internal_records
from kseg.format.checks.record_checks import check_wrapper_order, note_compaction
from kseg.format.checks.record_set_checks import RecordSetChecks
from kseg.format.checks.table import BATCH_CHECKS, RECORD_CHECKS
from kseg.format.segment.reader import Window
from kseg.format.segment.records_chunk import Chunk
from kseg.format.sidefiles.kraft_snapshot import SnapshotEnds
from kseg.format.storage.naming import is_snapshot


class SegmentChecks:
    """The checks of the segment or record set called ``name``, and what they remember (``history``).

    ``topic`` is the internal topic whose records it holds, None for another or where its records are not decoded.
    ``record_set`` has the checks of bytes that are no segment.
    """

    def __init__(
        self,
        name: str,
        limits: CheckSettings,
        report: Report,
        topic: str | None = None,
        record_set: RecordSetChecks | None = None,
    ) -> None:
        self.history = CheckState()
        self._limits = limits
        self._report = report
        self._topic = topic
        self._record_set = record_set
        self._ends = SnapshotEnds() if limits.deep and is_snapshot(name) else None

    def check_batches(self, window: Window) -> None:
        """Report what is wrong with the headers of the next window's batches."""
        for check in BATCH_CHECKS:
            check.run(window.batches, self._limits, self.history, self._report)
        if self._record_set:
            self._record_set.check_batches(window.batches, self._report)

    def check_records(self, chunk: Chunk) -> None:
        """Report what is wrong with the next opened batches of the window."""
        for check in RECORD_CHECKS:
            check.run(chunk, self._limits, self._report)
        check_wrapper_order(chunk, self.history, self._report)
        note_compaction(chunk, self.history)
        if self._record_set:
            self._record_set.check_records(chunk, self._report)
        if self._topic:
            check_internal_records(self._topic, chunk, self._report)
        if self._ends:
            self._ends.append(chunk)

    def finish(self, position: int) -> None:
        """Report what is missing at the end: the file was read up to byte ``position``."""
        if self._record_set:
            self._record_set.finish(self._report)
        if self._ends:
            self._ends.check(position, self._report)
