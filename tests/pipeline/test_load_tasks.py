"""The calls of a load: how many there are, and that each part is in one of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.extras.pipeline import load_rows
from kseg.extras.pipeline.checked_segments import CheckedSegment
from kseg.extras.pipeline.lake_table import TableState, open_table
from kseg.extras.pipeline.load_rows import TableLoad
from kseg.extras.pipeline.offset_plan import LoadPlan, Part
from kseg.extras.pipeline.pipeline_settings import read_settings
from kseg.extras.pipeline.source_listing import ListedSegment
from kseg.format.storage.source import SegmentFile
from tests.support.pipelines import config


@pytest.mark.parametrize("sizes", [[0], [1], [1, 999], [5, 5, 5000]])
def test_a_load_of_many_segments_has_a_bounded_number_of_calls(tmp_path: Path, sizes: list[int]) -> None:
    """However small the files of a table are, and however the sizes of the segments differ. No part is left out."""
    table = open_table(read_settings(str(config(tmp_path, table='file_size = "1 B"'))), "orders")
    checked = CheckedSegment("a", "", 0, 1, 1, 1, 1, 1, 0)
    listed = ListedSegment(SegmentFile("a"), 0, 1, "")
    of_sizes = [replace(checked, bytes=size) for size in sizes]
    count = 50_000
    parts = tuple(Part(listed, of_sizes[at % len(sizes)], at, at + 1) for at in range(count))
    plans = [
        LoadPlan(("orders", 0), 0, count // 2, count, parts[: count // 2]),
        LoadPlan(("orders", 1), count // 2, count, count, parts[count // 2 :]),
    ]
    tasks = list(TableLoad(table, "run", TableState())._tasks(plans))
    assert len(tasks) <= load_rows.MOST_TASKS
    assert [part.first for task in tasks for part, _ in task.parts] == list(range(count))
    assert all(plan.name == f"orders-{part.first // (count // 2)}" for task in tasks for part, plan in task.parts)
