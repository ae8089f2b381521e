"""``validate --deep`` finds each error that ``--shallow`` finds, or a worse error at the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan as RepairPlan
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError
from kseg.findings import RULES, Finding, Severity
from kseg.format.record.layout import INT32_MAX
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support import damage
from tests.support.damaged_cases import chunks, damaged, seeds, written

FIRST = "00000000000000000000.log"


def found(path: Path, *, deep: bool) -> list[Finding]:
    result = validate_segment(SegmentFile(str(path)), Settings(deep=deep, max_per_rule=10**6))
    return [verdict.finding for verdict in result.verdicts]


@pytest.mark.parametrize("deep", [False, True])
def test_the_largest_offset_there_is_next_to_indexes(deep: bool, tmp_path: Path) -> None:
    """A base offset is outside the CRC, so damage can make it any number, also one that an index entry can't hold."""
    path = written(tmp_path, damaged(2, acts=0))
    data = path.read_bytes()
    middle = damage.entries(data)[5].at
    path.write_bytes(damage.put(data, middle, base_offset=2**63 - 1))
    beside = tuple(str(path.with_suffix(suffix)) for suffix in (".index", ".timeindex"))
    result = validate_segment(SegmentFile(str(path), indexes=beside), Settings(deep=deep))
    assert "non-monotonic-offset" in result.found


@pytest.mark.slow
@pytest.mark.fuzz
@chunks
def test_deep_finds_what_shallow_finds(chunk: int, tmp_path: Path) -> None:
    """Each error of ``--shallow`` is found by ``--deep``, or an error about the same batch."""
    errors = 0
    for seed in seeds(chunk, 160):
        path = tmp_path / f"{0:020d}.log"
        path.write_bytes(damaged(seed).data)
        deep = [finding for finding in found(path, deep=True) if RULES[finding.rule].severity >= Severity.ERROR]
        places = {finding.position for finding in deep}
        for finding in found(path, deep=False):
            if RULES[finding.rule].severity < Severity.ERROR:
                continue
            errors += 1
            assert finding.position in places, (seed, finding)
    assert errors


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [-1, -4, -INT32_MAX - 1])
def test_a_negative_count_with_a_valid_crc(codec: str, count: int, tmp_path: Path) -> None:
    """Its records are stored but a reader can't get them:

    both modes report the batch, and no command drops it silently.
    """
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
        assert "negative" in finding.facts["why"]
    for plan in (ConversionPlan.of("any-to-v2"), ConversionPlan.of("v2-to-v1", compression="gzip", lossy=True)):
        with pytest.raises(KsegError, match="record-count-mismatch"):
            convert(str(path), str(tmp_path / "out" / FIRST), plan)
    (result,) = repair(str(path), str(tmp_path / "out" / FIRST), RepairPlan()).segments
    assert (result.kept, result.dropped, result.lost_bytes) == (2, 1, len(batches[1]))
