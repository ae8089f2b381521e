"""No false finding next to a cluster of three brokers that elect, truncate, crash, move replicas, compact and delete."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]  # a Spark stream reads beside it


def test_validate_finds_nothing_wrong_next_to_a_failing_cluster(tmp_path: Path) -> None:
    """All log directories, every few seconds: 0 findings at warning or above, though logs shrink and are deleted.

    KSEG_SOAK_SECONDS is the duration, 60 by default; the full run has 7200.
    """
    from tools.lab import soak

    report = soak.soak(tmp_path, soak.SECONDS)
    assert (report.bad_count, report.bad, report.grown) == (0, [], []), str(report)
    assert report.runs >= 3
    assert report.segments > 100, str(report)
    assert report.events["unclean_election"], str(report)
