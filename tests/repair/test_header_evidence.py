"""Leader epochs and base offsets, which no CRC covers, become what the broker wrote, or stay as they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

import kseg
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.format.record.layout import PARTITION_LEADER_EPOCH_AT
from kseg.format.writer.records_builder import PlainRecord, build_batch


def _batch(offset: int, epoch: int = 0) -> bytes:
    record = PlainRecord(offset, b"key", b"value", 1_700_000_000_000 + offset)
    return build_batch([record], partition_leader_epoch=epoch)


def _partition(folder: Path, segments: Sequence[Sequence[int]]) -> list[tuple[Path, int]]:
    """Write segments of batches with one record and the given leader epochs. Return the place of each batch."""
    folder.mkdir(parents=True)
    places, offset = [], 0
    for epochs in segments:
        path, data = folder / f"{offset:020}.log", b""
        for epoch in epochs:
            places.append((path, len(data)))
            data += _batch(offset, epoch)
            offset += 1
        path.write_bytes(data)
    return places


def _epochs(folder: Path) -> list[int]:
    return [
        batch.partition_leader_epoch or 0
        for path in sorted(folder.glob("*.log"))
        for batch in kseg.open_segment(path).batches()
    ]


@pytest.mark.parametrize("epoch", [5, 6, 7, 8, 12, 20, 4 + 1024])
def test_an_epoch_that_two_elections_can_make_stays(epoch: int, tmp_path: Path) -> None:
    """The checkpoint can be an older copy. A lower epoch would make the batch that of an earlier leader."""
    source = tmp_path / "orders-0"
    _partition(source, [[4, 4, epoch]])
    (source / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
    repair(str(source), str(tmp_path / "new"), RepairPlan())
    assert _epochs(tmp_path / "new") == [4, 4, epoch]


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("segments", [[[0, 0, 1], [2, 2, 2]], [[1, 1], [2, 2, 3], [3, 3, 4]]], ids=str)
def test_a_lower_leader_epoch_is_corrected(segments: list[list[int]], checkpoint: bool, tmp_path: Path) -> None:
    """One batch at a time gets each lower epoch, also the first one of a segment.

    With the checkpoint all get the epochs that they had, without it an order that can be right. The first batch of the log
    can have any epoch, and the last one can be all that is left of a log with lower ones.
    """
    right = list(itertools.chain(*segments))
    entries = {epoch: right.index(epoch) for epoch in right}
    for number, epoch in ((n, epoch) for n in range(1, len(right) - 1) for epoch in range(right[n])):
        if epoch >= right[number - 1]:
            continue  # in order
        source = tmp_path / f"{number}-{epoch}" / "orders-0"
        path, position = _partition(source, segments)[number]
        data = bytearray(path.read_bytes())
        at = position + PARTITION_LEADER_EPOCH_AT
        data[at : at + 4] = epoch.to_bytes(4, "big")
        path.write_bytes(data)
        if checkpoint:
            lines = [f"{epoch} {offset}\n" for epoch, offset in entries.items()]
            (source / "leader-epoch-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")
        target = source.with_name("repaired-0")
        repair(str(source), str(target), RepairPlan())
        found = _epochs(target)
        assert found == (right if checkpoint else sorted(found)), (number, epoch)


def test_a_snapshot_inside_of_a_merged_segment_moves_no_batch(tmp_path: Path) -> None:
    """The cleaner merged segments, and a snapshot has the name of one of them: the next segment proves the offset, too."""
    source = tmp_path / "orders-0"
    source.mkdir()
    (source / f"{0:020}.log").write_bytes(_batch(0) + _batch(1) + _batch(4))
    (source / f"{5:020}.log").write_bytes(_batch(5))
    (source / f"{3:020}.snapshot").write_bytes(b"")
    repair(str(source), str(target := tmp_path / "repaired-0"), RepairPlan())
    assert [record.offset for record in kseg.open_log_dir(target).records()] == [0, 1, 4, 5]
