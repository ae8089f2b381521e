"""``kseg.validate`` and ``kseg.validate_segment``: the findings of the command line, as objects."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import kseg
from tests.support.cli import kseg as command
from tests.support.fixtures import SEGMENTS

FINDINGS = SEGMENTS.parent / "findings"


@pytest.mark.parametrize("path", [FINDINGS / "crc-mismatch", FINDINGS / "index-mismatch", SEGMENTS / "4.3.0-v2-none"])
def test_the_library_finds_what_the_command_prints(path: Path) -> None:
    """One function serves both: same findings in the same order, same summary."""
    result = kseg.validate(path)
    *printed, summary = map(json.loads, command("validate", "--format", "jsonl", path).stdout.splitlines())
    assert [(one.file, one.rule.name, one.position, one.offset, one.message) for one in result.findings] == [
        (row["file"], row["rule"], row["position"], row["offset"], row["message"]) for row in printed
    ]
    assert (result.verdict, result.summary.errors, result.summary.lost_bytes) == (
        summary["verdict"],
        summary["errors"],
        summary["lost_bytes"],
    )


def test_settings_weigh_findings() -> None:
    """Severities are the caller's choice, as with ``--rule``."""
    path = FINDINGS / "crc-mismatch" / "00000000000000000000.log"
    assert kseg.validate(path).verdict == "damaged"
    policy = kseg.Policy.parse(["crc-mismatch=ignore", "lost-bytes=ignore"])
    assert kseg.validate(path, settings=kseg.Settings(policy=policy)).summary.errors == 0


def test_one_file_that_cannot_be_read_raises(tmp_path: Path) -> None:
    """The caller named this file: an empty result would look like success."""
    with pytest.raises(kseg.UnreadableError):
        kseg.validate(tmp_path / "missing.log")
    with pytest.raises(kseg.UnreadableError, match="no segment found"):
        kseg.validate(tmp_path)


def test_a_file_of_a_folder_that_cannot_be_read_is_a_result(tmp_path: Path) -> None:
    """One unreadable file must not hide the findings in the others."""
    folder = tmp_path / "orders-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder)
    (folder / "00000000000000000024.log").unlink()
    (folder / "00000000000000000024.log").symlink_to(tmp_path / "missing")
    result = kseg.validate(folder)
    assert result.verdict != "sound"
    assert len(result.files) > 5
    assert set(result.unread) <= {str(folder / "00000000000000000024.log")}


def test_a_segment_is_validated_with_what_kseg_exports() -> None:
    """``validate_segment`` accepts a path, or a SegmentFile with its indexes."""
    path = str(SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log")
    assert kseg.validate_segment(path).summary.verdict == "sound"
    file = kseg.SegmentFile(path, indexes=(path.replace(".log", ".index"),))
    (index,) = kseg.validate_segment(file, kseg.Settings(deep=False)).indexes
    assert index.summary.verdict == "sound"


def test_findings_as_arrow() -> None:
    """The findings have the columns of Spark's view."""
    pytest.importorskip("pyarrow")
    result = kseg.validate(FINDINGS / "crc-mismatch")
    batch = result.to_arrow()
    assert batch.column("message").to_pylist() == [finding.message for finding in result.findings]
    assert kseg.validate(SEGMENTS / "4.3.0-v2-none").to_arrow().num_rows == 0
