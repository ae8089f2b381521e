"""kseg's rows are what Kafka 4.3's own reader says of the same files, field by field."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kseg.dumping.dump import dump_segment
from kseg.files.storage import SegmentFile
from kseg.findings import Finding
from kseg.output.dump import Rows, write_jsonl
from kseg.output.formats import View
from kseg.validation.validate import Settings, validate_segment

SEGMENTS = Path(__file__).parents[1] / "fixtures" / "segments"
FOLDERS = sorted(path.parent for path in SEGMENTS.glob("**/expect.jsonl"))


def expected(folder: Path) -> dict[str, list[dict[str, Any]]]:
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in (folder / "expect.jsonl").read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            by_file[row["file"]].append(row)
    return by_file


def json_rows(dumped: Rows, deep: bool) -> list[dict[str, Any]]:
    """Rows as `kseg dump --format jsonl --bytes base64` writes them."""
    raw = io.BytesIO()
    # Kept by its name: a wrapper that is let go closes what it wraps.
    out = io.TextIOWrapper(raw, encoding="utf-8")
    write_jsonl(dumped, out, View(deep=deep, encoding="base64", terminal=False))
    out.flush()
    return [json.loads(line) for line in raw.getvalue().split(b"\n") if line]


def dumped(path: Path, deep: bool) -> list[dict[str, Any]]:
    """The rows of a sound segment, the file as its base name."""
    found: list[Finding] = []
    rows = json_rows(dump_segment(str(path), deep=deep, report=found.append), deep)
    assert [finding for finding in found if finding.rule not in ("codec-quirk", "zero-tail")] == []
    return [{**row, "file": path.name} for row in rows]


def test_there_are_fixtures_of_every_generation() -> None:
    """A glob that finds nothing would let every comparison below pass."""
    versions = {folder.name.split("-")[0] for folder in FOLDERS}
    assert versions >= {"0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1", "4.3.0"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_rows_equal_kafkas(folder: Path) -> None:
    for name, wanted in expected(folder).items():
        shallow = dumped(folder / name, deep=False)
        deep = dumped(folder / name, deep=True)
        # At the zeros of a preallocated file Kafka's reader throws; kseg calls them a zero tail.
        assert shallow + deep == [row for row in wanted if row["kind"] != "error"], name
        if len(wanted) != len(shallow + deep):
            assert (folder / name).read_bytes().endswith(bytes(512))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_error_in_what_a_sound_broker_wrote(folder: Path) -> None:
    for name in expected(folder):
        result = validate_segment(SegmentFile(str(folder / name)), Settings())
        assert result.unread is None
        loud = [verdict for verdict in result.verdicts if verdict.severity > 1]
        assert [(verdict.rule.name, verdict.message) for verdict in loud] == []
