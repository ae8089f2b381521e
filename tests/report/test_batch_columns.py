"""Batches as Arrow columns: the values of a window's headers at once are those of one batch after the other."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.errors import NotASegmentError
from kseg.extras.views.view_table import VIEWS
from kseg.format.record.layout import LAST_MILLISECOND
from kseg.format.segment.records_chunk import batch_row, record_batch
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from kseg.report.arrow_table import ColumnPlace, batch_rows, from_rows
from tests.support.fixtures import SEGMENTS


@pytest.mark.slow
def test_columns_are_those_of_each_batch() -> None:
    """One declaration of a batch: for all versions, codecs and timestamps, of all rows and of some, and of damaged ones."""
    columns, random, versions, seen = VIEWS["batches"].columns, Random(5), set(), 0
    paths = sorted([*SEGMENTS.rglob("*.log"), *(SEGMENTS.parent / "findings").rglob("*.log")])
    for path in paths:
        try:
            with SegmentReader(open_source(str(path)), verify_crc=random.random() < 0.9) as reader:
                for window in reader.windows():
                    batches = window.batches
                    if random.random() < 0.2:
                        batches.max_timestamp[0] = random.choice((-1, -5, LAST_MILLISECOND + 1, 1 << 62))
                    some = sorted(random.sample(range(batches.count), random.randint(1, batches.count)))
                    for rows in (None, some):
                        numbers = range(batches.count) if rows is None else rows
                        wanted = [batch_row(str(path), record_batch(batches, row)) for row in numbers]
                        found = batch_rows(columns, ColumnPlace.of(str(path)), batches, rows)
                        assert found.equals(from_rows(columns, wanted)), path
                        pruned = random.sample(columns, 4)
                        assert batch_rows(pruned, ColumnPlace.of(str(path)), batches, rows).equals(
                            from_rows(pruned, wanted)
                        )
                    versions |= {(row["magic"], row["compression"], row["timestamp_type"]) for row in wanted}
                    seen += batches.count
        except NotASegmentError:
            continue
    assert seen > 1000
    assert {version[0] for version in versions} == {0, 1, 2}
    assert len(versions) > 12
