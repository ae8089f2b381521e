"""Each rule has a damaged file of a real broker, and the test compares all findings of this file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import UnreadableError
from kseg.findings import RULES, Finding
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import Source
from tools import make_findings
from tools.make_findings import CASES, FINDINGS, SEGMENTS, WITHOUT_FILE, settings_of

FOLDERS = sorted(path.parent for path in FINDINGS.glob("*/expect.jsonl"))
#: Facts that depend on the day: how far ahead of now a timestamp is.
OF_TODAY = {"future-timestamp": "ahead"}


def files_in(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    named = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: data for name, data in named.items() if make_findings.is_judged(Path(name))}


def fixture_path(folder: Path) -> Path:
    """Return the one file of a fixture, or its folder if the rule needs a folder."""
    files = files_in(folder)
    return folder / next(iter(files)) if len(files) == 1 else folder


def without_today(row: dict[str, Any]) -> dict[str, Any]:
    fact = OF_TODAY.get(row.get("rule", ""))
    if not fact:
        return row
    facts = {name: value for name, value in row["facts"].items() if name != fact}
    return {**row, "message": row["message"].replace(row["facts"][fact], "…"), "facts": facts}


def test_every_rule_has_a_folder_and_a_way_to_make_it() -> None:
    """A rule without a damaged fixture is never shown to work."""
    assert {folder.name for folder in FOLDERS} | {WITHOUT_FILE} == set(RULES)
    assert set(CASES) | {WITHOUT_FILE} == set(RULES)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_findings_are_exact(folder: Path) -> None:
    """One cause gives one finding, with its position, and no second finding for its consequences."""
    expected = [json.loads(line) for line in (folder / "expect.jsonl").read_text(encoding="utf-8").splitlines()]
    assert folder.name in {row.get("rule") for row in expected}
    found = make_findings.findings(fixture_path(folder), settings_of(folder))
    # Through JSON, as a consumer of the rows gets them.
    rows = [json.loads(json.dumps(row)) for row in found]
    assert list(map(without_today, rows)) == list(map(without_today, expected))


@pytest.mark.parametrize("rule", CASES)
def test_folders_are_what_the_verbs_make(rule: str) -> None:
    """A fixture that was edited by hand, or made from another segment, would not represent real files."""
    case = CASES[rule]
    assert files_in(FINDINGS / rule) == make_findings.made(case)
    assert settings_of(FINDINGS / rule) == case.settings


def test_a_failing_read_in_the_middle_is_one_finding() -> None:
    """A caller that does not ask for the finding gets an exception. No byte is lost: it was not read.

    A read error can't be stored in a file, so the test reads unmapped memory of a process.

    Reading the segment into memory first leaves the source where the next read fails with EIO.
    """
    data = (SEGMENTS / "4.3.0-v2-none" / make_findings.FIRST).read_bytes()
    cut = data[: len(data) - 4000]
    found: list[Finding] = []
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        source = Source("00000000000000000000.log", _FileThenHole(cut, memory), len(data))
        with SegmentReader(source, report=found.append, reports_read_error=True) as reader:
            batches = sum(window.batches.count for window in reader.windows())
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        again = Source("00000000000000000000.log", _FileThenHole(cut, memory), len(data))
        with pytest.raises(UnreadableError, match=f"byte {len(cut)}: "), SegmentReader(again) as raising:
            list(raising.windows())
    assert batches == 4
    assert found == [Finding("read-error", position=len(cut), facts={"why": os.strerror(5), "errno": 5})]
    assert reader.lost_bytes == 0


class _FileThenHole:
    """A disk whose first sectors can be read and whose next sectors fail."""

    def __init__(self, data: bytes, memory: Any) -> None:
        self._data = data
        self._memory = memory

    def readinto(self, view: memoryview) -> int:
        if not self._data:
            self._memory.seek(1)
            count: int = self._memory.readinto(view)
            return count
        count = min(len(view), len(self._data))
        view[:count] = self._data[:count]
        self._data = self._data[count:]
        return count

    def close(self) -> None:
        self._memory.close()
