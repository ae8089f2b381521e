"""``validate --deep`` finds whatever ``--shallow`` finds, or something worse at the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import KsegError
from kseg.files.storage import SegmentFile
from kseg.findings import Finding
from kseg.format.log_format import INT32_MAX
from kseg.rewriting.conversion_plan import Plan
from kseg.rewriting.convert import convert
from kseg.rewriting.records_builder import PlainRecord, build_batch
from kseg.rewriting.repair import repair
from kseg.rewriting.repair_segment import Plan as RepairPlan
from kseg.validation.validate import Settings, validate_segment
from tests import damage

FIRST = "00000000000000000000.log"


def found(path: Path, *, deep: bool) -> list[Finding]:
    result = validate_segment(SegmentFile(str(path)), Settings(deep=deep, max_per_rule=10**6))
    return [verdict.finding for verdict in result.verdicts]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [-1, -4, -INT32_MAX - 1])
def test_a_negative_count_behind_a_valid_crc(codec: str, count: int, tmp_path: Path) -> None:
    """Its records are there and no reader gets them: both modes say so, and nobody drops them without a word."""
    batches = [
        build_batch([PlainRecord(4 * n + i, b"k", b"v", 1_700_000_000_000) for i in range(4)], compression=codec)
        for n in range(3)
    ]
    data = b"".join(batches)
    path = tmp_path / FIRST
    (tmp_path / "out").mkdir()
    at = len(batches[0])
    path.write_bytes(damage.alter(data, at, record_count=count))
    place = (at, at + len(batches[1]))
    for deep in (False, True):
        (finding,) = found(path, deep=deep)
        assert (finding.rule, finding.position, finding.end) == ("record-count-mismatch", *place)
        assert finding.facts["count"] == count
        assert finding.facts["why"] == "it can't be negative"
    for plan in (Plan.of("any-to-v2"), Plan.of("v2-to-v1", compression="gzip", lossy=True)):
        with pytest.raises(KsegError, match="record-count-mismatch"):
            convert(str(path), str(tmp_path / "out" / FIRST), plan)
    (result,) = repair(str(path), str(tmp_path / "out" / FIRST), RepairPlan()).segments
    assert (result.kept, result.dropped, result.lost_bytes) == (2, 1, len(batches[1]))
