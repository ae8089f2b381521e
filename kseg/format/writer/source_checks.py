"""Run the checks of ``kseg validate`` that reading does not include over the source of a conversion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kseg.errors import KsegError
from kseg.findings import RULES, Finding, Report, Severity, Verdict
from kseg.format.checks.check_state import CheckState
from kseg.format.checks.run_checks import check_settings, new_collector
from kseg.format.checks.table import BATCH_CHECKS, RECORD_CHECKS
from kseg.format.segment.records_chunk import Chunk
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage.source import SegmentFile, open_source
from kseg.results import Settings

_BATCH_CHECKS = tuple(check for check in BATCH_CHECKS if check.in_conversion)
_RECORD_CHECKS = tuple(check for check in RECORD_CHECKS if check.in_conversion)
#: Errors in the header of a batch with valid records: the error is reported, and the batch is converted.
_KEPT = frozenset({"leader-epoch-regression", "negative-leader-epoch", "max-timestamp-mismatch"})


class SourceChecks:
    """Reports the errors of a segment to ``report`` while it is converted. ``name`` is its path.

    ``history`` is the state of the checks, which connects the ranges of a segment.
    """

    def __init__(self, name: str, report: Report) -> None:
        self.history = CheckState()
        self._limits = check_settings(name, Settings())
        self._report = report
        self._dropped: set[int] = set()

    def checked(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks, with faulty batches marked as not intact."""
        for chunk in chunks:
            batches = chunk.batches
            if not chunk.first and not chunk.resumed:
                self._dropped.clear()
                for check in _BATCH_CHECKS:
                    check.run(batches, self._limits, self.history, self._record_finding)
            for record_check in _RECORD_CHECKS:
                record_check.run(chunk, self._limits, self._record_finding)
            for row in range(chunk.first, chunk.stop if self._dropped else chunk.first):
                if batches.position[row] in self._dropped:
                    batches.intact[row] = 0
            yield chunk

    def _record_finding(self, finding: Finding) -> None:
        if RULES[finding.rule].severity < Severity.ERROR:
            return
        if finding.rule not in _KEPT:
            self._dropped.add(finding.position or 0)
        self._report(finding)


def side_file_error(path: Path) -> Verdict | None:
    """Return the first error that ``kseg validate`` finds in a side file, None if there is none."""
    file = SegmentFile(str(path))
    collector = new_collector(file, Settings())
    known = recognise(file.path)
    with suppress(KsegError):
        if known:
            with open_source(file.path) as source:
                for _ in known.side.walk(source, known.base_offset, collector):
                    pass
    return next((verdict for verdict in collector.verdicts if verdict.severity >= Severity.ERROR), None)
