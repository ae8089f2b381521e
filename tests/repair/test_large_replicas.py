"""The work of a repair of several replicas grows like their batches, whatever they lack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.commands.repair.several_replicas import repair_replicas
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.damage import flip
from tests.support.records import NOW


def _batch(n: int, *, without: int | None = None, broken: bool = False, epoch: int = 0) -> bytes:
    offsets = [offset for offset in range(3 * n, 3 * n + 3) if offset != without]
    records = [PlainRecord(offset, b"k%d" % offset, b"v", NOW + offset) for offset in offsets]
    data = build_batch(records, base_offset=3 * n, last_offset=3 * n + 2, partition_leader_epoch=epoch)
    return flip(data, len(data) - 2) if broken else data


def _compacted(n: int, replica: int) -> bytes:
    """Each replica lacks another record of each batch, as two log cleaners can leave them."""
    return _batch(n, without=3 * n + replica)


def _damaged(n: int, replica: int) -> bytes:
    """Of four batches, each replica lost one that the other has, and both lost one."""
    return _batch(n, broken=n % 4 in (replica, 3))


def _mostly_lost(n: int, replica: int) -> bytes:
    return _batch(n, broken=n % 50 != replica)


def _with_garbage(n: int, replica: int) -> bytes:
    """Lost bytes without an offset between batches that are lost, too."""
    return _batch(n, broken=n % 2 == 1) + (b"\x07" * 90 if n % 2 else b"")


def _with_wrong_epochs(n: int, replica: int) -> bytes:
    return _batch(n, epoch=5 if n % 2 or replica else 4, broken=n % 8 == 7)


def _calls(sources: list[str]) -> int:
    """Return how many functions a repair calls, built-in ones too: unlike its time, this does not depend on other work."""
    count = 0

    def count_call(_frame: object, event: str, _function: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        repair_replicas(sources, None, RepairPlan(dry_run=True))
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("make", [_compacted, _damaged, _mostly_lost, _with_garbage, _with_wrong_epochs])
def test_work_grows_like_the_batches(make: Callable[[int, int], bytes], tmp_path: Path) -> None:
    """Twice as many batches take twice as much work. A walk over all losses for each batch would take four times as much."""
    calls = []
    for size in (20, 40, 80, 160):  # the first one imports modules
        folders = [tmp_path / f"{size}-{replica}" / "t-0" for replica in range(2)]
        for replica, folder in enumerate(folders):
            folder.mkdir(parents=True)
            (folder / f"{0:020}.log").write_bytes(b"".join(make(n, replica) for n in range(size)))
        calls.append(_calls([str(folder) for folder in folders]))
    _, first, second, third = calls
    assert third - second < 2.3 * (second - first), calls
