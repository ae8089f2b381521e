"""Pipelines of many segments: the number of calls, the work of a plan, and the inventory."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from kseg.extras.pipeline import load_rows
from kseg.extras.pipeline.checked_segments import CheckedSegment, Inventory
from kseg.extras.pipeline.lake_table import TableState, open_table
from kseg.extras.pipeline.load_rows import LoadPlan, Part, PlanRules
from kseg.extras.pipeline.offset_plan import plan_partition
from kseg.extras.pipeline.pipeline_settings import read_settings
from kseg.extras.pipeline.pipeline_state import PipelineState
from kseg.extras.pipeline.source_replicas import Loaded, SourceReplica
from kseg.format.storage.segment_files import SegmentFile
from tests.support.growing_logs import batch, write
from tests.support.pipelines import config, run_here


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[0], [1], [1, 999], [5, 5, 5000]])
def test_a_load_of_many_segments_has_a_bounded_number_of_calls(tmp_path: Path, sizes: list[int]) -> None:
    """However small the files of a table are, and however the sizes of the segments differ. No part is left out."""
    table = open_table(read_settings(str(config(tmp_path, table='file_size = "1 B"'))), "orders")
    checked = CheckedSegment(SegmentFile("a", size=1), 1, 1, 1, 1, 1, 0)
    of_sizes = [replace(checked, bytes=size) for size in sizes]
    count = 50_000
    parts = tuple(Part(of_sizes[at % len(sizes)], at, at + 1) for at in range(count))
    plans = [
        LoadPlan(("orders", 0), 0, count // 2, count, parts[: count // 2]),
        LoadPlan(("orders", 1), count // 2, count, count, parts[count // 2 :]),
    ]
    tasks = list(load_rows.tasks_of(table, "run", plans))
    assert len(tasks) <= load_rows.MOST_TASKS
    assert [part.first for task in tasks for part, _ in task.parts] == list(range(count))
    assert all(plan.name == f"orders-{part.first // (count // 2)}" for task in tasks for part, plan in task.parts)


def test_a_plan_of_many_segments_looks_at_each_of_them_once() -> None:
    """Two replicas of 10,000 segments: each offset is planned once, from the longer segment."""
    checked, replicas = {}, []
    for folder, step in (("a/orders-0", 10), ("b/orders-0", 20)):
        segments = []
        for first in range(0, 10_000 * step, step):
            listed = SegmentFile(f"{folder}/{first:020}.log", size=100)
            checked[listed.path] = CheckedSegment(listed, first + step, 100, 100, 1, step, 0)
            segments.append(listed)
        replicas.append(SourceReplica(folder, segments))
    began = time.process_time()
    plan = plan_partition(("orders", 0), replicas, checked, None, PlanRules())
    assert time.process_time() - began < 5  # with a look at all segments at each step: minutes
    assert (plan.end, plan.failure, len(plan.parts)) == (200_000, None, 10_000)
    assert [part.first for part in plan.parts] == list(range(0, 200_000, 20))


def test_the_inventory_has_the_newest_version_of_each_segment(tmp_path: Path) -> None:
    """A version that was checked is known in the next run with all its facts; one that was replaced is not."""
    state = PipelineState(str(tmp_path))
    checked = CheckedSegment(
        SegmentFile("a.log"), 9, 90, 100, 3, 9, 10, [{"rule": "x"}], None, [(4, 5, 0)], [(1, 2)], True, [(3, 4)]
    )
    for inode, path in ((1, "a.log"), (1, "b.log"), (2, "a.log")):
        inventory = Inventory(state)
        inventory._add(replace(checked, file=SegmentFile(path, size=1, stamp=(1, 1, inode))))
        inventory.save()
    inventory = Inventory(state)
    for inode, path, known in (
        (2, "a.log", True),
        (1, "b.log", True),
        (1, "a.log", False),
        (1, "c.log", False),
    ):
        listed = SegmentFile(path, size=1, stamp=(1, 1, inode))
        assert inventory.is_known(listed) == known
        assert inventory.known([listed]) == ({path: replace(checked, file=listed)} if known else {})


def test_a_segment_that_was_written_lately_waits(tmp_path: Path) -> None:
    """``settle``: of a segment that is still copied, a run would have a part; the next run loads it and the later ones."""
    (tmp_path / "source").mkdir()
    written = [write(tmp_path / "source" / "orders-0", [batch(first)], first=first) for first in range(3)]
    for path in (written[0], written[2]):
        os.utime(path, (time.time() - 3600,) * 2)
    assert run_here(config(tmp_path, more='settle = "10 min"')).rows == {"orders": 4}
    assert run_here(config(tmp_path)).rows == {"orders": 8}


def test_a_state_of_an_older_version_has_no_leader_epoch() -> None:
    """Tables that were loaded before it was kept are continued; the next load adds it."""
    state = TableState.of_json('{"run":"r","rows":3,"offsets":{"a-0":[5,"id"],"a-1":[7,null,2]}}')
    assert state.offsets == {"a-0": Loaded(5, "id", None), "a-1": Loaded(7, None, 2)}
    assert TableState.of_json(state.to_json()) == state
