"""Every check of a segment's batches and records, for commands that read it window by window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.findings import Report
from kseg.format.checks.check_state import CheckSettings, CheckState
from kseg.format.checks.record_checks import check_wrapper_order, update_compaction_evidence
from kseg.format.checks.table import BATCH_CHECKS, RECORD_CHECKS
from kseg.format.segment.reader import Window
from kseg.format.segment.records_chunk import Chunk
from kseg.format.storage.naming import is_snapshot
from kseg.lazy import lazy

if TYPE_CHECKING:
    from kseg.format.checks import internal_topic_checks
    from kseg.format.checks.record_set_checks import RecordSetChecks
    from kseg.format.sidefiles import kraft_snapshot
else:
    internal_topic_checks = lazy("kseg.format.checks.internal_topic_checks")
    kraft_snapshot = lazy("kseg.format.sidefiles.kraft_snapshot")


class SegmentChecks:
    """The checks of the segment or record set ``name``, and their state (``history``).

    ``topic`` is the internal topic whose records it contains, or None for other topics and if records are not decoded.
    ``record_set`` has the checks of record sets.
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
        self._ends = kraft_snapshot.SnapshotEnds() if limits.deep and is_snapshot(name) else None

    def check_batches(self, window: Window) -> None:
        """Check the headers of the next window of batches."""
        for check in BATCH_CHECKS:
            check.run(window.batches, self._limits, self.history, self._report)
        if self._record_set:
            self._record_set.check_batches(window.batches, self._report)

    def check_records(self, chunk: Chunk) -> None:
        """Check the next decoded batches of the window."""
        for check in RECORD_CHECKS:
            check.run(chunk, self._limits, self._report)
        check_wrapper_order(chunk, self.history, self._report)
        update_compaction_evidence(chunk, self.history)
        if self._record_set:
            self._record_set.check_records(chunk, self._report)
        if self._topic:
            internal_topic_checks.check_internal_records(self._topic, chunk, self._report)
        if self._ends:
            self._ends.append(chunk)

    def finish(self, position: int) -> None:
        """Check the end of the file, which was read up to byte ``position``."""
        if self._record_set:
            self._record_set.finish(self._report)
        if self._ends:
            self._ends.check(position, self._report)
