"""A conversion takes no damage for content, and constant memory. Faults while it writes: tests/storage/test_publish.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError
from kseg.findings import RULES, SERVED, Finding, Severity
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.output_guards import DamagedError
from kseg.results import Settings
from tests.support.damage import entries
from tests.support.interrupted import write_log

NAME = "00000000000000000000.log"
MAX_RSS = """
import resource
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.conversion import convert
import sys
convert(sys.argv[1], sys.argv[2], ConversionPlan.of("v0-to-v2"))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_a_url_is_converted(tmp_path: Path) -> None:
    """A remote segment is converted like a local one."""
    pytest.importorskip("fsspec")
    source, target = tmp_path / "in.log", tmp_path / NAME
    write_log(source, 0.1)
    convert(source.as_uri(), str(target), ConversionPlan.of("v0-to-v2"))
    assert validate_segment(SegmentFile(str(target)), Settings()).summary.errors == 0


def test_a_target_in_no_folder(tmp_path: Path) -> None:
    """A missing parent folder is one clear line."""
    source = tmp_path / "in.log"
    write_log(source, 0.01)
    with pytest.raises(KsegError, match="does not exist: create it first"):
        convert(str(source), str(tmp_path / "absent" / NAME), ConversionPlan.of("v0-to-v2"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_segment(tmp_path: Path) -> None:
    """Memory is constant for segments of any size."""
    peaks = []
    for megabytes in (16, 96):
        source = tmp_path / f"{megabytes}.log"
        write_log(source, megabytes, value_size=16_000)
        done = subprocess.run(
            [sys.executable, "-c", MAX_RSS, source, tmp_path / f"out-{megabytes}.log"],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] - peaks[0] < 8


FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_source_that_validate_calls_damaged_is_refused(tmp_path: Path) -> None:
    """The target is not written; with ``skip_damaged`` an error is reported, or the conversion fails, too."""
    damaged = 0
    for log in sorted((FIXTURES / "findings").glob("*/*.log")):
        found = validate_segment(SegmentFile(str(log)), Settings()).verdicts
        if not any(verdict.severity >= Severity.ERROR and verdict.rule.name not in SERVED for verdict in found):
            continue
        damaged += 1
        target = tmp_path / log.parent.name / log.name
        target.parent.mkdir(exist_ok=True)
        with pytest.raises(KsegError):
            convert(str(log), str(target), ConversionPlan.of("any-to-v2"))
        assert list(target.parent.iterdir()) == [], log
        reported: list[str] = []

        def keep(path: str, finding: Finding, reported: list[str] = reported) -> None:
            reported.append(finding.rule)

        try:
            convert(str(log), str(target), ConversionPlan.of("any-to-v2", skip_damaged=True), keep)
        except KsegError:
            continue
        assert any(RULES[rule].severity >= Severity.ERROR for rule in reported), log
    assert damaged > 20


def test_overlapping_segments_are_not_converted(tmp_path: Path) -> None:
    """The copy of a segment under another name, or a last batch with a wrong offset, as ``validate`` finds in a folder."""
    sound = FIXTURES / "segments" / "4.3.0-v2-none-segments"
    folder = tmp_path / "t-0"
    folder.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000024.log"):
        (folder / name).write_bytes((sound / name).read_bytes())
    data = bytearray((sound / NAME).read_bytes())
    last = entries(bytes(data))[-1].at
    data[last + 6] ^= 1
    (folder / NAME).write_bytes(data)
    with pytest.raises(DamagedError, match="segment-overlap"):
        convert(str(folder), str(tmp_path / "out-0"), ConversionPlan.of("any-to-v2"))
    assert not (tmp_path / "out-0").exists()
    reported: list[str] = []
    skipping = ConversionPlan.of("any-to-v2", skip_damaged=True)
    convert(str(folder), str(tmp_path / "out-0"), skipping, lambda _, one: reported.append(one.rule))
    assert {"segment-overlap", "non-monotonic-offset"} & set(reported)  # the next segment disproves the offset
