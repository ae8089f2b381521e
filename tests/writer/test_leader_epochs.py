"""Leader epochs that kseg writes: never negative, never decreasing, and a checkpoint that agrees with the batches."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan as RepairPlan
from kseg.format.segment import several_processes
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import LeaderEpoch
from kseg.format.storage.source import open_source
from kseg.format.writer.written_side_files import merged
from tests.support.cli import SEGMENTS, invoke
from tests.support.replicated import NAME, batch, fill, logs, messages, negative
from tools.make_findings import findings

EPOCHS = "leader-epoch-checkpoint"


def epochs_of(folder: Path) -> list[int]:
    """Return the leader epochs of all batches, in the order of the log."""
    found: list[int] = []
    for path in sorted(folder.glob("*.log")):
        with SegmentReader(open_source(str(path)), report=lambda finding: None) as reader:
            for window in reader.windows():
                found += [window.batches.partition_leader_epoch[row] for row in range(window.batches.count)]
    return found


def errors(folder: Path) -> list[str]:
    return [row["rule"] for row in findings(folder, {}) if row.get("severity") in ("error", "warning")]


@pytest.mark.parametrize("name", logs())
def test_a_converted_folder_is_in_order(name: str, tmp_path: Path) -> None:
    """v0 and v1 batches get 0 or the epoch before them, also across segments; the checkpoint agrees with the batches."""
    source = fill(tmp_path / f"{name}-0", logs()[name])
    target = tmp_path / "out-0"
    convert(str(source), str(target), ConversionPlan.of("any-to-v2"))
    found = epochs_of(target)
    assert found == sorted(found)
    assert found[0] >= 0
    assert errors(target) == []
    assert (target / EPOCHS).exists()
    own = [epoch for epoch in epochs_of(source) if epoch >= 0]
    assert set(found) == set(own) | {found[0]}


@pytest.mark.slow
def test_the_number_of_processes_changes_no_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range after one with epochs begins with batches without one."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 4096)
    upgraded = b"".join(messages(n, 10, 1) for n in range(0, 200, 10)) + b"".join(
        batch(n, 10, 3) for n in range(200, 400, 10)
    )
    downgraded = upgraded + b"".join(messages(n, 10, 1, "gzip") for n in range(400, 900, 10))
    for name, data in (("upgraded", upgraded), ("downgraded", downgraded)):
        source = fill(tmp_path / name, {NAME: data}) / NAME
        outputs = []
        for jobs in (1, 3):
            target = tmp_path / f"{name}-{jobs}" / NAME
            target.parent.mkdir()
            convert(str(source), str(target), ConversionPlan.of("any-to-v2"), jobs=jobs)
            outputs.append(target.read_bytes())
        assert outputs[0] == outputs[1], name
        found = epochs_of(tmp_path / f"{name}-1")
        assert found == sorted(found)
        assert set(found) == {0, 3}


@pytest.mark.parametrize(
    ("entries", "runs", "end", "expected"),
    [
        ([], [[0, 5, 9]], None, [(0, 5)]),
        ([(3, 100)], [[0, 0, 99], [3, 100, 200]], None, [(0, 0), (3, 100)]),
        # An epoch without batches is kept, one that contradicts them is removed.
        ([(1, 0), (2, 50), (4, 120)], [[1, 0, 49], [3, 60, 110]], None, [(1, 0), (2, 50), (3, 60), (4, 120)]),
        ([(2, 20)], [[1, 0, 49], [3, 60, 110]], None, [(1, 0), (3, 60)]),
        # The log's start increased; its end decreased.
        ([(1, 40), (5, 900)], [[1, 70, 99]], 100, [(1, 40)]),
        ([(0, 7)], [[0, 3, 9]], None, [(0, 3)]),
    ],
)
def test_a_merged_checkpoint(
    entries: list[tuple[int, int]], runs: list[list[int]], end: int | None, expected: list[tuple[int, int]]
) -> None:
    """Epochs and start offsets both increase, as LeaderEpochFileCache demands."""
    assert merged([LeaderEpoch(*entry) for entry in entries], runs, end) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_repaired_epochs_are_in_order(seed: int, tmp_path: Path) -> None:
    """Some epochs negative, some too low or too high: none is left, and no batch is lost."""
    noise = random.Random(seed)
    true = sorted(noise.randrange(4) for _ in range(40))
    wrong = {
        noise.choice([19, 20, *range(1, 39)]): noise.choice([-1, -(2**31), 2**30]) for _ in range(noise.randrange(1, 4))
    }
    if noise.random() < 0.3:
        wrong[0] = -1
    batches = [batch(10 * n, 10, wrong.get(n, epoch)) for n, epoch in enumerate(true)]
    half = f"{200:020}.log"
    source = fill(tmp_path / "in-0", {NAME: b"".join(batches[:20]), half: b"".join(batches[20:])})
    repair(str(source), str(tmp_path / "out-0"), RepairPlan())
    found = epochs_of(tmp_path / "out-0")
    assert len(found) == 40
    if not all(wrong.get(n, -1) > 4 for n in (19, 20)):  # two batches in a row with one epoch prove each other
        assert found == sorted(found)
        assert all(epoch == true[n] for n, epoch in enumerate(found) if n not in wrong)
        assert errors(tmp_path / "out-0") == []
    assert min(found) >= 0
    assert (tmp_path / "out-0" / EPOCHS).exists()


STORED = b"0\n2\n1 0\n2 100\n"


@pytest.mark.parametrize(
    ("first", "second", "stored", "expected"),
    [
        # All following batches have lower epochs, and the checkpoint does not have it, or is missing.
        ([1, 1, 66], [1, 1], None, 1),
        ([1, 1, 66], [2], STORED, 2 - 1),
        ([1, 1, 2], [1, 1], b"0\n1\n1 0\n", 1),
        # One batch against another, without a checkpoint; an epoch that the checkpoint has.
        ([1, 1, 66], [1], None, 66),
        ([1, 1, 2], [1, 1], b"0\n2\n1 0\n2 20\n", 2),
        # A newer epoch in the last batch is usual.
        ([1, 1, 2], [2, 2], STORED, 2),
        ([1, 1, 2], [3], None, 2),
        # The end of the log: one flipped bit against the checkpoint; not 1 more, not several bits, not two batches.
        ([1, 1, 1 | 1 << 30], [], b"0\n1\n1 0\n", 1),
        ([2, 2, 3], [], b"0\n1\n2 0\n", 3),
        ([1, 1, 6], [], b"0\n1\n1 0\n", 6),
        ([1, 9, 9], [], b"0\n1\n1 0\n", 9),
        ([1, 1, 9], [], b"0\n2\n1 0\n9 20\n", 9),
        ([1, 1, 9], [], None, 9),
        # Further than elections can lead, though several bits differ; without a checkpoint it is a guess.
        ([1, 1, 2_000_000_000], [], b"0\n1\n1 0\n", 1),
        ([2_000_000_000], [], b"0\n1\n1 0\n", 1),
        ([1, 1, 2_000_000_000], [], None, 2_000_000_000),
        # The only batch of its segment.
        ([66], [1, 1], None, 1),
    ],
)
def test_the_last_epoch_of_a_segment_is_lowered_only_if_it_is_proved_wrong(
    first: list[int], second: list[int], stored: bytes | None, expected: int, tmp_path: Path
) -> None:
    """A broker takes a leader epoch above its own as a newer leader's: replicas truncate, or never agree."""
    logs = {NAME: first, f"{10 * len(first):020}.log": second}
    files = {
        name: b"".join(batch(int(name[:20]) + 10 * n, 10, epoch) for n, epoch in enumerate(epochs))
        for name, epochs in logs.items()
        if epochs
    }
    source = fill(tmp_path / "in-0", {**files, **({} if stored is None else {EPOCHS: stored})})
    repair(str(source), str(tmp_path / "out-0"), RepairPlan())
    assert epochs_of(tmp_path / "out-0")[len(first) - 1] == expected
    if expected < first[-1]:
        assert errors(tmp_path / "out-0") == []


def test_negative_epochs_of_earlier_versions_become_0(tmp_path: Path) -> None:
    """A whole partition with -1, as kseg once converted: one entry of the report per segment, epoch 0, a checkpoint."""
    data = b"".join(batch(n, 10, 0) for n in range(0, 200, 10))
    source = fill(tmp_path / "in-0", {NAME: negative(data), EPOCHS: b"0\n0\n"})
    reported: list[object] = []
    result = repair(str(source), str(tmp_path / "out-0"), RepairPlan(), reported.append)
    assert (len(reported), result.segments[0].mended) == (1, 20)
    assert (tmp_path / "out-0" / NAME).read_bytes() == data
    assert (tmp_path / "out-0" / EPOCHS).read_text() == "0\n1\n0 0\n"
    assert "negative-leader-epoch" in errors(source)


def test_a_checkpoint_written_meanwhile_is_not_compared(tmp_path: Path) -> None:
    """A follower that starts over, or deletes old segments, clears epochs of segments that were just read."""
    folder = fill(tmp_path / "in-0", {NAME: batch(0, 10, 3), EPOCHS: b"0\n1\n2 0\n"})
    assert errors(folder) == ["epoch-mismatch"]
    later = time.time() + 1000
    os.utime(folder / EPOCHS, (later, later))
    assert errors(folder) == []


def test_record_sets_of_producers_have_no_epoch(tmp_path: Path) -> None:
    """-1 is normal in a record set that is not a log."""
    path = tmp_path / "set"
    path.write_bytes(negative(batch(0, 10, 0)))
    found = [row["rule"] for row in findings(path, {"framing": "message-set"}) if row["kind"] == "finding"]
    assert "negative-leader-epoch" not in found


@pytest.mark.parametrize("text", [None, "0\n0\n"], ids=["absent", "empty"])
def test_a_checkpoint_without_entries_is_one_that_is_absent(text: str | None, tmp_path: Path) -> None:
    """A broker reads the same from both: no epochs. It is a warning: the log has them, and consumers lose nothing."""
    folder = tmp_path / "orders-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder, ignore=shutil.ignore_patterns("ORIGIN", "expect*"))
    checkpoint = folder / "leader-epoch-checkpoint"
    checkpoint.unlink()
    if text is not None:
        checkpoint.write_text(text)
    done = invoke("validate", "--format", "jsonl", folder)
    found = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    assert [(row["rule"], row["severity"]) for row in found] == [("missing-epochs", "warning")]
    assert done.exit_code == 0
