"""A broker deletes a partition or rolls a segment while it is validated: that is no error, at whatever moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.commands.validate.validate import SegmentWithIndexes
from kseg.format.checks.batch_checks import CheckState
from kseg.format.segment.segment_reader import Window
from kseg.format.sidefiles.indexes import TIME_ENTRY, StaleEntries
from tests.support.cli import invoke
from tests.support.folders import copied, rules


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
