"""The batches whose offsets are only claims of their headers, for commands that count or compare offsets.

No CRC covers the base offset. The bounds are those of ``kseg validate``: the batches around a batch, and the file name.
"""

from __future__ import annotations

from kseg.findings import Finding, Report
from kseg.format.checks.batch_checks import CheckSettings, CheckState
from kseg.format.checks.offset_checks import UNEXPLAINED_GAP, check_file_name, check_offsets, gap_finding
from kseg.format.record.columns import BatchColumns
from kseg.format.storage.naming import base_offset_of


class ClaimedOffsets:
    """Finds such batches in the windows of the segment ``name``, and reports each of them."""

    def __init__(self, name: str, report: Report) -> None:
        self._settings = CheckSettings(now=0, name_offset=base_offset_of(name), gaps=False)
        self._state = CheckState()
        self._report = report

    def update(self, batches: BatchColumns) -> set[int]:
        """Return the positions of the window's batches whose offsets are not proved or contradict those before them."""
        found: list[Finding] = []
        state, name = self._state, self._settings.name_offset
        check_offsets(batches, self._settings, state, found.append)
        if not (found or state.claimed):
            return state.misplaced
        check_file_name(batches, self._settings, state, found.append)
        doubtful = state.misplaced | state.claimed
        for finding in found:
            if finding.rule != "file-name-mismatch" or finding.position in doubtful:
                self._report(finding)
        reported = {finding.position for finding in found if finding.position is not None}
        for row in range(batches.count):
            if batches.position[row] in state.claimed - reported and name is not None:
                first = batches.last_offset[row] if batches.magic[row] < 2 else batches.base_offset[row]
                self._report(gap_finding("offset-gap", batches.position[row], name, first - 1, UNEXPLAINED_GAP))
        return doubtful | reported
