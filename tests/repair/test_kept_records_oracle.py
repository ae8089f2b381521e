"""What becomes of each record whose batch is whole, for random damage to logs whose truth is known."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repair_losses import CorrectedBatch, DuplicateBatch, LostRange
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.format.record.crc import crc32c
from kseg.format.record.layout import CRC_AT
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.fuzzing import cases
from tests.support.lost_batches import TrueLog, body, damaged, flip_base_offset, records_of, true_log

NAME = f"{0:020}.log"


def repaired(data: bytes, folder: Path, name: str = NAME) -> tuple[Path, list[LostRange]]:
    """Repair a segment; return the result and the report. The source must not change."""
    source, target = folder / "in" / name, folder / "out" / name
    for path in (source, target):
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
    source.write_bytes(data)
    rows: list[LostRange] = []
    repair(str(source), str(target), RepairPlan(), rows.append)
    assert source.read_bytes() == data
    return target, rows


def missing_bodies(log: TrueLog, data: bytes, target: Path) -> list[int]:
    """Return the first offset of each batch whose CRC is right, and that is neither in the result nor next to it."""
    unplaced = target.with_suffix(".unplaced")
    written = target.read_bytes() + (unplaced.read_bytes() if unplaced.exists() else b"")
    # Of v0 and v1 messages the CRC is before the magic.
    wholes = [(batch, records) for batch, records in log.batches if batch[12:] in data or batch[17:] in data]
    return [
        records[0][0]
        for batch, records in wholes
        if body(batch) not in written and _is_intact(batch, data) and batch not in written
    ]


def _is_intact(batch: bytes, data: bytes) -> bool:
    """Return whether a batch is in the data with all bytes that its CRC covers, and a size that frames it."""
    covered = batch[CRC_AT:] if batch[16] >= 2 else batch[12:]
    at = data.find(covered)
    begin = at - (len(batch) - len(covered))
    return at >= 0 and begin >= 0 and data[begin + 8 : begin + 12] == batch[8:12] and data[begin + 16] == batch[16]


def _wrong_offsets(log: TrueLog, target: Path) -> list[tuple[int, bytes | None]]:
    truth = {(offset, key) for _, records in log.batches for offset, key in records}
    return sorted(records_of(target) - truth, key=repr)


@pytest.mark.slow
@pytest.mark.fuzz
def test_no_valid_batch_is_dropped(tmp_path: Path) -> None:
    """A batch with a right CRC is in the result or in the file next to it, whatever happened to its base offset."""
    wrong = []
    for seed in range(cases(120)):
        dice = random.Random(seed)
        log = true_log(dice)
        data = damaged(log, dice)
        target, _ = repaired(data, tmp_path, f"{log.start:020}.log")
        if missing := missing_bodies(log, data, target):
            wrong.append((seed, log.kind, missing))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.fuzz
def test_flipped_base_offsets_of_a_dense_log_cost_nothing(tmp_path: Path) -> None:
    """Up to three flipped base offsets before the last batch leave the undamaged log, or are next to it: none is wrong."""
    wrong = []
    for seed in range(cases(120)):
        dice = random.Random(seed)
        log = true_log(dice)
        if log.kind == "compacted":
            continue  # a hole can have the wrong offset
        parts = [batch for batch, _ in log.batches]
        first = dice.randrange(1, len(parts) - 2)
        for n in {first, dice.choice([first, first + 1]), dice.randrange(1, len(parts) - 1)}:
            flip_base_offset(parts, n, dice)
        target, rows = repaired(b"".join(parts), tmp_path, f"{log.start:020}.log")
        unplaced = sum(row.unplaced for row in rows)
        if offsets := _wrong_offsets(log, target):
            wrong.append((seed, log.kind, f"wrong: {offsets}"))
        if target.read_bytes().count(b"key-") and unplaced > 3:
            wrong.append((seed, log.kind, f"{unplaced} unplaced for 3 flips"))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.fuzz
def test_swapped_batches_go_back(tmp_path: Path) -> None:
    """Two swapped batches of a dense log get their places again, byte for byte."""
    wrong = []
    for seed in range(cases(120)):
        dice = random.Random(seed)
        log = true_log(dice)
        parts = [batch for batch, _ in log.batches]
        one, other = dice.sample(range(len(parts)), 2)
        offsets = [int.from_bytes(parts[n][:8]) for n in (one, other)]
        if log.kind == "compacted" or (offsets[0] ^ offsets[1]).bit_count() == 1:
            continue  # one flipped bit in each explains it as well
        if log.kind.endswith("wrapper"):
            continue  # the header lacks the first offset
        parts[one], parts[other] = parts[other], parts[one]
        target, rows = repaired(b"".join(parts), tmp_path, f"{log.start:020}.log")
        if target.read_bytes() != b"".join(batch for batch, _ in log.batches):
            wrong.append((seed, log.kind, one, other, [row.why for row in rows]))
    assert wrong == []


def test_a_copy_of_a_batch_is_no_loss(tmp_path: Path) -> None:
    """A batch that occurs twice is kept once; the report has a duplicate, and nothing is lost."""
    log = true_log(random.Random(3))
    parts = [batch for batch, _ in log.batches]
    target, rows = repaired(b"".join([*parts[:5], parts[2], *parts[5:]]), tmp_path, f"{log.start:020}.log")
    assert target.read_bytes() == b"".join(parts)
    assert [type(row) for row in rows] == [DuplicateBatch]


def _dense(count: int) -> list[bytes]:
    return [build_batch([PlainRecord(4 * n + i, b"k", b"v") for i in range(4)]) for n in range(count)]


EMPTY_SNAPSHOT = b"\0\1" + struct.pack(">I", crc32c(memoryview(bytes(4)), 0)) + bytes(4)
#: The files that name offset 80, where the last batch ends.
ENDS = {
    "snapshot": (f"{80:020}.snapshot", EMPTY_SNAPSHOT),
    "epochs": ("leader-epoch-checkpoint", b"0\n2\n0 0\n1 80\n"),
    "index": (f"{0:020}.index", struct.pack(">ii", 79, 4)),
    "time-index": (f"{0:020}.timeindex", struct.pack(">qi", 1_700_000_000_000, 79)),
    "next": (f"{80:020}.log", build_batch([PlainRecord(80)])),
    "recovery-point": ("../recovery-point-offset-checkpoint", b"0\n1\nin 0 80\n"),
}


@pytest.mark.parametrize("evidence", ENDS)
@pytest.mark.parametrize("alone", [True, False])
def test_a_side_file_proves_the_last_base_offset(evidence: str, alone: bool, tmp_path: Path) -> None:
    """No batch follows the last one; a file next to the log shows where it ends."""
    batches = _dense(20)
    source = tmp_path / "logs" / "in-0" / NAME
    source.parent.mkdir(parents=True)
    name, content = ENDS[evidence]
    (source.parent / name).write_bytes(content)
    for stored in (76 + 8192, 77, 90):
        source.write_bytes(b"".join(batches[:-1]) + stored.to_bytes(8) + batches[-1][8:])
        target = tmp_path / f"out-{stored}"
        target.mkdir()
        rows: list[LostRange] = []
        where = (source, target / NAME) if alone else (source.parent, target / "in-0")
        repair(str(where[0]), str(where[1]), RepairPlan(), rows.append)
        out = (target / NAME if alone else target / "in-0" / NAME).read_bytes()
        assert out == b"".join(batches), stored
        assert [type(row) for row in rows] == [CorrectedBatch]


def test_each_missing_range_is_listed_once(tmp_path: Path) -> None:
    """Emptied segments next to each other, and a hole before one: no offset is in two rows, and none is left out."""
    batches = _dense(20)
    first, last = b"".join(batches[:5]), b"".join(batches[15:])
    entry = struct.pack(">ii", 15, 400)
    for emptied in ([20, 40], [40], [20]):
        source = tmp_path / f"{emptied}" / "topic-0"
        source.mkdir(parents=True)
        (source / NAME).write_bytes(first)
        (source / f"{60:020}.log").write_bytes(last)
        for base in emptied:
            (source / f"{base:020}.log").write_bytes(b"")
            (source / f"{base:020}.index").write_bytes(entry)
        rows: list[LostRange] = []
        repair(str(source), None, RepairPlan(dry_run=True), rows.append)
        ranges = sorted((row.offset or 0, row.last_offset or 0) for row in rows)
        assert [first for first, _ in ranges] == [20, *(last + 1 for _, last in ranges[:-1])], emptied
        assert ranges[-1][1] == 59
