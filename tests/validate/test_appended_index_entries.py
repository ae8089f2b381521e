"""Next to a broker the log and its transaction index grow while they are read."""

import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kseg.commands.validate.txn_index_check import TxnIndexCheck
from kseg.commands.validate.validate import validate_segment
from kseg.findings import Finding
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.indexes import ABORTED_TXN
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import open_source
from tests.support.fixtures import SEGMENTS

FOLDER = SEGMENTS / "4.3.0-v2-none-transactions"
STEM = f"{17:020}"


@pytest.mark.parametrize("late", [False, True], ids=["written-while-read", "a-moment-late"])
@pytest.mark.parametrize("entries", [None, 0, 1])
def test_entries_appended_after_the_index_was_opened_are_read(
    entries: int | None, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preallocated segment shows markers whose entries, or whose index, were not written when the index was opened."""
    log, index = (tmp_path / f"{STEM}{suffix}" for suffix in (".log", ".txnindex"))
    shutil.copy(FOLDER / log.name, log)
    content = (FOLDER / index.name).read_bytes()
    if entries is not None:
        index.write_bytes(content[: entries * ABORTED_TXN.size])
    findings: list[Finding] = []
    with ExitStack() as stack:
        source = None if entries is None else stack.enter_context(open_source(str(index)))
        reader = stack.enter_context(SegmentReader(open_source(str(log))))
        check = TxnIndexCheck(source, 17, findings.append, str(index), growing=True)
        if late:
            monkeypatch.setattr(time, "sleep", lambda _seconds: index.write_bytes(content))
        else:
            index.write_bytes(content)
        for window in reader.windows():
            check.update(window)
        check.finish(whole=True)
    assert findings == []


def test_an_index_that_a_broker_deleted_is_no_failure(tmp_path: Path) -> None:
    """Compaction replaces a segment's files between the listing and the reading."""
    for suffix in (".log", ".index"):
        shutil.copy(FOLDER / f"{STEM}{suffix}", tmp_path)
    stem = str(tmp_path / STEM)
    file = SegmentFile(f"{stem}.log", indexes=(f"{stem}.index", f"{stem}.timeindex"), active=True, listed=True)
    result = validate_segment(file)
    assert [index.unread for index in result.indexes if not index.vanished] == [None]
