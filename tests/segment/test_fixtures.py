"""kseg's rows equal those of Kafka 4.3's own reader for the same files, field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.commands.validate.validate import validate_segment
from kseg.format.storage.segment_files import SegmentFile
from kseg.results import Settings
from tests.support.fixtures import FOLDERS, dumped, expected


def test_there_are_fixtures_of_every_generation() -> None:
    """A glob without matches would let every comparison below pass."""
    versions = {folder.name.split("-")[0] for folder in FOLDERS}
    assert versions >= {"0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1", "4.3.0"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_rows_equal_kafkas(folder: Path) -> None:
    """Every field equals that of Kafka's reader."""
    for name, wanted in expected(folder).items():
        shallow = dumped(folder / name, deep=False)
        deep = dumped(folder / name, deep=True)
        # At the zeros of a preallocated file Kafka's reader throws; kseg calls them a zero tail.
        assert shallow + deep == [row for row in wanted if row["kind"] != "error"], name
        if len(wanted) != len(shallow + deep):
            assert (folder / name).read_bytes().endswith(bytes(512))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_error_in_what_a_sound_broker_wrote(folder: Path) -> None:
    """Files of brokers have no findings of errors."""
    for name in expected(folder):
        result = validate_segment(SegmentFile(str(folder / name)), Settings())
        assert result.unread is None
        loud = [verdict for verdict in result.verdicts if verdict.severity > 1]
        assert [(verdict.rule.name, verdict.message) for verdict in loud] == []
