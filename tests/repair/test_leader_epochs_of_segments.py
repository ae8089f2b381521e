"""Leader epochs are outside of the CRC: which of them a repair replaces, and by what, in small segments written by hand."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.repair.repair_losses import CorrectedBatch, SegmentRepair
from kseg.commands.repair.repaired_checkpoints import EpochCorrector, EpochEvidence
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import LeaderEpoch
from kseg.format.storage.source import Source
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support import damage
from tests.support.cli import invoke

STEP = 1_000_000
#: Epochs of batches, the evidence around them, and the epochs after the repair. The offset of a batch is its index.
Case = tuple[list[int], dict[str, Any], list[int]]
CASES: list[Case] = [
    ([1, 1, 2], {}, [1, 1, 2]),
    ([0, STEP * 2], {}, [0, STEP * 2]),
    # One is lower than the one before it; or all later ones are lower.
    ([1, 1, 0, 1], {}, [1, 1, 1, 1]),
    ([1, 1, 0, 2], {}, [1, 1, 1, 2]),
    ([1, 1, 0, 0], {}, [1, 1, 1, 1]),
    ([0, 0, 5, 1, 1], {}, [0, 0, 0, 1, 1]),
    ([0, 5, 0, 0], {}, [0, 0, 0, 0]),
    ([0, 7, 2], {}, [0, 0, 2]),
    ([5, 1, 1], {}, [1, 1, 1]),
    ([5, 5, 1, 1], {}, [5, 5, 5, 5]),
    ([5, 5, 1, 6], {}, [5, 5, 5, 6]),
    ([0, 5, 5, 1], {}, [0, 5, 5, 5]),
    # None is below 0: it is the one before it, otherwise the next one, otherwise 0.
    ([-1, 3], {}, [3, 3]),
    ([3, -1, 4], {}, [3, 3, 4]),
    ([0, -1, 4], {}, [0, 0, 4]),
    ([-1], {}, [0]),
    ([-1, -1], {}, [0, 0]),
    ([-1, 3], {"negative": False}, [-1, 3]),
    ([3, -1, 2], {"negative": False}, [2, -1, 2]),
    # The first one is lower than that of earlier segments, and the next one is not.
    ([2, 5], {"before": 5}, [5, 5]),
    ([2, 6], {"before": 5}, [5, 6]),
    ([2, 2], {"before": 5}, [2, 2]),
    ([4, 4, 5], {"before": 5}, [4, 4, 5]),
    ([5, 5], {"before": 5}, [5, 5]),
    ([2], {"before": 5}, [2]),
    ([2], {"before": 5, "following": [5]}, [5]),
    ([2], {"before": 5, "following": [4]}, [2]),
    ([-1, 7], {"before": 5}, [5, 7]),
    ([-1, 3], {"before": 5}, [3, 3]),
    ([-1], {"before": 5}, [5]),
    # The last one: lower ones follow in the next segment, and the checkpoint lacks it, or there are two and no checkpoint.
    ([1, 9], {}, [1, 9]),
    ([1, 9], {"following": [1, 1]}, [1, 1]),
    ([0, 9], {"following": [1, 1]}, [0, 0]),
    ([1, 9], {"following": [1]}, [1, 9]),
    ([1, 9], {"following": [1], "stored": [(1, 0)]}, [1, 1]),
    ([1, 9], {"following": [0, 0]}, [1, 9]),
    ([1, 9], {"following": [9, 9]}, [1, 9]),
    ([1, 9], {"following": [8, 8]}, [1, 1]),
    ([1, 9], {"following": [1, 1], "stored": [(1, 0), (9, 1)]}, [1, 9]),
    ([1, 9], {"following": [1, 1], "stored": [(1, 0), (9, 2)]}, [1, 1]),
    ([9], {"following": [4, 3]}, [3]),
    ([9], {"following": [4, 4], "stored": [(2, 0)]}, [2]),
    ([9], {"following": [4, 4], "before": 3}, [3]),
    # Or no elections can make the step from the one before it, which the checkpoint has.
    ([1, 1 + STEP], {"stored": [(1, 0)]}, [1, 1 + STEP]),
    ([1, 2 + STEP], {"stored": [(1, 0)]}, [1, 1]),
    ([1, 2 + STEP], {"stored": [(0, 0)]}, [1, 2 + STEP]),
    ([1, 2 + STEP], {"stored": [(1, 0)], "following": [2 + STEP]}, [1, 2 + STEP]),
    ([2 + STEP], {"stored": [(1, 0)]}, [1]),
    # The checkpoint has one between both.
    ([1, 1, 0, 4], {"stored": [(2, 2)]}, [1, 1, 2, 4]),
    ([1, 1, 0, 4], {"stored": [(4, 2)]}, [1, 1, 4, 4]),
    ([1, 1, 0, 4], {"stored": [(5, 2)]}, [1, 1, 1, 4]),
    ([1, 1, 0, 4], {"stored": [(0, 2)]}, [1, 1, 1, 4]),
    ([1, 1, 0, 4], {"stored": [(2, 3)]}, [1, 1, 1, 4]),
    ([1, 0, 4], {}, [0, 0, 4]),
    ([1, 0, 4], {"stored": [(1, 0)]}, [1, 1, 4]),
    ([1, 0, 4], {"stored": [(1, 1)]}, [0, 0, 4]),
    # It has the one that later ones contradict.
    ([1, 9, 4], {"stored": [(1, 0), (9, 1)]}, [1, 9, 9]),
    ([1, 9, 4], {"stored": [(1, 0), (9, 2)]}, [1, 1, 4]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_impossible_epoch_becomes_that_of_the_batches_around_it(
    case: tuple[list[int], dict[str, Any], list[int]],
) -> None:
    """Each change is reported with the place of its batch, and counted; without a file they are only reported."""
    epochs, given, expected = case
    parts = [
        build_batch([PlainRecord(n, b"k", b"v", 1)], partition_leader_epoch=epoch) for n, epoch in enumerate(epochs)
    ]
    data, size = b"".join(parts), len(parts[0])
    around = EpochEvidence(
        given.get("before", -1),
        lambda: given.get("following", ()),
        [LeaderEpoch(*entry) for entry in given.get("stored", ())],
    )
    changed = [n for n, epoch in enumerate(epochs) if epoch != expected[n]]
    for out in (io.BytesIO(b"before" + data), None):
        reported: list[Any] = []
        tally = SegmentRepair("source", "target", bytes_after=6 + len(data))
        corrector = EpochCorrector(out, tally, reported.append, around=around, negative=given.get("negative", True))
        with SegmentReader(Source("s", io.BytesIO(data), len(data))) as reader:
            for window in reader.windows():
                corrector.correct_window(window.batches, 0, window.batches.count, 6)
        corrector.finish()
        assert (tally.mended, tally.epochs_mended) == (len(changed), len(changed))
        assert all(isinstance(one, CorrectedBatch) for one in reported)
        places = [n for one in reported for n in range(one.position // size, one.end // size)]
        assert sorted(places) == changed
        for one in reported:
            count = (one.end - one.position) // size
            assert one.why.endswith(f" in {count} batches") == (count > 1)
        assert [one.rule == "negative-leader-epoch" for one in reported] == [
            epochs[one.position // size] < 0 for one in reported
        ]
        if out is not None:
            written = out.getvalue()[6:]
            assert [damage.get(written, n * size, "partition_leader_epoch") for n in range(len(epochs))] == expected
            if changed:
                assert out.tell() == 6 + len(data), "more batches are appended"


def _batch_of(offset: int, epoch: int) -> bytes:
    record = PlainRecord(offset, None, b"v", STEP)
    if epoch < 0:
        return build_message(record, magic=1)
    return build_batch([record], base_offset=offset, partition_leader_epoch=epoch)


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([-1, -1, 3, 3, 5], ["3 2", "5 4"]),
        ([1, -1, 2], ["2 2"]),
        ([2, -1, 2, 2], ["2 2"]),
        ([1, 2, -1], None),
        ([-1, -1], None),
    ],
)
def test_a_new_checkpoint_begins_after_the_last_batch_of_an_old_version(
    epochs: list[int], expected: list[str] | None, tmp_path: Path
) -> None:
    """A broker clears the checkpoint when it appends a v0 or v1 batch, here with epoch -1 (``UnifiedLog.append``)."""
    for split in range(len(epochs)):
        source, target = tmp_path / str(split) / "t-0", tmp_path / f"{split}-new"
        source.mkdir(parents=True)
        data = [_batch_of(offset, epoch) for offset, epoch in enumerate(epochs)]
        for first, part in ((0, data[: split or None]), (split, data[split:])):
            (source / f"{first:020}.log").write_bytes(b"".join(part))
        assert invoke("repair", source, target).exit_code == 0
        path = target / "leader-epoch-checkpoint"
        assert (path.read_text().splitlines()[2:] if path.exists() else None) == expected
        assert "missing-epochs" not in invoke("validate", "--format", "jsonl", target).stdout
