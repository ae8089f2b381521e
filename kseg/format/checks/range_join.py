"""Join two neighbouring ranges of a segment that were checked separately."""

from __future__ import annotations

from kseg.errors import KsegError
from kseg.findings import Finding
from kseg.format.checks.batch_checks import CheckSettings, CheckState
from kseg.format.checks.offset_checks import check_offsets, gap_before_part
from kseg.format.checks.run_checks import join_states
from kseg.format.record import columns, framing
from kseg.format.record.layout import RECORD_BATCH_OVERHEAD, SIZE_AT
from kseg.format.storage.source import open_range

#: The rules of two batches in disorder. The batches around them decide which one is misplaced, also those after the end of
#: a range: a range with this finding can't be joined.
DISORDER = frozenset({"non-monotonic-offset", "invalid-offset-range"})


def boundary_findings(
    path: str, start: int, before: CheckState, after: CheckState, limits: CheckSettings
) -> list[Finding] | None:
    """Return the findings between two ranges, such as a gap; the later one begins at byte ``start``.

    ``before`` and ``after`` are the states at the ends of the ranges. Returns None if the ranges together do not have the
    findings of one run over both. Otherwise ``after`` has the producers of both.
    """
    first = columns.BatchColumns(1)
    header = bytearray(RECORD_BATCH_OVERHEAD)
    try:
        with open_range(path, start, start + RECORD_BATCH_OVERHEAD) as source:
            if source.readinto(memoryview(header)) < RECORD_BATCH_OVERHEAD:
                return None
    except KsegError:
        return None
    framing.read_header(header, 0, framing.read_int32(header, SIZE_AT), header[16], first, 0)
    first.position[0] = start
    first.count = 1
    if not join_states(before, after):
        return None
    found: list[Finding] = []
    check_offsets(first, limits, before, found.append)
    if any(finding.rule in DISORDER for finding in found):
        return None
    gap = gap_before_part(before, after, start)
    return [*found, gap] if gap else found
