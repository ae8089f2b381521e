"""A broker deletes, rolls or cleans segments while they are validated: that is no error, at whatever moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kseg.commands.validate.folder_checks import _FolderChecks
from kseg.commands.validate.validate import SegmentWithIndexes
from kseg.format.checks.batch_checks import CheckState
from kseg.format.segment.segment_reader import Window
from kseg.format.sidefiles.indexes import TIME_ENTRY, StaleEntries
from kseg.format.storage.naming import CLEANER_OFFSETS
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import invoke
from tests.support.folders import copied, rules
from tests.support.records import NOW


@pytest.mark.parametrize("moment", ["before it is opened", "while it is checked"])
def test_an_index_that_is_deleted_at_any_moment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Retention deletes the newest segment with its indexes. Who has a file open reads it to its end."""
    folder = copied("4.3.0-v2-none-live", tmp_path)
    index = next(folder.glob("*.timeindex"))
    is_preallocated, check_window = StaleEntries.is_preallocated, SegmentWithIndexes.check_window

    def asked(self: StaleEntries) -> bool:
        found = is_preallocated(self)
        index.unlink(missing_ok=True)
        return found

    def checked(self: SegmentWithIndexes, window: Window, history: CheckState) -> None:
        check_window(self, window, history)
        index.unlink(missing_ok=True)

    if moment == "before it is opened":
        monkeypatch.setattr(StaleEntries, "is_preallocated", asked)
    else:
        monkeypatch.setattr(SegmentWithIndexes, "check_window", checked)
    done = invoke("validate", folder)
    assert (done.exit_code, index.exists()) == (0, False), done.output
    assert ("a broker deleted" in done.stderr) == (moment == "before it is opened")


def test_a_time_index_that_is_filled_and_trimmed_while_it_is_checked_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll writes the last entry, where the reader saw preallocated zeros (``LogSegment.onBecomeInactiveSegment``)."""
    folder = copied("4.3.0-v2-none-live", tmp_path)
    index = next(folder.glob("*.timeindex"))
    entries = index.read_bytes().rstrip(b"\0")
    entries += bytes(-len(entries) % TIME_ENTRY.size)
    index.write_bytes(entries + bytes(TIME_ENTRY.size))
    check_window = SegmentWithIndexes.check_window

    def rolled(self: SegmentWithIndexes, window: Window, history: CheckState) -> None:
        check_window(self, window, history)
        last = TIME_ENTRY.pack(max(window.batches.max_timestamp), window.batches.last_offset[-1])
        index.write_bytes(entries + last)

    monkeypatch.setattr(SegmentWithIndexes, "check_window", rolled)
    assert rules(folder) == {}
    assert index.read_bytes()[len(entries) :].strip(b"\0"), "not rolled: the test proved nothing"


def test_a_first_cleaning_that_ends_meanwhile_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner enters the partition in its checkpoint after the segments were replaced, and kseg reads it before them."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    batches = [build_batch([PlainRecord(offset, b"k", b"v", NOW)]) for offset in (0, 299)]
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    assert rules(folder) == {f"{0:020}.log": ["missing-batches"]}
    read = _FolderChecks._checkpoint

    def cleaned(self: _FolderChecks, path: str) -> Mapping[tuple[str, int], int]:
        found = read(self, path)
        if path.endswith(CLEANER_OFFSETS):
            Path(path).write_text("0\n1\nt 0 300\n")
        return found

    monkeypatch.setattr(_FolderChecks, "_checkpoint", cleaned)
    assert rules(folder) == {}
